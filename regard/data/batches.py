"""Batches: examples of about equal length together, so that little is padding, in an order that a seed decides."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["Batches"]


class Batches:
    """The batches of every epoch. Epoch e is a function of the lengths, the budget, the seed and e, and nothing else.

    lengths: for each example one length, or several: (source, target)
    budget: tokens of a batch at most, padding included; a longer example is a batch by itself
    seed: of the order
    """

    def __init__(self, lengths: Sequence[int] | Sequence[tuple[int, ...]], budget: int, seed: int) -> None:
        if not len(lengths):
            raise ValueError("lengths: expected at least one example, got none")
        self.lengths = torch.tensor(lengths).reshape(len(lengths), -1)  # (examples, sides)
        self.budget, self.seed = budget, seed

    def epoch(self, number: int) -> list[list[int]]:
        """The batches of one epoch, each a list of examples."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
        order = torch.randperm(len(self.lengths), generator=generator)
        for side in range(self.lengths.shape[1]):  # the last side counts most; among equals the order is random
            order = order[self.lengths[order, side].argsort(stable=True)]
        batches = self._cut(order)
        return [batches[index] for index in torch.randperm(len(batches), generator=generator).tolist()]

    def _cut(self, order: Tensor) -> list[list[int]]:
        batches: list[list[int]] = []
        rows: list[int] = []
        longest = [0] * self.lengths.shape[1]
        for row, lengths in zip(order.tolist(), self.lengths[order].tolist(), strict=True):
            wider = [max(pair) for pair in zip(longest, lengths, strict=True)]
            if rows and (len(rows) + 1) * sum(wider) > self.budget:
                batches.append(rows)
                rows, wider = [], lengths
            rows.append(row)
            longest = wider
        return [*batches, rows]

    def padding(self) -> float:
        """The share of padding in all batches."""
        tokens = int(self.lengths.sum())
        cells = sum(len(rows) * int(self.lengths[rows].amax(0).sum()) for rows in self.epoch(0))
        return 1 - tokens / cells
