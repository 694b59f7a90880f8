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

from regard.arguments import check_sizes, has_values
from regard.models.packing import SequenceInfo
from regard.models.rnn import RNN


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

    def read(self, rows: Tensor, state: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Mix rows (batch, n, size) that follow a state, up to the lengths (batch,); and the state after them."""
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
        if not has_values(rows):
            return self._mix_padded(rows, state, info.valid)
        mixed, states = torch.zeros_like(rows), []
        for number, valid in enumerate(info.valid):  # padded: each sequence alone, over the rows that hold a token
            output, after = self.read(rows[number : number + 1, valid], state[number : number + 1])
            mixed[number, valid] = output[0].to(mixed.dtype)
            states.append(after)
        return mixed, MixerState(torch.cat(states))

    def _mix_padded(self, rows: Tensor, state: Tensor, valid: Tensor) -> tuple[Tensor, MixerState]:
        """The same for all sequences at once, traced: the rows that hold a token are moved to the front."""
        order = (~valid).long().argsort(dim=1, stable=True)[..., None].expand_as(rows)
        mixed, state = self.read(rows.gather(1, order), state, valid.sum(1))
        mixed = torch.zeros_like(mixed).scatter(1, order, mixed)
        return mixed.masked_fill(~valid[..., None], 0), MixerState(state)


class Recurrent(SequentialMixer):
    """A GRU over rows (batch, n, size); in both directions, half the size each, where it is not causal."""

    def __init__(self, size: int, *, causal: bool) -> None:
        super().__init__()
        check_sizes(size=size)
        if size % 2 and not causal:
            raise ValueError(f"size: expected an even number for two directions, got {size}")
        self.net = RNN("GRU", size, size if causal else size // 2, bidirectional=not causal)

    def initial_state(self, rows: Tensor) -> Tensor:
        return rows.new_zeros(rows.shape[0], 2 if self.net.bidirectional else 1, self.net.hidden_size)

    def read(self, rows: Tensor, state: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        mixed, (hidden,) = self.net(rows, (state.transpose(0, 1).contiguous(),), lengths)  # (directions, batch, size)
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
        return rows.new_zeros(rows.shape[0], self.before, rows.shape[-1])

    def read(self, rows: Tensor, state: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        rows = torch.cat([state, rows], 1)
        after = rows[:, rows.shape[1] - self.before :]
        if lengths is not None:
            steps = torch.arange(rows.shape[1], device=rows.device) - lengths[:, None]  # the last rows: 0 to before − 1
            rows = rows.masked_fill((steps >= self.before)[..., None], 0)
            last = (lengths[:, None] + torch.arange(self.before, device=rows.device))[..., None]
            after = rows.gather(1, last.expand(-1, -1, rows.shape[-1]))
        padded = functional.pad(rows, (0, 0, 0, self.after))
        mixed: Tensor = self.net(padded.transpose(1, 2)).transpose(1, 2)
        return mixed, after
