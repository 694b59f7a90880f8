"""GRU and LSTM, which torch.compile takes as well.

It refuses PyTorch's modules of these names, because it would have to unroll them step by step. Here they are PyTorch's
functions of these names, and while compiled each layer is one operator, which calls them when it runs.

Shapes: rows (batch, n, size) · hidden (layers · directions, batch, hidden size) each, one of a GRU, two of an LSTM.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.arguments import has_values

Hidden = tuple[Tensor, ...]


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


# ------------------------------------------------------------------------------------------------- one layer, compiled


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
