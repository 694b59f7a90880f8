"""The tab *Formula*: queries, keys and values that one can edit, and every step from scores to output."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import Additive, Cosine, Dot, Kernel, Mask, attend, causal, keep, weights
from regard.web.params import Asked

__all__ = ["answer"]

ROWS, SIZE = (1, 12), (1, 8)
SCORES = ("dot", "scaled dot", "cosine", "additive", "gaussian")
MASKS = ("none", "causal", "lengths")


def answer(asked: Asked) -> dict[str, Any]:
    """Scores, scores that count, weights and output, as `regard.attend` computes them."""
    query, key, value = (torch.tensor(asked.table(name, ROWS, SIZE), dtype=torch.float64) for name in "qkv")
    if query.shape[1] != key.shape[1]:
        raise ValueError(f"k: expected as many numbers in a row as queries have, {query.shape[1]}, got {key.shape[1]}")
    if len(key) != len(value):
        raise ValueError(f"v: expected a value for each of {len(key)} keys, got {len(value)}")
    score = _score(asked, query.shape[1])
    mask, seen = _mask(asked, len(query), len(key))
    with torch.no_grad():
        scores = score(query, key)
        found = weights(query, key, score=score, mask=mask)
        output = attend(query, key, value, score=score, mask=mask)
    return {
        "scores": scores.tolist(),
        "seen": seen.tolist(),
        "weights": found.tolist(),
        "output": output.tolist(),
    }


def _score(asked: Asked, size: int) -> nn.Module:
    kind = asked.choice("score", SCORES, "scaled dot")
    temperature = asked.number("temperature", 0.01, 100, 1)
    if kind == "cosine":
        return Cosine(temperature)
    if kind == "gaussian":
        return Kernel("gaussian", temperature)
    if kind == "additive":
        # W_q and W_k are the identity and w_v is all ones: tanh(q + k), added up.
        own = Additive(size, size, size).double()
        with torch.no_grad():
            own.query_weight.copy_(torch.eye(size))
            own.key_weight.copy_(torch.eye(size))
            own.value_weight.fill_(1 / temperature)
        return own
    return Dot((1.0 if kind == "dot" else size**-0.5) / temperature)


def _mask(asked: Asked, n: int, m: int) -> tuple[Mask | None, Tensor]:
    """The mask, and which pairs it leaves, (n, m)."""
    kind = asked.choice("mask", MASKS, "none")
    pairs = torch.ones(n, m, dtype=torch.bool)
    if kind == "causal":
        return causal(align="start"), pairs.tril()
    if kind == "lengths":
        count = asked.whole("length", 0, m, m)
        return keep((torch.arange(m) < count)[None]), (torch.arange(m) < count).expand(n, m)
    return None, pairs
