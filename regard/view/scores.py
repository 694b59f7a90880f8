"""The scores of `find_heads` on one text, from its maps: by them a page sorts its heads and chooses the one to open."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from regard.attention.capture import AttentionMap
from regard.view.heads import SCORES, Pairs

__all__ = ["Scores", "head_scores", "most_telling"]

Scores = dict[str, list[list[float | None]]]  # by name, of the heads of each layer; None where a score does not apply
TELLING = (
    "induction",
    "previous token",
    "duplicate token",
    "alignment",
)  # what a head does, and not that it does little


def head_scores(maps: Sequence[AttentionMap]) -> Scores:
    """The scores of all heads; tokens are the same where their texts are."""
    scores: Scores = {name.replace("_", " "): [] for name in SCORES}
    for layer in maps:
        numbers = {token: number for number, token in enumerate(layer.key_tokens)}
        ids = torch.tensor([[numbers[token] for token in layer.key_tokens]])
        is_known = layer.kind != "cross" and not layer.keys and set(layer.queries) <= set(range(ids.shape[1]))
        pairs = Pairs(layer, ids if is_known else None, None)
        for name, score in SCORES.items():
            applies = score.cross == (layer.kind == "cross") and min(layer.weights.shape[2:]) > 0
            values = score.function(pairs).tolist() if applies else [math.nan] * len(layer.heads)
            scores[name.replace("_", " ")].append([None if math.isnan(value) else value for value in values])
    return scores


def most_telling(scores: Scores) -> tuple[int, int]:
    """Index of the layer and of the head that stands out: whose score is furthest above the mean of all heads."""
    best, place = -1.0, (0, 0)
    for name in TELLING:
        values = [value for layer in scores[name] for value in layer if value is not None]
        for index, layer in enumerate(scores[name]):
            for head, value in enumerate(layer):
                if value is not None and value - sum(values) / len(values) > best:
                    best, place = value - sum(values) / len(values), (index, head)
    return place
