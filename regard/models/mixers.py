"""Two older ways of processing sequences, with the interface of self-attention: the three are one argument apart.

recurrent     reads row after row: far back, but one step at a time
convolution   reads the neighbours: all rows at once, but not far
attention     (multihead.py) reads every row: far and at once, at the price of n² scores
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.arguments import check_sizes, has_values
from regard.models.packing import SequenceInfo

Hidden = tuple[Tensor, ...]  # (layers · directions, batch, hidden size) each: one of a GRU, two of an LSTM


@dataclass(frozen=True)
class MixerState:
    """The GRU's hidden state, or the last rows before the convolution: (batch, …)."""

    rows: Tensor

    @property
    def batch(self) -> int:
        return len(self.rows)

    def select(self, rows: Tensor) -> "MixerState":
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
        # Padded: the rows that hold a token are moved to the front, and back.
        order = (~info.valid).long().argsort(dim=1, stable=True)[..., None].expand_as(rows)
        mixed, state = self.read(rows.gather(1, order), state, info.valid.sum(1))
        mixed = torch.zeros_like(mixed).scatter(1, order, mixed)
        return mixed.masked_fill(~info.valid[..., None], 0), MixerState(state)


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


# ------------------------------------------------------------------------------------------------------- GRU and LSTM
#
# torch.compile refuses PyTorch's modules of these names, because it would have to unroll them step by step. Here they
# are PyTorch's functions of these names, and while compiled each layer is one operator, which calls them when it runs.


class RNN(nn.RNNBase):
    """A GRU or an LSTM over rows, from a hidden state: RNN(rows, hidden, lengths) → states of all rows, hidden state.

    mode: GRU or LSTM · size: of the rows · hidden_size · layers · bidirectional: in both directions · dropout: between
    the layers.
    """

    def __init__(
        self,
        mode: str,
        size: int,
        hidden_size: int,
        layers: int = 1,
        *,
        bidirectional: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(
            mode, size, hidden_size, layers, batch_first=True, dropout=dropout, bidirectional=bidirectional
        )

    def forward(
        self, rows: Tensor, hidden: Hidden | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Hidden]:
        """States (batch, n, directions · hidden size), zeros behind the lengths, and those after the last row."""
        if hidden is None:
            count = self.num_layers * (2 if self.bidirectional else 1)
            hidden = (rows.new_zeros(count, rows.shape[0], self.hidden_size),) * (2 if self.mode == "LSTM" else 1)
        weights: list[Tensor] = [weight for layer in self.all_weights for weight in layer]
        if torch.compiler.is_compiling() or not (lengths is None or has_values(lengths)):
            return self._run_layers(rows, hidden, weights, lengths)
        return _run(rows, hidden, weights, lengths, self.num_layers, self.dropout, self.training)

    def _run_layers(
        self, rows: Tensor, hidden: Hidden, weights: list[Tensor], lengths: Tensor | None
    ) -> tuple[Tensor, Hidden]:
        """The same layer by layer, each as one operator."""
        after = []
        per_layer = len(weights) // self.num_layers
        for layer in range(self.num_layers):
            if layer:
                rows = functional.dropout(rows, self.dropout, self.training)
            states = [state.unflatten(0, (self.num_layers, -1))[layer] for state in hidden]
            part = weights[layer * per_layer : (layer + 1) * per_layer]
            rows, *states = torch.ops.regard.rnn_layer(rows, states, part, lengths)
            after.append(states)
        return rows, tuple(torch.cat(states) for states in zip(*after, strict=True))


def _run(
    rows: Tensor,
    hidden: Sequence[Tensor],
    weights: list[Tensor],
    lengths: Tensor | None,
    layers: int = 1,
    dropout: float = 0.0,
    training: bool = True,
) -> tuple[Tensor, Hidden]:
    """PyTorch's loop: a GRU takes one hidden state, an LSTM two."""
    run: Any = torch.gru if len(hidden) == 1 else torch.lstm
    options = (weights, True, layers, dropout, training, hidden[0].shape[0] > layers)
    if lengths is None:
        output, *after = run(rows, hidden[0] if len(hidden) == 1 else hidden, *options, True)
        return output, tuple(after)
    packed = pack_padded_sequence(rows, lengths.cpu(), batch_first=True, enforce_sorted=False)
    order, back = cast(Tensor, packed.sorted_indices), cast(Tensor, packed.unsorted_indices)
    hidden = [state.index_select(1, order) for state in hidden]
    output, *after = run(packed.data, packed.batch_sizes, hidden[0] if len(hidden) == 1 else hidden, *options)
    output, _ = pad_packed_sequence(packed._replace(data=output), batch_first=True, total_length=rows.shape[1])
    return output, tuple(state.index_select(1, back) for state in after)


@torch.library.custom_op("regard::rnn_layer", mutates_args=())
def _layer(rows: Tensor, hidden: list[Tensor], weights: list[Tensor], lengths: Tensor | None) -> list[Tensor]:
    output, after = _run(rows, hidden, weights, lengths)
    return [tensor.contiguous() for tensor in (output, *after)]


@_layer.register_fake
def _(rows: Tensor, hidden: list[Tensor], weights: list[Tensor], lengths: Tensor | None) -> list[Tensor]:
    directions, _, size = hidden[0].shape
    return [rows.new_empty(*rows.shape[:2], directions * size), *(state.new_empty(state.shape) for state in hidden)]


@torch.library.custom_op("regard::rnn_layer_backward", mutates_args=())
def _layer_backward(
    grads: list[Tensor], rows: Tensor, hidden: list[Tensor], weights: list[Tensor], lengths: Tensor | None
) -> list[Tensor]:
    inputs = [tensor.detach().requires_grad_() for tensor in (rows, *hidden, *weights)]
    # What the forward pass would have kept is computed again. An operator runs below autograd, which has to be let in.
    tls = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    recorded = tls[1].remove(torch._C.DispatchKey.AutogradFunctionality)
    with torch._C._ForceDispatchKeyGuard(tls[0], recorded), torch.enable_grad():
        output, after = _run(inputs[0], inputs[1 : 1 + len(hidden)], inputs[1 + len(hidden) :], lengths)
        parts = torch.autograd.grad((output, *after), inputs, grads)
    return [part.contiguous() for part in parts]


@_layer_backward.register_fake
def _(
    grads: list[Tensor], rows: Tensor, hidden: list[Tensor], weights: list[Tensor], lengths: Tensor | None
) -> list[Tensor]:
    return [tensor.new_empty(tensor.shape) for tensor in (rows, *hidden, *weights)]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    rows, hidden, weights, lengths = inputs
    ctx.states = len(hidden)
    ctx.save_for_backward(lengths, rows, *hidden, *weights)


def _gradients(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    lengths, rows, *rest = ctx.saved_tensors
    hidden, weights = rest[: ctx.states], rest[ctx.states :]
    by_rows, *parts = torch.ops.regard.rnn_layer_backward(grads, rows, hidden, weights, lengths)
    return by_rows, parts[: ctx.states], parts[ctx.states :], None


_layer.register_autograd(_gradients, setup_context=_setup)
