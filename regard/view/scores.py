"""What a head does with a text, as scores from 0 to 1: by them the page sorts its heads and chooses the one to open."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.attention.capture import AttentionMap

__all__ = ["SCORES", "head_scores", "most_telling"]

PREVIOUS, DUPLICATE, INDUCTION, FIRST, OFFSET = "previous token", "duplicate", "induction", "first token", "fixed offset"
SCORES = (PREVIOUS, DUPLICATE, INDUCTION, FIRST, OFFSET)
Scores = dict[str, list[list[float | None]]]  # by name, of each layer's heads


def head_scores(maps: Sequence[AttentionMap]) -> Scores:
    """The weight that heads put, on average over their rows, on: the token before; the same token elsewhere; the token
    after an earlier one like it; the first token; the best fixed distance. None where the text has no such pair."""
    layers = [_layer_scores(layer) for layer in maps]
    return {name: [layer[name] for layer in layers] for name in SCORES}


def most_telling(scores: Scores) -> tuple[int, int]:
    """Index of the layer and of the head that stands out most: whose score is furthest above the mean of all heads.
    The weight on the first token is left out, which says that a head looks at nothing."""
    best, place = -1.0, (0, 0)
    for name, layers in scores.items():
        values = [value for layer in layers for value in layer if value is not None]
        for index, layer in enumerate(layers if name != FIRST else []):
            for head, value in enumerate(layer):
                if value is not None and value - sum(values) / len(values) > best:
                    best, place = value - sum(values) / len(values), (index, head)
    return place


def _layer_scores(layer: AttentionMap) -> dict[str, list[float | None]]:
    weights = layer.weights[0]  # (heads, n, m)
    heads, n, m = weights.shape
    nothing: list[float | None] = [None] * heads
    scores = dict.fromkeys(SCORES, nothing)
    if not n or m < 2:
        return scores
    rows, columns = torch.tensor(layer.queries)[:, None], torch.tensor(layer.keys or range(m))
    scores[FIRST] = _share(weights, (columns == 0) & (rows > 0))
    distance = (columns - rows).expand(n, m)
    sums, counts = (torch.zeros(heads, n + 2 * m + int(rows.max())) for _ in range(2))
    place = (distance - distance.min()).flatten().expand(heads, -1)
    sums.scatter_add_(1, place, weights.flatten(1))
    counts.scatter_add_(1, place, torch.ones_like(weights).flatten(1))
    mean = torch.where(counts >= n / 2, sums / counts.clamp(min=1), 0.0)
    before = -1 - int(distance.min())
    if layer.kind == "cross":
        scores[OFFSET] = mean.amax(1).tolist()
        return scores
    if before >= 0:
        mean[:, before] = 0.0  # the token before is a score of its own
    scores[OFFSET] = mean.amax(1).tolist()
    scores[PREVIOUS] = _share(weights, columns == rows - 1)
    if len(layer.key_tokens) == m and not layer.keys and all(query < m for query in layer.queries):
        numbers = {token: number for number, token in enumerate(layer.key_tokens)}
        keys = torch.tensor([numbers[token] for token in layer.key_tokens])
        same = keys[rows] == keys  # (n, m)
        scores[DUPLICATE] = _share(weights, same & (columns != rows))
        after = torch.cat([torch.zeros(n, 1, dtype=torch.bool), same[:, :-1]], 1)
        scores[INDUCTION] = _share(weights, after & (columns <= rows) & (columns > 0))
    return scores


def _share(weights: Tensor, pairs: Tensor) -> list[float | None]:
    """The weight on these pairs (n, m), on average over the rows that have one."""
    rows = pairs.any(1)
    if not bool(rows.any()):
        return [None] * len(weights)
    means: list[float | None] = (weights[:, rows] * pairs[rows]).sum(-1).mean(-1).tolist()
    return means
