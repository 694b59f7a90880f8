"""Attributions are those of other libraries, or of other ways to compute them; their faithfulness can be relied on."""

import contextlib
import io
import re

import numpy
import pytest
import torch
import transformers
from captum.attr import IntegratedGradients, LayerIntegratedGradients
from torch import nn

import regard
from regard.attention.numbers import rollout
from regard.view.capture import CaptureWarning
from regard.view.display import print_table
from regard.view.explain import PART_METHODS, TOKEN_METHODS
from tests.view import lens

transformers.logging.set_verbosity_error()
VOCABULARY, METHODS = 31, [*TOKEN_METHODS, *PART_METHODS]
IDS = torch.randint(VOCABULARY, (3, 11), generator=torch.Generator().manual_seed(1))
SIZES = {"vocab_size": VOCABULARY, "hidden_size": 24, "num_hidden_layers": 2, "intermediate_size": 29}


def large(model):
    """With weights that are far from the initial ones, so that attention is not uniform."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model.eval()


def language_model(**options):
    return large(regard.LanguageModel(VOCABULARY, 20, layers=2, heads=4, head_size=6, **options))


def bert():
    config = transformers.BertConfig(**SIZES, num_attention_heads=3, num_labels=5)
    return large(transformers.BertForSequenceClassification(config))


def log_probabilities(model, ids):
    output = model(ids)
    return (output[:, -1] if isinstance(output, torch.Tensor) else output.logits).log_softmax(-1)


# ----------------------------------------------------------------------------------------------- beside other libraries


@pytest.mark.parametrize(
    ("make", "path"), [(language_model, "token_embedding"), (bert, "bert.embeddings.word_embeddings")]
)
def test_integrated_gradients_are_those_of_captum(make, path):
    model = make()
    found = regard.Attribution.from_model(model, IDS, method="integrated_gradients", baseline=7)
    reference = LayerIntegratedGradients(lambda ids: log_probabilities(model, ids), model.get_submodule(path))
    options = {"baselines": torch.full_like(IDS, 7), "target": found.target, "n_steps": 50}
    torch.testing.assert_close(found.scores, reference.attribute(IDS, **options).sum(-1), rtol=1e-4, atol=1e-4)


def test_without_a_baseline_it_is_a_vector_of_zeros():
    model = bert()
    found = regard.Attribution.from_model(model, IDS, method="integrated_gradients")
    vectors = model.get_input_embeddings()(IDS)
    reference = IntegratedGradients(lambda rows: model(inputs_embeds=rows).logits.log_softmax(-1))
    expected = reference.attribute(vectors, target=found.target, n_steps=50).sum(-1)
    torch.testing.assert_close(found.scores, expected.float(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", lens.HEADS)
def test_direct_logits_are_those_of_transformer_lens(name):
    numbers, model = numpy.load(lens.NUMBERS), lens.model(name)
    found = regard.Attribution.from_model(model, lens.IDS, method="direct_logits", target=lens.TARGET)
    frame = found.to_frame().pivot(index="label", columns="entry", values="score")
    heads = [f"{layer}.{head}" for layer in range(lens.LAYERS) for head in range(lens.HEADS[name])]
    numpy.testing.assert_allclose(frame.loc[heads], numbers[f"{name}_heads"], rtol=1e-4, atol=1e-5)
    nets = sorted(label for label in frame.index if ".mlp." in label)
    numpy.testing.assert_allclose(frame.loc[nets], numbers[f"{name}_nets"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("to", ["zero", "mean"])
@pytest.mark.parametrize("name", lens.HEADS)
def test_ablated_heads_are_those_of_transformer_lens(name, to):
    numbers, model = numpy.load(lens.NUMBERS), lens.model(name)
    heads = [(layer, head) for layer in range(lens.LAYERS) for head in range(lens.HEADS[name])]
    for (layer, head), expected in zip(heads, numbers[f"{name}_{to}"], strict=True):
        with torch.no_grad(), regard.intervene(model) as edit:
            edit.ablate(layer, head, to=to)
            logits = model(lens.IDS).logits[:, -1]
        numpy.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)


# ------------------------------------------------------------------------------------------- beside other ways to do it


def test_weights_and_rollout_are_those_of_the_query_that_predicts():
    model = language_model()
    with torch.no_grad(), regard.capture(model) as seen:
        model(IDS)
    maps = [layer.weights for layer in seen]
    position = torch.tensor([10, 4, 7])
    entries = torch.arange(3)
    found = regard.Attribution.from_model(model, IDS, method="weights", position=position)
    torch.testing.assert_close(found.scores, torch.stack(maps).mean((0, 2))[entries, position])
    found = regard.Attribution.from_model(model, IDS, method="rollout", position=position)
    torch.testing.assert_close(found.scores, rollout(maps)[entries, position].float())
    found = regard.Attribution.from_model(bert(), IDS, method="weights")
    torch.testing.assert_close(found.scores.sum(1), torch.ones(3))  # of all queries, for a class belongs to none


@pytest.mark.parametrize("name", lens.HEADS)
def test_values_are_weighted_and_projected(name):
    """Beside the matrices of the models, which lie in different ways, and are found by what they read."""
    model = lens.model(name)
    found = regard.Attribution.from_model(model, lens.IDS, method="value_norms")
    with torch.no_grad(), regard.capture(model, operands=True) as seen:
        model(lens.IDS)
    norms = []
    for layer, map_ in zip(model.base_model.h if name == "gpt2" else model.base_model.layers, seen, strict=True):
        matrix = layer.attn.c_proj.weight if name == "gpt2" else layer.self_attn.o_proj.weight.T
        matrices = matrix.unflatten(0, (lens.HEADS[name], -1))  # (heads, value size, size)
        norms.append(torch.einsum("bhm,bhmv,hvs->bms", map_.weights[:, :, -1], map_.value, matrices).norm(dim=-1))
    torch.testing.assert_close(found.scores, torch.stack(norms).mean(0).detach(), rtol=1e-4, atol=1e-5)


def test_values_of_a_layer_of_pytorch():
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.attention = (
                nn.Embedding(VOCABULARY, 12),
                nn.MultiheadAttention(12, 3, batch_first=True),
            )

        def forward(self, ids):
            rows = self.embedding(ids)
            return self.attention(rows, rows, rows)[0]

    model = large(Wrapped())
    found = regard.Attribution.from_model(model, IDS, method="value_norms")
    rows, attention = model.embedding(IDS), model.attention
    weights = attention(rows, rows, rows, average_attn_weights=False)[1][:, :, -1]
    values = (rows @ attention.in_proj_weight[24:].T + attention.in_proj_bias[24:]).unflatten(-1, (3, -1))
    parts = (weights.mT[..., None] * values).flatten(2) @ attention.out_proj.weight.T  # (batch, m, size)
    torch.testing.assert_close(found.scores, parts.norm(dim=-1).detach())


def test_gradient_times_weight_is_what_scaling_the_attention_changes():
    model = language_model().double()
    found = regard.Attribution.from_model(model, IDS, method="gradient_weights", target=3)

    def scaled(token, factor):
        factors = torch.ones(11, dtype=torch.float64).index_fill(0, torch.tensor(token), factor)
        with torch.no_grad(), regard.intervene(model) as edit:
            edit.set_weights(lambda weights: weights * factors)
            return log_probabilities(model, IDS)[:, 3]

    for token in (0, 4, 10):
        slope = (scaled(token, 1 + 1e-4) - scaled(token, 1 - 1e-4)) / 2e-4
        torch.testing.assert_close(found.scores[:, token].double(), slope, rtol=1e-3, atol=1e-5)


def test_gradients_are_those_of_the_vectors():
    model = bert()
    vectors = model.get_input_embeddings()(IDS).detach().requires_grad_()
    predicted = model(inputs_embeds=vectors).logits.log_softmax(-1)[:, 2]
    (slope,) = torch.autograd.grad(predicted.sum(), vectors)
    for method, expected in (("gradient", slope.norm(dim=-1)), ("gradient_input", (slope * vectors).sum(-1))):
        found = regard.Attribution.from_model(model, IDS, method=method, target=2)
        torch.testing.assert_close(found.scores, expected.detach())


def test_an_occluded_token_is_another_token():
    model, target = language_model(), torch.tensor([5, 0, 30])
    found = regard.Attribution.from_model(model, IDS, method="occlusion", baseline=2, target=target)
    with torch.no_grad():
        before = log_probabilities(model, IDS)[range(3), target]
        for token in range(11):
            ids = IDS.index_fill(1, torch.tensor(token), 2)
            after = log_probabilities(model, ids)[range(3), target]
            torch.testing.assert_close(found.scores[:, token], before - after, rtol=1e-4, atol=1e-5)


# --------------------------------------------------------------------------------------------------------- what adds up


def test_scores_of_integrated_gradients_add_up_to_what_the_tokens_change():
    model = language_model()
    found = regard.Attribution.from_model(model, IDS, method="integrated_gradients", target=3, baseline=2)
    change = log_probabilities(model, IDS)[:, 3] - log_probabilities(model, torch.full_like(IDS, 2))[:, 3]
    torch.testing.assert_close(found.scores.sum(1), change.detach(), rtol=1e-3, atol=1e-4)


def test_an_integral_that_does_not_converge_is_reported():
    """From zeros, all that an RMS norm lets through happens at the very beginning."""
    model = language_model(positions="rotary", norm="rms", bias=False)
    with pytest.warns(UserWarning, match="choose another baseline="):
        regard.Attribution.from_model(model, IDS, method="integrated_gradients")


@pytest.mark.parametrize("options", [{}, {"norm": "rms", "positions": "rotary", "bias": False, "kv_heads": 2}])
def test_direct_logits_add_up_to_the_logit(options):
    model = language_model(**options)
    found = regard.Attribution.from_model(model, IDS, method="direct_logits", target=7)
    with torch.no_grad():
        torch.testing.assert_close(found.scores.sum(1), model(IDS)[:, -1, 7], rtol=1e-4, atol=1e-4)
    parts = ["token_embedding", *(["position_embedding"] if not options else [])]
    heads = [f"{layer}.{head}" for layer in range(2) for head in range(4)]
    nets = [f"blocks.{layer}.feed_forward.out_proj" for layer in range(2)]
    assert [label.replace(".table", "") for label in found.labels[0]] == [*heads, *parts, *nets, "rest"]
    if options:  # nothing is a bias
        torch.testing.assert_close(found.scores[:, -1], torch.zeros(3), rtol=0, atol=1e-5)


def test_the_logit_lens_reads_the_stream_after_each_layer():
    model = language_model()
    found = regard.Attribution.from_model(model, IDS, method="logit_lens", target=7)
    streams = []
    handles = [block.register_forward_hook(lambda *call: streams.append(call[-1])) for block in model.blocks]
    with torch.no_grad():
        model(IDS)
        read = [model.predict(stream)[:, -1].log_softmax(-1)[:, 7] for stream in streams]
    for handle in handles:
        handle.remove()
    torch.testing.assert_close(found.scores.cumsum(1)[:, 1:], torch.stack(read, 1), rtol=1e-4, atol=1e-5)
    assert found.labels[0] == ("embedding", "blocks.0", "blocks.1")


@pytest.mark.parametrize("method", METHODS)
def test_entries_of_a_batch_are_explained_as_if_alone(method):
    model, target, position = language_model(), torch.tensor([5, 0, 30]), torch.tensor([10, 4, 7])
    options = {"method": method, "baseline": 2}
    found = regard.Attribution.from_model(model, IDS, target=target, position=position, **options)
    for entry in range(3):
        alone = {"target": int(target[entry]), "position": int(position[entry])} | options
        scores = regard.Attribution.from_model(model, IDS[entry : entry + 1], **alone).scores
        torch.testing.assert_close(found.scores[entry : entry + 1], scores, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_left_behind(method):
    model = language_model(dropout=0.5).train()
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    first, second = (regard.Attribution.from_model(model, IDS, method=method, baseline=2).scores for _ in range(2))
    torch.testing.assert_close(first, second)  # it ran without dropout
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    for name, parameter in model.named_parameters():
        assert parameter.grad is None
        assert torch.equal(parameter, before[name])


# --------------------------------------------------------------------------------------------------------- faithfulness


class OneWord(nn.Module):
    """Tokens below 5 are votes for a class, and all others say nothing."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(3 * torch.eye(VOCABULARY, 5))

    def forward(self, ids):
        return self.embedding(ids).sum(1)


def test_a_true_explanation_is_better_than_chance_and_its_opposite_worse():
    ids = IDS.clamp(min=5)
    ids[:, 6] = 3
    found = regard.Attribution.from_model(OneWord(), ids, method="integrated_gradients")
    assert found.scores.argmax(1).tolist() == [6, 6, 6]
    curves = found.faithfulness(seeds=7)
    with_it, without = 1 / (1 + 4 * numpy.exp(-3)), 1 / 5
    numpy.testing.assert_allclose(curves.deletion, [[with_it] + [without] * 11] * 3, rtol=1e-5)
    numpy.testing.assert_allclose(curves.insertion, [[without] + [with_it] * 11] * 3, rtol=1e-5)
    assert curves.deletion_area > 0.2
    assert curves.insertion_area > 0.2
    found.scores = -found.scores
    opposite = found.faithfulness(seeds=7)
    assert opposite.deletion_area < -0.2
    assert opposite.insertion_area < -0.2


@pytest.mark.parametrize("method", METHODS)
def test_curves_begin_and_end_with_all_and_with_nothing(method):
    model = language_model()
    found = regard.Attribution.from_model(model, IDS, method=method, baseline=2)
    curves = found.faithfulness(seeds=2, points=4)
    everything = log_probabilities(model, IDS).gather(1, found.target[:, None])[:, 0].exp().detach()
    for curve in (curves.deletion, *curves.random_deletion, curves.insertion.flip(1), *curves.random_insertion.flip(2)):
        torch.testing.assert_close(curve[:, 0], everything)
        torch.testing.assert_close(curve[:, -1], curves.deletion[:, -1])
    if method in TOKEN_METHODS:
        nothing = log_probabilities(model, torch.full_like(IDS, 2)).gather(1, found.target[:, None])[:, 0].exp()
        torch.testing.assert_close(curves.deletion[:, -1], nothing.detach())
    assert curves.shares.numel() - 1 == (2 if method == "logit_lens" else pytest.approx(6, abs=2))
    assert (curves.shares[0], curves.shares[-1]) == (0, 1)


def test_a_head_that_is_removed_is_an_ablated_one():
    model = language_model()
    found = regard.Attribution.from_model(model, IDS[:1], method="direct_logits")
    heads = found.scores[0, :8]
    found.scores = torch.where(torch.arange(found.scores.shape[1]) == heads.argmax(), 1.0, 0.0)[None]
    one = found.faithfulness(seeds=1, points=100).deletion[0, 1]
    with torch.no_grad(), regard.intervene(model) as edit:
        edit.ablate(int(heads.argmax()) // 4, int(heads.argmax()) % 4, to="zero")
        expected = log_probabilities(model, IDS[:1])[0, found.target[0]].exp()
    torch.testing.assert_close(one, expected)


def test_a_layer_that_is_removed_lets_the_stream_pass():
    model = language_model()
    found = regard.Attribution.from_model(model, IDS, method="logit_lens")
    streams = []
    with torch.no_grad(), model.blocks[0].register_forward_pre_hook(lambda block, given: streams.append(given[0])):
        model(IDS)
    read = model.predict(streams[0])[:, -1].softmax(-1).gather(1, found.target[:, None])[:, 0]
    torch.testing.assert_close(found.faithfulness(seeds=1).deletion[:, -1], read.detach())


# ------------------------------------------------------------------------------------------------------------- as shown


def test_tokens_are_neither_markup_nor_commands_in_the_terminal(capsys):
    regard.Attribution(torch.tensor([[3.0, -3.0]]), [["[/b]", "a\x1b[2J"]], "a_method").print()
    assert "[/b] a·[2J" in (printed := capsys.readouterr().out)
    assert "[/b] (0) +3, a·[2J (1) -3" in printed
    print_table(["[red]"], ["[/b]"], ["a\x1b[2J"])
    assert capsys.readouterr().out.split() == ["[red]", "[/b]", "a·[2J"]


def test_the_largest_score_has_the_full_colour(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        regard.Attribution(torch.tensor([[3.0, -3.0, 0.0, 1.0]]), [list("abcd")], "a_method").print()
    colours = re.findall(r"48;2;(\d+;\d+;\d+)m", printed.getvalue())
    assert colours == ["255;0;0", "0;0;255", "255;255;255", "255;170;170"]


def test_it_is_shown(tmp_path):
    tokens = [f"w{number}" for number in range(11)]
    found = regard.Attribution(torch.linspace(-2, 3, 22).view(2, 11), [tokens, tokens[::-1]], "a_method", entry=1)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        found.print()
    assert "w10 w9 w8" in printed.getvalue()
    assert "a_method: w0 (10) +3, " in printed.getvalue()
    frame = found.to_frame()
    assert frame.query("entry == 1 and label == 'w0'")["score"].tolist() == [3]
    axes = found.plot().ax_
    assert [bar.get_width() for bar in axes.patches] == pytest.approx(found.scores[1].tolist())
    assert [label.get_text() for label in axes.get_yticklabels()] == tokens[::-1]
    assert found.save(tmp_path / "found.svg").stat().st_size > 1000
    with pytest.raises(ValueError, match="knows no model"):
        found.faithfulness()
    curves = regard.Attribution.from_model(OneWord(), IDS, tokens=[tokens] * 3).faithfulness()
    assert f"{curves.deletion_area:+.4f}" in str(curves)
    assert len(curves.plot().ax_.lines) == 4
    frame = curves.to_frame().groupby(["curve", "order"]).size()
    assert (frame == curves.shares.numel()).all()
    assert len(frame) == 4


def test_what_cannot_be_explained():
    model = language_model()
    explain = regard.Attribution.from_model
    with pytest.raises(ValueError, match="method: expected one of direct_logits, gradient, "):
        explain(model, IDS, method="attention")
    with pytest.raises(ValueError, match="target: expected numbers from -31 to 30"):
        explain(model, IDS, target=31)
    with pytest.raises(ValueError, match="position: expected one number or 3"):
        explain(model, IDS, position=torch.tensor([1, 2]))
    with pytest.raises(TypeError, match=r"model: expected a torch.nn.Module"):
        explain(lambda ids: ids, IDS)
    with pytest.raises(TypeError, match="model: expected logits"):
        explain(model, IDS, forward=lambda ids: {"logits": 3})
    with pytest.raises(ValueError, match="looks up ids"):
        explain(model, IDS, forward=lambda ids: model(ids + 0, [11, 3, 5]), method="gradient")
    with pytest.raises(ValueError, match="its last norm, to read what its last layer writes"):
        explain(bert(), IDS, method="logit_lens")
    with pytest.raises(ValueError, match="expected attention to the 11 tokens"), pytest.warns(CaptureWarning):
        explain(OneWord(), IDS, method="weights")
    with pytest.raises(ValueError, match="labels: expected one for each"):
        regard.Attribution(torch.ones(2, 3), [["a", "b", "c"]])
