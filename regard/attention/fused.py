"""Attention whose score is a dot product, by the fused kernel that PyTorch has for CPUs, with its traps closed.

The kernel gives the log-sum-exp of each row beside the output, which is all that is needed later: a sink is a factor
σ(lse − sink) of the output, and the backward pass needs no scores. PyTorch's own backward kernel has no gradient for a
bias; `backward` has. Calls that are traced see one operator, which torch.compile keeps as it is.

Shapes: query (B, R, n, size) · key, value (B, R, m, size), all of one size · mask broadcastable to (B, R, n, m), added
to the scores · lse (B, R, n).
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from math import isfinite, isnan
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention  # bound at import: `capture`, which patches it, skips ours

from regard.attention.layout import Layout, remembered_layout
from regard.attention.masks import BoundMask, Mask, zero_hidden
from regard.attention.scores import DEFAULT, Dot
from regard.attention.tracing import in_transform

SMALL = 1 << 15  # so many scores without gradients are not worth tiles
VECTORISED = 64  # with so many keys the kernel is never in its scalar loops alone
_kernel = torch._scaled_dot_product_flash_attention_for_cpu
_kernel_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def quick_attention(
    query: Tensor, key: Tensor, value: Tensor, score: nn.Module | None, mask: Mask | None
) -> Tensor | None:
    """A decoder's call: scaled dot products of (batch, heads, rows, size) without gradients, and few of them if masked.

    None for any other call, for a wrong one, and where the result cannot be trusted. A decoder makes this call for
    every layer of every token, with so few numbers that checking and folding would take longer than the kernel.
    """
    if (score is not None and (type(score) is not Dot or not score.is_dot)) or not is_plain(query, key, value):
        return None
    shape, key_shape, dtype = query.shape, key.shape, query.dtype
    if len(shape) != 4 or key_shape != value.shape or shape[0] != key_shape[0] or shape[3] != key_shape[3]:
        return None
    heads, grouped, added = shape[1], shape[1] != key_shape[1], None
    if grouped and heads % key_shape[1]:
        return None
    if mask is not None:
        if not isinstance(mask, Mask) or shape.numel() // shape[3] * key_shape[2] > SMALL:
            return None
        layout = remembered_layout(query.device, shape, key_shape, key_shape)
        bound = mask.bound(layout)
        if bound.learned:
            return None
        added = bound.added(dtype, layout)
        if grouped and added is not None and added.shape[:2] != (1, 1):  # that of a bound mask is by groups
            return None
    kernel: Any = scaled_dot_product_attention
    if score is not None or grouped:  # each argument by name takes time that counts here
        kernel = partial(kernel, scale=(score or DEFAULT).scale_of(query), enable_gqa=grouped)
    output: Tensor = kernel(query, key, value, added)
    if is_trusted(output, query, key, value, added is None):
        return output
    return None if mask is None else _without_hidden(kernel, query, key, value, bound, layout)


def is_plain(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether these are numbers of one dtype on a CPU that want no gradients, and nothing traces or converts them."""
    if torch.compiler.is_compiling() or not (type(query) is type(key) is type(value) is Tensor):
        return False
    dtype = query.dtype
    if not (dtype is key.dtype is value.dtype and (dtype is torch.float32 or dtype is torch.float64)):
        return False
    if query.is_nested or key.is_nested or value.is_nested:
        return False
    if not (query.is_cpu and key.is_cpu and value.is_cpu) or torch.is_autocast_enabled("cpu") or in_transform():
        return False
    if not (torch.strided is query.layout is key.layout is value.layout):
        return False
    if torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad):
        return False
    return 0 not in query.shape and 0 not in key.shape and 0 not in value.shape


def attend_small(
    query: Tensor, key: Tensor, value: Tensor, mask: BoundMask | None, layout: Layout, scale: float
) -> Tensor | None:
    """The output without gradients; None where it cannot be trusted."""
    added = None if mask is None else mask.added(query.dtype, layout)
    kernel = partial(scaled_dot_product_attention, scale=scale)
    output: Tensor = kernel(query, key, value, added)
    if is_trusted(output, query, key, value, added is None):
        return output
    return None if mask is None else _without_hidden(kernel, query, key, value, mask, layout)


def _without_hidden(
    kernel: Callable[..., Tensor], query: Tensor, key: Tensor, value: Tensor, mask: BoundMask, layout: Layout
) -> Tensor | None:
    """The output once more: what nobody sees may be all that was in the way."""
    key, value = zero_hidden(mask.allowed(layout.whole), key, value)
    added = mask.added(query.dtype, layout)
    output = kernel(query, key, value, added)
    return output if is_trusted(output, query, key, value, added is None) else None


def forward(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float, sink: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    """(output, lse) of softmax(scale · query · key + mask) · value; None where the result cannot be trusted.

    sink: broadcastable to (B, R, 1, 1): one more score of each row, whose value is 0.
    """
    if causal and scale <= 0:  # PyTorch multiplies the −inf of its causal mask by the scale as well
        query, scale = query * scale, 1.0
    output, lse = _kernel(query, key, value, 0.0, causal, attn_mask=mask, scale=scale)
    if not is_trusted(output, query, key, value, mask is None and not causal):
        return None
    if sink is None:
        return output, lse
    sink = sink.squeeze(-1)
    return output * torch.sigmoid(lse - sink).unsqueeze(-1), torch.logaddexp(lse, sink)


def backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    lse: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float,
    by_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and value, from what `forward` gave, with or without a sink.

    by_bias: (B or 1, R or 1, n or 1, m or 1), to which the gradient of the mask is added, if that is wanted. With P the
    weights and D_i = grad_i · output_i, the gradient of the scores is P ∘ (grad · valueᵀ − D), head by head.
    """
    if mask is None or by_bias is None:
        factor = 1.0
        if causal and scale <= 0:
            query, factor, scale = query * scale, scale, 1.0
        by_query, by_key, by_value = _kernel_backward(
            grad, query, key, value, output, lse, 0.0, causal, attn_mask=mask, scale=scale
        )
        return by_query * factor if factor != 1 else by_query, by_key, by_value
    by_query, by_key, by_value = (rows.new_empty(rows.shape) for rows in (query, key, value))
    total = (grad * output).sum(-1)  # D, (B, R, n)
    mask = mask.expand(*query.shape[:2], -1, -1)
    weights, slopes = (query.new_empty(query.shape[2], key.shape[2]) for _ in range(2))
    for head in product(range(query.shape[0]), range(query.shape[1])):
        rows, keys = query[head] * scale, key[head]
        torch.mm(rows, keys.mT, out=weights)
        weights.add_(mask[head]).sub_(lse[head].unsqueeze(-1)).exp_()
        torch.mm(grad[head], value[head].mT, out=slopes)
        slopes.sub_(total[head].unsqueeze(-1)).mul_(weights)
        part = by_bias[tuple(min(index, size - 1) for index, size in zip(head, by_bias.shape, strict=False))]
        part += slopes.sum_to_size(part.shape)
        torch.mm(weights.mT, grad[head], out=by_value[head])
        torch.mm(slopes, keys, out=by_query[head]).mul_(scale)
        torch.mm(slopes.mT, rows, out=by_key[head])
    return by_query, by_key, by_value


def sink_gradient(grad: Tensor, output: Tensor, lse: Tensor, sink: Tensor) -> Tensor:
    """That of the sink in each row, (B, R, n, 1): a key of value 0, whose weight is e^{sink − lse}."""
    return (-(sink.squeeze(-1) - lse).exp() * (grad * output).sum(-1)).unsqueeze(-1)


def pad(rows: Tensor, inner: int) -> Tensor:
    """Zeros behind the last entry: the fused CPU kernel wants queries, keys and values of one size, in unit stride."""
    if rows.shape[-1] < inner:
        return functional.pad(rows, (0, inner - rows.shape[-1]))
    return rows if rows.stride(-1) == 1 else rows.contiguous()


def is_trusted(output: Tensor, query: Tensor, key: Tensor, value: Tensor, unmasked: bool) -> bool:
    """Whether the kernel met nothing that it gets wrong: numbers, or scores, that are not finite.

    It turns a row of NaN scores into 0 where there are so few keys that it uses its scalar loops, a NaN that a row may
    not see spoils it by NaN − inf, as does a score beyond the dtype, and an infinite value of a weight that underflows
    becomes NaN. None of these leaves a finite row without a 0: it is enough to look at the output, and only if that is
    suspicious at the input.
    """
    # min is NaN if there is one; +inf can only come of an infinite value that is seen. It would copy what is not
    # contiguous: the kernel's output is so only with the heads behind the rows, what is made of parts as it is.
    contiguous = output if output.is_contiguous() else output.transpose(-2, -3)
    lowest = contiguous.min().item()
    ordinary = isfinite(lowest)
    if ordinary and (key.shape[-2] < VECTORISED or not unmasked):
        ordinary = output.count_nonzero().item() == output.numel()
    return ordinary or (not isnan(lowest) and are_finite(query, key, value))


def are_finite(*tensors: Tensor) -> bool:
    """Whether all numbers are finite. A sum is cheap; only where it is not finite each number is looked at."""
    return all(
        isfinite(tensor.sum().item()) or bool(tensor.isfinite().all())
        for tensor in (tensor.detach() for tensor in tensors)
    )


# --------------------------------------------------------------------------------------------------------- while traced
# On the CPU the operator runs as an eager call does, and what it cannot trust it computes by the formula: an operator
# may look at its numbers when it runs. Elsewhere, and in exported programs, which ought to run without regard, it is
# PyTorch's own operator.


def dot_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, sink: Tensor | None, causal: bool
) -> Tensor | None:
    """softmax(query · key + mask) · value, with a sink (B or 1, R or 1, 1, 1); None where neither operator can do it.

    Values may be of another size than queries and keys.
    """
    if in_transform():  # operators have no forward mode, and no second derivative
        return None
    if query.device.type == "cpu" and not torch.compiler.is_exporting():
        width, inner = value.shape[-1], max(query.shape[-1], value.shape[-1])
        rows, keys, values = pad(query, inner), pad(key, inner), pad(value, inner)
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
    solved = forward(query, key, value, mask, causal, 1.0, sink) if key.shape[2] and query.numel() else None
    if solved is None:
        output = _by_formula(query, key, value, mask, sink, causal)
        return as_kernel(output), query.new_full(query.shape[:-1], torch.nan)
    return as_kernel(solved[0]), solved[1].contiguous()


BACKWARD = (
    "(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor output, Tensor lse, Tensor? mask, Tensor? sink, "
    "bool causal, bool mask_learned) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)


@torch.library.custom_op("regard::dot_attention_backward", mutates_args=(), device_types="cpu", schema=BACKWARD)
def _backward(grad: Tensor, *inputs: Any) -> Any:
    """The gradients of query, key, value, mask and sink; empty tensors where there is none."""
    query, key, value, output, lse, mask, sink, causal, mask_learned = inputs
    grad = grad if grad.stride(-1) == 1 else grad.contiguous()
    if not lse.numel() or bool(lse.isnan().any()):  # it was computed by the formula
        with ThreadPoolExecutor(1) as thread:  # PyTorch records nothing within an operator, but in another thread
            by_leaf = thread.submit(_formula_gradients, grad, query, key, value, mask, sink, causal).result()
        return *map(as_kernel, by_leaf[:3]), *by_leaf[3:]
    by_sink = query.new_empty(0) if sink is None else sink_gradient(grad, output, lse, sink).sum_to_size(sink.shape)
    by_mask = torch.zeros_like(mask) if mask is not None and mask_learned else None
    parts = backward(grad, query, key, value, output, lse, mask, causal, 1.0, by_mask)
    by_mask = query.new_empty(0) if by_mask is None else by_mask  # no two results may be the same tensor
    return *map(as_kernel, parts), by_mask, by_sink


def _formula_gradients(grad: Tensor, *inputs: Any) -> list[Tensor]:
    """By query, key, value, mask and sink; empty tensors where there is none."""
    *tensors, causal = inputs
    leaves: list[Any] = [None if x is None else x.detach().requires_grad_() for x in tensors]
    query, key, value, mask, sink = leaves
    solved = _by_formula(query, key, value, mask, sink, causal)
    sources = [x for x in leaves if x is not None]
    gradients = iter(torch.autograd.grad(solved, sources, grad, materialize_grads=True))
    return [grad.new_empty(0) if x is None else next(gradients).contiguous() for x in leaves]


def as_kernel(rows: Tensor) -> Tensor:
    """(B, R, n, size), laid out as the kernel does it: R behind n, as the layer has it that joins the heads."""
    return rows.transpose(1, 2).contiguous().transpose(1, 2)


def _like_kernel(rows: Tensor) -> Tensor:
    batch, sharing, n, size = rows.shape
    return rows.new_empty(batch, n, sharing, size).transpose(1, 2)


@_backward.register_fake
def _(grad: Tensor, query: Tensor, key: Tensor, value: Tensor, *others: Any) -> tuple[Tensor, ...]:
    _, _, mask, sink, _, mask_learned = others
    by_mask = query.new_empty(0) if mask is None or not mask_learned else mask.new_empty(mask.shape)
    by_sink = query.new_empty(0) if sink is None else sink.new_empty(sink.shape)
    return *map(_like_kernel, (query, key, value)), by_mask, by_sink


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, mask, sink, ctx.causal = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(query, key, value, *output, mask, sink)


def _gradients(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    *saved, mask, sink = ctx.saved_tensors
    learned = ctx.needs_input_grad[3]
    *parts, by_mask, by_sink = torch.ops.regard.dot_attention_backward(grad, *saved, mask, sink, ctx.causal, learned)
    return *parts, by_mask if learned else None, None if sink is None else by_sink, None


_forward.register_fake(lambda query, *others: (_like_kernel(query), query.new_empty(query.shape[:-1])))
_forward.register_autograd(_gradients, setup_context=_setup)


def _by_formula(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, sink: Tensor | None, causal: bool
) -> Tensor:
    """As an eager call computes it, whatever the numbers are."""
    from regard.attention import api, dense_masks, normalizers, position_masks  # which import this module

    if sink is not None:  # each of (B, R) has its own: heads of one batch
        lead = query.shape[:2]
        mask = None if mask is None else mask.expand(*lead, -1, -1).flatten(0, 1)
        query, key, value = (rows.flatten(0, 1)[None] for rows in (query, key, value))
        sink = sink.expand(*lead, 1, 1).flatten()
    restricted = None if mask is None else dense_masks.bias(mask)
    if causal:
        rows_before = position_masks.causal(align="start")
        restricted = rows_before if restricted is None else restricted & rows_before
    normalizer = None if sink is None else normalizers.Softmax(sink)
    output = api.attend(query, key, value, score=Dot(scale=1.0), mask=restricted, normalizer=normalizer)
    return output if sink is None else output[0].unflatten(0, lead)
