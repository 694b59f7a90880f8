"""Attention out of any model: the weights are right, the model's answers keep every bit, nothing stays behind."""

import threading

import pytest
import torch
import transformers
from torch import nn
from torch.nn import functional

import regard

transformers.logging.set_verbosity_error()
SIZE, HEADS = 24, 3


class Direct(nn.Module):
    """Somebody's own attention, by PyTorch's fused function."""

    def __init__(self, **given):
        super().__init__()
        self.project, self.given = nn.Linear(SIZE, 3 * SIZE), given

    def forward(self, rows):
        query, key, value = (
            own.unflatten(-1, (HEADS, -1)).transpose(1, 2) for own in self.project(rows).split(SIZE, -1)
        )
        return functional.scaled_dot_product_attention(query, key, value, **self.given)


class Written(Direct):
    """The same, written out."""

    def forward(self, rows):
        query, key, value = (
            own.unflatten(-1, (HEADS, -1)).transpose(1, 2) for own in self.project(rows).split(SIZE, -1)
        )
        scores = query @ key.transpose(-2, -1) * (SIZE // HEADS) ** -0.5
        return functional.softmax(scores, dim=-1) @ value


class Wrapped(nn.Module):
    def __init__(self, attention, **given):
        super().__init__()
        self.attention, self.given = attention, given

    def forward(self, rows, source=None):
        return self.attention(rows, *[rows if source is None else source] * 2, **self.given)[0]


class Together(nn.Module):
    def forward(self, heads):
        return heads.transpose(1, 2).flatten(2)


def rows(n=7, batch=5):
    return torch.randn(batch, n, SIZE, generator=torch.Generator().manual_seed(3))


def flat(found):
    if isinstance(found, torch.Tensor):
        return [found]
    if isinstance(found, dict):
        found = [found[name] for name in found if name != "past_key_values"]
    return [tensor for own in found for tensor in flat(own)] if isinstance(found, list | tuple) else []


def captured(model, *arguments, sampling=None, **given):
    """What is seen, after a check that the answer is the same in every bit."""
    with torch.no_grad():
        plain = flat(model(*arguments, **given))
        with regard.capture(model, **(choice or {})) as seen:
            again = flat(model(*arguments, **given))
        after = flat(model(*arguments, **given))
    assert plain
    for one, two, three in zip(plain, again, after, strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one, three)
    return seen


@pytest.mark.parametrize("need", [True, False])
@pytest.mark.parametrize("train", [True, False])
def test_multihead_attention_of_pytorch(need, train):
    layer = nn.MultiheadAttention(SIZE, HEADS, batch_first=True).train(train)
    source = rows(11)
    hidden = torch.arange(11) >= torch.tensor([11, 3, 5, 2, 7])[:, None]
    given = {"key_padding_mask": hidden, "need_weights": need}
    (seen,) = captured(Wrapped(layer, **given), rows(), source)
    expected = layer(rows(), source, source, key_padding_mask=hidden, average_attn_weights=False)[1]
    assert (seen.name, seen.kind, seen.heads) == ("attention", "self", (0, 1, 2))
    torch.testing.assert_close(seen.weights, expected)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")  # which PyTorch makes itself
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_the_fast_path_of_encoders(first, padded):
    """Which calls no attention at all, and makes nested tensors of what is padded."""
    layer = nn.TransformerEncoderLayer(SIZE, 4, 31, batch_first=True, norm_first=first)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=not first).eval()
    counts = torch.tensor([7, 3, 5, 2, 7])
    given = {"src_key_padding_mask": torch.arange(7) >= counts[:, None]} if padded else {}
    seen = captured(model, rows(), **given)
    assert [own.name for own in seen] == ["layers.0.self_attn", "layers.1.self_attn"]
    own = model.layers[0]
    looking = own.norm1(rows()) if first else rows()
    hidden = given.get("src_key_padding_mask")
    expected = own.self_attn(looking, looking, looking, key_padding_mask=hidden, average_attn_weights=False)[1]
    real = (torch.arange(7) < counts[:, None])[:, None, :, None] if padded else torch.ones(5, 1, 7, 1).bool()
    torch.testing.assert_close(seen[0].weights.where(real, 0), expected.detach().where(real, 0))


def test_the_transformer_of_pytorch():
    model = nn.Transformer(SIZE, 4, 2, 1, 31, batch_first=True).eval()
    future = nn.Transformer.generate_square_subsequent_mask(5)
    seen = captured(model, rows(), rows(5), tgt_mask=future)
    assert [(own.name, own.kind, own.weights.shape[2:]) for own in seen] == [
        ("encoder.layers.0.self_attn", "self", (7, 7)),
        ("encoder.layers.1.self_attn", "self", (7, 7)),
        ("decoder.layers.0.self_attn", "causal", (5, 5)),
        ("decoder.layers.0.multihead_attn", "cross", (5, 7)),
    ]


MASK = torch.rand(7, 7, generator=torch.Generator().manual_seed(2)) > 0.4


@pytest.mark.parametrize(
    "given",
    [{}, {"is_causal": True}, {"scale": 0.3}, {"attn_mask": MASK | torch.eye(7).bool()}, {"attn_mask": MASK * 1.5}],
)
def test_calls_of_the_fused_function(given):
    model = Direct(**given)
    (seen,) = captured(model, rows())
    query, key, _ = (own.unflatten(-1, (HEADS, -1)).transpose(1, 2) for own in model.project(rows()).split(SIZE, -1))
    one = torch.eye(7).expand(5, HEADS, 7, 7)  # values that show the weights
    expected = functional.scaled_dot_product_attention(query, key, one, **given)
    torch.testing.assert_close(seen.weights, expected.detach())
    assert seen.kind == ("causal" if given.get("is_causal") else "self")


def test_attention_that_is_written_out():
    model = Written()
    (seen,) = captured(model, rows())
    fused = Direct()
    fused.load_state_dict(model.state_dict())
    torch.testing.assert_close(seen.weights, captured(fused, rows())[0].weights)


SMALL = {"hidden_size": SIZE, "num_hidden_layers": 2, "num_attention_heads": HEADS, "intermediate_size": 29}
IDS = torch.randint(5, 90, (2, 9), generator=torch.Generator().manual_seed(1))
REAL = (torch.arange(9) < torch.tensor([[9], [6]])).long()
TEXT = {"input_ids": IDS, "attention_mask": REAL}
BOTH = {"input_ids": IDS, "decoder_input_ids": IDS[:, :5]}
GPT2 = {"n_embd": SIZE, "n_layer": 2, "n_head": HEADS, "bos_token_id": 1, "eos_token_id": 2}
T5 = {"d_model": SIZE, "d_kv": 8, "d_ff": 29, "num_layers": 2, "num_heads": HEADS}
MARIAN = {f"{side}_{name}": value for side in ("encoder", "decoder")
          for name, value in (("layers", 1), ("attention_heads", HEADS), ("ffn_dim", 29))}  # fmt: skip
FAMILIES = {
    "Bert": (SMALL, TEXT, ["self"] * 2),
    "GPT2": (GPT2, TEXT, ["causal"] * 2),
    "Llama": (SMALL | {"num_key_value_heads": 1}, TEXT, ["causal"] * 2),
    "ViT": (SMALL | {"image_size": 8, "patch_size": 4}, {"pixel_values": torch.ones(2, 3, 8, 8)}, ["self"] * 2),
    "T5": (T5, BOTH, ["self"] * 2 + ["causal", "cross"] * 2),
    "Marian": (MARIAN | {"d_model": SIZE, "pad_token_id": 0, "decoder_start_token_id": 0}, BOTH,
               ["self", "causal", "cross"]),
}  # fmt: skip


@pytest.mark.parametrize("way", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_models_of_transformers(family, way):
    """Against what the same model says of itself when it is asked to, which only its slow way can."""
    options, given, kinds = FAMILIES[family]
    made, configured = (getattr(transformers, family + name) for name in ("Model", "Config"))
    options = options if family == "ViT" else options | {"vocab_size": 99}
    torch.manual_seed(0)
    model = made(configured(**options, attn_implementation=way)).eval()
    seen = captured(model, **given)
    assert [own.kind for own in seen] == kinds
    model.set_attn_implementation("eager")
    with torch.no_grad():
        told = model(**given, output_attentions=True)
    names = ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")
    expected = {name: list(told[name]) for name in names if told.get(name) is not None}
    of_kind = {"self": "encoder_attentions", "causal": "decoder_attentions", "cross": "cross_attentions"}
    for own in seen:
        found = expected[of_kind[own.kind] if "encoder_attentions" in expected else "attentions"].pop(0)
        torch.testing.assert_close(own.weights, found)
        assert own.name in dict(model.named_modules())


def test_own_models_with_padding():
    """Sequences that lie end to end inside are seen as the batch that they came as."""
    torch.manual_seed(0)
    model = regard.LanguageModel(31, SIZE, 2, HEADS).eval()
    ids = torch.randint(31, (3, 7))
    seen = captured(model, ids, [7, 3, 5])
    assert [own.name for own in seen] == ["blocks.0.mixer", "blocks.1.mixer"]
    for number, count in enumerate((7, 3, 5)):
        alone = captured(model, ids[number : number + 1, :count])
        for one, other in zip(seen, alone, strict=True):
            assert one.kind == "causal"
            torch.testing.assert_close(one.weights[number : number + 1, :, :count, :count], other.weights)
            assert not one.weights[number, :, count:].any()
            assert not one.weights[number, :, :, count:].any()


@pytest.mark.parametrize("train", [True, False])
def test_a_decoder_is_seen_step_by_step(train):
    torch.manual_seed(0)
    model = regard.Seq2Seq(31, 29, 8, 12).train(train)
    source, target = torch.randint(3, 31, (3, 7)), torch.randint(3, 29, (3, 5))
    with regard.capture(model) as seen:
        model(source, target, [7, 3, 5])
    (whole,) = seen.by_layer()
    assert whole.kind == "cross"
    torch.testing.assert_close(whole.weights[:, 0], model.align(source, target, [7, 3, 5]))


def test_writing_is_seen_as_reading():
    """What a language model looks at while it writes, word by word, is what it looks at when it reads that at once."""
    torch.manual_seed(0)
    model = regard.LanguageModel(31, SIZE, 2, HEADS).eval()
    ids = torch.randint(31, (1, 7))
    with regard.capture(model) as steps, torch.no_grad():
        _, cache = model.extend(ids[:, :3])
        for place in range(3, 7):
            _, cache = model.extend(ids[:, place : place + 1], cache)
    for one, other in zip(steps.by_layer(), captured(model, ids), strict=True):
        torch.testing.assert_close(one.weights, other.weights)
        assert one.kind == other.kind == "causal"


@pytest.mark.parametrize("score", ["dot", "additive", "cosine"])
def test_attend_in_a_module_of_ones_own(score):
    scores = {"dot": regard.Dot(), "cosine": regard.Cosine(), "additive": regard.Additive(SIZE, SIZE, 7)}

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.score = scores[score]

        def forward(self, rows):
            return regard.attend(rows, rows, rows, score=self.score, mask=regard.causal())

    model = Own()
    (seen,) = captured(model, rows())
    expected = regard.weights(rows(), rows(), score=model.score, mask=regard.causal())
    torch.testing.assert_close(seen.weights, expected[:, None].detach())
    assert (seen.name, seen.kind) == ("Own", "causal")


# ------------------------------------------------------------------------------------------------ only what is wanted


@pytest.mark.parametrize(
    "model", [Direct(), Written(), regard.MultiHead(SIZE, HEADS)], ids=lambda own: type(own).__name__
)
def test_some_heads_and_queries(model):
    whole = captured(model, rows())[0].weights
    (seen,) = captured(model, rows(), sampling={"heads": [2, 0], "queries": [5, -1]})
    assert (seen.heads, seen.queries) == ((2, 0), (5, 6))
    torch.testing.assert_close(seen.weights, whole[:, [2, 0]][:, :, [5, 6]])


@pytest.mark.parametrize(
    ("layers", "expected"), [(1, [1]), ([0, 2], [0, 2]), ("blocks.2.*", [2]), (["*.0.mixer", 1], [0, 1])]
)
def test_some_layers(layers, expected):
    model = regard.LanguageModel(31, SIZE, 3, HEADS).eval()
    seen = captured(model, IDS % 31, sampling={"layers": layers})
    assert [own.layer for own in seen] == expected


def test_what_is_not_asked_for_is_not_computed(monkeypatch):
    from regard.view import hearing

    asked = []
    monkeypatch.setattr(hearing, "weights_of", lambda *given, **more: asked.append(more) or torch.ones(1, 1, 1, 1))
    model = nn.Sequential(Direct(), Together(), Direct())
    with regard.capture(model, layers=1, heads=2):
        model(rows())
    assert [(own["heads"], own["rows"]) for own in asked] == [((2,), None)]


def test_other_models_are_not_seen():
    model, other = Direct(), Direct()
    with regard.capture(model) as seen:
        other(rows())
        model(rows())
    assert len(seen) == 1


# ------------------------------------------------------------------------------------------------- nothing stays behind

PLACES = [(functional, "scaled_dot_product_attention"), (torch, "softmax"), (torch, "_native_multi_head_attention"),
          (torch, "_transformer_encoder_layer_fwd"), (torch.Tensor, "softmax")]  # fmt: skip


def places():
    from torch.nn.modules import module

    hooks = (len(module._global_forward_pre_hooks), len(module._global_forward_hooks))
    return [getattr(place, name) for place, name in PLACES], "softmax" in vars(torch.Tensor), hooks


def test_nothing_stays_behind_after_an_error():
    before = places()
    model = Direct()
    seen = regard.capture(model)
    with pytest.raises(RuntimeError, match="mat1"), seen:
        model(torch.ones(2, 3, SIZE + 1))
    assert places() == before
    with seen:
        assert places() != before
        model(rows())
    assert places() == before
    assert len(seen) == 1


def test_captures_within_captures():
    model = nn.ModuleDict({"one": Direct(), "two": Direct()})
    with regard.capture(model) as outer:
        model["one"](rows())
        with regard.capture(model["two"], heads=0) as inner:
            model["one"](rows())
            model["two"](rows())
        model["two"](rows())
    assert [own.name for own in outer] == ["one", "one", "two", "two"]
    assert [own.weights.shape[1] for own in inner] == [1]


def test_every_thread_sees_its_own():
    before = places()
    model, seen, gate = Direct(), {}, threading.Barrier(2)

    def look(number):
        with regard.capture(model) as found:
            gate.wait()
            for _ in range(number):
                model(rows())
            gate.wait()
        seen[number] = len(found)

    threads = [threading.Thread(target=look, args=(number,)) for number in (3, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {3: 3, 5: 5}
    assert places() == before


# -------------------------------------------------------------------------------------------------------- wrong calls


def test_a_model_without_attention_says_what_it_has():
    with (
        pytest.raises(ValueError, match="no attention was called; modules seen: Linear"),
        regard.capture(model := nn.Linear(SIZE, 2)),
    ):
        model(rows())


def test_layers_that_did_not_look():
    with (
        pytest.raises(ValueError, match=r"none of 7 is among those that looked: Direct"),
        regard.capture(model := Direct(), layers=7),
    ):
        model(rows())


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"model": "gpt2"}, TypeError, "model: expected a torch.nn.Module, got str"),
        ({"layers": 1.5}, TypeError, "layers: expected numbers or module paths, got 1.5"),
        ({"layers": -1}, ValueError, "layers: expected numbers from 0 on, got -1"),
        ({"heads": ["a"]}, TypeError, "heads: expected numbers"),
        ({"queries": True}, TypeError, "queries: expected numbers, got True"),
    ],
)
def test_wrong_calls_are_refused(given, error, message):
    with pytest.raises(error, match=message):
        regard.capture(**{"model": Direct(), **given})


def test_a_head_that_is_not_there():
    with pytest.raises(IndexError, match="heads: expected numbers below 3"), regard.capture(model := Direct(), heads=3):
        model(rows())


def test_a_capture_is_for_one_block():
    with pytest.raises(RuntimeError, match="open already"), regard.capture(Direct()) as seen, seen:
        pass
