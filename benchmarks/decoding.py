"""One decoding step: one query for each of 8 heads, over few keys. Microseconds, in which every look at a shape counts.

Masks, like the dense ones of the peer, are built beforehand. All is measured with one thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.measure import Row, compare_worst, one_thread
from regard import Additive, attend, bias, causal, keep, lengths, window
from regard.measure import Work

Cases = dict[str, tuple[Work, Work]]  # by name: the peer, and ours

BARS = {8: (0.5, 0.3, 0.7), 128: (0.8, 0.5, 1.2)}  # for so many keys: plain, restricted, additive


@torch.no_grad()
def rows(tiny: bool = False) -> Iterator[Row]:
    """Plain, restricted and additive, over 8 and over 128 keys."""
    heads, size, repeats, calls = (8, 5, 1, 2) if tiny else (8, 64, 31, 200)
    torch.manual_seed(0)
    for m, bars in BARS.items():
        query = torch.randn(1, heads, 1, size)
        key, value = (torch.randn(1, heads, m, size) for _ in range(2))
        kinds: dict[str, tuple[str, Cases]] = {
            "Dot": ("F.scaled_dot_product_attention", plain(query, key, value)),
            "Dot, the slowest of {}": (
                "F.scaled_dot_product_attention with the dense mask, or enable_gqa",
                restricted(query, key, value),
            ),
            "Additive, keys projected": ("textbook formula, keys projected", additive(query, key, value)),
        }
        for (kind, (against, cases)), at_least in zip(kinds.items(), bars, strict=True):
            work = f"decoding step, {heads} heads × {size}, {m} keys, one thread: {kind.format(', '.join(cases))}"
            with one_thread():
                for peer, ours in cases.values():
                    torch.testing.assert_close(ours(), peer())
                row = compare_worst(work, against, cases, at_least, repeats, calls)
            yield row


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
