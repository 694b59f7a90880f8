"""The calls that users make: `attend`, `weights`, `masked_softmax`, pooling; and `attend_in` for the layers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, TypedDict, Unpack, overload

import torch
from torch import Tensor, nn

from regard.arguments import check_dropout, check_indices, check_tensor, shape_text
from regard.attention import fused
from regard.attention.formula import Call, normalize, restrict, solve_plainly
from regard.attention.layout import Layout, check_layout, prepare
from regard.attention.masks import Mask, check_mask
from regard.attention.observers import notify
from regard.attention.routes import with_weights, without_weights
from regard.attention.tiling import full_precision


class Options(TypedDict, total=False):
    """What `attend` takes by name."""

    score: nn.Module | None
    mask: Mask | None
    normalizer: nn.Module | None
    dropout: float


@overload
def attend(
    query: Tensor, key: Tensor, value: Tensor, *, need_weights: Literal[False] = ..., **options: Unpack[Options]
) -> Tensor: ...
@overload
def attend(
    query: Tensor, key: Tensor, value: Tensor, *, need_weights: Literal[True], **options: Unpack[Options]
) -> tuple[Tensor, Tensor]: ...
def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: nn.Module | None = None,
    mask: Mask | None = None,
    normalizer: nn.Module | None = None,
    dropout: float = 0.0,
    need_weights: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """For each query the average of the values, weighted by score(query, key), normalised over the keys.

    query (…, n, query size) · key (…, m, key size) · value (…, m, value size) → output (…, n, value size), and with
    need_weights=True also the weights (…, n, m), as they are before dropout. Leading dimensions broadcast; H query
    heads may share G key heads (dimension −3, H a multiple of G). `score` defaults to Dot(), `normalizer` to Softmax().
    `dropout` drops that share of the weights whenever it is positive: pass 0 outside training.

    A query that may attend to nothing gets output 0 and weights 0, with finite gradients.

    >>> import regard, torch
    >>> query, key, value = torch.zeros(1, 4), torch.zeros(2, 4), torch.tensor([[1.0], [3.0]])
    >>> regard.attend(query, key, value, need_weights=True)  # two equal keys share the weight
    (tensor([[2.]]), tensor([[0.5000, 0.5000]]))
    """
    if not isinstance(need_weights, bool):
        raise TypeError(f"need_weights: expected True or False, got {type(need_weights).__name__}")
    result: Tensor | tuple[Tensor, Tensor] = _attend(query, key, value, score, mask, normalizer, dropout, need_weights)
    output, *rest = result if isinstance(result, tuple) else (result,)
    output = notify(None, query, key, score, mask, normalizer, value=value, output=output)
    return (output, rest[0]) if rest else output


def attend_in(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: nn.Module | None = None,
    mask: Mask | None = None,
    normalizer: nn.Module | None = None,
    dropout: float = 0.0,
    cross: bool | None = None,
    first: int | None = None,
) -> Tensor:
    """`attend` for a layer: observers get to know which module attends, whether to another sequence (`cross`), and the
    position of the first query (`first`)."""
    output: Tensor = _attend(query, key, value, score, mask, normalizer, dropout)
    return notify(module, query, key, score, mask, normalizer, cross=cross, value=value, output=output, first=first)


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score: nn.Module | None,
    mask: Mask | None,
    normalizer: nn.Module | None,
    dropout: float,
    need_weights: bool = False,
) -> Any:
    """`attend`, without notifying observers."""
    if normalizer is None and not need_weights and type(dropout) is float and not dropout:
        output = fused.quick_attention(query, key, value, score, mask)
        if output is None and mask is None and fused.is_plain(query, key, value):
            output = solve_plainly(query, key, value, score)
        if output is not None:
            return output
    layout = check_layout(query, key, value)
    call = Call.of(layout, score, mask, normalizer, check_dropout(dropout))
    rows, keys = call.project(query, key)
    with full_precision(layout.device):
        values = layout.spread(prepare(value))
        if need_weights:
            output, weights = with_weights(call, rows, keys, values)
            return layout.unfold(output).to(query.dtype), layout.unfold(weights).to(query.dtype)
        output = without_weights(call, rows, keys, values)
        return layout.unfold(output).to(query.dtype)


def weights(
    query: Tensor,
    key: Tensor,
    *,
    score: nn.Module | None = None,
    mask: Mask | None = None,
    normalizer: nn.Module | None = None,
    rows: Sequence[int] | Tensor | None = None,
    heads: Sequence[int] | Tensor | None = None,
) -> Tensor:
    """The weights (…, n, m) that `attend` gives to the keys.

    `rows` (queries) and `heads` (dimension −3) choose some of them: only these are computed.

    >>> import regard, torch
    >>> query, key = torch.tensor([[2.0]]), torch.tensor([[1.0], [1.0], [0.0]])
    >>> regard.weights(query, key)  # (1, 1) × (3, 1) → (1, 3)
    tensor([[0.4683, 0.4683, 0.0634]])
    """
    layout = check_layout(query, key)
    if rows is not None:
        layout = replace(layout, positions=check_indices("rows", rows, layout.n))
    if heads is not None:
        if not layout.batch:
            raise ValueError(f"heads: expected a query (…, heads, n, size), got shape {shape_text(query)}")
        chosen = check_indices("heads", heads, layout.batch[-1])
        layout = replace(layout, heads=torch.tensor(chosen, dtype=torch.long, device=layout.device))
    call = Call.of(layout, score, mask, normalizer)
    projected_query, projected_key = call.project(query, key)
    with full_precision(layout.device):
        no_values = projected_key[..., :0]
        return layout.unfold(with_weights(call, projected_query, projected_key, no_values)[1]).to(query.dtype)


def masked_softmax(scores: Tensor, mask: Mask | None = None) -> Tensor:
    """softmax over the last dimension of scores (…, n, m), of the allowed keys only.

    It is exactly 0 elsewhere, and a row with nothing allowed is all 0.

    >>> import regard, torch
    >>> scores = torch.zeros(2, 1, 4)  # a batch of two: one query and four keys each
    >>> regard.masked_softmax(scores, regard.lengths([1, 2]))[:, 0]
    tensor([[1.0000, 0.0000, 0.0000, 0.0000],
            [0.5000, 0.5000, 0.0000, 0.0000]])
    """
    check_tensor("scores", scores, "of shape (…, n, m)")
    *batch, n, m = scores.shape
    layout = Layout(tuple(batch), n, m, 1, scores.device)
    call = Call.of(layout, None, mask, None)
    allowed, bias = call.restrictions(layout.whole)
    restricted = restrict(layout.spread(prepare(scores)), allowed, bias)
    return layout.unfold(normalize(call.normalizer, restricted)).to(scores.dtype)


# ------------------------------------------------------------------------------------------ pooling, without a query


def average_pool(value: Tensor, mask: Mask | None = None) -> Tensor:
    """The mean of the values that the mask allows, (…, m, size) → (…, 1, size); 0 where nothing is allowed.

    It is attention in which every key scores the same.

    >>> import regard, torch
    >>> regard.average_pool(torch.tensor([[1.0, 2.0], [3.0, 6.0]]))
    tensor([[2., 4.]])
    """
    return attend(*_featureless(value), value, mask=mask)


def max_pool(value: Tensor, mask: Mask | None = None) -> Tensor:
    """The largest of the values that the mask allows, per feature, (…, m, size) → (…, 1, size); 0 where none is.

    >>> import regard, torch
    >>> regard.max_pool(torch.tensor([[1.0, 9.0], [3.0, 6.0]]))
    tensor([[3., 9.]])
    """
    layout = check_layout(*_featureless(value), value)
    folded = layout.spread(value)  # (B, R, m, size)
    visible = torch.ones(1, 1, layout.m, 1, dtype=torch.bool, device=value.device)
    if mask is not None:
        if check_mask("mask", mask).has_bias:
            raise TypeError("mask: a bias has no meaning for max_pool, which adds no scores; use keep, drop or lengths")
        allowed = mask.bind(layout).allowed(layout.whole)
        visible = visible if allowed is None else visible & allowed.transpose(-2, -1)
    if not layout.m:
        return layout.unfold(folded.sum(-2, keepdim=True))
    largest = folded.masked_fill(~visible, -torch.inf).amax(-2, keepdim=True)
    return layout.unfold(largest.masked_fill(~visible.any(-2, keepdim=True), 0))


def _featureless(value: Tensor) -> tuple[Tensor, Tensor]:
    """One query and m keys without any feature: every key scores the same."""
    check_tensor("value", value, "of shape (…, m, size)")
    return value.new_zeros(*value.shape[:-2], 1, 0), value[..., :0]
