"""PyTorch's functions that attend by themselves, as `AttentionCall`s: a row of FUSED each.

A reader gets the operation, its arguments, its output and a function that knows axes. Where it cannot tell the weights,
it returns the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.attention import Dot, Mask, bias, causal, drop, keep
from regard.attention.observers import AttentionCall
from regard.view import axes as ax
from regard.view.axes import Axes, Axis

__all__ = ["FUSED", "nested_call"]

aten = torch.ops.aten
AxesOf = Callable[[Tensor], Axes]
Reader = Callable[[Any, Sequence[Any], Mapping[str, Any], Any, AxesOf], AttentionCall | str]


def _named(func: Any, args: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments of an operation by name."""
    names = [argument.name for argument in func._schema.arguments]
    return {**dict(zip(names, args, strict=False)), **options}


# --------------------------------------------------------------------------------- F.scaled_dot_product_attention


def _scaled_dot_product(
    func: Any, args: Sequence[Any], options: Mapping[str, Any], output: Any, axes_of: AxesOf
) -> AttentionCall | str:
    given = _named(func, args, options)
    query, key, value = given["query"], given["key"], given["value"]
    restriction = given.get("attn_mask", given.get("attn_bias"))
    own, other = axes_of(query), axes_of(key)
    positions, key_positions = ax.positions(own[-2]), ax.positions(other[-2])
    n, m = query.shape[-2], key.shape[-2]
    if given.get("is_causal"):
        mask: Mask | None = causal(align="start")
        forward: bool | None = True
    else:
        mask = None
        forward = _forbids_later(restriction, n, m, positions, key_positions)
        arranged = [query, key, value, output, restriction]
        query, key, value, output, restriction = _with_heads(arranged, own)
        if restriction is not None:
            mask = keep(restriction) if restriction.dtype == torch.bool else bias(restriction)
    if given.get("is_causal"):
        query, key, value, output, _ = _with_heads([query, key, value, output, None], own)
    return AttentionCall(
        None,
        query,
        key,
        Dot(given.get("scale")),
        mask,
        cross=not ax.related(own[-2], other[-2]),
        value=value,
        output=output,
        causal=forward,
        positions=positions,
        key_positions=key_positions,
    )


def _forbids_later(
    restriction: Tensor | None, n: int, m: int, positions: Sequence[int] | None, key_positions: Sequence[int] | None
) -> bool:
    """Whether a mask (…, n or 1, m or 1) hides all keys behind a query from it, and there are such keys."""
    rows = torch.tensor(positions if positions is not None else range(n))
    columns = torch.tensor(key_positions if key_positions is not None else range(m))
    later = columns > rows[:, None]
    if restriction is None:
        return bool(n < m and positions is not None and len(rows) and not later.any() and int(rows[0]) > 0)
    if not later.any():
        return n < m
    visible = restriction if restriction.dtype == torch.bool else restriction > -5e3
    visible = visible.expand(*visible.shape[:-2], n, m)
    return not bool((visible & later.to(visible.device)).any())


def _with_heads(tensors: list[Any], axes: Axes) -> list[Any]:
    """Tensors (…, n, size), the first of them the queries, as (batch, heads, n, size) each.

    Heads are what enumerates outputs of a learned matrix, else the last of several leading axes, as PyTorch has it.
    """
    leading = axes[:-2]
    flat = [factor for axis in leading for factor in axis]
    heads: Axis = tuple(factor for factor in flat if ax.is_projected(factor))
    if not heads:
        heads = leading[-1] if len(leading) > 1 else ()
    if len(leading) == 2 and leading[1] == heads:
        return tensors
    query = tensors[0]
    lead = query.shape[:-2]
    if leading and (leading[-1] == heads or (not heads and len(leading) == 1)):
        # the heads stand where PyTorch has them: whatever is in front of them is a batch
        count = lead[-1] if heads else 1
        outer = lead[:-1] if heads else lead
        return [_folded(tensor, outer, count if heads else None) for tensor in tensors]
    order = [flat.index(factor) for factor in (*(f for f in flat if f not in heads), *heads)]
    sizes = [ax.size_of(factor) for factor in flat]

    def arranged(tensor: Any) -> Any:
        if tensor is None:
            return None
        full = tensor.expand(*lead, *tensor.shape[-2:]).reshape(*sizes, *tensor.shape[-2:])
        last = (len(sizes), len(sizes) + 1)
        return full.permute(*order, *last).reshape(-1, ax.axis_size(heads), *tensor.shape[-2:])

    return [arranged(tensor) for tensor in tensors]


def _folded(tensor: Any, outer: Sequence[int], heads: int | None) -> Any:
    """(…, heads, n, size) → (batch, heads, n, size); with heads None there are none yet."""
    if tensor is None:
        return None
    tail = tensor.shape[-2:] if heads is None else tensor.shape[-3:]
    if len(tail) > tensor.dim() or (heads is not None and tensor.dim() < 3):
        return tensor  # a mask (n, m)
    full = tensor.expand(*outer, *tail).reshape(-1, *tail)
    return full[:, None] if heads is None else full


# ------------------------------------------------------------------------------------ fast paths of nn.Transformer…


def _multihead(
    func: Any, args: Sequence[Any], options: Mapping[str, Any], output: Any, axes_of: AxesOf, *, within: str = ""
) -> AttentionCall | str:
    """The fast path of nn.MultiheadAttention: inputs (batch, n, size), which it projects itself."""
    given = _named(func, args, options)
    size, key = given["embed_dim"], given["key"]
    projections = zip(given["qkv_weight"].split(size), given["qkv_bias"].split(size), strict=True)
    query, keys, value = (
        functional.linear(_padded(rows), *projection).unflatten(-1, (given["num_head"], -1)).transpose(1, 2)
        for rows, projection in zip((given["query"], key, given["value"]), projections, strict=True)
    )  # (batch, heads, n, head size)
    cross = given["query"] is not key
    mask = _fast_path_mask(given.get("mask"), given.get("mask_type"), key, query.shape[-2])
    forward = _forbids_later(
        _as_keep(given.get("mask"), given.get("mask_type")), query.shape[-2], keys.shape[-2], None, None
    )
    return AttentionCall(None, query, keys, Dot(), mask, cross=cross, within=within, value=value, causal=forward)


def _encoder_layer(
    func: Any, args: Sequence[Any], options: Mapping[str, Any], output: Any, axes_of: AxesOf
) -> AttentionCall | str:
    """The fast path of nn.TransformerEncoderLayer, which does not even call its attention."""
    given = _named(func, args, options)
    rows = given["src"]
    if given["norm_first"]:
        norm = (given["norm_weight_1"], given["norm_bias_1"], given["eps"])
        rows = functional.layer_norm(rows, (given["embed_dim"],), *norm)
    names = ("qkv_weight", "qkv_bias", "proj_weight", "proj_bias", "mask", "mask_type")
    inner = {"query": rows, "key": rows, "value": rows, "embed_dim": given["embed_dim"], "num_head": given["num_heads"]}
    inner |= {name: given.get(name) for name in names}
    return _multihead(aten._native_multi_head_attention.default, (), inner, output, axes_of, within="self_attn")


def _padded(rows: Tensor) -> Tensor:
    """A nested tensor, which the fast path makes of a padded batch, padded again."""
    return rows.to_padded_tensor(0.0) if rows.is_nested else rows


def _as_keep(mask: Tensor | None, kind: int | None) -> Tensor | None:
    """A mask of the fast path, in which True forbids: 0: (n, m), 1: (batch, m), 2: (batch, heads, n, m)."""
    if mask is None:
        return None
    allowed = ~mask.to(torch.bool)
    return allowed[:, None, None] if kind == 1 else allowed


def _fast_path_mask(mask: Tensor | None, kind: int | None, key: Tensor, n: int) -> Mask | None:
    if key.is_nested:  # rows of padding are not computed there, so they attend to nothing here
        counts = torch.tensor([len(sequence) for sequence in key.unbind()])
        real = torch.arange(n) < counts[:, None]  # (batch, n)
        return keep((real[:, None] & real[:, :, None])[:, None])
    allowed = _as_keep(mask, kind)
    return None if allowed is None else drop(~allowed)


# ------------------------------------------------------------------------------------------- FlexAttention, nested tensors


def _flex(
    func: Any, args: Sequence[Any], options: Mapping[str, Any], output: Any, axes_of: AxesOf
) -> AttentionCall | str:
    """With an identity for the values, the output is the weights."""
    query, key, value = args[:3]
    identity = torch.eye(key.shape[-2], dtype=value.dtype, device=value.device).expand(*key.shape[:2], -1, -1)
    with torch.no_grad():
        known = func(query, key, identity, *args[3:], **options)[0]
    own, other = axes_of(query)[-2], axes_of(key)[-2]
    return AttentionCall(
        None,
        query,
        key,
        cross=not ax.related(own, other),
        known=known,
        value=value,
        output=output,
        positions=ax.positions(own),
        key_positions=ax.positions(other),
    )


def nested_call(module: nn.Module, weights: Tensor) -> AttentionCall:
    """Attention between nested tensors, of weights (batch, heads, n, m) that are nested too."""
    known = weights.to_padded_tensor(0.0)
    return AttentionCall(module, known[..., :0], known.mT[..., :0], known=known)


FUSED: dict[Any, Reader] = {
    aten.scaled_dot_product_attention: _scaled_dot_product,
    aten._scaled_dot_product_flash_attention_for_cpu: _scaled_dot_product,
    aten._scaled_dot_product_flash_attention: _scaled_dot_product,
    aten._scaled_dot_product_efficient_attention: _scaled_dot_product,
    aten._scaled_dot_product_cudnn_attention: _scaled_dot_product,
    aten._scaled_dot_product_fused_attention_overrideable: _scaled_dot_product,
    aten._native_multi_head_attention: _multihead,
    aten._transformer_encoder_layer_fwd: _encoder_layer,
    torch.ops.higher_order.flex_attention: _flex,
}
