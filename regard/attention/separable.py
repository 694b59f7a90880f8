"""Separable scores: score = log φ(q)·φ(k), so that softmax over the keys is φ(q)·φ(k) / Σ φ(q)·φ(k): linear attention.

Because the product can be taken in any order, no pair has to be visited:

    output_i = φ(q_i)·(Σ_j φ(k_j) v_jᵀ) / φ(q_i)·Σ_j φ(k_j)

Shapes: query (B, R, n, f) and key (B, R, m, f) are rows of features φ · value (B, R, m, size).
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from regard.arguments import shape_text
from regard.attention.scores import Score, in_dtype_of
from regard.attention.tracing import is_traced

PER_PAIR = 16  # what the log and the softmax of one score cost, in multiplications


def elu_plus_one(rows: Tensor) -> Tensor:
    """elu(x) + 1, which is at least 0 (Katharopoulos et al. 2020)."""
    return functional.elu(rows) + 1


class Separable(Score):
    """log φ(q)·φ(k), −inf where that is 0: linear attention, in O(n + m) where the mask allows it.

    feature_map: φ, an nn.Module or a function that maps rows (…, d) to rows (…, f) of features ≥ 0; by default
    elu(x) + 1. Features may be negative as long as no φ(q)·φ(k) is, but then every pair is visited. A negative product
    is refused, or NaN where numbers cannot be looked at (compiled, or not on the CPU).

    >>> import regard, torch
    >>> query, key = torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    >>> regard.weights(query, key, score=regard.Separable(torch.relu))
    tensor([[0.3333, 0.6667, 0.0000]])
    """

    has_average = True
    same_size = "the query's, which go through the same feature map"

    def __init__(self, feature_map: Callable[[Tensor], Tensor] = elu_plus_one) -> None:
        super().__init__()
        if not callable(feature_map):
            raise TypeError(f"feature_map: expected an nn.Module or a function, got {type(feature_map).__name__}")
        self.feature_map = feature_map

    def extra_repr(self) -> str:
        return "" if "feature_map" in self._modules else getattr(self.feature_map, "__name__", repr(self.feature_map))

    def project_query(self, query: Tensor) -> Tensor:
        features = in_dtype_of(self.feature_map, query)
        if not isinstance(features, Tensor) or features.shape[:-1] != query.shape[:-1]:
            got = shape_text(features) if isinstance(features, Tensor) else type(features).__name__
            raise ValueError(f"feature_map: expected features (…, f) for rows {shape_text(query)}, got {got}")
        return features.to(query.dtype)

    def project_key(self, key: Tensor) -> Tensor:
        return self.project_query(key)

    def pairs(self, query: Tensor, key: Tensor) -> Tensor:
        (query, log_query), (key, log_key) = _scale_rows(query), _scale_rows(key)
        products = query @ key.transpose(-2, -1)
        known = products.detach()
        if not is_traced(products) and bool((known < 0).any()):
            raise ValueError(
                "feature_map: expected φ(query)·φ(key) ≥ 0 for every pair, got a negative one; features that are "
                "never negative, such as relu(x) or exp(x), give that"
            )
        # The log is taken where it and its slope are finite; elsewhere 1 stands in, so that no gradient is infinite.
        nothing = known.abs() < torch.finfo(products.dtype).tiny
        scores = products.masked_fill(nothing, 1).log() + log_query + log_key.transpose(-2, -1)
        return scores.masked_fill(nothing, -torch.inf)

    def average(
        self, query: Tensor, key: Tensor, value: Tensor, *, causal: bool = False, visible: Tensor | None = None
    ) -> Tensor | None:
        key, value = (rows[:, :1] if rows.stride(1) == 0 else rows for rows in (key, value))  # heads that share keys
        if visible is not None:
            hidden = ~visible.transpose(-2, -1)
            key, value = key.masked_fill(hidden, 0), value.masked_fill(hidden, 0)
        (n, features), m, size = query.shape[-2:], key.shape[-2], value.shape[-1]
        # Sums of f × size numbers per row have to cost less than one score and one weight per pair.
        pays = n * m * (features + size + PER_PAIR) > (n + m) * features * (size + 1)
        if not pays or not _in_range(query, key, value):
            return None
        columns = torch.cat([value, torch.ones_like(value[..., :1])], -1)  # the last one sums up the weights
        sums = _causal_sums(query, key, columns) if causal else query @ (key.transpose(-2, -1) @ columns)
        total = sums[..., -1:]
        empty = total.detach() == 0
        # Where products come near underflow, their logarithms are still right.
        limits = torch.finfo(total.dtype)
        if bool((~empty & (total.detach() < key.shape[-2] * limits.tiny / limits.eps)).any()):
            return None
        return (sums[..., :-1] / total.masked_fill(empty, 1)).masked_fill(empty, 0)


def _scale_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The rows over their largest entry, so that no product overflows or underflows, and the logarithm of that."""
    if not rows.shape[-1]:
        return rows, rows.new_zeros(*rows.shape[:-1], 1)
    largest = rows.detach().abs().amax(-1, keepdim=True)
    largest = largest.masked_fill(largest == 0, 1)
    return rows / largest, largest.log()


def _causal_sums(query: Tensor, key: Tensor, columns: Tensor) -> Tensor:
    """Σ_{j ≤ i} (query_i · key_j) columns_j, (B, R, n, c): within a chunk of rows pair by pair, before it by sums.

    A chunk keeps f × c sums and chunk × chunk products, so that memory is least where these are as many.
    """
    n, chunk = query.shape[-2], max(64, math.isqrt(key.shape[-1] * columns.shape[-1]))
    chunk = min(chunk, n)
    length = -(-n // chunk) * chunk  # rows behind the last one are 0, as are keys; more keys than that nobody sees
    rows, keys, values = (
        functional.pad(x, (0, 0, 0, length - x.shape[-2])).unflatten(-2, (-1, chunk)) for x in (query, key, columns)
    )  # (B, R, chunks, chunk, f or c)
    sums = keys.transpose(-2, -1) @ values  # (B, R, chunks, f, c)
    before = functional.pad(sums[..., :-1, :, :].cumsum(-3), (0, 0, 0, 0, 1, 0))
    within = (rows @ keys.transpose(-2, -1)).tril() @ values
    joined: Tensor = (rows @ before + within).flatten(-3, -2)
    return joined[..., :n, :]


def _in_range(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether all is finite, no feature is negative, and no sum can overflow."""
    (low_query, high_query), (low_key, high_key) = (rows.detach().aminmax() for rows in (query, key))
    largest = float(value.detach().abs().max()) if value.numel() else 0.0
    bound = float(high_query) * float(high_key) * (1 + largest) * key.shape[-2] * key.shape[-1]
    return bool(low_query >= 0) and bool(low_key >= 0) and bound < torch.finfo(query.dtype).max
