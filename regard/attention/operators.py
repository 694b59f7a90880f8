"""Dot-product attention as an operator of PyTorch, for calls that are traced: torch.compile keeps it as it is.

On the CPU it runs as an eager call does (fused.py), and what it cannot trust it computes by the formula: an operator
may look at its numbers when it runs. Elsewhere, and in exported programs, which ought to run without regard, it is
PyTorch's own operator.

Shapes: query (B, R, n, size) · key (B, R, m, size) · value (B, R, m, value size) · mask broadcastable to (B, R, n, m) ·
sink (B or 1, R or 1, 1, 1) · lse (B, R, n).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from regard.attention import fused
from regard.attention.tracing import in_transform

__all__ = ["dot_attention"]


def dot_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, sink: Tensor | None, causal: bool
) -> Tensor | None:
    """softmax(query · key + mask) · value, with a sink; None where neither operator can do it."""
    if in_transform():  # operators have no forward mode, and no second derivative
        return None
    if query.device.type == "cpu" and not torch.compiler.is_exporting():
        width, inner = value.shape[-1], max(query.shape[-1], value.shape[-1])
        rows, keys, values = fused.pad(query, inner), fused.pad(key, inner), fused.pad(value, inner)
        output: Tensor = torch.ops.regard.dot_attention(rows, keys, values, mask, sink, causal)[0]
        return output if width == inner else output[..., :width]
    if sink is not None:
        return None
    return scaled_dot_product_attention(query, key, value, mask, is_causal=causal, scale=1.0)


@torch.library.custom_op("regard::dot_attention", mutates_args=(), device_types="cpu")
def _forward(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, sink: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor]:
    """Output and lse."""
    solved = fused.forward(query, key, value, mask, causal, 1.0, sink) if key.shape[2] and query.numel() else None
    if solved is None:
        output = _by_formula(query, key, value, mask, sink, causal)
        return _as_kernel(output), query.new_full(query.shape[:-1], torch.nan)
    return _as_kernel(solved[0]), solved[1].contiguous()


@_forward.register_fake
def _(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, sink: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor]:
    return _like_kernel(query), query.new_empty(query.shape[:-1])


@torch.library.custom_op("regard::dot_attention_backward", mutates_args=(), device_types="cpu")
def _backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    lse: Tensor,
    mask: Tensor | None,
    sink: Tensor | None,
    causal: bool,
    mask_learned: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of query, key, value, mask and sink; empty tensors where there is none."""
    grad = grad if grad.stride(-1) == 1 else grad.contiguous()
    if not lse.numel() or bool(lse.isnan().any()):  # it was computed by the formula
        inputs = [None if x is None else x.detach().requires_grad_() for x in (query, key, value, mask, sink)]
        with torch.enable_grad():
            solved = _by_formula(*inputs, causal)  # type: ignore[arg-type, call-arg]
        sources = [x for x in inputs if x is not None]
        gradients = iter(torch.autograd.grad(solved, sources, grad, materialize_grads=True))
        found = [query.new_empty(0) if x is None else next(gradients).contiguous() for x in inputs]
        return *map(_as_kernel, found[:3]), *found[3:]  # type: ignore[return-value]
    by_sink = query.new_empty(0)
    if sink is not None:  # a key of value 0, whose weight is e^{sink − lse}
        by_sink = (-(sink.squeeze(-1) - lse).exp() * (grad * output).sum(-1)).unsqueeze(-1).sum_to_size(sink.shape)
    if mask is None or not mask_learned:
        parts = fused.backward(grad, query, key, value, output, lse, mask, causal, 1.0)
        return *map(_as_kernel, parts), query.new_empty(0), by_sink  # type: ignore[return-value]
    by_mask = torch.zeros_like(mask)
    parts = fused.backward_with_bias(grad, query, key, value, output, lse, mask, 1.0, fused.summing_into(by_mask))
    return *map(_as_kernel, parts), by_mask, by_sink  # type: ignore[return-value]


@_backward.register_fake
def _(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    lse: Tensor,
    mask: Tensor | None,
    sink: Tensor | None,
    causal: bool,
    mask_learned: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    by_mask = query.new_empty(0) if mask is None or not mask_learned else mask.new_empty(mask.shape)
    by_sink = query.new_empty(0) if sink is None else sink.new_empty(sink.shape)
    return *map(_like_kernel, (query, key, value)), by_mask, by_sink  # type: ignore[return-value]


def _as_kernel(rows: Tensor) -> Tensor:
    """(B, R, n, size), laid out as the kernel does it: R behind n, as the layer has it that joins the heads."""
    return rows.transpose(1, 2).contiguous().transpose(1, 2)


def _like_kernel(rows: Tensor) -> Tensor:
    batch, sharing, n, size = rows.shape
    return rows.new_empty(batch, n, sharing, size).transpose(1, 2)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, mask, sink, ctx.causal = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(query, key, value, *output, mask, sink)


def _gradients(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    *saved, mask, sink = ctx.saved_tensors
    learned = ctx.needs_input_grad[3]
    *parts, by_mask, by_sink = torch.ops.regard.dot_attention_backward(grad, *saved, mask, sink, ctx.causal, learned)
    return *parts, by_mask if learned else None, None if sink is None else by_sink, None


_forward.register_autograd(_gradients, setup_context=_setup)


def _by_formula(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, sink: Tensor | None, causal: bool
) -> Tensor:
    """As an eager call computes it, whatever the numbers are."""
    from regard.attention import api, dense_masks, normalizers, position_masks, scores  # which import this module

    restricted = None if mask is None else dense_masks.bias(mask)
    if causal:
        rows_before = position_masks.causal(align="start")
        restricted = rows_before if restricted is None else restricted & rows_before
    normalizer = None if sink is None else normalizers.Softmax(sink.expand(-1, query.shape[1], 1, 1)[0].flatten())
    return api.attend(query, key, value, score=scores.Dot(scale=1.0), mask=restricted, normalizer=normalizer)
