"""The tab *Formula*: queries, keys and values to edit, and every step from scores to output."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import Additive, Cosine, Dot, Kernel, Mask, attend, causal, keep, weights
from regard.web.params import Params

__all__ = ["answer"]

ROWS, SIZE = (1, 12), (1, 8)
SCORES = ("dot", "scaled dot", "cosine", "additive", "gaussian")
MASKS = ("none", "causal", "lengths")


def answer(params: Params) -> dict[str, Any]:
    """Scores, which of them the mask leaves, weights and output, as `regard.attend` computes them."""
    query, key, value = (torch.tensor(params.table(name, ROWS, SIZE), dtype=torch.float64) for name in "qkv")
    if query.shape[1] != key.shape[1]:
        raise ValueError(f"k: expected as many numbers in a row as queries have, {query.shape[1]}, got {key.shape[1]}")
    if len(key) != len(value):
        raise ValueError(f"v: expected a value for each of {len(key)} keys, got {len(value)}")
    score = _score(params, query.shape[1])
    mask, visible = _mask(params, len(query), len(key))
    with torch.no_grad():
        return {
            "scores": score(query, key).tolist(),
            "visible": visible.tolist(),
            "weights": weights(query, key, score=score, mask=mask).tolist(),
            "output": attend(query, key, value, score=score, mask=mask).tolist(),
        }


def _score(params: Params, size: int) -> nn.Module:
    kind = params.choice("score", SCORES, "scaled dot")
    temperature = params.number("temperature", 0.01, 100, 1)
    if kind == "cosine":
        return Cosine(temperature)
    if kind == "gaussian":
        return Kernel("gaussian", temperature)
    if kind == "additive":
        # W_q and W_k are the identity and w_v is all ones: tanh(q + k), added up.
        score = Additive(size, size, size).double()
        with torch.no_grad():
            score.query_weight.copy_(torch.eye(size))
            score.key_weight.copy_(torch.eye(size))
            score.value_weight.fill_(1 / temperature)
        return score
    return Dot((1.0 if kind == "dot" else size**-0.5) / temperature)


def _mask(params: Params, n: int, m: int) -> tuple[Mask | None, Tensor]:
    """The mask, and which pairs of queries and keys it leaves, (n, m)."""
    kind = params.choice("mask", MASKS, "none")
    pairs = torch.ones(n, m, dtype=torch.bool)
    if kind == "causal":
        return causal(align="start"), pairs.tril()
    if kind == "lengths":
        valid = torch.arange(m) < params.integer("length", 0, m, m)  # (m,)
        return keep(valid[None]), valid.expand(n, m)
    return None, pairs
