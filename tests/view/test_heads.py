"""Which heads do what: perfect heads have perfect scores, and without the heads that are found a model fails."""

import contextlib
import io
import math

import pytest
import torch
from torch import nn
from torch.nn import functional

import regard
from regard.view.capture import CaptureWarning

VOCABULARY = 17


class Perfect(nn.Module):
    """Attention by masks, one for each head: each attends to what its name says, and where there is none to itself.

    queries: how many, if they are of another sequence than the keys
    """

    def __init__(self, *patterns, queries=None):
        super().__init__()
        self.embedding, self.patterns = nn.Embedding(VOCABULARY, 4), patterns
        self.queries = None if queries is None else nn.Embedding(queries, 4)

    def forward(self, ids):
        keys = self.embedding(ids)
        queries = keys if self.queries is None else self.queries.weight.expand(len(ids), -1, -1)
        query, key = torch.arange(queries.shape[1])[:, None], torch.arange(keys.shape[1])
        masks = torch.stack([pattern(ids, query, key).expand(len(ids), -1, -1) for pattern in self.patterns], 1)
        masks = masks | ~masks.any(-1, keepdim=True) & (query == key)
        queries, keys = (rows[:, None].expand(-1, len(self.patterns), -1, -1) for rows in (queries, keys))
        return functional.scaled_dot_product_attention(queries * 0, keys, keys, masks)


def earlier(ids, query, key):
    return (ids[:, :, None] == ids[:, None]) & (key < query)


PATTERNS = {
    "previous_token": lambda ids, query, key: query - key == 1,
    "duplicate_token": earlier,
    "induction": lambda ids, query, key: functional.pad(earlier(ids, query, key), (1, -1)) & (key <= query),
    "first_token": lambda ids, query, key: (key == 0) & (query >= 0),
    "fixed_offset": lambda ids, query, key: query - key == 3,
}
IDS = torch.randint(VOCABULARY, (3, 29), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", PATTERNS)
def test_a_head_that_does_one_thing_has_the_score_1_for_it(name):
    found = regard.find_heads(Perfect(*PATTERNS.values()), IDS)
    index = list(PATTERNS).index(name)
    assert found.best(name) == ([(0, 0)] if name == "fixed_offset" else [(0, index)])  # 0: an offset of 1
    assert found.heads[index].scores[name] == pytest.approx(1, abs=1e-6)
    for other in PATTERNS.keys() - {name, "fixed_offset"}:
        assert found.heads[index].scores[other] < 0.4


def test_offsets_are_found():
    ahead = Perfect(*(lambda ids, query, key, k=k: query - key == k for k in (-2, 0, 5)))
    assert regard.find_heads(ahead, IDS).to_frame()["offset"].tolist() == [-2, 0, 5]


def test_repeated_tokens_are_no_longer_than_the_text():
    model = regard.LanguageModel(VOCABULARY, 12, 1, 3, max_positions=IDS.shape[1]).eval()
    assert len(regard.find_heads(model, IDS).heads) == 3


def test_scores_of_cross_attention():
    def gold(ids, query, key):
        return key == (query * 3 + 1) % 7

    def diagonal(ids, query, key):
        return key == query * (ids.shape[1] - 1) // 4

    def everywhere(ids, query, key):
        return (key >= 0) & (query >= 0)

    ids, query, key = IDS[:, :13], torch.arange(5)[:, None], torch.arange(13)
    model = Perfect(gold, diagonal, everywhere, queries=5)
    found = regard.find_heads(model, ids, alignment=gold(ids, query, key)[None])
    assert found.scores == ("alignment",)
    assert found.best("alignment") == [(0, 0)]
    assert [head.scores["alignment"] for head in found.heads] == pytest.approx([1, 0, 1 / 13], abs=1e-6)
    without = regard.find_heads(model, ids)
    assert without.best("alignment") == [(0, 1)]
    assert without.heads[1].scores["alignment"] == pytest.approx(1)
    assert without.heads[2].scores["alignment"] == pytest.approx(0, abs=0.2)


def test_padding_and_lengths_do_not_count():
    """Rows of padding have no weights: scores are those of what is there."""
    torch.manual_seed(0)
    model = regard.LanguageModel(VOCABULARY, 12, 2, 3, positions="rotary").eval()
    whole = regard.find_heads(model, IDS[:, :11]).to_frame()
    padded = regard.find_heads(model, IDS[:, :14], forward=lambda ids: model(ids, [11, 11, 11])).to_frame()
    for name in ("previous_token", "first_token"):
        assert padded[name].tolist() == pytest.approx(whole[name].tolist(), abs=1e-5)


# ------------------------------------------------------------------------------------------------------ a trained model


@pytest.fixture(scope="module")
def inductive():
    """A language model of two layers, trained in seconds to continue random sequences that repeat, with any period."""
    torch.manual_seed(4)
    model = regard.LanguageModel(VOCABULARY, 32, layers=2, heads=2, ffn_size=32, positions="rotary")
    for matrix in model.parameters():
        if matrix.dim() == 2:
            nn.init.normal_(matrix, std=0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, betas=(0.9, 0.98), fused=True)
    for _ in range(900):
        period = int(torch.randint(9, 17, ()))
        ids = torch.rand(16, VOCABULARY).argsort(1)[:, :period].repeat(1, 6)[:, :32]  # a period has no token twice
        logits = model(ids[:, :-1])[:, period - 1 :]
        loss = functional.cross_entropy(logits.flatten(0, 1), ids[:, period:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss < 0.03:
            break
    return model.eval()


def test_it_names_the_heads_whose_ablation_breaks_induction(inductive):
    ids = torch.rand(32, VOCABULARY, generator=torch.Generator().manual_seed(3)).argsort(1)[:, :13].repeat(1, 2)
    found = regard.find_heads(inductive, ids, ablate=1)
    (second,), (first,) = found.best("induction"), found.best("previous_token")
    assert (first[0], second[0]) == (0, 1)  # the one reads what the other has written

    def right(*heads):
        """How often the next token is the right one, in the second half."""
        with torch.no_grad(), regard.intervene(inductive) as edit:
            for layer, head in heads:
                edit.ablate(layer, head, to="mean")
            return float((inductive(ids)[:, 13:-1].argmax(-1) == ids[:, 14:]).float().mean())

    assert right() > 0.95
    assert right(first) < 0.5
    assert right(second) < 0.5
    assert right((1, 1 - second[1])) > 0.95  # the other head of that layer is of no use
    (proof,) = (ablation for ablation in found.ablations if ablation.score == "induction")
    assert proof.heads == [second]
    assert proof.together == proof.alone[0] > 2
    assert second not in proof.others


def test_a_metric_of_ones_own(inductive):
    calls = []

    def metric(model):
        calls.append(model)
        return float(model(IDS).square().mean())

    found = regard.find_heads(inductive, IDS, ablate=2, metric=metric, seed=5)
    with torch.no_grad(), regard.intervene(inductive) as edit:
        before = metric(inductive)
        edit.ablate(*found.best("first_token")[0], to="mean")
        change = metric(inductive) - before
    proof = next(ablation for ablation in found.ablations if ablation.score == "first_token")
    assert proof.alone[0] == pytest.approx(change, rel=1e-4, abs=1e-5)
    assert len(proof.heads) == len(proof.others) == 2
    assert not set(proof.heads) & set(proof.others)
    frame = found.to_frame().set_index(["layer", "head"])
    assert frame.loc[proof.heads[0], "loss_change"] == proof.alone[0]


def test_it_is_shown(inductive, tmp_path):
    found = regard.find_heads(inductive, IDS, ablate=1)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        found.print()
    layer, head = found.best("induction")[0]
    for text in (printed.getvalue(), str(found), found._repr_html_()):
        assert "induction" in text
        assert f"{layer}.{head}: " in text
        assert f"{found.ablations[0].together:+.3f}" in text
    assert "alignment" not in str(found)  # there is no cross-attention
    axes = found.plot().ax_
    assert len(axes.lines) == len(found.scores) == 5
    assert sorted(axes.lines[2].get_ydata()) == sorted(head.scores["induction"] for head in found.heads)
    assert found.save(tmp_path / "heads.png").stat().st_size > 1000
    assert math.isnan(found.to_frame()["alignment"][0])


def test_what_cannot_be_scored():
    model = regard.LanguageModel(VOCABULARY, 12, 1, 3)
    with pytest.raises(ValueError, match="ids: expected five tokens or more"):
        regard.find_heads(model, IDS[:, :4])
    with pytest.raises(ValueError, match="ids from 0 to 16"):
        regard.find_heads(model, IDS + 1)
    with pytest.raises(ValueError, match="score: expected one of alignment"):
        regard.find_heads(model, IDS).best("inductive")
    with pytest.raises(ValueError, match="pass metric="):
        regard.find_heads(model, IDS, ablate=1, forward=lambda ids: model(ids)[:, -1])
    with pytest.raises(ValueError, match="got none in Embedding"), pytest.warns(CaptureWarning):
        regard.find_heads(nn.Embedding(VOCABULARY, 3), IDS)
