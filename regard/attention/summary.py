"""What the weights amount to, without the weights: how many keys share them, which get the most, what each gets in all.

The scores are visited tile by tile, as in engine.py, and nothing (n × m) is kept. Of a softmax, with s the restricted
scores of a query, b the best of them and w the weights:

    log Σ_j e^{s_j} = b − log w_b        −Σ_j w_j log w_j = −log w_b − Σ_j w_j (s_j − b)        no term is negative

With a sink the weights are these times the share that the keys keep, σ(log-sum-exp − sink).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial

import torch
from torch import Tensor, nn

from regard.arguments import check_size
from regard.attention import fused, numbers, tiling
from regard.attention.formula import Call, normalize, restrict
from regard.attention.layout import Tile, check_layout
from regard.attention.masks import Mask, zero_hidden
from regard.attention.normalizers import Softmax
from regard.attention.tiling import full_precision, size, streamed_tiles
from regard.attention.tracing import is_traced

# Tiles are so many times as large as those of `attend`: a product of 16 rows with 32,768 keys takes 1.5 times as long
# per row as one of 64 rows, which is more than is lost where the scores do not fit into the cache of a processor.
TIMES = 4
CHUNK = 64  # keys that are represented by the best of them when the best of all are looked for
LOWEST = -1e4  # e to the power of it is 0, and 0 times it is 0, which −inf is not


@dataclass(frozen=True, eq=False)
class Summary:
    """What `summarize` gives.

    log_sum_exp: (…, n), log Σ_j e^{score_j} of the keys that a query may attend to, and of the sink if there is one;
        −inf where there is neither
    entropy: (…, n), −Σ_j w_j log w_j of its weights
    width: (…, n), e^entropy: how many keys share the weight, as if evenly; 0 for a query that attends to nothing
    received: (…, m), the weight that each key gets from all queries
    top_keys, top_weights: (…, n, top), the keys of the largest weights, largest first, and these weights
    """

    log_sum_exp: Tensor
    entropy: Tensor
    width: Tensor
    received: Tensor
    top_keys: Tensor
    top_weights: Tensor

    def with_heads(self, dimensions: int) -> Summary:
        """Of queries with so many dimensions, as (batch, heads, …)."""
        parts = {part.name: getattr(self, part.name) for part in fields(self)}
        tail = {name: 2 if name.startswith("top") else 1 for name in parts}
        if dimensions > 3:
            return Summary(**{name: part.flatten(0, -tail[name] - 2) for name, part in parts.items()})
        return Summary(**{name: part.reshape(-1, 1, *part.shape[-tail[name] :]) for name, part in parts.items()})


def of_weights(weights: Tensor, scores: Tensor | None = None, top: int = 5) -> Summary:
    """The summary of weights (…, n, m) that are there; without their scores, the log-sum-exp is NaN."""
    entropy = numbers.entropy(weights).to(weights.dtype)
    log_sum_exp = torch.full_like(entropy, math.nan) if scores is None else scores.logsumexp(-1)
    best = weights.topk(min(top, weights.shape[-1]), -1)
    width = numbers.width(weights).to(weights.dtype)
    return Summary(log_sum_exp, entropy, width, weights.sum(-2), best.indices, best.values)


def summarize(
    query: Tensor,
    key: Tensor,
    *,
    score: nn.Module | None = None,
    mask: Mask | None = None,
    normalizer: nn.Module | None = None,
    top: int = 5,
) -> Summary:
    """What the weights that `attend` gives to the keys amount to, in memory that grows with n + m only.

    query (…, n, query size) · key (…, m, key size) → a `Summary`: log-sum-exp of the scores, entropy and width of the
    weights (…, n), weight received by each key (…, m), and the `top` keys of each query with their weights
    (…, n, min(top, m)). score, mask and normalizer are those of `attend`.

    The numbers are float64 for float64, else float32, and have no gradients. Weights that do not add up to 1 (a sink,
    Sigmoid) are taken as they are. The log-sum-exp is that of the scores, whatever the normaliser.

    >>> import regard, torch
    >>> query, key = torch.tensor([[0.0], [9.0]]), torch.tensor([[1.0], [1.0], [0.0], [0.0]])
    >>> summary = regard.summarize(query, key, top=2)
    >>> summary.width  # the first query finds four keys alike, the second two
    tensor([4.0000, 2.0025])
    >>> summary.received
    tensor([0.7499, 0.7499, 0.2501, 0.2501])
    >>> summary.top_weights[1]
    tensor([0.4999, 0.4999])
    """
    top = check_size("top", top)
    with torch.no_grad():
        call = Call.of(check_layout(query, key), score, mask, normalizer)
        rows, keys = call.project(query, key)
        top = min(top, keys.shape[2])
        with full_precision(call.layout.device):
            summarized = _in_one_tile if is_traced(query) and top else _by_tiles
            parts = summarized(call, rows, keys, top)
    unfold = call.layout.unfold
    log_sum_exp, entropy, width = (unfold(getattr(parts, name)).squeeze(-1) for name in PER_QUERY)
    received, top_keys, top_weights = unfold(parts.received), unfold(parts.top_keys), unfold(parts.top_weights)
    return Summary(log_sum_exp, entropy, width, received.squeeze(-2), top_keys, top_weights)


# Below, a summary is one of folded scores (B, R, n, m): what there is one of per query (B, R, n, 1), `received`
# (B, R, 1, m), and the top (B, R, n, top).
PER_QUERY = ("log_sum_exp", "entropy", "width")


def _in_one_tile(call: Call, query: Tensor, key: Tensor, top: int) -> Summary:
    """While traced: no number is looked at, and all scores are made at once."""
    allowed, bias = call.restrictions(call.layout.whole)
    (key,) = zero_hidden(allowed, key)
    scores = restrict(call.scores(query, key, call.layout.whole), allowed, bias)
    return _of_scores(call, scores, call.per_head, top, None)


def _by_tiles(call: Call, query: Tensor, key: Tensor, top: int) -> Summary:
    (batch, sharing, n, _), m = query.shape, key.shape[2]
    parts = _of_no_keys(call, (batch, sharing, n, m), top, query.dtype)
    (key,) = call.without_hidden(key)
    dot = _as_dot(call, query, key)
    if dot is None:
        call, constant = replace(call, exact=True), None
    else:
        query, key, constant = dot
    per_head = None if call.per_head is None else call.per_head.expand(batch, sharing, 1, 1)
    scratch = _Scratch()
    # Scores that know positions are computed for all heads at once, others for as many as fit into a tile.
    together = sharing if call.score.has_positions else 1
    for tile in (t for row in streamed_tiles(call.layout.whole, together, call.mask, TIMES) for t in row):
        pairs = size(tile.batch) * size(tile.rows) * size(tile.keys)
        if not pairs:
            continue
        step = max(together, TIMES * tiling.STREAMED // pairs)
        limits = [None if x is None else x.expand(-1, sharing, -1, -1) for x in call.restrictions(tile)]
        for heads in (slice(start, min(start + step, sharing)) for start in range(0, sharing, step)):
            rows, keys = query[tile.batch, heads, tile.rows], key[tile.batch, heads, tile.keys]
            allowed, bias = (None if x is None else x[:, heads] for x in limits)
            if dot is None:
                scores = restrict(call.scores(rows, keys, tile), allowed, bias)
            else:
                scores = _restricted_products(rows, keys, allowed, bias, scratch)
            numbers = None if per_head is None else per_head[tile.batch, heads]
            part = _of_scores(call, scores, numbers, min(top, size(tile.keys)), scratch)
            _put(parts, part, tile, heads)
    if constant is not None:
        parts.log_sum_exp.add_(constant)
    return replace(parts, received=parts.received.to(parts.entropy.dtype))


def _of_no_keys(call: Call, shape: tuple[int, int, int, int], top: int, dtype: torch.dtype) -> Summary:
    """The summary before any key is seen; in float64 where n weights will add up."""
    batch, sharing, n, m = shape
    zeros = partial(torch.zeros, dtype=dtype, device=call.layout.device)
    log_sum_exp, entropy, width = (zeros(batch, sharing, n, 1) for _ in range(3))
    sink = call.per_head if type(call.normalizer) is Softmax else None
    log_sum_exp[:] = -torch.inf if sink is None else sink
    received = zeros(batch, sharing, 1, m, dtype=torch.float64)
    top_keys = torch.arange(top, device=call.layout.device).repeat(batch, sharing, n, 1)
    return Summary(log_sum_exp, entropy, width, received, top_keys, zeros(batch, sharing, n, top))


def _put(parts: Summary, part: Summary, tile: Tile, heads: slice) -> None:
    """Put what some heads of a tile give in its place."""
    place, count = (tile.batch, heads, tile.rows), part.top_keys.shape[-1]
    for name in PER_QUERY:
        getattr(parts, name)[place] = getattr(part, name)
    parts.received[tile.batch, heads, :, tile.keys] += part.received
    parts.top_weights[place][..., :count] = part.top_weights
    parts.top_keys[place][..., :count] = part.top_keys + tile.keys.start
    missing = parts.top_keys.shape[-1] - count
    if missing:  # any others, whose weight is 0
        start, stop = tile.keys.start, tile.keys.stop
        others = [*range(min(start, missing)), *range(stop, stop + missing)][:missing]
        parts.top_keys[place][..., count:] = torch.tensor(others)


class _Scratch:
    """Memory that one tile after another is computed in: made anew for each, it would fragment the heap."""

    def __init__(self) -> None:
        self.memory: dict[str, Tensor] = {}

    def take(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Numbers of that shape, which were used under this name before."""
        count, memory = math.prod(shape), self.memory.get(name)
        if memory is None or memory.numel() < count or memory.dtype != dtype:
            memory = self.memory[name] = torch.empty(count, dtype=dtype)
        return memory[:count].view(*shape)


# ---------------------------------------------------------------------------------------------------- scores of a tile


def _as_dot(call: Call, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Tensor | None] | None:
    """Rows whose dot products are the scores, and what all scores of a row lack, if anything; None: there are none."""
    if not (call.score.is_dot and call.uses_dot and query.numel() and key.numel()):
        return None
    exact = call.score.dot_is_exact
    dot = call.score.as_dot(query, key) if exact or fused.are_finite(query, key) else None
    if dot is None:
        return None
    rows, keys, scale = dot
    rows = rows * scale
    keys = keys if keys.stride(1) == 0 else keys.contiguous()
    if exact:
        return rows, keys, None
    first = call.score.pairs(query.double(), key[:, :, :1].double())  # (B, R, n, 1): the constant is that of any key
    return rows, keys, first - rows.double() @ keys[:, :, :1].double().mT


def _restricted_products(
    query: Tensor, key: Tensor, allowed: Tensor | None, bias: Tensor | None, scratch: _Scratch
) -> Tensor:
    scores = scratch.take("scores", (*query.shape[:3], key.shape[2]), query.dtype)
    if key.stride(1) == 0:  # heads that share keys: as if their queries were those of one head
        torch.bmm(query.flatten(1, 2), key[:, 0].mT, out=scores.flatten(1, 2))
    else:
        torch.bmm(query.flatten(0, 1), key.flatten(0, 1).mT, out=scores.flatten(0, 1))
    if bias is not None:
        scores += bias.to(scores.dtype)
    return scores if allowed is None else scores.masked_fill_(~allowed, -torch.inf)


# --------------------------------------------------------------------------------------------- what they amount to


def _of_scores(call: Call, scores: Tensor, per_head: Tensor | None, top: int, scratch: _Scratch | None) -> Summary:
    """The summary of restricted scores (B, R, n, m), of one key at least."""
    if type(call.normalizer) is Softmax:
        return _of_softmax(call, scores, per_head, top, scratch)
    weights = normalize(call.normalizer, scores, per_head)
    entropy = torch.special.entr(weights).sum(-1, keepdim=True)
    width = entropy.exp() * (weights.sum(-1, keepdim=True) > 0)
    top_weights, top_keys = _largest(weights, top)
    received = weights.sum(-2, keepdim=True)
    return Summary(scores.logsumexp(-1, keepdim=True), entropy, width, received, top_keys, top_weights)


def _of_softmax(call: Call, scores: Tensor, sink: Tensor | None, top: int, scratch: _Scratch | None) -> Summary:
    out = [
        None if scratch is None else scratch.take(name, scores.shape, scores.dtype) for name in ("scores", "weights")
    ]
    best, top_keys = _largest(scores, top)
    best = best[..., :1]
    empty = best == -torch.inf
    below = torch.sub(scores, best.masked_fill(empty, 0), out=out[0])  # s − b
    below = torch.clamp(below, min=LOWEST, out=out[0])
    weights = normalize(call.normalizer, below, None, False, out[1])  # without the sink
    rest = -weights.gather(-1, top_keys[..., :1]).log()  # −log w_b = log Σ e^{s − b}
    log_sum_exp, entropy = best + rest, rest - below.mul_(weights).sum(-1, keepdim=True)
    share = (~empty).to(scores.dtype)
    if sink is not None:
        sink = sink.to(scores.dtype).clamp(max=torch.finfo(scores.dtype).max)
        share = torch.sigmoid(log_sum_exp - sink).masked_fill(empty, 0)
        log_sum_exp = torch.logaddexp(log_sum_exp, sink)
    entropy = entropy * share + torch.special.entr(share)
    if sink is not None or is_traced(scores) or bool(empty.any()):
        weights = weights.mul_(share)
    width = entropy.exp() * (share > 0)
    received = weights.sum(-2, keepdim=True)
    return Summary(log_sum_exp, entropy, width, received, top_keys, weights.gather(-1, top_keys))


def _largest(numbers: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """The `top` largest of the last dimension, and where they are.

    They are in those chunks whose best are the largest, so that few numbers have to be sorted.
    """
    chunks = numbers.shape[-1] // CHUNK
    if is_traced(numbers) or chunks < 2 * top:
        values, places = numbers.topk(top)
        return values, places
    front, back = numbers[..., : chunks * CHUNK].unflatten(-1, (chunks, CHUNK)), numbers[..., chunks * CHUNK :]
    chosen = front.amax(-1).topk(top).indices  # (B, R, n, top)
    among = front.gather(-2, chosen.unsqueeze(-1).expand(*chosen.shape, CHUNK)).flatten(-2)
    values, places = torch.cat([among, back], -1).topk(top)
    chosen = torch.cat([chosen, chosen.new_full((*chosen.shape[:-1], 1), chunks)], -1)  # the back is the last chunk
    return values, chosen.gather(-1, places // CHUNK) * CHUNK + places % CHUNK
