"""Attention written by hand, in the layouts and with the normalisations that people use.

Each row is a function of queries (2, 7, 3, 5), keys and values (2, 11, 3, 5): batch, rows, heads, size. What they have
to agree with is written once, in `weights`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention as early_bound

from experiments.architectures.campaign import Architecture, Layer, Subject
from experiments.architectures.library import numbers

BATCH, N, M, HEADS, SIZE = 2, 7, 11, 3, 5
INPUT, SOURCE = numbers(BATCH, N, HEADS * SIZE), numbers(BATCH, M, HEADS * SIZE, seed=4)
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


class Written(nn.Module):
    """Queries of rows, keys and values of a source, and how to attend: three (batch, rows, heads, size) → one."""

    def __init__(self, attend: Attend) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(HEADS * SIZE, HEADS * SIZE) for _ in range(3))
        self.attend = attend

    def project(self, rows: Tensor, source: Tensor) -> list[Tensor]:
        projected = [self.query(rows), self.key(source), self.value(source)]
        return [2 * one.unflatten(-1, (HEADS, SIZE)) for one in projected]

    def forward(self, rows: Tensor, source: Tensor) -> Tensor:
        return self.attend(*self.project(rows, source)).flatten(-2)


class Block(nn.Module):
    """Attention under a path, between other layers."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.first, self.attention = nn.Linear(HEADS * SIZE, HEADS * SIZE), attention
        self.last = nn.Linear(HEADS * SIZE, 4)

    def forward(self, rows: Tensor, source: Tensor) -> Tensor:
        return self.last(rows + self.attention(self.first(rows), source))


def weights(query: Tensor, key: Tensor) -> Tensor:
    """What all of them compute: (batch, heads, n, m)."""
    return scores(query, key).softmax(-1)


def scores(query: Tensor, key: Tensor) -> Tensor:
    """Scaled dot products: (batch, heads, n, m)."""
    return torch.einsum("bnhd,bmhd->bhnm", query, key) * SIZE**-0.5


def heads_first(*rows: Tensor) -> list[Tensor]:
    """(batch, rows, heads, size) → (batch, heads, rows, size)."""
    return [one.transpose(1, 2) for one in rows]


def average(weights: Tensor, value: Tensor) -> Tensor:
    """Weights (batch, heads, n, m), values (batch, m, heads, size) → (batch, n, heads, size)."""
    return (weights @ value.transpose(1, 2)).transpose(1, 2)


def written(
    name: str,
    attend: Attend,
    weights: Callable[[Tensor, Tensor], Tensor] = weights,
    *,
    parts: Callable[[Tensor], Sequence[Tensor]] = lambda weights: [weights],
    random: bool = False,
    gradients: bool = True,
    expected: str = "right",
    check: Callable[..., str] = lambda seen: "",
) -> Architecture:
    """A row: how to attend, and the weights that it should show where they are not those of a softmax.

    parts: the weights of each call, where there are several
    random: whether the output is not the average by these weights, because some of them are dropped
    """

    def subjects() -> dict[str, Subject]:
        torch.manual_seed(7)
        model = Block(Written(attend)).eval()
        with torch.no_grad():
            query, key, value = model.attention.project(model.first(INPUT), SOURCE)
            oracle = weights(query, key)
            if not random:
                torch.testing.assert_close(attend(query, key, value), average(oracle, value))
        layers = [Layer("attention", part) for part in parts(oracle)]
        return {"": Subject(model, lambda: model(INPUT, SOURCE), layers, gradients, check=check)}

    return Architecture(name, "written by hand", subjects, expected)


def row(
    rows: list[Architecture], kind: str, name: str, expected: str = "right", fast: bool = True
) -> Callable[[Callable[[], Subject]], Callable[[], Subject]]:
    """Adds a row to others, of the subject that a function makes."""

    def add(make: Callable[[], Subject]) -> Callable[[], Subject]:
        rows.append(Architecture(name, kind, lambda: {"": make()}, expected, fast))
        return make

    return add


# ------------------------------------------------------------------------------------------------------------- layouts


def fused(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(*heads_first(query, key, value)).transpose(1, 2)


def fused_early_bound(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return early_bound(*heads_first(query, key, value)).transpose(1, 2)


def fused_folded(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    folded = [one.flatten(0, 1) for one in heads_first(query, key, value)]  # (batch · heads, n, size)
    return functional.scaled_dot_product_attention(*folded).unflatten(0, (BATCH, HEADS)).transpose(1, 2)


def matmul(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    query, key, value = heads_first(query, key, value)
    return (torch.softmax(query @ key.mT / SIZE**0.5, -1) @ value).transpose(1, 2)


def bmm_folded(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    query, key, value = (one.flatten(0, 1) for one in heads_first(query, key, value))
    probabilities = torch.bmm(query * SIZE**-0.5, key.mT).softmax(-1)  # (batch · heads, n, m)
    return torch.bmm(probabilities, value).unflatten(0, (BATCH, HEADS)).transpose(1, 2)


def baddbmm_folded(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    query, key, value = (one.flatten(0, 1) for one in heads_first(query, key, value))
    empty = torch.zeros(BATCH * HEADS, N, M)
    probabilities = torch.baddbmm(empty, query, key.mT, beta=0, alpha=SIZE**-0.5).softmax(-1)
    return torch.bmm(probabilities, value).unflatten(0, (BATCH, HEADS)).transpose(1, 2)


def heads_batch(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    query, key, value = (one.permute(2, 0, 1, 3) for one in (query, key, value))  # (heads, batch, n, size)
    return ((query @ key.mT * SIZE**-0.5).softmax(-1) @ value).permute(1, 2, 0, 3)


def bqhk(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    probabilities = (torch.einsum("bqhd,bkhd->bqhk", query, key) * SIZE**-0.5).softmax(-1)
    return torch.einsum("bqhk,bkhd->bqhd", probabilities, value)


def bnij(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    query, key, value = (one.transpose(0, 1) for one in (query, key, value))  # rows first
    probabilities = (torch.einsum("ibnd,jbnd->bnij", query, key) * SIZE**-0.5).softmax(-1)
    return torch.einsum("bnij,jbnd->ibnd", probabilities, value).transpose(0, 1)


def ijbn(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    query, key, value = (one.transpose(0, 1) for one in (query, key, value))
    probabilities = (torch.einsum("ibnd,jbnd->ijbn", query, key) * SIZE**-0.5).softmax(1)
    return torch.einsum("ijbn,jbnd->ibnd", probabilities, value).transpose(0, 1)


def transposed(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    query, key, value = heads_first(query, key, value)
    probabilities = (key @ query.mT * SIZE**-0.5).softmax(-2)  # (batch, heads, m, n)
    return (probabilities.mT @ value).transpose(1, 2)


def values_first(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """As non-local blocks of images: values (batch, heads, size, m) times transposed weights."""
    query, key, value = (one.permute(0, 2, 3, 1) for one in (query, key, value))  # (batch, heads, size, n)
    probabilities = (query.mT @ key * SIZE**-0.5).softmax(-1)
    return (value @ probabilities.mT).permute(0, 3, 1, 2)


def product_and_sum(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return (weights(query, key)[..., None] * value.transpose(1, 2)[:, :, None]).sum(-2).transpose(1, 2)


def one_query_at_a_time(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return torch.cat([matmul(query[:, row : row + 1], key, value) for row in range(N)], 1)


def one_head_at_a_time(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    parts = [(query[:, :, h] @ key[:, :, h].mT * SIZE**-0.5).softmax(-1) @ value[:, :, h] for h in range(HEADS)]
    return torch.stack(parts, 2)


def multi_query(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """One key for all heads, which are folded into the rows."""
    rows = query.transpose(1, 2).flatten(1, 2)  # (batch, heads · n, size)
    probabilities = (rows @ key[:, :, 0].mT * SIZE**-0.5).softmax(-1)
    return average(probabilities.unflatten(1, (HEADS, N)), value)


def grouped(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """One key for all heads, in a grouped call of the fused function."""
    query, key, value = heads_first(query, key[:, :, :1], value)
    return functional.scaled_dot_product_attention(query, key, value, enable_gqa=True).transpose(1, 2)


def first_key(query: Tensor, key: Tensor) -> Tensor:
    return weights(query, key[:, :, :1].expand_as(key))


# ------------------------------------------------------------------------------------------------------- normalisation


def by_hand(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    exponentials = torch.exp(scores(query, key) - scores(query, key).amax(-1, keepdim=True))
    return average(exponentials / exponentials.sum(-1, keepdim=True), value)


def divided_at_the_end(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    exponentials = scores(query, key).exp()
    return average(exponentials, value) / exponentials.sum(-1)[..., None].transpose(1, 2)


def log_softmax(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return average(functional.log_softmax(scores(query, key), -1).exp(), value)


def logsumexp(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    logits = scores(query, key)
    return average(torch.exp(logits - logits.logsumexp(-1, keepdim=True)), value)


def in_double(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return average(functional.softmax(scores(query, key), -1, dtype=torch.float64).to(value.dtype), value)


def in_place(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    logits = scores(query, key)
    logits[..., M - 2 :] = -math.inf
    return average(logits.softmax(-1), value)


def without_last(query: Tensor, key: Tensor) -> Tensor:
    return functional.pad(weights(query, key[:, :-2]), (0, 2))


def renormalised_in_place(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """What is not allowed is taken out of the softmax, and the rest made to sum to 1."""
    probabilities, allowed = weights(query, key), torch.arange(M) < M - 2
    probabilities = probabilities * allowed if query.requires_grad else probabilities.mul_(allowed)
    return average(probabilities / probabilities.sum(-1, keepdim=True), value)


def sink(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    logits = torch.cat([scores(query, key), torch.full((BATCH, HEADS, N, 1), 0.5)], -1)
    return average(logits.softmax(-1)[..., :-1], value)


def beside_sink(query: Tensor, key: Tensor) -> Tensor:
    logits = torch.cat([scores(query, key), torch.full((BATCH, HEADS, N, 1), 0.5)], -1)
    return logits.softmax(-1)[..., :-1]


def check_sink(seen: object) -> str:
    """What the keys do not have is in the sink."""
    layer = seen[0]  # type: ignore[index]
    share = getattr(layer, "sink", None)
    return (
        ""
        if share is not None and torch.allclose(share, 1 - layer.weights.sum(-1), atol=1e-5)
        else "the sink is not told"
    )


def softmax_one(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return average(one_more(query, key), value)


def one_more(query: Tensor, key: Tensor) -> Tensor:
    """exp / (1 + sum): a sink without a column."""
    exponentials = scores(query, key).exp()
    return exponentials / (1 + exponentials.sum(-1, keepdim=True))


def sigmoid(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return average(scores(query, key).sigmoid(), value)


def talking_heads(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return average(mixed(query, key), value)


def mixed(query: Tensor, key: Tensor) -> Tensor:
    """The heads' weights, mixed after the softmax."""
    return torch.einsum("bhnm,gh->bgnm", weights(query, key), torch.eye(HEADS) + 0.1)


def online(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Keys in two parts, with a running maximum and sum, as fast kernels do."""
    query, key, value = heads_first(query, key, value)
    top, total, output = torch.full((BATCH, HEADS, N, 1), -math.inf), torch.zeros(()), torch.zeros(())
    for part in (slice(0, 6), slice(6, M)):
        logits = query @ key[:, :, part].mT * SIZE**-0.5
        highest = torch.maximum(top, logits.amax(-1, keepdim=True))
        exponentials, shrunk = torch.exp(logits - highest), torch.exp(top - highest)
        total = total * shrunk + exponentials.sum(-1, keepdim=True)
        output, top = output * shrunk + exponentials @ value[:, :, part], highest
    return (output / total).transpose(1, 2)


def slots(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return average(competed(query, key), value)


def competed(query: Tensor, key: Tensor) -> Tensor:
    """As in slot attention: the softmax is over the queries, then every query's weights are made to sum to 1."""
    shares = scores(query, key).softmax(-2) + 1e-3
    return shares / shares.sum(-1, keepdim=True)


def additive(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return average(bahdanau(query, key), value)


def bahdanau(query: Tensor, key: Tensor) -> Tensor:
    """Σ tanh(query + key), per pair."""
    pairs = query.transpose(1, 2)[..., None, :] + key.transpose(1, 2)[:, :, None]  # (batch, heads, n, m, size)
    return torch.tanh(pairs).sum(-1).softmax(-1)


def on_the_fly(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return average(nn.Softmax(dim=-1)(scores(query, key)), value)


def dropped(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """In place, which overwrites what the softmax returned."""
    probabilities = weights(query, key)
    return average(functional.dropout(probabilities, 0.4, training=True, inplace=not query.requires_grad), value)


ROWS = [
    written("F.scaled_dot_product_attention", fused),
    written("F.scaled_dot_product_attention, imported by name", fused_early_bound),
    written("F.scaled_dot_product_attention, 3-D", fused_folded),
    written("F.scaled_dot_product_attention, one key head", grouped, first_key),
    written("softmax, heads second", matmul),
    written("softmax, heads first", heads_batch),
    written("softmax, heads folded into the batch (bmm)", bmm_folded),
    written("softmax, heads folded into the batch (baddbmm)", baddbmm_folded),
    written("einsum bqhd,bkhd->bqhk", bqhk),
    written("einsum ibnd,jbnd->bnij", bnij),
    written("einsum ibnd,jbnd->ijbn, softmax over j", ijbn),
    written("transposed scores, softmax over the rows", transposed),
    written("values times transposed weights", values_first),
    written("(weights[..., None] * values).sum(-2)", product_and_sum),
    written("one query at a time", one_query_at_a_time, parts=lambda weights: weights.split(1, 2)),
    written("one head at a time", one_head_at_a_time, parts=lambda weights: weights.split(1, 1)),
    written("one key head, heads folded into the rows", multi_query, first_key),
    written("exp / sum by hand", by_hand),
    written("exp, divided after the average", divided_at_the_end, expected="reported"),
    written("log_softmax().exp()", log_softmax),
    written("exp(scores - logsumexp)", logsumexp),
    written("softmax in another dtype", in_double),
    written("scores masked in place", in_place, without_last),
    written("softmax masked in place and normalised again", renormalised_in_place, without_last),
    written("softmax, dropout in place", dropped, random=True),
    written("sink: a column that is cut off", sink, beside_sink, check=check_sink),
    written("sink: exp / (1 + sum)", softmax_one, one_more),
    written("sigmoid attention", sigmoid, lambda query, key: scores(query, key).sigmoid()),
    written("talking heads", talking_heads, mixed, expected="reported"),
    written("online softmax over parts of the keys", online, expected="reported"),
    written("slot attention", slots, competed),
    written("additive (Bahdanau), written out", additive, bahdanau),
    written("nn.Softmax made in forward", on_the_fly),
]
