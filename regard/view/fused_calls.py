"""PyTorch's functions that attend by themselves, as `AttentionCall`s: a row of FUSED each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.attention import Dot, Mask, bias, causal, keep
from regard.attention.capture import HIDDEN
from regard.attention.observers import AttentionCall
from regard.view import axes as ax
from regard.view.averages import State
from regard.view.axes import Axes, Axis
from regard.view.lineage import Lineage


@dataclass(eq=False)
class FusedCall:
    """A call of a function that attends by itself. lineage: of its arguments"""

    func: Any
    name: str
    args: Sequence[Any]
    options: Mapping[str, Any]
    lineage: Lineage

    @property
    def within(self) -> str:
        """The part of the module that attends, if it is not called itself."""
        return "self_attn" if self.name == "_transformer_encoder_layer_fwd" else ""

    @property
    def is_nested(self) -> bool:
        return isinstance(self.args[0], Tensor) and self.args[0].is_nested

    @property
    def given(self) -> dict[str, Any]:
        """All arguments by name."""
        names = [argument.name for argument in self.func._schema.arguments]
        return {**dict(zip(names, self.args, strict=False)), **self.options}

    @property
    def tensors(self) -> list[Tensor]:
        """What the output is made of."""
        return [tensor for tensor in self.args if isinstance(tensor, Tensor)]

    def output_state(self, output: Tensor) -> State:
        """What is known of the output: its axes are the queries', and the last one the values'."""
        if self.is_nested:
            return State(ax.first_axes(output), "output")
        first, value = self.args[0], self.args[2] if len(self.args) > 2 else None
        parents, shape = [self.lineage.state(first)], output.shape
        if isinstance(value, Tensor) and value.dim() == first.dim():
            parents.append(self.lineage.state(value))

        def make(*axes: Axes) -> Axes:
            made = (*axes[0][:-1], axes[-1][-1])
            fits = tuple(map(ax.axis_size, made)) == tuple(shape)
            return made if fits else tuple(map(ax.fresh, shape))

        return State(None, "output", parents=parents, make=make, shape=shape)

    def call(self, module: nn.Module | None, result: Tensor, axes: Axes, operands: bool) -> AttentionCall:
        """The call. operands: whether its output is wanted where the function does not return it."""
        call = FUSED[self.name](self, result)
        if operands and call.output is None and call.value is not None:
            values = call.for_each_head(call.value)
            call = replace(call, output=call.live_weights().to(values.dtype) @ values)
        return replace(call, module=module)

    def back(self, output: Tensor, result: Tensor, axes: Axes) -> Tensor:
        """An output (batch, heads, n, size) in the shape of the model's, or all that follows from it."""
        if self.name in FINISH:
            return FINISH[self.name](self.given, output.transpose(1, 2).flatten(2))
        batch, heads = _leading(axes)
        return ax.restore(output, axes, (batch, heads, *axes[-2:]), result.shape)


# --------------------------------------------------------------------------------- F.scaled_dot_product_attention


def _scaled_dot_product(call: FusedCall, output: Any) -> AttentionCall:
    given = call.given
    query, key, value = given["query"], given["key"], given["value"]
    sequences = _sequences(call, query, key)
    restriction, is_causal = given.get("attn_mask", given.get("attn_bias")), bool(given.get("is_causal"))
    n, m = query.shape[-2], key.shape[-2]
    forward = is_causal or _forbids_later(restriction, n, m, sequences["positions"], sequences["key_positions"])
    mask: Mask | None = causal(align="start") if is_causal else None
    tensors = [query, key, value, output, restriction]
    query, key, value, output, restriction = _with_heads(tensors, call.lineage.state(query).axes)
    if restriction is not None:
        mask = keep(restriction) if restriction.dtype == torch.bool else bias(restriction)
    score = Dot(given.get("scale"))
    return AttentionCall(None, query, key, score, mask, value=value, output=output, causal=forward, **sequences)


def _sequences(call: FusedCall, query: Tensor, key: Tensor) -> dict[str, Any]:
    """What the axes say of the places of queries and keys."""
    rows, columns = (call.lineage.state(tensor).axes[-2] for tensor in (query, key))
    places = {"positions": ax.positions(rows), "key_positions": ax.positions(columns)}
    return {"cross": not ax.related(rows, columns), **places}


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
    factors = ax.flat(axes[:-2])
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
    lead, factors = tensors[0].shape[:-2], ax.flat(axes[:-2])
    return [
        None if tensor is None else ax.regroup(tensor.expand(*lead, *tensor.shape[-2:]), factors, batch, heads)
        for tensor in tensors
    ]


# ------------------------------------------------------------------------------------ fast paths of nn.Transformer…


def _multihead(given: Mapping[str, Any], within: str = "") -> AttentionCall:
    """The fast path of nn.MultiheadAttention: inputs (batch, n, size), which it projects itself."""
    size, key, mask = given["embed_dim"], given["key"], given.get("mask")
    projections = zip(given["qkv_weight"].split(size), given["qkv_bias"].split(size), strict=True)
    # A nested tensor, which the fast path makes of a padded batch, is padded again.
    inputs = (rows.to_padded_tensor(0.0) if rows.is_nested else rows for rows in (given["query"], key, given["value"]))
    query, keys, value = (
        functional.linear(rows, *projection).unflatten(-1, (given["num_head"], -1)).transpose(1, 2)
        for rows, projection in zip(inputs, projections, strict=True)
    )  # (batch, heads, n, head size)
    n, m = query.shape[-2], keys.shape[-2]
    allowed = None if mask is None else ~mask.to(torch.bool)  # (n, m), (batch, m) or (batch, heads, n, m)
    if allowed is not None and given.get("mask_type") == 1:
        allowed = allowed[:, None, None]
    visible = allowed
    if key.is_nested:  # rows of padding are not computed there, so they attend to nothing here
        real = torch.arange(n) < torch.tensor([len(sequence) for sequence in key.unbind()])[:, None]  # (batch, n)
        visible = (real[:, None] & real[:, :, None])[:, None]
    mask, forward = None if visible is None else keep(visible), _forbids_later(allowed, n, m, None, None)
    cross = given["query"] is not key
    return AttentionCall(None, query, keys, Dot(), mask, cross=cross, within=within, value=value, causal=forward)


def _encoder_layer(call: FusedCall, output: Any) -> AttentionCall:
    """The fast path of nn.TransformerEncoderLayer, which does not even call its attention."""
    given = call.given
    rows = given["src"]
    if given["norm_first"]:
        norm = (given["norm_weight_1"], given["norm_bias_1"], given["eps"])
        rows = functional.layer_norm(rows, (given["embed_dim"],), *norm)
    inner = {**given, "query": rows, "key": rows, "value": rows, "num_head": given["num_heads"]}
    return _multihead(inner, within=call.within)


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


# --------------------------------------------------------------------------------- FlexAttention


def _flex(call: FusedCall, output: Any) -> AttentionCall:
    """With an identity for the values, the output is the weights."""
    query, key, value = call.args[:3]
    identity = torch.eye(key.shape[-2], dtype=value.dtype, device=value.device).expand(*key.shape[:2], -1, -1)
    with torch.no_grad():
        known = call.func(query, key, identity, *call.args[3:], **call.options)[0]
    return AttentionCall(None, query, key, known=known, value=value, output=output, **_sequences(call, query, key))


KERNELS = (  # of F.scaled_dot_product_attention
    "flash_attention_for_cpu", "flash_attention", "efficient_attention", "cudnn_attention",
    "fused_attention_overrideable",
)  # fmt: skip
FUSED: dict[str, Callable[[FusedCall, Any], AttentionCall]] = {
    "scaled_dot_product_attention": _scaled_dot_product,
    **{f"_scaled_dot_product_{kernel}": _scaled_dot_product for kernel in KERNELS},
    "_native_multi_head_attention": lambda call, output: _multihead(call.given),
    "_transformer_encoder_layer_fwd": _encoder_layer,
    "flex_attention": _flex,
}
