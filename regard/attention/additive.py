"""The additive score w · tanh(query_i + key_j) of every query with every key, without an (n × m × hidden) tensor.

On a CPU it runs in compiled loops (loops/additive.py) that need no tanh. Elsewhere, where there are few pairs, and
where the numbers are out of the loops' range, it is PyTorch's sigmoid on one tile at a time. The two agree to rounding,
gradients included. Calls that are traced (tracing.py) see one operator, regard::additive_scores, which chooses only
when it runs; its gradients are another, regard::additive_slopes.

Shapes: query (batch, n, hidden) · key (batch, m, hidden) · w (hidden,) · scores and their gradient (batch, n, m).
"""

import functools
import inspect
import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.arguments import check_size
from regard.attention.scores import Score, check_features, check_parameter, linear
from regard.attention.threads import load_kernels, parallel_for
from regard.attention.tracing import is_traced, needs_grad

TILE = 1 << 19  # numbers in a tile: 2 MB of float32
SMALL = 1 << 16  # numbers that PyTorch's own operations are done with before the loops have begun


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
        weight = self.query_weight  # nn.Module takes long to find it, and a decoder asks at every step
        check_features("query", query, weight.shape[1], "the score's query_size")
        check_parameter(query, weight)

    def check_key(self, query: Tensor, key: Tensor) -> None:
        check_features("key", key, self.key_weight.shape[1], "the score's key_size")

    def project_query(self, query: Tensor) -> Tensor:
        return linear(query, self.query_weight)

    def project_key(self, key: Tensor) -> Tensor:
        check_features("key", key, self.key_weight.shape[1], "the score's key_size")
        return linear(key, self.key_weight)

    def pairs(self, query: Tensor, key: Tensor) -> Tensor:
        return additive_scores(query, key, self.value_weight)


def additive_scores(query: Tensor, key: Tensor, w: Tensor) -> Tensor:
    """Σ_d w_d tanh(query_id + key_jd), for query (…, n, hidden) and key (…, m, hidden) that are already projected.

    Leading dimensions broadcast. float16 and bfloat16 are computed in float32. Gradients flow to query, key and w.
    Gradients of gradients and forward-mode derivatives do too, and they alone keep (n × m × hidden).
    """
    device = query.device.type
    if device != "meta" and torch.is_autocast_enabled(device):  # it would take matrix products to half precision
        with torch.autocast(device, enabled=False):
            return additive_scores(query, key, w)
    if query.dtype not in LIMIT or not query.dtype == key.dtype == w.dtype:
        dtype = torch.promote_types(query.dtype, key.dtype)
        exact = torch.promote_types(dtype, torch.float32)
        return additive_scores(query.to(exact), key.to(exact), w.to(exact)).to(dtype)
    leading = query.shape[:-2]
    if leading != key.shape[:-2]:
        # Not torch.broadcast_shapes: it imports sympy, which takes longer than to compile the loops.
        leading = torch.broadcast_tensors(query.unsqueeze(-2), key.unsqueeze(-3))[0].shape[:-3]
        query, key = query.expand(*leading, -1, -1), key.expand(*leading, -1, -1)
    if is_traced(query, key, w):
        # Operators have no rule for forward derivatives, nor for torch.func while compiling.
        in_compiled_transform = torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()
        if in_compiled_transform or torch.autograd.forward_ad._current_level >= 0:
            return _formula(query, key, w)
    elif query.numel() * key.shape[-2] <= SMALL:
        return (_formula if needs_grad(query, key, w) else _tile)(query, key, w)
    batch = math.prod(leading)
    scores: Tensor = SCORES(query.reshape(batch, *query.shape[-2:]), key.reshape(batch, *key.shape[-2:]), w)
    return scores.view(*leading, *scores.shape[-2:])


def _formula(query: Tensor, key: Tensor, w: Tensor) -> Tensor:
    """The scores as they are written: whatever PyTorch can do with a tanh, it can do with these."""
    return torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3)) @ w


# ------------------------------------------------------------------------------------------------------- as operators


class Operator:
    """A function of tensors, without a graph, as the operator torch.ops.regard.{name} with gradients.

    schema: name, arguments and results, as PyTorch writes them. run: the function. fake: what has the shapes of its
    results. mapped: its rule for vmap. backward: its gradients, from ctx.saved_tensors (the inputs) and the results'.
    """

    def __init__(self, schema: str, run: Any, fake: Any, mapped: Any, backward: Any) -> None:
        name, signature = schema.split("(", 1)
        qualified = f"regard::{name}"
        torch.library.define(qualified, f"({signature}", tags=torch.Tag.pt2_compliant_tag)
        torch.library.impl(qualified, "default", run)  # on all devices
        torch.library.register_fake(qualified, fake)
        torch.library.register_vmap(qualified, mapped)
        torch.library.register_autograd(qualified, backward, setup_context=_save_inputs)
        operator = getattr(torch.ops.regard, name)

        def forward(*inputs: Tensor) -> Any:
            return (operator if torch._C._are_functorch_transforms_active() else run)(*inputs)

        forward.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]  # else found anew at each call
        # The same for eager calls, at a third of the cost, and for torch.func.grad, which refuses operators.
        methods = {"forward": forward, "setup_context": _save_inputs, "backward": backward}
        body = {name: staticmethod(method) for name, method in methods.items()}
        self.function: Any = type(name, (torch.autograd.Function,), {**body, "generate_vmap_rule": True})
        self.operator, self.run = operator, run

    def __call__(self, *inputs: Tensor) -> Any:
        """The results, in the fastest way that this call allows."""
        in_transform = torch._C._are_functorch_transforms_active()
        if not in_transform and is_traced(*inputs):
            return self.operator(*inputs)
        return (self.function.apply if in_transform or needs_grad(*inputs) else self.run)(*inputs)


def _save_inputs(ctx: Any, inputs: tuple[Tensor, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _scores(query: Tensor, key: Tensor, w: Tensor) -> Tensor:
    limit = loop_limit(query, key, w)
    if limit is not None:
        if padding := -w.numel() % 4:  # hidden units of weight 0, so that the loops need no tail
            query, key, w = (F.pad(x, (0, padding)) for x in (query, key, w))
        return scores_from_exp(*_exponentials(query, key), w, limit)
    scores = query.new_empty(*query.shape[:2], key.shape[1])
    for rows, keys, out in _tiles(query, key):
        scores[:, rows, keys] = _tile(query[:, rows], key[:, keys], w, out)
    return scores


def _scores_mapped(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Tensor, int]:
    query, key, w = (_mapped_first(x, dim, info.batch_size) for x, dim in zip(inputs, in_dims, strict=True))
    if in_dims[2] is not None:
        return torch.stack([SCORES.operator(*example) for example in zip(query, key, w, strict=True)]), 0
    return SCORES.operator(query.flatten(0, 1), key.flatten(0, 1), inputs[2]).unflatten(0, query.shape[:2]), 0


def _scores_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    query, key, w = ctx.saved_tensors
    by_query, by_key, by_w = SLOPES(grad, query, key)
    multiply = torch.mul if torch.is_grad_enabled() or is_traced(grad) else Tensor.mul_
    return multiply(by_query, w), multiply(by_key, w), by_w.sum(0)


def _slopes(grad: Tensor, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    if loop_limit(query, key) is not None:
        a, b = _exponentials(query, key)
        by_key = torch.zeros_like(b)
        by_query, by_w = slopes_from_exp(a, b, grad.contiguous(), by_key)
        # Into the memory of a and b, which have been read: it was taken first, so that above what is returned, all is
        # free. Each tile of a long backward pass comes here, and its remains would else keep the heap from shrinking.
        torch.mul(by_query, 4, out=a)
        b = torch.mul(by_key.mT, 4, out=b.view(key.shape))
        return a, b, grad.sum((1, 2)).unsqueeze(1) - 2 * by_w.sum(1)
    by_query, by_key = query.new_zeros(query.shape), key.new_zeros(key.shape)
    by_w = query.new_zeros(query.shape[0], 1, query.shape[2])
    for rows, keys, out in _tiles(query, key):
        sigmoid, outer = _sigmoid(query[:, rows], key[:, keys], out), grad[:, rows, keys]
        by_w.baddbmm_(outer.reshape(len(outer), 1, -1), sigmoid.flatten(1, 2))
        slope = sigmoid.addcmul_(sigmoid, sigmoid, value=-1).mul_(outer.unsqueeze(-1))
        by_query[:, rows] += slope.sum(2)
        by_key[:, keys] += slope.sum(1)
    return by_query.mul_(4), by_key.mul_(4), 2 * by_w.squeeze(1) - grad.sum((1, 2)).unsqueeze(1)


def _slopes_mapped(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[list[Tensor], list[int]]:
    mapped = [_mapped_first(x, dim, info.batch_size) for x, dim in zip(inputs, in_dims, strict=True)]
    sums = SLOPES.operator(*(x.flatten(0, 1) for x in mapped))
    return [x.unflatten(0, mapped[0].shape[:2]) for x in sums], [0, 0, 0]


def _slopes_backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
    backward: Any = torch.func.vjp(_slope_formula, *ctx.saved_tensors)[1]
    gradients: tuple[Tensor, ...] = backward(grads)
    return gradients


def _slope_formula(grad: Tensor, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    tanh, outer = torch.tanh(query.unsqueeze(2) + key.unsqueeze(1)), grad.unsqueeze(-1)  # (batch, n, m, hidden or 1)
    slope = outer * (1 - tanh.square())
    return slope.sum(2), slope.sum(1), (outer * tanh).sum((1, 2))


def _mapped_first(x: Tensor, dim: int | None, size: int) -> Tensor:
    return x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)


SCORES = Operator(
    "additive_scores(Tensor query, Tensor key, Tensor w) -> Tensor",
    run=_scores,
    fake=lambda query, key, w: query.new_empty(*query.shape[:2], key.shape[1]),
    mapped=_scores_mapped,
    backward=_scores_backward,
)
# Σ_j grad (1 − tanh²) like query, Σ_i grad (1 − tanh²) like key, Σ_ij grad tanh (batch, hidden): times w, and added up
# over the batch, these are the gradients of the scores.
SLOPES = Operator(
    "additive_slopes(Tensor grad, Tensor query, Tensor key) -> (Tensor, Tensor, Tensor)",
    run=_slopes,
    fake=lambda grad, query, key: tuple(query.new_empty(x) for x in (query.shape, key.shape, query.shape[::2])),
    mapped=_slopes_mapped,
    backward=_slopes_backward,
)


# ---------------------------------------------------------------------------------------------------- tiles, anywhere


def _tile(query: Tensor, key: Tensor, w: Tensor, out: Tensor | None = None) -> Tensor:
    half = _sigmoid(query, key, out).sub_(0.5) @ w
    return half.add_(half)


def _sigmoid(query: Tensor, key: Tensor, out: Tensor | None = None) -> Tensor:
    """σ(2 (query + key)) = ½ + ½ tanh(query + key), (…, n, m, hidden), in a sixth of the time of PyTorch's tanh."""
    x = torch.add(query.unsqueeze(-2), key.unsqueeze(-3), out=out)
    return x.add_(x).sigmoid_()  # to multiply by 2 would take longer to call


def _tiles(query: Tensor, key: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    """Ranges of rows and of keys whose (batch, rows, keys, hidden) fits into TILE, or is a single pair; and memory for
    it, the same for all: so it stays in cache, and the heap in one piece.
    """
    (batch, n, hidden), m = query.shape, key.shape[1]
    per_pair = max(1, batch * hidden)
    keys = max(1, min(TILE // per_pair, m))
    rows = max(1, min(TILE // (per_pair * keys), n))
    memory = query.new_empty(batch * rows * keys * hidden)
    for top, first in itertools.product(range(0, n, rows), range(0, m, keys)):
        size = (batch, min(rows, n - top), min(keys, m - first), hidden)
        yield slice(top, top + rows), slice(first, first + keys), memory[: math.prod(size)].view(size)


# ---------------------------------------------------------------------------------------------------- loops, on a CPU


LIMIT = {torch.float32: 2.0**62, torch.float64: 2.0**510}  # its square and the inverse of that are normal numbers
EDGE = {dtype: math.log(limit) for dtype, limit in LIMIT.items()}  # how far from 0 an x may be for a normal e^{2x}
SATURATION = {torch.float32: 10, torch.float64: 20}  # from here on tanh is 1


def loop_limit(query: Tensor, key: Tensor, w: Tensor | None = None) -> float | None:
    """Where the loops must cut off e^{2(query + key)}: at infinity if nothing is near overflow; None: not in loops.

    With one or two rows, or keys, the exponentials would take longer than the scores.
    """
    n, m = query.shape[-2], key.shape[-2]
    if not query.is_cpu or min(n, m) <= 2 or query.numel() * m <= SMALL or load_kernels("additive") is None:
        return None
    (low_query, high_query), (low_key, high_key) = _ends(query), _ends(key)
    reach_query, reach_key = max(-low_query, high_query), max(-low_key, high_key)
    # What is not finite comes out of a tanh otherwise than out of the loops; and w · limit has to be finite.
    if not math.isfinite(reach_query + reach_key) or (w is not None and not max(map(abs, _ends(w))) < 1e18):
        return None
    # The loops move numbers beyond the edge to the edge. There tanh is ±1, unless the other side can take it back.
    edge = EDGE[query.dtype]
    if max(reach_query, reach_key) > edge and min(reach_query, reach_key) > edge - SATURATION[query.dtype]:
        return None
    return math.inf if 2 * (high_query + high_key) < edge else LIMIT[query.dtype]


def _ends(x: Tensor) -> tuple[float, float]:
    low, high = x.detach().aminmax()  # both are NaN if there is one
    return low.item(), high.item()


def _exponentials(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """e^{2 query} (batch, n, hidden) and e^{2 key} (batch, hidden, m), numbers beyond the edge moved there."""
    edge = EDGE[query.dtype]
    rows = (query.detach(), key.detach().mT)
    a, b = (torch.clamp(x, -edge, edge, out=x.new_empty(x.shape)).mul_(2).exp_() for x in rows)
    return a, b


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
    loop = functools.partial(
        load_kernels("additive").slopes, *(x.numpy() for x in (a, b, grad, by_query, by_key, by_w))
    )
    parallel_for(loop, a.shape[-1], work=grad.numel() * a.shape[-1])
    return by_query, by_w
