"""`python -m joeynmt` with batches of pairs of similar length, which JoeyNMT 2.3.0 has not: run by its own Python.

Without this most of its batches is padding. With batch_type "token" a batch is as many pairs as keep
rows × (longest source + longest target) within batch_size, as regard's batches do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch


def buckets(lengths: Sequence[tuple[int, int]], budget: int) -> list[list[int]]:
    """Places of pairs with these lengths, sorted by them and cut into batches."""
    batches: list[list[int]] = []
    rows: list[int] = []
    longest = (0, 0)
    for place in sorted(range(len(lengths)), key=lambda place: lengths[place][::-1]):
        wider = max(longest[0], lengths[place][0]), max(longest[1], lengths[place][1])
        if rows and (len(rows) + 1) * sum(wider) > budget:
            batches.append(rows)
            rows, wider = [], lengths[place]
        rows.append(place)
        longest = wider
    return [*batches, rows]


def sample(sampler: Any) -> Iterator[list[int]]:
    """The batches of an epoch, in place of TokenBatchSampler.__iter__: its sampler gives the pairs in random order."""
    data = sampler.sampler.data_source
    pairs = [(index, *data[index][1:]) for index in sampler.sampler]
    pairs = [(index, len(source) + 1, len(target) + 1) for index, source, target in pairs if source is not None]
    batches = buckets([(source, target) for _, source, target in pairs], sampler.batch_size)
    for number in torch.randperm(len(batches), generator=sampler.sampler.generator).tolist():
        yield [pairs[place][0] for place in batches[number]]


if __name__ == "__main__":
    from joeynmt.__main__ import main
    from joeynmt.datasets import TokenBatchSampler

    TokenBatchSampler.__iter__ = sample
    main()
