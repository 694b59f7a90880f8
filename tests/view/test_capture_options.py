"""What a capture is asked for: layers, heads and queries, operands, gradients, summaries; its file, and wrong calls."""

import gc
import random
import weakref
from functools import partial

import pytest
import torch
from torch import nn

import regard
from regard.view import axes as ax
from tests.view.attending import HEADS, SIZE, Attends, Direct, Written, captured, rows

IDS = torch.randint(5, 31, (2, 9), generator=torch.Generator().manual_seed(1))


# ------------------------------------------------------------------------------------------------ only what is wanted


@pytest.mark.parametrize("make", [Direct, Written, partial(regard.MultiHead, SIZE, HEADS)])
def test_some_heads_and_queries(make):
    model = make()
    weights = captured(model, rows())[0].weights
    (layer,) = captured(model, rows(), chosen={"heads": [2, 0], "queries": [5, -1]})
    assert (layer.heads, layer.queries) == ((2, 0), (5, 6))
    torch.testing.assert_close(layer.weights, weights[:, [2, 0]][:, :, [5, 6]])


@pytest.mark.parametrize(
    ("layers", "expected"), [(1, [1]), ([0, 2], [0, 2]), ("blocks.2.*", [2]), (["*.0.mixer", 1], [0, 1])]
)
def test_some_layers(layers, expected):
    model = regard.LanguageModel(31, SIZE, 3, HEADS).eval()
    seen = captured(model, IDS, chosen={"layers": layers})
    assert [layer.layer for layer in seen] == expected


def test_what_is_not_chosen_is_not_computed():
    class Counting(regard.Score):
        pairs_computed = 0

        def pairs(self, query, key):
            scores = query @ key.transpose(-2, -1)
            self.pairs_computed += scores.numel()
            return scores

    scores = [Counting(), Counting()]
    model = nn.Sequential(*(regard.MultiHead(SIZE, HEADS, score=score) for score in scores))
    model(rows())
    plain = [score.pairs_computed for score in scores]
    with regard.capture(model, layers=1, heads=2, queries=[0, 3]):
        model(rows())
    assert [score.pairs_computed for score in scores] == [2 * plain[0], 2 * plain[1] + 5 * 2 * 7]


def test_other_models_are_not_captured():
    model, other = Direct(), Direct()
    with regard.capture(model) as seen:
        other(rows())
        model(rows())
    assert len(seen) == 1


# -------------------------------------------------------------------------------------------------------- wrong calls


@pytest.mark.parametrize(
    ("model", "chosen", "error", "message"),
    [
        (
            nn.Linear(SIZE, 2),
            {},
            UserWarning,
            "no attention was computed in this thread by Linear, of the modules Linear",
        ),
        (Direct(), {"layers": 7}, ValueError, "none of 7 is among those that attended: Direct"),
        (Direct(), {"heads": 3}, IndexError, "heads: expected numbers below 3"),
    ],
)
def test_choices_that_the_model_does_not_have(model, chosen, error, message):
    with pytest.raises(error, match=message), regard.capture(model, **chosen):
        model(rows())


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"model": "gpt2"}, TypeError, "model: expected a torch.nn.Module, got str"),
        ({"layers": 1.5}, TypeError, "layers: expected numbers or module paths, got 1.5"),
        ({"layers": -1}, ValueError, "layers: expected numbers from 0 on, got -1"),
        ({"heads": ["a"]}, TypeError, "heads: expected numbers"),
        ({"queries": True}, TypeError, "queries: expected numbers, got True"),
    ],
)
def test_wrong_calls_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        regard.capture(**{"model": Direct(), **options})


def test_a_capture_is_for_one_block():
    with pytest.raises(RuntimeError, match="open already"), regard.capture(Direct()) as seen, seen:
        pass


# ------------------------------------------------------------------------ operands, gradients, summaries, and the file


@pytest.mark.parametrize("make", [Direct, Written, partial(regard.MultiHead, SIZE, HEADS)])
def test_operands_make_weights_and_outputs(make):
    (layer,) = captured(make(), rows(), chosen={"operands": True})
    torch.testing.assert_close(layer.weights @ layer.value, layer.output)
    torch.testing.assert_close((layer.query @ layer.key.mT * 8**-0.5).softmax(-1), layer.weights)


class Returning(Written):
    """Attention, written out, that lets its weights be differentiated."""

    def forward(self, rows):
        query, key, value = self.project(rows)
        self.weights = (query @ key.mT * (SIZE // HEADS) ** -0.5).softmax(-1)
        self.weights.retain_grad()
        return self.weights @ value


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("make", [Direct, Written])
def test_gradients_of_weights(make, inside):
    """The fused function never has its weights, but their gradient can be told from that of the output."""
    model, expected = make(), Returning()
    model.load_state_dict(expected.state_dict())
    expected(rows()).square().sum().backward()
    with regard.capture(model, gradients=True) as seen:
        output = model(rows())
        if inside:
            output.square().sum().backward()
    if not inside:
        assert seen[0].gradient is None
        output.square().sum().backward()
    gradient = seen[0].gradient
    assert gradient.shape == seen[0].weights.shape
    torch.testing.assert_close(gradient, expected.weights.grad)


def test_gradients_of_regard():
    model = Attends(regard.Additive(SIZE, SIZE, 7))
    inputs = rows().requires_grad_()
    with regard.capture(model, gradients=True) as seen:
        output = model(inputs)
    output.square().sum().backward()
    torch.testing.assert_close(seen[0].gradient[:, 0], 2 * output.detach() @ rows().mT)


@pytest.mark.parametrize("make", [Direct, Written, partial(regard.MultiHead, SIZE, HEADS)])
def test_a_run_whose_gradients_were_captured_is_freed(make):
    """A hook that holds its own tensor keeps the whole graph, and what that has saved, as the input."""
    model, inputs = make(), rows()
    reference = weakref.ref(inputs)
    with regard.capture(model, gradients=True) as seen:
        output = model(inputs)
    del inputs, output
    gc.collect()
    assert reference() is None
    assert len(seen) == 1


@pytest.mark.parametrize("make", [Direct, Written, partial(regard.MultiHead, SIZE, HEADS)])
def test_summaries_instead_of_weights(make):
    model = make()
    (whole,) = captured(model, rows())
    (layer,) = captured(model, rows(), chosen={"summary": True})
    assert layer.weights.shape == (5, HEADS, 7, 0)
    torch.testing.assert_close(layer.summary.received, whole.weights.sum(-2))
    torch.testing.assert_close(layer.summary.top_weights, whole.weights.topk(5).values)
    torch.testing.assert_close(layer.summary.entropy.double(), torch.special.entr(whole.weights.double()).sum(-1))
    with regard.capture(model, summary=True) as seen:
        model(rows())
    assert [head.width for head in seen.summary()] == pytest.approx(layer.summary.width.mean((0, 2)).tolist())
    with pytest.raises(ValueError, match="summary=True"):
        regard.AttentionDisplay(seen)


@pytest.mark.parametrize(
    "normalize",
    [
        lambda scores: torch.softmax(scores, -1, out=scores),
        lambda scores: scores.exp_().div_(scores.sum(-1, keepdim=True)),
    ],
)
def test_scores_that_were_overwritten_have_no_sum(normalize):
    class InPlace(Direct):
        def forward(self, rows):
            query, key, value = self.project(rows)
            return normalize(query @ key.mT) @ value

    (layer,) = captured(InPlace(), rows(), chosen={"summary": True})
    assert layer.summary.entropy.isfinite().all()
    assert layer.summary.log_sum_exp.isnan().all()


@pytest.mark.parametrize("summary", [True, False])
def test_a_capture_is_a_file(tmp_path, summary):
    model = regard.LanguageModel(31, SIZE, 2, HEADS)
    with regard.capture(model, operands=True, gradients=True, summary=summary) as seen:
        model(IDS).square().sum().backward()
    again = regard.load_capture(seen.save(tmp_path / "seen.safetensors"))
    assert len(again) == len(seen) == 2
    for one, other in zip(seen, again, strict=True):
        for name in ("name", "kind", "heads", "queries", "layer", "call", "keys"):
            assert getattr(one, name) == getattr(other, name)
        for name in ("weights", "query", "key", "value", "output", "gradient"):
            assert torch.equal(getattr(one, name), getattr(other, name))
        assert (other.summary is not None) == summary
    assert str(again.summary()) == str(seen.summary())


@pytest.mark.parametrize("damage", [lambda content: content[:-7], lambda content: b"x" * 99, lambda content: b""])
def test_damaged_files_are_refused(tmp_path, damage):
    with regard.capture(Direct()) as seen:
        seen.model(rows())
    path = seen.save(tmp_path / "seen.safetensors")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match="damaged"):
        regard.load_capture(path)


def test_the_axes_of_a_view_have_its_sizes():
    """Whatever was joined or taken apart before, with sizes of 1 anywhere."""
    draw = random.Random(3)

    def shape():
        sizes = draw.choice([(6, 35), (6, 5, 7), (2, 3, 35), (210,), (2, 15, 7)])
        return [size for factor in sizes for size in (factor, *[1] * draw.randrange(3))]

    for _ in range(200):
        axes = ax.first_axes(torch.empty(shape()))
        for sizes in (shape() for _ in range(4)):
            axes = ax.reshaped(axes, sizes)
            assert list(map(ax.axis_size, axes)) == sizes
