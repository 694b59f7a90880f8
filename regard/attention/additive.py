"""The additive score w · tanh(query_i + key_j) of every query with every key, without an (n × m × hidden) tensor.

On a CPU it runs in compiled loops (loops.py) that need no tanh; elsewhere, and where the numbers are out of the loops'
range, it is PyTorch's own tanh on one tile at a time. The two agree to rounding, gradients included.

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
from torch import Tensor

from regard.attention.threads import load_kernels, parallel_for

TILE = 1 << 20  # numbers in a tile: 4 MB of float32


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
    scores: Tensor = _Scores.apply(query, key, w, _limit(query, key, w))  # type: ignore[no-untyped-call]
    return scores.view(*leading, *scores.shape[-2:]).to(dtype)


class _Scores(torch.autograd.Function):
    """Both ways to the scores; `limit` is None for tiles, else that of the loops. Only the inputs are kept."""

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
    """Some rows and some keys at a time, so that what is computed for them fits into TILE (or is for a single pair)."""
    (batch, n, hidden), m = query.shape, key.shape[1]
    per_pair = max(1, batch * hidden)
    keys = max(1, min(TILE // per_pair, m))
    rows = max(1, TILE // (per_pair * keys))
    for top in range(0, n, rows):
        for first in range(0, m, keys):
            yield slice(top, top + rows), slice(first, first + keys)


# ---------------------------------------------------------------------------------------------------- loops, on a CPU


LIMIT = {torch.float32: 2.0**62, torch.float64: 2.0**510}  # its square and the inverse of that are normal numbers
SATURATION = {torch.float32: 10, torch.float64: 20}  # from here on tanh is 1


def _limit(query: Tensor, key: Tensor, w: Tensor) -> float | None:
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
    edge = _edge(query.dtype)
    if max(reach_query, reach_key) > edge and min(reach_query, reach_key) > edge - SATURATION[query.dtype]:
        return None
    return math.inf if 2 * (high_query + high_key) < edge else LIMIT[query.dtype]


def _edge(dtype: torch.dtype) -> float:
    """How far from 0 an x may be, if e^{2x} is to be a normal number."""
    return math.log(LIMIT[dtype])


def _ends(x: Tensor) -> tuple[float, float]:
    low, high = x.detach().aminmax()  # both are NaN if there is one
    return low.item(), high.item()


def _loop_scores(query: Tensor, key: Tensor, w: Tensor, limit: float) -> Tensor:
    if padding := -w.numel() % 4:  # hidden units of weight 0, so that the loops need no tail
        query, key, w = (F.pad(x, (0, padding)) for x in (query, key, w))
    return far_scores(*_exponentials(query, key), w, limit)


def _loop_gradients(query: Tensor, key: Tensor, w: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    a, b = _exponentials(query, key)
    by_key = torch.zeros_like(b)
    by_query, by_w = far_slopes(a, b, grad.contiguous(), by_key)
    return by_query.mul_(4 * w), by_key.mT.mul_(4 * w), grad.sum() - 2 * by_w.sum((0, 1))


def far_scores(a: Tensor, b: Tensor, w: Tensor, limit: float = math.inf) -> Tensor:
    """The scores (batch, n, m) from a = e^{2 query} (batch, n, hidden) and b = e^{2 key} (batch, hidden, m).

    hidden is a multiple of 4. A decoder calls it at every step, with keys whose exponentials it has computed once.
    """
    scores = a.new_empty(*a.shape[:2], b.shape[-1])
    out = scores.numpy()
    cut = None if limit == math.inf else out.dtype.type(limit)
    weights = w.detach().clone().numpy()  # cloned, because numpy would pin the memory of a parameter
    arrays = (a.numpy(), b.numpy(), weights, cut, out)
    loop = functools.partial(load_kernels("additive").scores, *arrays)
    parallel_for(loop, a.shape[0] * a.shape[1], work=scores.numel() * w.numel())
    return scores


def far_slopes(a: Tensor, b: Tensor, grad: Tensor, by_key: Tensor) -> tuple[Tensor, Tensor]:
    """Σ_j grad r (1 − r) and Σ_j grad r, like a; what keys get of the former is added to by_key, like b (loops/)."""
    by_query, by_w = torch.empty_like(a), torch.empty_like(a)
    arrays = [x.numpy() for x in (a, b, grad, by_query, by_key, by_w)]

    def loop(start: int, stop: int) -> None:
        part = numpy.empty(b.shape[-1], arrays[0].dtype)
        load_kernels("additive").slopes(*arrays, part, start, stop)

    parallel_for(loop, a.shape[-1], work=grad.numel() * a.shape[-1])
    return by_query, by_w


def _exponentials(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """e^{2 query} (batch, n, hidden) and e^{2 key} (batch, hidden, m), numbers beyond the edge moved there."""
    edge = _edge(query.dtype)
    a, b = (x.detach().clamp(-edge, edge).mul_(2).exp_() for x in (query, key))
    return a.contiguous(), b.mT.contiguous()
