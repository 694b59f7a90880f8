"""Which heads do what: every head scored by where its weight lies, and what it costs to ablate the best of them.

A score is the mean weight on the keys that a head would attend to if it did that one thing: 1 if it does nothing else.
Legend: batch · n queries · m keys · heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.arguments import check_choice, check_count, check_ids
from regard.attention.capture import AttentionMap
from regard.models.model import evaluation
from regard.view.capture import capture
from regard.view.display import TableDisplay
from regard.view.intervene import intervene
from regard.view.prediction import Forward, embeddings, logits_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LISTED = 3  # heads of each score in the table

# --------------------------------------------------------------------------------------------------------- the scores


@dataclass(frozen=True, eq=False)
class Pairs:
    """The pairs of queries and keys of a map: positions `query` (n, 1) and `key` (1, m).

    layer: the map · ids: (batch, m), if they are its tokens · gold: which pairs are aligned, (batch, n, m), if known
    """

    layer: AttentionMap
    ids: Tensor | None
    gold: Tensor | None

    @cached_property
    def query(self) -> Tensor:
        return torch.tensor(self.layer.queries)[:, None]

    @cached_property
    def key(self) -> Tensor:
        return torch.tensor(self.layer.keys or range(self.layer.weights.shape[-1]))[None]

    def share(self, pattern: Tensor) -> Tensor:
        """The mean weight on a pattern (batch or 1, n, m) of the queries for which it has a key: (heads,)."""
        weights = self.layer.weights
        pattern = pattern.to(weights.device).expand(len(weights), -1, -1)
        if self.layer.kind == "causal":
            pattern = pattern & (self.key <= self.query).to(weights.device)
        rows = pattern.any(-1)[:, None] & (weights.sum(-1) > 0)  # (batch, heads, n): no padding
        on_pattern = (weights.double() * pattern[:, None]).sum(-1) * rows
        return on_pattern.sum((0, 2)) / rows.sum((0, 2))

    def same(self, shift: int) -> Tensor:
        """Whether the token `shift` before the key is the query's, but not the query itself: (batch, n, m)."""
        if self.ids is None:
            return torch.zeros(1, self.query.numel(), self.key.numel(), dtype=torch.bool)
        ids = functional.pad(self.ids.cpu(), (shift, 0), value=-1)  # of the tokens `shift` before
        return (self.ids.cpu()[:, self.query] == ids[:, self.key]) & (self.key - shift != self.query)


def best_offset(pairs: Pairs) -> tuple[Tensor, Tensor]:
    """The mean weight on the token a fixed distance before the query, for the best one; and that distance, (heads,)."""
    weights, queries = pairs.layer.weights.double(), pairs.layer.queries
    real = (weights.sum(-1, keepdim=True) > 0).expand_as(weights)
    farthest = len(queries) // 2  # of longer distances too few queries would decide
    offsets = range(0 if pairs.layer.kind == "causal" else -farthest, farthest + 1)
    shares = []
    for offset in offsets:
        on_key, rows = (part.diagonal(queries[0] - int(pairs.key[0, 0]) - offset, 2, 3) for part in (weights, real))
        shares.append(on_key.sum((0, 2)) / rows.sum((0, 2)).clamp(min=1))
    best, index = torch.stack(shares).max(0)
    return best, torch.tensor(list(offsets))[index.cpu()]


def alignment(pairs: Pairs) -> Tensor:
    """On the aligned tokens of the other sequence; without a gold alignment, how near its diagonal (uniform: 0)."""
    if pairs.gold is not None:
        return pairs.share(pairs.gold)
    weights = pairs.layer.weights.double()
    n, m = weights.shape[2:]
    places = torch.arange(n)[:, None] / max(n - 1, 1) - torch.arange(m) / max(m - 1, 1)
    real = weights.sum(-1) > 0
    near = (1 - 3 * (weights * places.abs().to(weights.device)).sum(-1)) * real  # uniform weights are a third away
    return near.sum((0, 2)) / real.sum((0, 2))


@dataclass(frozen=True)
class Score:
    """A score of heads, (heads,) from the pairs of a map; `repeated`: on repeated sequences; `cross`: of such maps."""

    function: Callable[[Pairs], Tensor]
    repeated: bool = False
    cross: bool = False


SCORES = {
    # On the token before the query.
    "previous_token": Score(lambda pairs: pairs.share(pairs.query - pairs.key == 1)),
    # On the same token elsewhere.
    "duplicate_token": Score(lambda pairs: pairs.share(pairs.same(0)), repeated=True),
    # On the token after the same token elsewhere: what came next, last time.
    "induction": Score(lambda pairs: pairs.share(pairs.same(1)), repeated=True),
    # On the first token, a sink, from the others.
    "first_token": Score(lambda pairs: pairs.share((pairs.key == 0) & (pairs.query > 0))),
    # On the token a fixed distance before the query (`offset`, negative: behind it).
    "fixed_offset": Score(lambda pairs: best_offset(pairs)[0]),
    "alignment": Score(alignment, cross=True),
}


def scores_of(pairs: Pairs, repeated: Pairs) -> dict[str, list[float]]:
    """All scores of the heads of a map, NaN where one does not apply. repeated: its pairs on repeated sequences"""
    layer = pairs.layer
    scores = {name: [math.nan] * len(layer.heads) for name in SCORES}
    if min(layer.weights.shape[2:]) > 0:
        for name, score in SCORES.items():
            if score.cross == (layer.kind == "cross"):
                scores[name] = score.function(repeated if score.repeated else pairs).tolist()
    return scores


# --------------------------------------------------------------------------------------------------------- the result


@dataclass(frozen=True)
class Head:
    """A head and its scores; NaN where a score does not apply. offset: that of fixed_offset, None where none is."""

    layer: int
    head: int
    call: int
    kind: str
    name: str
    scores: dict[str, float]
    offset: int | None


@dataclass(frozen=True)
class Ablation:
    """By how much the metric rises without the best heads of a score, and without as many random others."""

    score: str
    heads: list[tuple[int, int]]  # layer, head
    alone: list[float]  # without each of them
    together: float  # without all of them
    others: list[tuple[int, int]]
    others_together: float


class HeadScores(TableDisplay):
    """The scores of every head; made by `find_heads`.

    heads: a `Head` for each · ablations: what was ablated, an `Ablation` for each score

    `best` names the heads with the highest score, `to_frame` has all of them, `plot` draws a dot for each.
    """

    def __init__(self, heads: Sequence[Head], ablations: Sequence[Ablation] = ()) -> None:
        self.heads, self.ablations = list(heads), list(ablations)
        scores = [name for name in SCORES if any(not math.isnan(head.scores[name]) for head in self.heads)]
        self.scores = tuple(scores)  # those that apply to any head

    def ranked(self, score: str) -> list[Head]:
        """The heads to which a score applies, the highest first."""
        check_choice("score", score, SCORES)
        scored = [head for head in self.heads if not math.isnan(head.scores[score])]
        return sorted(scored, key=lambda head: -head.scores[score])

    def best(self, score: str, count: int = 1) -> list[tuple[int, int]]:
        """(layer, head) of the heads with the highest score."""
        return list(dict.fromkeys((head.layer, head.head) for head in self.ranked(score)))[:count]

    def to_frame(self) -> Any:
        """A pandas DataFrame with a row for each head; `loss_change` is there for those that were ablated alone."""
        import pandas

        changes: dict[tuple[int, int], float] = {}
        for ablation in self.ablations:
            changes |= dict(zip(ablation.heads, ablation.alone, strict=True))
        rows = [
            {"layer": head.layer, "head": head.head, "call": head.call, "kind": head.kind, "name": head.name}
            | head.scores
            | {"offset": head.offset, "loss_change": changes.get((head.layer, head.head), math.nan)}
            for head in self.heads
        ]
        return pandas.DataFrame(rows).astype({"offset": "Int64"})

    def _rows(self) -> list[Sequence[str]]:
        rows: list[Sequence[str]] = [("score", "best heads", "loss change", "of others")]
        proofs = {ablation.score: ablation for ablation in self.ablations}
        for name in self.scores:
            best = [f"{head.layer}.{head.head}: {head.scores[name]:.2f}" for head in self.ranked(name)[:LISTED]]
            proof = proofs.get(name)
            changes = ("", "") if proof is None else (f"{proof.together:+.3f}", f"{proof.others_together:+.3f}")
            rows.append((name, ", ".join(best), *changes))
        return rows

    def _draw(self, axes: Axes) -> None:
        from regard.view import pictures

        for place, name in enumerate(self.scores):
            ranked = self.ranked(name)
            values = [head.scores[name] for head in ranked]
            axes.plot([place] * len(values), values, "o", color=pictures.TRUTH, alpha=0.5, markeredgewidth=0)
            label = f" {ranked[0].layer}.{ranked[0].head}"
            axes.annotate(label, (place, values[0]), xytext=(4, 0), textcoords="offset points", va="center")
        axes.set_xticks(range(len(self.scores)), [name.replace("_", "\n") for name in self.scores])
        axes.set(ylabel="score", xlim=(-0.5, len(self.scores) - 0.3), title="a dot is a head; the best: layer.head")


def find_heads(
    model: nn.Module,
    ids: Tensor,
    *,
    ablate: int = 0,
    metric: Callable[[nn.Module], float] | None = None,
    alignment: Tensor | None = None,
    forward: Forward | None = None,
    seed: int = 0,
) -> HeadScores:
    """Previous-token, duplicate-token, induction, first-token, fixed-offset and alignment scores of every head.

    Duplicate-token and induction scores are measured on random sequences that are repeated, for which ids only give the
    shape and the first token: in a text a token that is repeated says little. The others are measured on ids. Alignment
    is a score of cross-attention.

    model: any that `regard.capture` can look into · ids: (batch, n) · ablate: how many of the best heads of each score
    are ablated, alone and together (to their mean, by `regard.intervene`), and as many random other heads · metric:
    what should rise then, from the model; by default the loss of the next token in the repeated part · alignment: which
    pairs are right, (batch, n, m), for cross-attention · forward: how the model is run on ids, if it is not model(ids)
    · seed: of the random sequences and heads

    >>> import regard, torch
    >>> model = regard.LanguageModel(vocab_size=31, size=16, layers=2, heads=4).eval()
    >>> found = regard.find_heads(model, torch.randint(31, (2, 13)))
    >>> len(found.to_frame()), len(found.best("induction", 3))  # heads; layer and head of the best
    (8, 3)
    """
    check_count("ablate", ablate)
    table = embeddings(model)
    check_ids("ids", ids, table[0].num_embeddings if table else torch.iinfo(ids.dtype).max)
    if ids.shape[1] < 5:
        raise ValueError(f"ids: expected five tokens or more in each sequence, to repeat some, got {ids.shape[1]}")
    run, generator = forward or model, torch.Generator().manual_seed(seed)
    # The first token, which may be a special one, and then random ones, twice; of the shape of ids.
    vocab_size, (batch, n) = table[0].num_embeddings if table else int(ids.max()) + 1, ids.shape
    random = torch.randint(vocab_size, (batch, (n - 1) // 2), generator=generator).to(ids)
    repeated = torch.cat([ids[:, :1], random, random, random], 1)[:, :n]
    with evaluation(model), torch.no_grad():
        heads = _score(model, run, ids, repeated, alignment)
        measure = (lambda: metric(model)) if metric else lambda: _repeated_loss(run(repeated), repeated)
        ablations = list(_ablate(model, HeadScores(heads), ablate, measure, generator)) if ablate else []
    return HeadScores(heads, ablations)


# -------------------------------------------------------------------------------------------------------------- inside


def _repeated_loss(output: Any, ids: Tensor) -> float:
    """The loss of the next token where it is known from before: in the second half."""
    logits, half = logits_of(output), (ids.shape[1] - 1) // 2
    if logits.dim() != 3 or logits.shape[1] != ids.shape[1]:
        raise ValueError(f"model: expected logits (batch, n, vocabulary), got {tuple(logits.shape)}; pass metric=…")
    return float(functional.cross_entropy(logits[:, half + 1 : -1].flatten(0, 1).float(), ids[:, half + 2 :].flatten()))


def _score(model: nn.Module, run: Forward, ids: Tensor, repeated: Tensor, gold: Tensor | None) -> list[Head]:
    maps = []
    for tokens in (ids, repeated):
        with capture(model) as captured:
            run(tokens)
        maps.append(list(captured))
    if not maps[0]:
        raise ValueError(
            f"model: expected attention that regard.capture recognises, got none in {type(model).__name__}"
        )
    translates = any(layer.kind == "cross" for layer in maps[0])
    heads = []
    for layer, again in zip(*maps, strict=True):
        # Beside cross-attention, causal maps are a decoder's, and its tokens are not the ids.
        known = layer.kind != "cross" and layer.weights.shape[3] == ids.shape[1]
        known = known and not (translates and layer.kind == "causal")
        on_ids = Pairs(layer, ids if known else None, gold)
        on_repeated = Pairs(again, repeated if known else None, gold)
        columns = scores_of(on_ids, on_repeated)
        offsets = [None] * len(layer.heads) if layer.kind == "cross" else best_offset(on_ids)[1].tolist()
        for number, head in enumerate(layer.heads):
            scores = {name: values[number] for name, values in columns.items()}
            heads.append(Head(layer.layer, head, layer.call, layer.kind, layer.name, scores, offsets[number]))
    return heads


def _ablate(
    model: nn.Module, scored: HeadScores, count: int, measure: Callable[[], float], generator: torch.Generator
) -> Iterable[Ablation]:
    before, changes = measure(), dict[frozenset[tuple[int, int]], float]()

    def change(heads: Sequence[tuple[int, int]]) -> float:
        if frozenset(heads) not in changes:
            with intervene(model) as edit:
                for layer, head in heads:
                    edit.ablate(layer, head, to="mean")
                changes[frozenset(heads)] = measure() - before
        return changes[frozenset(heads)]

    everyone = list(dict.fromkeys((head.layer, head.head) for head in scored.heads))
    for score in scored.scores:
        best = scored.best(score, count)
        rest = [head for head in everyone if head not in best]
        others = [rest[number] for number in torch.randperm(len(rest), generator=generator)[: len(best)].tolist()]
        alone = [change([head]) for head in best]
        yield Ablation(score, best, alone, change(best), others, change(others))
