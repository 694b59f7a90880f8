"""Two older ways of processing sequences, of the shape of self-attention, so that the three are one argument apart.

recurrent     reads row after row: far back, but one step at a time
convolution   looks at the neighbours: all rows at once, but not far
attention     (multihead.py) looks at every row: far and at once, at the price of n² scores
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.arguments import check_sizes
from regard.models.packing import Places, by_sequence

__all__ = ["Convolution", "Recurrent", "State"]


@dataclass(frozen=True)
class State:
    """What a mixer keeps: the GRU's hidden state, or the last rows before the convolution. (batch, …)."""

    rows: Tensor

    @property
    def batch(self) -> int:
        return len(self.rows)

    def select(self, rows: Tensor) -> State:
        return State(self.rows.index_select(0, rows))


class Recurrent(nn.Module):
    """A GRU over rows (batch, n, size); in both directions, half the size each, where later rows may be seen."""

    def __init__(self, size: int, *, causal: bool) -> None:
        super().__init__()
        check_sizes(size=size)
        if size % 2 and not causal:
            raise ValueError(f"size: expected an even number for two directions, got {size}")
        self.net = nn.GRU(size, size if causal else size // 2, batch_first=True, bidirectional=not causal)

    def mix(self, rows: Tensor, places: Places, past: State | None) -> tuple[Tensor, State]:
        if places.counts is not None:
            return by_sequence(rows, places.counts, lambda own: self.net(own)[0]), State(rows[:0])
        hidden = None if past is None else past.rows.transpose(0, 1).contiguous()  # (layers, batch, size)
        if places.real is None:
            mixed, hidden = self.net(rows, hidden)
            return mixed, State(hidden.transpose(0, 1))
        return self._mix_some(rows, places.real, hidden)

    def _mix_some(self, rows: Tensor, real: Tensor, hidden: Tensor | None) -> tuple[Tensor, State]:
        """Sequence by sequence, over the rows that hold a token."""
        mixed, states = torch.zeros_like(rows), []
        for number, own in enumerate(real):
            before = rows.new_zeros(1, 1, rows.shape[-1]) if hidden is None else hidden[:, number : number + 1]
            if bool(own.any()):
                output, before = self.net(rows[number : number + 1, own], before)
                mixed[number, own] = output[0].to(mixed.dtype)
            states.append(before)
        return mixed, State(torch.cat(states, 1).transpose(0, 1))


class Convolution(nn.Module):
    """A 1-D convolution over rows (batch, n, size): `width` neighbours, all of them earlier ones where causal."""

    def __init__(self, size: int, *, causal: bool, width: int = 5) -> None:
        super().__init__()
        check_sizes(size=size, width=width)
        self.net = nn.Conv1d(size, size, width)
        self.before = width - 1 if causal else width // 2
        self.after = width - 1 - self.before

    def mix(self, rows: Tensor, places: Places, past: State | None) -> tuple[Tensor, State]:
        if places.counts is not None:
            return by_sequence(rows, places.counts, lambda own: self._convolve(self._begun(own, None))), State(rows[:0])
        if places.real is None:
            rows = self._begun(rows, past)
            return self._convolve(rows), State(rows[:, rows.shape[1] - self.before :])
        return self._mix_some(rows, places.real, past)

    def _begun(self, rows: Tensor, past: State | None) -> Tensor:
        """Rows with those in front of them, zeros at the beginning."""
        front = rows.new_zeros(len(rows), self.before, rows.shape[-1]) if past is None else past.rows
        return torch.cat([front, rows], 1)

    def _convolve(self, rows: Tensor) -> Tensor:
        padded = functional.pad(rows, (0, 0, 0, self.after))
        mixed: Tensor = self.net(padded.transpose(1, 2)).transpose(1, 2)
        return mixed

    def _mix_some(self, rows: Tensor, real: Tensor, past: State | None) -> tuple[Tensor, State]:
        """Sequence by sequence, over the rows that hold a token."""
        mixed, states = torch.zeros_like(rows), []
        for number, own in enumerate(real):
            before = None if past is None else State(past.rows[number : number + 1])
            begun = self._begun(rows[number : number + 1, own], before)
            if bool(own.any()):
                mixed[number, own] = self._convolve(begun)[0].to(mixed.dtype)
            states.append(begun[:, begun.shape[1] - self.before :])
        return mixed, State(torch.cat(states))
