"""A piece whose score is a dot product, by PyTorch's fused attention, with the traps of the CPU kernel closed."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention  # bound here: nobody hears our calls as well

from regard.attention.scores import Dot

# A row of NaN scores is lost only by the kernel's scalar loops, which run where the keys do not fill a vector register.
SURELY_SEEN = 64
DEFAULT = Dot()


def fused_attention(
    query: Tensor, key: Tensor, value: Tensor, scale: float, mask: Tensor | None, causal: bool
) -> Tensor | None:
    """softmax(scale · query · key + mask) · value, all (B, R, rows, size); None where the result cannot be trusted.

    The mask is what is added to the scores, −inf to forbid. On the CPU, PyTorch turns a row of NaN scores into 0 for
    a few keys, and a NaN that a row may not see spoils it by NaN − inf. Neither leaves a finite, non-zero row behind:
    it is enough to look at the result, and only if that is suspicious at the input.
    """
    if causal and scale <= 0:  # PyTorch multiplies the −inf of its causal mask by the scale as well
        query, scale = query * scale, 1.0
    width = value.shape[-1]
    inner = max(query.shape[-1], width)
    rows, keys, values = (_padded(tensor, inner) for tensor in (query, key, value.to(query.dtype)))
    output = scaled_dot_product_attention(rows, keys, values, mask, 0.0, causal, scale=scale)
    output = output if width == inner else output[..., :width]
    checked = mask is not None or causal or key.shape[-2] < SURELY_SEEN
    if checked and query.device.type == "cpu" and _suspicious(output.detach()) and not _finite(query, key, value):
        return None
    return output.to(value.dtype)


def plain_attention(query: Tensor, key: Tensor, value: Tensor, score: nn.Module | None) -> Tensor | None:
    """The commonest call, which needs neither folding nor cutting: scaled dot products of (batch, heads, rows, size).

    None for any other, for one that is wrong, and where the result cannot be trusted. A decoder makes this call for
    every layer of every word, with so few numbers that the way there would take longer than the call.
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
    if 0 in shapes[0] or 0 in shapes[1] or torch.is_autocast_enabled("cpu") or query.layout is not torch.strided:
        return None
    _, _, scale = DEFAULT.as_dot(query, key) if score is None else score.as_dot(query, key)
    return fused_attention(query, key, value, scale, None, False)


def _padded(rows: Tensor, inner: int) -> Tensor:
    """Zeros behind the last entry: the fused CPU kernel wants queries, keys and values of one size, in unit stride."""
    if rows.shape[-1] < inner:
        return functional.pad(rows, (0, inner - rows.shape[-1]))
    return rows if rows.stride(-1) == 1 else rows.contiguous()


def _suspicious(output: Tensor) -> bool:
    return not bool(output.sum().isfinite()) or bool((output[..., 0] == 0).any())


def _finite(*tensors: Tensor) -> bool:
    return all(bool(tensor.detach().isfinite().all()) for tensor in tensors)


def additive_mask(allowed: Tensor | None, added: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """What is added to the scores: the bias, and −inf where nothing is allowed."""
    if added is not None:
        added = added.to(dtype)  # PyTorch wants the mask in the query's dtype
    if allowed is None:
        return added
    added = torch.zeros((), dtype=dtype, device=allowed.device) if added is None else added
    return torch.where(allowed, added, -torch.inf)
