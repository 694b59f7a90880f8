"""Edits of heads: what they do, on many kinds of models; and that nothing changes without them."""

import pytest
import torch
import transformers
from torch import nn

import regard
from tests.view.edited import BATCH, HEADS, MODELS, SIZE, N, Written, alike, rows, run, zeroed

transformers.logging.set_verbosity_error()


def without_keys(weights):
    weights = weights.clone()
    weights[:, 1, :, [0, 4]] = 0
    return weights


EDITS = {
    "zero": (lambda edit: edit.ablate(heads=[0, 2]), {"output": zeroed([0, 2])}),
    "zero of a position": (lambda edit: edit.ablate(heads=1, queries=3), {"output": zeroed([1], 3)}),
    "scale": (lambda edit: edit.scale(0.5), {"output": lambda output: output * 0.5}),
    "cut": (lambda edit: edit.cut(heads=1, keys=[0, 4]), {"weights": without_keys}),
    "set": (
        lambda edit: edit.set_weights(lambda weights: weights.flip(-1)),
        {"weights": lambda weights: weights.flip(-1)},
    ),
    "mean": (
        lambda edit: edit.ablate(to="mean"),
        {"output": lambda output: output.mean((0, 2), keepdim=True).expand_as(output)},
    ),
    "mean over the batch": (
        lambda edit: edit.ablate(to="batch_mean"),
        {"output": lambda output: output.mean(0, keepdim=True).expand_as(output)},
    ),
}


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("kind", EDITS)
@pytest.mark.parametrize("name", MODELS)
def test_edits_are_what_one_would_write(name, kind, gradients):
    model = MODELS[name]()
    change, by_hand = EDITS[kind]
    other = alike(model)
    with torch.set_grad_enabled(gradients):
        expected = other(rows(), **by_hand)
        with regard.intervene(model) as edit:
            change(edit)
            output = model(rows())
    torch.testing.assert_close(output, expected)
    if gradients:
        output.square().sum().backward()
        expected.square().sum().backward()
        for one, two in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(one.grad, two.grad)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", [*MODELS, "encoder", "multihead"])
def test_without_edits_nothing_changes(name, gradients):
    model = models_of_pytorch(name) if name not in MODELS else MODELS[name]()
    with torch.set_grad_enabled(gradients):
        before = model(rows())
        with regard.intervene(model) as edit:
            during = model(rows())
            cut = edit.ablate(heads=1) if name in MODELS or not gradients else None
            if cut is not None:
                assert not torch.allclose(model(rows()), before)
                cut.remove()
            again = model(rows())
        after = model(rows())
    for output in (during, again, after):
        assert torch.equal(output, before)


def models_of_pytorch(name):
    if name == "multihead":
        return SelfAttention().eval()
    return nn.TransformerEncoderLayer(SIZE, 4, 31, batch_first=True, dropout=0.0).eval()


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(SIZE, 4, batch_first=True)  # of an odd number there is no fast path

    def forward(self, rows):
        return self.attention(rows, rows, rows, need_weights=False)[0]


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", ["multihead", "encoder"])
def test_the_fast_paths_of_pytorch(name, first, fast):
    """Against the output projection with half the columns of a head; the edited call is one map."""
    model = models_of_pytorch(name)
    if name == "encoder":
        model.norm_first = first
    attention = model.self_attn if name == "encoder" else model.attention
    torch.backends.mha.set_fastpath_enabled(fast)
    try:
        with torch.no_grad(), regard.capture(model, operands=True) as seen, regard.intervene(model) as edit:
            edit.scale(0.5, heads=2)
            output = model(rows())
            edit.clear()
            attention.out_proj.weight[:, 2 * SIZE // 4 : 3 * SIZE // 4] *= 0.5
            expected = model(rows())
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    torch.testing.assert_close(output, expected)
    assert len(seen) == 2


def test_gradients_through_multihead_attention_are_refused():
    model = models_of_pytorch("multihead")
    with pytest.raises(RuntimeError, match=r"torch\.no_grad"):
        run(model, lambda edit: edit.ablate(heads=0))


# ------------------------------------------------------------------------------------------------------- other models

SMALL = {"hidden_size": SIZE, "num_hidden_layers": 2, "num_attention_heads": HEADS, "intermediate_size": 29}
IDS = torch.randint(5, 90, (2, 9), generator=torch.Generator().manual_seed(1))
FAMILIES = {
    "GPT2": ({"n_embd": SIZE, "n_layer": 2, "n_head": HEADS}, lambda model: model.h[1].attn.c_proj.weight[8:16]),
    "Llama": (SMALL | {"num_key_value_heads": 1}, lambda model: model.layers[1].self_attn.o_proj.weight[:, 8:16]),
    "Bert": (SMALL, lambda model: model.encoder.layer[1].attention.output.dense.weight[:, 8:16]),
}


@pytest.mark.parametrize("way", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_head_of_transformers_is_its_part_of_the_output_projection(family, way):
    options, part = FAMILIES[family]
    make, configure = (getattr(transformers, family + name) for name in ("Model", "Config"))
    model = make(configure(**options, vocab_size=99, attn_implementation=way)).eval()
    with torch.no_grad():
        with regard.intervene(model) as edit:
            edit.ablate(layers=1, heads=1)
            output = model(IDS).last_hidden_state
        plain = model(IDS).last_hidden_state
        part(model).zero_()
        torch.testing.assert_close(output, model(IDS).last_hidden_state)
    assert not torch.allclose(output, plain)


@pytest.mark.parametrize("lengths", [None, [9, 4]])
def test_heads_of_regard(lengths):
    model = regard.LanguageModel(97, SIZE, 2, HEADS, kv_heads=1).eval()
    with torch.no_grad(), regard.intervene(model) as edit:
        edit.ablate(layers="blocks.1.*", heads=-1)
        output = model(IDS, lengths)
        edit.clear()
        model.blocks[1].mixer.out_proj.weight[:, 16:] = 0
        torch.testing.assert_close(output, model(IDS, lengths))


def test_an_edit_of_several_layers_is_one_of_each():
    model, outputs = regard.LanguageModel(97, SIZE, 3, HEADS).eval(), []
    for layers in ([[0, 2]], [0, 2], [["blocks.0.*", 2]], [0], [2], [None]):
        with torch.no_grad(), regard.intervene(model) as edit:
            for chosen in layers:
                edit.ablate(chosen, heads=1)
            outputs.append(model(IDS))
    together, apart, named, *others = outputs
    assert torch.equal(together, apart)
    assert torch.equal(together, named)
    assert not any(torch.allclose(together, other) for other in others)


# ---------------------------------------------------------------------------------------------- patches and captures


@pytest.mark.parametrize("name", MODELS)
def test_a_run_patched_from_another_is_the_other(name):
    """A layer whose outputs are those of another run computes what it computed there."""
    model = MODELS[name]()
    with torch.no_grad():
        with regard.capture(model, operands=True) as seen:
            other = model(rows().flip(0))
        plain = model(rows())
        with regard.intervene(model) as edit:
            patch = edit.patch(seen)
            torch.testing.assert_close(model(rows()), other)
            patch.remove()
            edit.patch(seen, heads=[0, 1], queries=[2, 5])
            part = model(rows())
            edit.patch(seen, heads=2, queries=[2, 5])
    real = torch.ones(N, dtype=torch.bool)
    real[[2, 5]] = False
    torch.testing.assert_close(part[:, real], plain[:, real])
    assert not torch.allclose(part[:, ~real], plain[:, ~real])


@pytest.mark.parametrize("inner", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_a_capture_sees_edited_weights(name, inner):
    model = MODELS[name]()
    capture, intervene = regard.capture(model), regard.intervene(model)
    with torch.no_grad():
        with regard.capture(model) as plain:
            model(rows())
        with intervene if inner else capture, capture if inner else intervene:
            intervene.cut(heads=1, queries=[2, 3], keys=0)
            model(rows())
    expected = plain[0].weights.clone()
    expected[:, 1, [2, 3], 0] = 0
    torch.testing.assert_close(capture[0].weights, expected)


class Twice(Written):
    """The same weights average two kinds of values."""

    def forward(self, rows, output=lambda tensor: tensor):
        query, key, value = (part.transpose(1, 2) for part in self.linear(rows).unflatten(-1, (3, HEADS, -1)).unbind(2))
        self.weights = (query @ key.mT * 8**-0.5).softmax(-1)
        both = output(self.weights @ value) + output(self.weights @ key)
        return self.out(both.transpose(1, 2).flatten(2))


def test_weights_that_average_twice_are_one_map_and_edited_twice():
    model = Twice()
    with torch.no_grad():
        with regard.capture(model) as seen:
            model(rows())
        torch.testing.assert_close(seen[0].weights, model.weights)
        assert len(seen) == 1
        assert not seen.unrecognised
        expected = model(rows(), zeroed([1]))
        torch.testing.assert_close(run(model, lambda edit: edit.ablate(heads=1)), expected)


class Shuffled(Written):
    """Keys in another order, so that their positions are not known."""

    def forward(self, rows):
        query, key, value = (part.transpose(1, 2) for part in self.linear(rows).unflatten(-1, (3, HEADS, -1)).unbind(2))
        order = torch.arange(N).flip(0)
        mixed = (query @ key[:, :, order].mT).softmax(-1) @ value[:, :, order]
        return self.out(mixed.transpose(1, 2).flatten(2))


@pytest.mark.filterwarnings("ignore::regard.view.capture.CaptureWarning")
def test_a_layer_has_the_number_that_a_capture_gives_it_also_after_one_that_was_reported():
    model = nn.Sequential(Shuffled(), Written())
    with torch.no_grad():
        with regard.capture(model) as seen:
            plain = model(rows())
        (layer,) = seen
        assert (layer.name, layer.layer, len(seen.unrecognised)) == ("1", 1, 1)
        assert not torch.allclose(run(model, lambda edit: edit.ablate(layers=1, heads=1)), plain)


def test_cutting_may_renormalize():
    model = MODELS["fused"]()
    with torch.no_grad(), regard.capture(model) as seen, regard.intervene(model) as edit:
        model(rows())
        edit.cut(keys=[0, 1, 2], renormalize=True)
        model(rows())
    kept = seen[0].weights.clone()
    kept[..., :3] = 0
    torch.testing.assert_close(seen[1].weights, kept / kept.sum(-1, keepdim=True))


def test_interventions_nest_and_end_with_their_block():
    model, outer = MODELS["written"](), None

    def fail():
        nonlocal outer
        with regard.intervene(model) as outer:
            outer.ablate(heads=0)
            nothing = run(model, lambda edit: edit.ablate(heads=[1, 2]))
            torch.testing.assert_close(nothing, model.out.bias.expand(BATCH, N, -1))
            assert not torch.allclose(model(rows()), plain)
            raise ZeroDivisionError

    with torch.no_grad():
        plain = model(rows())
        with pytest.raises(ZeroDivisionError):
            fail()
        assert torch.equal(model(rows()), plain)
    with pytest.raises(RuntimeError, match="within a block only"):
        outer.ablate(heads=0)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_edits_of_nested_blocks_are_made_once_and_seen_as_they_were_made(name, inner, gradients):
    """Also if they are random; weights before outputs, whichever block is the outer one."""
    model, made = MODELS[name](), []

    def noisy(weights):
        made.append(weights * torch.rand_like(weights))
        return made[-1]

    one, two, capture = regard.intervene(model), regard.intervene(model), regard.capture(model, operands=True)
    with torch.set_grad_enabled(gradients):
        with one, two if inner else capture, capture if inner else two:
            one.scale(0.5)
            two.scale(0.25)
            two.set_weights(noisy)
            output = model(rows())
        expected = alike(model)(rows(), lambda weights: made[0].detach(), lambda output: output * 0.125)
    torch.testing.assert_close(output, expected)
    (layer,) = capture
    torch.testing.assert_close(layer.weights, made[0].detach())
    torch.testing.assert_close(layer.output, layer.weights @ layer.value * 0.125)
    assert len(made) == 1


def test_steps_of_a_decoder_are_edited_at_their_positions():
    """A position that is cut in one pass over all tokens is the one that is cut token by token."""
    model = regard.LanguageModel(97, SIZE, 2, HEADS).eval()
    with torch.no_grad(), regard.intervene(model) as edit:
        edit.ablate(layers=0, heads=1, queries=[4, 6])
        whole = model(IDS)
        read, cache = model.extend(IDS[:, :3])
        parts = [read]
        for position in range(3, IDS.shape[1]):
            read, cache = model.extend(IDS[:, position : position + 1], cache)
            parts.append(read)
    torch.testing.assert_close(model.predict(torch.cat(parts, 1)), whole)


# -------------------------------------------------------------------------------------------------------- wrong calls


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda edit: edit.ablate(layers=7), ValueError, "is not among those that attended"),
        (lambda edit: edit.ablate(heads=3), IndexError, "heads: expected numbers below 3"),
        (lambda edit: edit.ablate(to="half"), ValueError, "to: expected one of zero, mean"),
        (lambda edit: edit.ablate(layers=1.5), TypeError, "layers: expected numbers or module paths"),
        (lambda edit: edit.set_weights(3), TypeError, "function: expected a function"),
        (lambda edit: edit.set_weights(lambda weights: weights[..., :1]), ValueError, "expected a tensor of shape"),
        (lambda edit: edit.patch([]), ValueError, "operands=True"),
    ],
)
def test_wrong_edits_are_refused(change, error, message):
    model = MODELS["fused"]()
    with torch.no_grad(), pytest.raises(error, match=message):
        run(model, change)


def test_a_model_is_needed():
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module, got str"):
        regard.intervene("gpt2")
