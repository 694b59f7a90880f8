"""Two older ways of processing sequences, with the interface of self-attention: the three are one argument apart.

recurrent     reads row after row: far back, but one step at a time
convolution   reads the neighbours: all rows at once, but not far
attention     (multihead.py) reads every row: far and at once, at the price of n² scores
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.arguments import check_sizes
from regard.models.packing import SequenceInfo

__all__ = ["Convolution", "MixerState", "Recurrent"]


@dataclass(frozen=True)
class MixerState:
    """The GRU's hidden state, or the last rows before the convolution: (batch, …)."""

    rows: Tensor

    @property
    def batch(self) -> int:
        return len(self.rows)

    def select(self, rows: Tensor) -> MixerState:
        return MixerState(self.rows.index_select(0, rows))


class SequentialMixer(nn.Module):
    """A mixer that reads rows in their order: subclasses give `initial_state` and `read`."""

    def initial_state(self, rows: Tensor) -> Tensor:
        """The state (batch, …) before rows (batch, n, size)."""
        raise NotImplementedError(f"{type(self).__name__} must define initial_state")

    def read(self, rows: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Mix rows (batch, n, size), none of them padding, that follow a state; and the state after them."""
        raise NotImplementedError(f"{type(self).__name__} must define read")

    def mix(self, rows: Tensor, info: SequenceInfo, past: MixerState | None) -> tuple[Tensor, MixerState]:
        """Rows (batch, n, size) after what was read before; and what to keep for those that follow."""
        if info.lengths is not None:  # packed
            parts = rows.split(list(info.lengths), 1)
            return torch.cat([self.read(part, self.initial_state(part))[0] for part in parts], 1), MixerState(rows[:0])
        state = self.initial_state(rows) if past is None else past.rows
        if info.valid is None:
            mixed, state = self.read(rows, state)
            return mixed, MixerState(state)
        mixed, states = torch.zeros_like(rows), []
        for number, valid in enumerate(info.valid):  # padded: each sequence alone, over the rows that hold a token
            output, after = self.read(rows[number : number + 1, valid], state[number : number + 1])
            mixed[number, valid] = output[0].to(mixed.dtype)
            states.append(after)
        return mixed, MixerState(torch.cat(states))


class Recurrent(SequentialMixer):
    """A GRU over rows (batch, n, size); in both directions, half the size each, where it is not causal."""

    def __init__(self, size: int, *, causal: bool) -> None:
        super().__init__()
        check_sizes(size=size)
        if size % 2 and not causal:
            raise ValueError(f"size: expected an even number for two directions, got {size}")
        self.net = nn.GRU(size, size if causal else size // 2, batch_first=True, bidirectional=not causal)

    def initial_state(self, rows: Tensor) -> Tensor:
        return rows.new_zeros(len(rows), 2 if self.net.bidirectional else 1, self.net.hidden_size)

    def read(self, rows: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        mixed, hidden = self.net(rows, state.transpose(0, 1).contiguous())  # hidden: (directions, batch, size)
        return mixed, hidden.transpose(0, 1)


class Convolution(SequentialMixer):
    """A 1-D convolution over rows (batch, n, size): `width` neighbours, all of them earlier ones where causal."""

    def __init__(self, size: int, *, causal: bool, width: int = 5) -> None:
        super().__init__()
        check_sizes(size=size, width=width)
        self.net = nn.Conv1d(size, size, width)
        self.before = width - 1 if causal else width // 2
        self.after = width - 1 - self.before

    def initial_state(self, rows: Tensor) -> Tensor:
        return rows.new_zeros(len(rows), self.before, rows.shape[-1])

    def read(self, rows: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        rows = torch.cat([state, rows], 1)
        padded = functional.pad(rows, (0, 0, 0, self.after))
        mixed: Tensor = self.net(padded.transpose(1, 2)).transpose(1, 2)
        return mixed, rows[:, rows.shape[1] - self.before :]
