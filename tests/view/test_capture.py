"""Attention out of any model: the weights are right, the model's answers keep every bit, nothing stays behind."""

import asyncio
import math
import threading

import pytest
import torch
import transformers
from torch import nn
from torch.nn import functional
from torch.nn.attention.flex_attention import flex_attention

import regard
from tests.view.attending import HEADS, SIZE, Attends, Direct, Written, captured, rows

transformers.logging.set_verbosity_error()


class Wrapped(nn.Module):
    def __init__(self, attention, **options):
        super().__init__()
        self.attention, self.options = attention, options

    def forward(self, rows, source):
        return self.attention(rows, source, source, **self.options)[0]


@pytest.mark.parametrize("need", [True, False])
@pytest.mark.parametrize("train", [True, False])
def test_multihead_attention_of_pytorch(need, train):
    layer = nn.MultiheadAttention(SIZE, HEADS, batch_first=True).train(train)
    source = rows(11)
    hidden = torch.arange(11) >= torch.tensor([11, 3, 5, 2, 7])[:, None]
    (layer_map,) = captured(Wrapped(layer, key_padding_mask=hidden, need_weights=need), rows(), source)
    expected = layer(rows(), source, source, key_padding_mask=hidden, average_attn_weights=False)[1]
    assert (layer_map.name, layer_map.kind, layer_map.heads) == ("attention", "cross", (0, 1, 2))
    torch.testing.assert_close(layer_map.weights, expected)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")  # which PyTorch makes itself
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_the_fast_path_of_encoders(first, padded):
    """Which calls no attention at all, and makes nested tensors of what is padded."""
    layer = nn.TransformerEncoderLayer(SIZE, 4, 31, batch_first=True, norm_first=first)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=not first).eval()
    counts = torch.tensor([7, 3, 5, 2, 7])
    hidden = torch.arange(7) >= counts[:, None] if padded else None
    seen = captured(model, rows(), src_key_padding_mask=hidden)
    assert [layer.name for layer in seen] == ["layers.0.self_attn", "layers.1.self_attn"]
    inputs = [model.layers[0].norm1(rows()) if first else rows()] * 3
    expected = model.layers[0].self_attn(*inputs, key_padding_mask=hidden, average_attn_weights=False)[1]
    real = (torch.arange(7) < counts[:, None])[:, None, :, None] if padded else torch.ones(5, 1, 7, 1).bool()
    torch.testing.assert_close(seen[0].weights.where(real, 0), expected.detach().where(real, 0))


def test_the_transformer_of_pytorch():
    model = nn.Transformer(SIZE, 4, 2, 1, 31, batch_first=True).eval()
    future = nn.Transformer.generate_square_subsequent_mask(5)
    seen = captured(model, rows(), rows(5), tgt_mask=future)
    assert [(layer.name, layer.kind, layer.weights.shape[2:]) for layer in seen] == [
        ("encoder.layers.0.self_attn", "self", (7, 7)),
        ("encoder.layers.1.self_attn", "self", (7, 7)),
        ("decoder.layers.0.self_attn", "causal", (5, 5)),
        ("decoder.layers.0.multihead_attn", "cross", (5, 7)),
    ]


MASK = torch.rand(7, 7, generator=torch.Generator().manual_seed(2)) > 0.4


@pytest.mark.parametrize(
    "options",
    [{}, {"is_causal": True}, {"scale": 0.3}, {"attn_mask": MASK | torch.eye(7).bool()}, {"attn_mask": MASK * 1.5}],
)
def test_calls_of_the_fused_function(options):
    model = Direct(**options)
    (layer,) = captured(model, rows())
    query, key, _ = model.project(rows())
    identity = torch.eye(7).expand(5, HEADS, 7, 7)  # values with which the output is the weights
    expected = functional.scaled_dot_product_attention(query, key, identity, **options)
    torch.testing.assert_close(layer.weights, expected.detach())
    assert layer.kind == ("causal" if options.get("is_causal") else "self")


def test_attention_that_is_written_out():
    model, fused = Written(), Direct()
    fused.load_state_dict(model.state_dict())
    torch.testing.assert_close(captured(model, rows())[0].weights, captured(fused, rows())[0].weights)


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
    """Against the weights that the same model returns with output_attentions, which only eager attention can."""
    options, inputs, kinds = FAMILIES[family]
    make, configure = (getattr(transformers, family + name) for name in ("Model", "Config"))
    options = options if family == "ViT" else options | {"vocab_size": 99}
    model = make(configure(**options, attn_implementation=way)).eval()
    seen = captured(model, **inputs)
    assert [layer.kind for layer in seen] == kinds
    model.set_attn_implementation("eager")
    with torch.no_grad():
        outputs = model(**inputs, output_attentions=True)
    names = ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")
    expected = {name: list(outputs[name]) for name in names if outputs.get(name) is not None}
    of_kind = {"self": "encoder_attentions", "causal": "decoder_attentions", "cross": "cross_attentions"}
    for layer in seen:
        name = of_kind[layer.kind] if "encoder_attentions" in expected else "attentions"
        torch.testing.assert_close(layer.weights, expected[name].pop(0))
        assert layer.name in dict(model.named_modules())


def test_packed_sequences_are_captured_as_the_padded_batch():
    model = regard.LanguageModel(31, SIZE, 2, HEADS).eval()
    ids = torch.randint(31, (3, 7))
    seen = captured(model, ids, [7, 3, 5])
    assert [layer.name for layer in seen] == ["blocks.0.mixer", "blocks.1.mixer"]
    for number, count in enumerate((7, 3, 5)):
        alone = captured(model, ids[number : number + 1, :count])
        for layer, expected in zip(seen, alone, strict=True):
            assert layer.kind == "causal"
            torch.testing.assert_close(layer.weights[number : number + 1, :, :count, :count], expected.weights)
            assert not layer.weights[number, :, count:].any()
            assert not layer.weights[number, :, :, count:].any()


@pytest.mark.parametrize("train", [True, False])
def test_the_steps_of_a_recurrent_decoder_are_one_layer(train):
    model = regard.Seq2Seq(31, 29, 8, 12).train(train)
    source, target = torch.randint(3, 31, (3, 7)), torch.randint(3, 29, (3, 5))
    with regard.capture(model) as seen:
        model(source, target, [7, 3, 5])
    (layer,) = seen.by_layer()
    assert layer.kind == "cross"
    torch.testing.assert_close(layer.weights[:, 0], model.align(source, target, [7, 3, 5]))


def test_token_by_token_is_captured_as_all_at_once():
    model = regard.LanguageModel(31, SIZE, 2, HEADS).eval()
    ids = torch.randint(31, (1, 7))
    with regard.capture(model) as steps, torch.no_grad():
        _, cache = model.extend(ids[:, :3])
        for position in range(3, 7):
            _, cache = model.extend(ids[:, position : position + 1], cache)
    for layer, expected in zip(steps.by_layer(), captured(model, ids), strict=True):
        torch.testing.assert_close(layer.weights, expected.weights)
        assert layer.kind == expected.kind == "causal"


@pytest.mark.parametrize("score", [regard.Dot(), regard.Cosine(), regard.Additive(SIZE, SIZE, 7)])
def test_attend_in_any_module(score):
    (layer,) = captured(Attends(score, regard.causal()), rows())
    expected = regard.weights(rows(), rows(), score=score, mask=regard.causal())
    torch.testing.assert_close(layer.weights, expected[:, None].detach())
    assert (layer.name, layer.kind) == ("Attends", "causal")


def test_any_number_of_dimensions_becomes_batch_heads_queries_keys():
    for shape in ((7,), (3, 7), (3, 2, 7), (5, 3, 2, 7)):
        inputs = torch.randn(*shape, SIZE)
        (layer,) = captured(Attends(), inputs)
        heads = shape[-2] if len(shape) > 2 else 1
        assert layer.weights.shape == (math.prod(shape[:-1]) // heads, heads, 7, 7)
        torch.testing.assert_close(layer.weights.flatten(), regard.weights(inputs, inputs).flatten())
    (layer,) = captured(Attends(mask=regard.segments([4, 3])), rows(7, 1))  # packed, without heads
    assert layer.weights.shape == (2, 1, 4, 4)


class Chunked(Direct):
    """Three queries at a time, written out."""

    def forward(self, rows):
        query, key, value = self.project(rows)
        parts = [(part @ key.mT * 8**-0.5).softmax(-1) for part in query.split(3, 2)]
        self.weights = torch.cat(parts, 2)
        return torch.cat([part @ value for part in parts], 2)


def test_chunks_of_queries_are_joined_and_stay_what_they_are():
    model = Chunked()
    seen = captured(model, rows())
    assert [layer.queries for layer in seen] == [(0, 1, 2), (3, 4, 5), (6,)]
    (whole,) = seen.by_layer()
    torch.testing.assert_close(whole.weights, model.weights)
    assert whole.kind == "self"


class Graph(nn.Module):
    """Graph attention: a score for each pair of nodes, added up of two numbers."""

    def __init__(self):
        super().__init__()
        self.linear, self.source, self.target = nn.Linear(SIZE, 11), nn.Linear(11, 1), nn.Linear(11, 1)

    def forward(self, nodes):
        nodes = self.linear(nodes)
        self.weights = functional.leaky_relu(self.source(nodes) + self.target(nodes).T).softmax(1)
        return self.weights @ nodes


def test_a_sequence_that_stands_there_twice():
    """Its places have no positions of their own: they are counted."""

    class Twice(Direct):
        def forward(self, rows):
            future = torch.ones(2 * rows.shape[1], 2 * rows.shape[1]).triu(1).bool()
            query, key, value = self.project(torch.cat([rows, self.linear(rows)[..., :SIZE]], 1))
            return (query @ key.mT).masked_fill(future, -torch.inf).softmax(-1) @ value

    (layer,) = captured(Twice(), rows())
    assert (layer.kind, layer.queries, layer.keys or layer.queries) == ("causal", tuple(range(14)), tuple(range(14)))


def test_scores_that_are_added_up():
    model = Graph()
    (layer,) = captured(model, rows()[0])
    torch.testing.assert_close(layer.weights[0, 0], model.weights)
    assert layer.kind == "self"


class SoftPlus(Direct):
    """Weights that no softmax made."""

    def forward(self, rows):
        query, key, value = self.project(rows)
        self.weights = functional.softplus(query @ key.mT)
        self.weights = self.weights / self.weights.sum(-1, keepdim=True)
        return self.weights @ value


def test_softplus_in_place_of_exponentials():
    model = SoftPlus()
    torch.testing.assert_close(captured(model, rows())[0].weights, model.weights)


class Ranked(Direct):
    """Columns of the weights are the best keys, the second best ones …"""

    def __init__(self, best):
        super().__init__()
        self.best = best

    def forward(self, rows):
        query, key, value = self.project(rows)
        scores, places = self.best(query @ key.mT)
        chosen = value[:, :, None].expand(-1, -1, rows.shape[1], -1, -1)
        chosen = chosen.gather(3, places[..., None].expand(*places.shape, value.shape[-1]))
        return (scores.softmax(-1)[..., None] * chosen).sum(-2)


@pytest.mark.parametrize("best", [lambda scores: scores.sort(-1, descending=True), lambda scores: scores.topk(2)])
def test_ranks_are_not_taken_for_positions(best):
    with pytest.warns(match="gathered"):
        assert not captured(Ranked(best), rows())


# ------------------------------------------------------------------------------------------------- nothing stays behind


def state_of_torch():
    """Every function of PyTorch that could be replaced, and the numbers of its global hooks."""
    functions = [{name: id(value) for name, value in vars(home).items()} for home in (torch, functional, torch.Tensor)]
    return functions, {name: len(value) for name, value in vars(nn.modules.module).items() if isinstance(value, dict)}


def test_nothing_stays_behind_after_an_error():
    model = Direct()
    captured(model, rows())  # what is imported at first use is there
    before = state_of_torch()
    seen = regard.capture(model)
    with pytest.raises(RuntimeError, match="mat1"), seen:
        model(torch.ones(2, 3, SIZE + 1))
    assert state_of_torch() == before
    with seen:
        assert state_of_torch() == before
        model(rows())
        assert state_of_torch() == before
    assert state_of_torch() == before
    assert len(seen) == 1


class Flexible(Direct):
    def forward(self, rows):
        return flex_attention(*self.project(rows))


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("make", [Direct, Flexible])
def test_captures_within_captures(make, monkeypatch):
    """What one of them computes is not attention of the model to another."""
    monkeypatch.setattr("torch.nn.attention.flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    model = nn.ModuleDict({"one": make(), "two": make()}).requires_grad_(False)
    with regard.capture(model) as outer:
        model["one"](rows())
        with regard.capture(model["two"], heads=0) as inner:
            model["one"](rows())
            model["two"](rows())
        model["two"](rows())
    assert [layer.name for layer in outer] == ["one", "one", "two", "two"]
    assert [layer.weights.shape[1] for layer in inner] == [1]


def test_every_thread_captures_what_it_runs():
    before = state_of_torch()
    model, maps, gate = Direct(), {}, threading.Barrier(2)

    def run(times):
        with regard.capture(model) as seen:
            gate.wait()
            for _ in range(times):
                model(rows())
            gate.wait()
        maps[times] = len(seen)

    threads = [threading.Thread(target=run, args=(times,)) for times in (3, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert maps == {3: 3, 5: 5}
    assert state_of_torch() == before


def test_every_task_captures_what_it_runs():
    """Tasks take turns in one thread: a block may end before one that was opened later."""
    models = [Direct(), Direct()]
    captured(models[0], rows())  # what is imported at first use is there
    before = state_of_torch()

    async def run(model):
        with regard.capture(model) as seen:
            model(rows())
            await asyncio.sleep(0)
            model(rows())
        return len(seen)

    async def run_both():
        return await asyncio.gather(*map(run, models))

    assert asyncio.run(run_both()) == [2, 2]
    assert state_of_torch() == before
