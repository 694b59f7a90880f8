"""One head from its operands: queries, keys, scores, weights, values and output, of the tokens that have room."""

from __future__ import annotations

import base64
from typing import Any

import torch
from torch import Tensor

from regard.attention.capture import AttentionMap

__all__ = ["ROOM", "inside"]

ROOM = 48  # tokens on a side
EXACT = 1e-3  # a difference of scores that comes from rounding


def inside(layer: AttentionMap, head: int, row: int = 0, key: int = 0) -> dict[str, Any] | None:
    """The operands of a head, by its index, as JSON: of ROOM queries from `row` on and ROOM keys from `key` on.
    None where they were not captured."""
    operands = [getattr(layer, name, None) for name in ("query", "key", "value", "output")]
    if any(operand is None for operand in operands):
        return None
    query, keys, value, output = (operand[0, head].float() for operand in operands if operand is not None)
    weights = layer.weights[0, head]
    scale, is_exact = _scale(query @ keys.T, weights, query.shape[-1] ** -0.5)
    rows, columns = slice(row, row + ROOM), slice(key, key + ROOM)
    parts = {"query": query[rows], "key": keys[columns], "value": value[columns], "output": output[rows]}
    shown = {**parts, "weights": weights[rows, columns]}
    return {
        "rows": [row, min(row + ROOM, len(query))],
        "keys": [key, min(key + ROOM, len(keys))],
        "scale": scale,
        "exact": is_exact,  # whether softmax(scale · q·k), masked, are the weights; else something is added to scores
        "size": [query.shape[-1], value.shape[-1]],
        **{name: _packed(part) for name, part in shown.items()},
    }


def _scale(products: Tensor, weights: Tensor, usual: float) -> tuple[float, bool]:
    """The factor of the scores, and whether it explains the weights: log w − scale · q·k is the same along a row."""
    seen = weights > 1e-12
    count = seen.sum(-1, keepdim=True).clamp(min=1)

    def centred(values: Tensor) -> Tensor:
        values = torch.where(seen, values, 0.0)
        return torch.where(seen, values - values.sum(-1, keepdim=True) / count, 0.0)

    logs, dots = centred(weights.clamp(min=1e-38).log().double()), centred(products.double())
    for scale in (usual, float((logs * dots).sum() / dots.square().sum().clamp(min=1e-12))):
        if float((logs - scale * dots).abs().max()) < EXACT * max(1.0, float(logs.abs().max())):
            return scale, True
    return usual, False


def _packed(matrix: Tensor) -> str:
    """Rows of float32, for a browser."""
    return base64.b64encode(matrix.contiguous().numpy().astype("<f4").tobytes()).decode()
