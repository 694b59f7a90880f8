"""Attention whose score is a dot product, by PyTorch's fused kernel, with the traps of its CPU version closed."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention  # bound at import: `capture`, which patches it, skips ours

from regard.attention.layout import Tile
from regard.attention.masks import BoundMask, zero_hidden
from regard.attention.scores import Dot, Score

__all__ = ["fused_attention", "solve_fused", "unmasked_dot_attention"]

# The CPU kernel loses a row of NaN scores only in its scalar loops, which run where the keys do not fill a vector
# register; with this many keys it is never in them alone.
VECTORISED = 64
DEFAULT = Dot()


def unmasked_dot_attention(query: Tensor, key: Tensor, value: Tensor, score: nn.Module | None) -> Tensor | None:
    """The commonest call, which needs no folding and no tiles: scaled dot products of (batch, heads, rows, size).

    None for any other call, for a wrong one, and where the result cannot be trusted. A decoder makes this call for
    every layer of every token, with so few numbers that checking and folding would take longer than the kernel.
    """
    if score is not None and not (type(score) is Dot and score.is_dot):
        return None
    if not (type(query) is type(key) is type(value) is Tensor and query.dtype is key.dtype is value.dtype):
        return None
    shapes = query.shape, key.shape, value.shape
    if len(shapes[0]) != 4 or shapes[1] != shapes[2] or shapes[0][:2] != shapes[1][:2] or shapes[0][3] != shapes[1][3]:
        return None
    if not (query.is_cpu and key.is_cpu and value.is_cpu and query.dtype in (torch.float32, torch.float64)):
        return None
    if not (torch.strided is query.layout is key.layout is value.layout) or torch.is_autocast_enabled("cpu"):
        return None
    if 0 in shapes[0] or 0 in shapes[1]:
        return None
    _, _, scale = DEFAULT.as_dot(query, key) if score is None else score.as_dot(query, key)
    return fused_attention(query, key, value, scale, None, False)


def solve_fused(
    score: Score, mask: BoundMask | None, query: Tensor, key: Tensor, value: Tensor, tile: Tile
) -> Tensor | None:
    """The output of one tile; None where the numbers do not allow a dot product, or the result cannot be trusted.

    `mask` is None where it allows all of the tile.
    """
    allowed = bias = None
    causal = mask is not None and mask.is_causal(tile)  # a flag, for which PyTorch needs no mask tensor
    if mask is not None and not causal:
        allowed, bias = mask.allowed(tile), mask.bias(tile)
    key, value = zero_hidden(key, allowed), zero_hidden(value, allowed)
    dot = score.as_dot(query, key)
    if dot is None:
        return None
    rows, keys, scale = dot
    return fused_attention(rows, keys, value, scale, _additive_mask(allowed, bias, rows.dtype), causal)


def _additive_mask(allowed: Tensor | None, bias: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """What is added to the scores: the bias, and −inf where nothing is allowed."""
    if bias is not None:
        bias = bias.to(dtype)  # PyTorch wants the mask in the query's dtype
    if allowed is None:
        return bias
    return torch.where(
        allowed, torch.zeros((), dtype=dtype, device=allowed.device) if bias is None else bias, -torch.inf
    )


def fused_attention(
    query: Tensor, key: Tensor, value: Tensor, scale: float, mask: Tensor | None, causal: bool
) -> Tensor | None:
    """softmax(scale · query · key + mask) · value, all (B, R, rows, size); None where the result cannot be trusted.

    On the CPU, PyTorch turns a row of NaN scores into 0 for a few keys, and a NaN that a row may not see spoils it by
    NaN − inf. Neither leaves a finite, non-zero row behind: it is enough to look at the result, and only if that is
    suspicious at the input.
    """
    if causal and scale <= 0:  # PyTorch multiplies the −inf of its causal mask by the scale as well
        query, scale = query * scale, 1.0
    width = value.shape[-1]
    inner = max(query.shape[-1], width)
    rows, keys, values = (_pad(tensor, inner) for tensor in (query, key, value.to(query.dtype)))
    output = scaled_dot_product_attention(rows, keys, values, mask, 0.0, causal, scale=scale)
    output = output if width == inner else output[..., :width]
    on_trial = query.device.type == "cpu" and (mask is not None or causal or key.shape[-2] < VECTORISED)
    if on_trial and _is_suspicious(output.detach()) and not _are_finite(query, key, value):
        return None
    return output.to(value.dtype)


def _pad(rows: Tensor, inner: int) -> Tensor:
    """Zeros behind the last entry: the fused CPU kernel wants queries, keys and values of one size, in unit stride."""
    if rows.shape[-1] < inner:
        return functional.pad(rows, (0, inner - rows.shape[-1]))
    return rows if rows.stride(-1) == 1 else rows.contiguous()


def _is_suspicious(output: Tensor) -> bool:
    return not bool(output.sum().isfinite()) or bool((output[..., 0] == 0).any())


def _are_finite(*tensors: Tensor) -> bool:
    return all(bool(tensor.detach().isfinite().all()) for tensor in tensors)
