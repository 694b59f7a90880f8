"""The additive score w · tanh(query_i + key_j) of every query with every key, without an (n × m × hidden) tensor.

On a CPU it runs in compiled loops (loops/additive.py) that need no tanh; elsewhere, and where the numbers are out of
the loops' range, it is PyTorch's tanh on one tile at a time. The two agree to rounding, gradients included.

Shapes: query (batch, n, hidden) · key (batch, m, hidden) · w (hidden,) · scores and their gradient (batch, n, m).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.arguments import check_size
from regard.attention.scores import Score, check_features, check_parameter, linear
from regard.attention.threads import load_kernels, parallel_for

__all__ = ["LIMIT", "Additive", "additive_scores", "loop_limit", "scores_from_exp", "slopes_from_exp"]

TILE = 1 << 20  # numbers in a tile: 4 MB of float32


class Additive(Score):
    """w_vᵀ tanh(W_q q + W_k k), without biases: queries and keys of different sizes meet in `hidden_size` units.

    query_size, key_size: of the rows that are compared. hidden_size: how many units of tanh.

    >>> import regard, torch
    >>> score = regard.Additive(query_size=20, key_size=2, hidden_size=8)
    >>> score(torch.randn(2, 1, 20), torch.randn(2, 10, 2)).shape
    torch.Size([2, 1, 10])
    """

    may_exclude = False

    def __init__(self, query_size: int, key_size: int, hidden_size: int) -> None:
        super().__init__()
        hidden_size = check_size("hidden_size", hidden_size)
        query_size, key_size = check_size("query_size", query_size), check_size("key_size", key_size)
        self.query_weight = nn.Parameter(torch.empty(hidden_size, query_size))
        self.key_weight = nn.Parameter(torch.empty(hidden_size, key_size))
        self.value_weight = nn.Parameter(torch.empty(hidden_size))
        for weight in (self.query_weight, self.key_weight):
            nn.init.xavier_uniform_(weight)
        nn.init.uniform_(self.value_weight, -1 / math.sqrt(hidden_size), 1 / math.sqrt(hidden_size))

    def extra_repr(self) -> str:
        hidden, query = self.query_weight.shape
        return f"query_size={query}, key_size={self.key_weight.shape[1]}, hidden_size={hidden}"

    def check_query(self, query: Tensor) -> None:
        check_features("query", query, self.query_weight.shape[1], "the score's query_size")
        check_parameter(query, self.query_weight)

    def check_key(self, query: Tensor, key: Tensor) -> None:
        check_features("key", key, self.key_weight.shape[1], "the score's key_size")

    def project_query(self, query: Tensor) -> Tensor:
        return linear(query, self.query_weight)

    def project_key(self, key: Tensor) -> Tensor:
        check_features("key", key, self.key_weight.shape[1], "the score's key_size")
        return linear(key, self.key_weight)

    def pairs(self, query: Tensor, key: Tensor) -> Tensor:
        return additive_scores(query, key, self.value_weight.to(query.dtype))


def additive_scores(query: Tensor, key: Tensor, w: Tensor) -> Tensor:
    """Σ_d w_d tanh(query_id + key_jd), for query (…, n, hidden) and key (…, m, hidden) that are already projected.

    Leading dimensions broadcast. float16 and bfloat16 are computed in float32. Gradients flow to query, key and w.
    Gradients of gradients do too, and they alone keep (n × m × hidden).
    """
    dtype = torch.promote_types(query.dtype, key.dtype)
    exact = torch.promote_types(dtype, torch.float32)
    query, key, w = query.to(exact), key.to(exact), w.to(exact)
    # numpy's, because torch.broadcast_shapes imports sympy, which takes longer than to compile the loops.
    leading = numpy.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    query, key = (x.expand(*leading, -1, -1).reshape(math.prod(leading), *x.shape[-2:]) for x in (query, key))
    scores: Tensor = _Scores.apply(query, key, w, loop_limit(query, key, w))  # type: ignore[no-untyped-call]
    return scores.view(*leading, *scores.shape[-2:]).to(dtype)


class _Scores(torch.autograd.Function):
    """The scores in loops, or in tiles where `limit` is None. Only the inputs are kept for the backward pass."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, w: Tensor, limit: float | None) -> Tensor:
        ctx.limit = limit
        ctx.save_for_backward(query, key, w)
        return _tile_scores(query, key, w) if limit is None else _loop_scores(query, key, w, limit)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, w = ctx.saved_tensors
        # With create_graph=True this is to be differentiated again: that PyTorch can do with tiles.
        in_tiles = ctx.limit is None or torch.is_grad_enabled()
        gradients = _tile_gradients if in_tiles else _loop_gradients
        return *gradients(query, key, w, grad), None


# ---------------------------------------------------------------------------------------------------- tiles, anywhere


def _tile_scores(query: Tensor, key: Tensor, w: Tensor) -> Tensor:
    scores = query.new_empty(*query.shape[:2], key.shape[1])
    for rows, keys in _tiles(query, key):
        # Not a matrix product, which autocast would take to half precision.
        scores[:, rows, keys] = _tanh(query[:, rows], key[:, keys]).mul_(w).sum(-1)
    return scores


def _tile_gradients(query: Tensor, key: Tensor, w: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    by_query, by_key, by_w = torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(w)
    for rows, keys in _tiles(query, key):
        tanh = _tanh(query[:, rows], key[:, keys])  # (batch, rows, keys, hidden)
        outer = grad[:, rows, keys, None]
        slope = (1 - tanh.square()) * (outer * w)
        by_query[:, rows] += slope.sum(2)
        by_key[:, keys] += slope.sum(1)
        by_w += (outer * tanh).sum((0, 1, 2))
    return by_query, by_key, by_w


def _tanh(query: Tensor, key: Tensor) -> Tensor:
    return (query.unsqueeze(2) + key.unsqueeze(1)).tanh_()


def _tiles(query: Tensor, key: Tensor) -> Iterator[tuple[slice, slice]]:
    """Ranges of rows and of keys whose (batch, rows, keys, hidden) fits into TILE, or is a single pair."""
    (batch, n, hidden), m = query.shape, key.shape[1]
    per_pair = max(1, batch * hidden)
    keys = max(1, min(TILE // per_pair, m))
    rows = max(1, TILE // (per_pair * keys))
    for top in range(0, n, rows):
        for first in range(0, m, keys):
            yield slice(top, top + rows), slice(first, first + keys)


# ---------------------------------------------------------------------------------------------------- loops, on a CPU


LIMIT = {torch.float32: 2.0**62, torch.float64: 2.0**510}  # its square and the inverse of that are normal numbers
EDGE = {dtype: math.log(limit) for dtype, limit in LIMIT.items()}  # how far from 0 an x may be for a normal e^{2x}
SATURATION = {torch.float32: 10, torch.float64: 20}  # from here on tanh is 1


def loop_limit(query: Tensor, key: Tensor, w: Tensor) -> float | None:
    """Where the loops must cut off e^{2(query + key)}: at infinity if nothing is near overflow; None: not in loops."""
    if query.device.type != "cpu" or torch.compiler.is_compiling() or load_kernels("additive") is None:
        return None
    if not (query.numel() and key.numel()):
        return None
    (low_query, high_query), (low_key, high_key) = _ends(query), _ends(key)
    reach_query, reach_key = max(-low_query, high_query), max(-low_key, high_key)
    # What is not finite comes out of a tanh otherwise than out of the loops; and w · limit has to be finite.
    if not math.isfinite(reach_query + reach_key) or not max(map(abs, _ends(w))) < 1e18:
        return None
    # The loops move numbers beyond the edge to the edge. There tanh is ±1, unless the other side can take it back.
    edge = EDGE[query.dtype]
    if max(reach_query, reach_key) > edge and min(reach_query, reach_key) > edge - SATURATION[query.dtype]:
        return None
    return math.inf if 2 * (high_query + high_key) < edge else LIMIT[query.dtype]


def _ends(x: Tensor) -> tuple[float, float]:
    low, high = x.detach().aminmax()  # both are NaN if there is one
    return low.item(), high.item()


def _loop_scores(query: Tensor, key: Tensor, w: Tensor, limit: float) -> Tensor:
    if padding := -w.numel() % 4:  # hidden units of weight 0, so that the loops need no tail
        query, key, w = (F.pad(x, (0, padding)) for x in (query, key, w))
    return scores_from_exp(*_exponentials(query, key), w, limit)


def _loop_gradients(query: Tensor, key: Tensor, w: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    a, b = _exponentials(query, key)
    by_key = torch.zeros_like(b)
    by_query, by_w = slopes_from_exp(a, b, grad.contiguous(), by_key)
    return by_query.mul_(4 * w), by_key.mT.mul_(4 * w), grad.sum() - 2 * by_w.sum((0, 1))


def _exponentials(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """e^{2 query} (batch, n, hidden) and e^{2 key} (batch, hidden, m), numbers beyond the edge moved there."""
    edge = EDGE[query.dtype]
    a, b = (x.detach().clamp(-edge, edge).mul_(2).exp_() for x in (query, key))
    return a.contiguous(), b.mT.contiguous()


def scores_from_exp(a: Tensor, b: Tensor, w: Tensor, limit: float = math.inf) -> Tensor:
    """The scores (batch, n, m) from a = e^{2 query} (batch, n, hidden) and b = e^{2 key} (batch, hidden, m).

    hidden is a multiple of 4. A decoder calls it at every step, with keys whose exponentials it has computed once.
    """
    scores = a.new_empty(*a.shape[:2], b.shape[-1])
    out = scores.numpy()
    cut_off = None if limit == math.inf else out.dtype.type(limit)
    weights = w.detach().clone().numpy()  # cloned, because numpy would pin the memory of a parameter
    loop = functools.partial(load_kernels("additive").scores, a.numpy(), b.numpy(), weights, cut_off, out)
    parallel_for(loop, a.shape[0] * a.shape[1], work=scores.numel() * w.numel())
    return scores


def slopes_from_exp(a: Tensor, b: Tensor, grad: Tensor, by_key: Tensor) -> tuple[Tensor, Tensor]:
    """Σ_j grad r (1 − r) and Σ_j grad r, like a; Σ_i grad r (1 − r) is added to by_key, like b (loops/additive.py)."""
    by_query, by_w = torch.empty_like(a), torch.empty_like(a)
    arrays = [x.numpy() for x in (a, b, grad, by_query, by_key, by_w)]

    def loop(start: int, stop: int) -> None:
        part = numpy.empty(b.shape[-1], arrays[0].dtype)
        load_kernels("additive").slopes(*arrays, part, start, stop)

    parallel_for(loop, a.shape[-1], work=grad.numel() * a.shape[-1])
    return by_query, by_w
