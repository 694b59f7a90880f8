"""One decoding step: one query for each of 8 heads, over few keys. Microseconds, in which every look at a shape counts.

Masks, like the dense ones of the peer, are built beforehand. All is measured with one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.measure import Figures, Row, one_thread, race_worst
from regard import Additive, attend, bias, causal, keep, lengths, window
from regard.measure import Work

Cases = dict[str, tuple[Work, Work]]  # by name: the peer, and ours


def plain(query: Tensor, key: Tensor, value: Tensor) -> Cases:
    """Nothing but the dot product."""
    return {"": (partial(scaled_dot_product_attention, query, key, value), partial(attend, query, key, value))}


def restricted(query: Tensor, key: Tensor, value: Tensor) -> Cases:
    """Each mask beside the dense one that says the same, and heads that share keys."""
    (_, heads, _, _), m = query.shape, key.shape[-2]
    keys, added = torch.arange(m)[None], torch.randn(1, heads, 1, m)
    some = keys % 3 > 0
    masks = {
        "lengths": (keys < m - 2, lengths([m - 2])),
        "keep": (some, keep(some)),
        "bias": (added, bias(added)),
        "causal": (keys < m, causal(align="end")),
        "window": (keys >= m - 1 - m // 2, window(m // 2, 0, align="end")),
    }
    shared = query, key[:, :2].contiguous(), value[:, :2].contiguous()
    cases: Cases = {
        name: (
            partial(scaled_dot_product_attention, query, key, value, dense),
            partial(attend, query, key, value, mask=mask),
        )
        for name, (dense, mask) in masks.items()
    }
    grouped = partial(scaled_dot_product_attention, *shared, enable_gqa=True), partial(attend, *shared)
    return cases | {"heads that share keys": grouped}


def additive(query: Tensor, key: Tensor, value: Tensor) -> Cases:
    """A decoder's attention: keys are projected once, before the first step."""
    size = query.shape[-1]
    score = Additive(size, size, size)
    keys = score.project_key(key)

    def textbook() -> Tensor:
        features = torch.tanh((query @ score.query_weight.T).unsqueeze(-2) + keys.unsqueeze(-3))  # (…, n, m, hidden)
        weights = torch.softmax(features @ score.value_weight, -1)
        return weights @ value

    return {"": (textbook, partial(attend, query, keys, value, score=score.projected))}


@torch.no_grad()
def step(make_cases: Callable[[Tensor, Tensor, Tensor], Cases], m: int, tiny: bool) -> Figures:
    torch.manual_seed(0)
    size = 5 if tiny else 64
    cases = make_cases(torch.randn(1, 8, 1, size), torch.randn(1, 8, m, size), torch.randn(1, 8, m, size))
    with one_thread():
        for peer, ours in cases.values():
            torch.testing.assert_close(ours(), peer())
        return race_worst(cases, tiny=tiny)


MASKS = "the slowest of lengths, keep, bias, causal, window, heads that share keys"
CHECKS = (
    "A call of attend checks shapes, dtypes and masks and asks for open captures, in Python, for some microseconds."
)
KINDS = {  # name → work, peer, cases
    "dot": ("Dot", "F.scaled_dot_product_attention", plain),
    "masks": (f"Dot, {MASKS}", "F.scaled_dot_product_attention with the dense mask, or enable_gqa", restricted),
    "additive": ("Additive, keys projected", "textbook formula, keys projected", additive),
}
BARS = {8: (0.5, 0.3, 0.7), 128: (0.8, 0.5, 1.2)}  # for so many keys, of each kind
ROWS = tuple(
    Row(
        f"decoding/{name}-{m}",
        f"decoding step, 8 heads × 64, {m} keys, one thread: {work}",
        against,
        partial(step, cases, m),
        at_least=at_least,
        why=CHECKS,
    )
    for m, bars in BARS.items()
    for (name, (work, against, cases)), at_least in zip(KINDS.items(), bars, strict=True)
)
