"""PyTorch's functions that attend by themselves, as `AttentionCall`s: a row of FUSED each.

A reader gets the operation, its arguments, its output and a function that knows axes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.attention import Dot, Mask, bias, causal, drop, keep
from regard.attention.capture import HIDDEN
from regard.attention.observers import AttentionCall
from regard.view import axes as ax
from regard.view.axes import Axes, Axis
from regard.view.lineage import Lineage
from regard.view.states import State

__all__ = ["FUSED", "FusedCall", "nested_call"]

AxesOf = Callable[[Tensor], Axes]
Reader = Callable[[Any, Sequence[Any], Mapping[str, Any], Any, AxesOf], AttentionCall]


def _named(func: Any, args: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments of an operation by name."""
    names = [argument.name for argument in func._schema.arguments]
    return {**dict(zip(names, args, strict=False)), **options}


class FusedCall:
    """A call of a function that attends by itself.

    reason: why it cannot be read; None: it can
    """

    def __init__(self, func: Any, name: str, args: Sequence[Any], options: Mapping[str, Any], axes_of: AxesOf) -> None:
        self.name, self.name, self.axes_of = str(func), name, axes_of
        self.func, self.args, self.options = func, args, options
        self.within = "self_attn" if name == "_transformer_encoder_layer_fwd" else ""
        first = args[0] if args else None
        self.reason = "its queries are a nested tensor" if _is_odd(name, first) else None

    @property
    def tensors(self) -> list[Tensor]:
        """What the output is made of."""
        return [tensor for tensor in self.args if isinstance(tensor, Tensor)]

    def output_state(self, output: Tensor, lineage: Lineage) -> State:
        """What is known of the output: its axes are the queries', and the last one the values'."""
        first, value = self.args[0], self.args[2] if len(self.args) > 2 else None
        if not isinstance(first, Tensor) or first.is_nested:
            return State(ax.first_axes(output), "output")
        parents, shape = [lineage.state(first)], output.shape
        if isinstance(value, Tensor) and value.dim() == first.dim():
            parents.append(lineage.state(value))

        def make(*axes: Axes) -> Axes:
            made = (*axes[0][:-1], axes[-1][-1])
            fits = tuple(map(ax.axis_size, made)) == tuple(shape)
            return made if fits else tuple(map(ax.fresh, shape))

        return State(None, "output", parents=parents, make=make, shape=shape)

    def call(self, module: nn.Module | None, result: Tensor, axes: Axes, operands: bool) -> AttentionCall:
        """The call. operands: whether its output is wanted where the function does not return it."""
        call = FUSED[self.name](self.func, self.args, self.options, result, self.axes_of)
        if operands and call.output is None and call.value is not None:
            from regard.attention import attend

            output = attend(call.query, call.key, call.value, score=call.score, mask=call.mask)
            call = replace(call, output=output)
        return replace(call, module=module)

    def back(self, output: Tensor, result: Tensor, axes: Axes) -> Tensor:
        """An output (batch, heads, n, size) in the shape of the model's, or all that follows from it."""
        finish = FINISH.get(self.name)
        if finish is not None:
            given = _named(self.func, self.args, self.options)
            return finish(given, output.transpose(1, 2).flatten(2))
        batch, heads = _leading(axes)
        return ax.restore(output, axes, (batch, heads, *axes[-2:]), result.shape)


def _is_odd(name: str, first: Any) -> bool:
    """Whether a function was called with nested tensors that only its fast paths understand."""
    fast = ("_native_multi_head_attention", "_transformer_encoder_layer_fwd")
    return isinstance(first, Tensor) and first.is_nested and name not in fast


# --------------------------------------------------------------------------------- F.scaled_dot_product_attention


def _scaled_dot_product(
    func: Any, args: Sequence[Any], options: Mapping[str, Any], output: Any, axes_of: AxesOf
) -> AttentionCall:
    given = _named(func, args, options)
    query, key, value = given["query"], given["key"], given["value"]
    axes, key_axes = axes_of(query), axes_of(key)
    positions, key_positions = ax.positions(axes[-2]), ax.positions(key_axes[-2])
    restriction, is_causal = given.get("attn_mask", given.get("attn_bias")), bool(given.get("is_causal"))
    n, m = query.shape[-2], key.shape[-2]
    forward = is_causal or _forbids_later(restriction, n, m, positions, key_positions)
    mask: Mask | None = causal(align="start") if is_causal else None
    query, key, value, output, restriction = _with_heads([query, key, value, output, restriction], axes)
    if restriction is not None:
        mask = keep(restriction) if restriction.dtype == torch.bool else bias(restriction)
    return AttentionCall(
        None,
        query,
        key,
        Dot(given.get("scale")),
        mask,
        cross=not ax.related(axes[-2], key_axes[-2]),
        value=value,
        output=output,
        causal=forward,
        positions=positions,
        key_positions=key_positions,
    )


def _forbids_later(
    restriction: Tensor | None, n: int, m: int, positions: Sequence[int] | None, key_positions: Sequence[int] | None
) -> bool:
    """Whether no query may attend to a key behind it, by its mask (…, n or 1, m or 1) or because there is none."""
    rows = torch.tensor(range(n) if positions is None else positions)
    columns = torch.tensor(range(m) if key_positions is None else key_positions)
    later = columns > rows[:, None]
    if not later.any():
        return bool(n < m and len(rows) and rows[0] > 0)
    if restriction is None:
        return False
    visible = restriction if restriction.dtype == torch.bool else restriction > HIDDEN
    visible = visible.expand(*visible.shape[:-2], n, m)
    return not bool((visible & later.to(visible.device)).any())


def _leading(axes: Axes) -> tuple[Axis, Axis]:
    """Batch and heads of queries (…, n, size): heads enumerate outputs of a learned matrix, else they are the last of
    several leading axes, as PyTorch has it."""
    factors = [factor for axis in axes[:-2] for factor in axis]
    heads: Axis = tuple(factor for factor in factors if ax.is_projected(factor))
    if not heads and len(axes) > 3:
        heads = axes[-3]
    return tuple(factor for factor in factors if factor not in heads), heads


def _with_heads(tensors: list[Any], axes: Axes) -> list[Any]:
    """Tensors (…, n, size), the first of them the queries, as (batch, heads, n, size) each."""
    batch, heads = _leading(axes)
    if len(axes) == 4 and axes[1] == heads:
        return tensors
    if len(axes) > 4 and axes[-3] == heads:  # the heads stand where PyTorch has them
        outer = tensors[0].shape[:-3]
        return [
            tensor if tensor is None or tensor.dim() < 4 else tensor.expand(*outer, *tensor.shape[-3:]).flatten(0, -4)
            for tensor in tensors
        ]
    lead, sizes = tensors[0].shape[:-2], [ax.size_of(factor) for axis in axes[:-2] for factor in axis]
    factors = [factor for axis in axes[:-2] for factor in axis]
    order = [factors.index(factor) for factor in (*batch, *heads)]

    def arranged(tensor: Any) -> Any:
        if tensor is None:
            return None
        last = tensor.shape[-2:]
        full = tensor.expand(*lead, *last).reshape(*sizes, *last).permute(*order, len(sizes), len(sizes) + 1)
        return full.reshape(-1, ax.axis_size(heads), *last)

    return [arranged(tensor) for tensor in tensors]


# ------------------------------------------------------------------------------------ fast paths of nn.Transformer…


def _multihead(
    func: Any, args: Sequence[Any], options: Mapping[str, Any], output: Any, axes_of: AxesOf, *, within: str = ""
) -> AttentionCall:
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
) -> AttentionCall:
    """The fast path of nn.TransformerEncoderLayer, which does not even call its attention."""
    given = _named(func, args, options)
    rows = given["src"]
    if given["norm_first"]:
        norm = (given["norm_weight_1"], given["norm_bias_1"], given["eps"])
        rows = functional.layer_norm(rows, (given["embed_dim"],), *norm)
    names = ("qkv_weight", "qkv_bias", "proj_weight", "proj_bias", "mask", "mask_type")
    inner = {"query": rows, "key": rows, "value": rows, "embed_dim": given["embed_dim"], "num_head": given["num_heads"]}
    inner |= {name: given.get(name) for name in names}
    return _multihead(
        torch.ops.aten._native_multi_head_attention.default, (), inner, output, axes_of, within="self_attn"
    )


def _project_out(given: Mapping[str, Any], heads: Tensor) -> Tensor:
    """What nn.MultiheadAttention makes of the outputs of its heads, side by side."""
    if given["query"].is_nested:
        raise ValueError("attention between nested tensors cannot be edited: pass enable_nested_tensor=False")
    return functional.linear(heads, given["proj_weight"], given["proj_bias"])


def _rest_of_layer(given: Mapping[str, Any], heads: Tensor) -> Tensor:
    """What nn.TransformerEncoderLayer makes of the outputs of its heads, side by side."""
    size, eps = given["embed_dim"], given["eps"]
    rows: Tensor = given["src"]
    norms = [(given[f"norm_weight_{number}"], given[f"norm_bias_{number}"], eps) for number in (1, 2)]
    activation = functional.gelu if given["use_gelu"] else functional.relu

    def feed_forward(inputs: Tensor) -> Tensor:
        inner: Tensor = activation(functional.linear(inputs, given["ffn_weight_1"], given["ffn_bias_1"]))
        return functional.linear(inner, given["ffn_weight_2"], given["ffn_bias_2"])

    rows = rows + _project_out({**given, "query": rows}, heads)
    if given["norm_first"]:
        return rows + feed_forward(functional.layer_norm(rows, (size,), *norms[1]))
    rows = functional.layer_norm(rows, (size,), *norms[0])
    return functional.layer_norm(rows + feed_forward(rows), (size,), *norms[1])


FINISH = {
    "_native_multi_head_attention": _project_out,
    "_transformer_encoder_layer_fwd": _rest_of_layer,
}


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


# --------------------------------------------------------------------------------- FlexAttention, nested tensors


def _flex(func: Any, args: Sequence[Any], options: Mapping[str, Any], output: Any, axes_of: AxesOf) -> AttentionCall:
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
    "scaled_dot_product_attention": _scaled_dot_product,
    "_scaled_dot_product_flash_attention_for_cpu": _scaled_dot_product,
    "_scaled_dot_product_flash_attention": _scaled_dot_product,
    "_scaled_dot_product_efficient_attention": _scaled_dot_product,
    "_scaled_dot_product_cudnn_attention": _scaled_dot_product,
    "_scaled_dot_product_fused_attention_overrideable": _scaled_dot_product,
    "_native_multi_head_attention": _multihead,
    "_transformer_encoder_layer_fwd": _encoder_layer,
    "flex_attention": _flex,
}
