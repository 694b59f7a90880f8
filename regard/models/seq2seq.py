"""The RNN encoder–decoder, with attention (Bahdanau et al. 2014) or without (the bottleneck that it removed).

    states  = encoder(source tokens)                                         one state for each token
    context = attend(query = the decoder's state, key = value = states)      anew at every step
    state   = decoder([target token, context], state)
    logits  = output([state, context])

So the query has not read the newest target token. With input_feeding (Luong et al. 2015) it has: the new state attends,
after the step, and the context is part of the next step's input.

Without attention every step gets the same context: the encoder's last state, into which all of the sentence has to fit.

Shapes: source (batch, m) · target (batch, n) · states (batch, m, hidden) · logits (batch, n, target vocabulary).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.arguments import check_batch, check_dropout, check_ids, check_lengths, has_values
from regard.attention import Additive, Mask, masked_softmax
from regard.attention import lengths as valid_lengths
from regard.attention.additive import LIMIT, scores_from_exp, slopes_from_exp
from regard.attention.api import attend_in
from regard.attention.dropout import dropout as apply_dropout
from regard.attention.mods import require_score
from regard.attention.observers import has_editors, notify
from regard.attention.threads import load_kernels
from regard.models.decode_kernels import Linear, product
from regard.models.mixers import RNN, Hidden
from regard.models.multihead import make_score
from regard.models.translator import Translator

REACH = 42.0  # up to where e^{2 query} and e^{2 key} are normal numbers; far before that tanh is 1


@dataclass(frozen=True)
class RNNDecoderState:
    """The hidden states of a decoder, and what it attends to."""

    hidden: Hidden
    values: Tensor  # (batch, m, hidden): the encoder's states, or its last one, (batch, 1, hidden), without attention
    keys: Tensor | None  # the same, projected once by the score; None without attention
    lengths: Tensor | None  # (batch,): of the sources; None: all alike
    steps: int = 0  # target tokens that were read
    context: Tensor | None = None  # (batch, 1, hidden): the input of the next step, with input feeding

    @property
    def mask(self) -> Mask | None:
        return None if self.lengths is None else valid_lengths(self.lengths)

    def select(self, rows: Tensor) -> "RNNDecoderState":
        """These rows, in this order."""
        given = ("values", "keys", "lengths", "context")
        chosen = {name: tensor.index_select(0, rows) for name in given if (tensor := getattr(self, name)) is not None}
        return replace(self, hidden=tuple(state.index_select(1, rows) for state in self.hidden), **chosen)


class Seq2Seq(Translator):
    """Seq2Seq(source, target, source_lengths) → logits of the target token after each one; `translate` for texts.

    source_vocab_size · target_vocab_size · size: of the token vectors · hidden_size: of the states; a bidirectional
    encoder gives half of it to each direction · layers · cell: gru or lstm · bidirectional: the encoder reads in both
    directions · attention: additive, bilinear, cosine, dot, gaussian, or a score module; None: the bottleneck ·
    dropout · share_embeddings: one embedding for source and target · input_feeding: the new state attends, not the one
    before · bos: id of the token that begins a target · eos: of the one that ends it · forbidden: ids that are not
    generated.

    >>> import regard, torch
    >>> model = regard.Seq2Seq(source_vocab_size=31, target_vocab_size=37, size=16, hidden_size=16)
    >>> source, target = torch.randint(3, 31, (2, 5)), torch.randint(3, 37, (2, 7))
    >>> model(source, target, source_lengths=[5, 3]).shape  # (batch, m) · (batch, n) → (batch, n, vocabulary)
    torch.Size([2, 7, 37])
    """

    def __init__(
        self,
        source_vocab_size: int,
        target_vocab_size: int,
        size: int = 256,
        hidden_size: int = 256,
        *,
        layers: int = 1,
        cell: str = "gru",
        bidirectional: bool = True,
        attention: str | nn.Module | None = "additive",
        dropout: float = 0.0,
        share_embeddings: bool = False,
        input_feeding: bool = False,
        bos: int = 1,
        eos: int = 2,
        forbidden: Sequence[int] = (),
    ) -> None:
        super().__init__(locals(), cell=("gru", "lstm"))
        if bidirectional and hidden_size % 2:
            raise ValueError(f"hidden_size: expected an even number for two directions, got {hidden_size}")
        mode = cell.upper()
        encoder_size = hidden_size // 2 if bidirectional else hidden_size
        between = dropout if layers > 1 else 0.0  # PyTorch drops between layers, and warns where there is only one
        self.source_embedding = None if share_embeddings else nn.Embedding(source_vocab_size, size)
        self.target_embedding = nn.Embedding(target_vocab_size, size)
        self.encoder = RNN(mode, size, encoder_size, layers, bidirectional=bidirectional, dropout=between)
        self.score = None if attention is None else make_score(attention, hidden_size, hidden_size, "attention")
        self.decoder = RNN(mode, size + hidden_size, hidden_size, layers, dropout=between)
        self.output = Linear(2 * hidden_size, target_vocab_size)
        self.dropout = check_dropout(dropout)
        self.input_feeding = input_feeding

    def encode(self, source: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Hidden]:
        """source (batch, m) → states (batch, m, hidden), zeros where there is no token, and the last ones."""
        embedding = self.target_embedding if self.source_embedding is None else self.source_embedding
        rows = apply_dropout(embedding(source), self.dropout, self.training)
        states, last = self.encoder(rows, None, lengths)
        return states, tuple(_join_directions(state, self.encoder) for state in last)

    def read(self, source: Tensor, lengths: Tensor | Sequence[int] | None = None) -> RNNDecoderState:
        """Encode a source (batch, m), and project its keys, once."""
        embedding = self.target_embedding if self.source_embedding is None else self.source_embedding
        check_ids("source", source, embedding.num_embeddings)
        batch, m = source.shape
        counts = None if lengths is None else check_lengths("source_lengths", lengths, batch, m)
        states, hidden = self.encode(source, counts)
        if self.score is None:
            return RNNDecoderState(hidden, hidden[0][-1][:, None], None, None)
        alike = counts is None or (has_values(counts) and bool((counts == m).all()))
        valid = None if counts is None or alike else counts.to(source.device)
        return RNNDecoderState(hidden, states, require_score(self.score).project_key(states), valid)

    def align(self, source: Tensor, target: Tensor, source_lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """How much each target token attends to each source token: weights (batch, n, m)."""
        if self.score is None:
            raise ValueError("this Seq2Seq has no attention, so nothing is aligned: make it with attention='additive'")
        return super().align(source, target, source_lengths)[:, 0, 0]

    def decode(self, target: Tensor, state: RNNDecoderState) -> tuple[Tensor, RNNDecoderState]:
        """[state, context] after each target token, (batch, n, 2 · hidden)."""
        check_ids("target", target, self.target_embedding.num_embeddings)
        check_batch("target", target, state.hidden[0].shape[1], "the source")
        tokens = apply_dropout(self.target_embedding(target), self.dropout, self.training)  # (batch, n, size)
        if state.keys is None:  # the context is the same at every step, so the decoder can run through
            contexts = state.values.expand(-1, target.shape[1], -1)
            states, hidden = self.decoder(torch.cat([tokens, contexts], -1), state.hidden)
        else:
            states, contexts, hidden = self._decode_with_attention(tokens, state, state.keys)
        rows = apply_dropout(torch.cat([states, contexts], -1), self.dropout, self.training)
        context = contexts[:, -1:] if self.input_feeding else None
        return rows, replace(state, hidden=hidden, steps=state.steps + target.shape[1], context=context)

    def predict(self, rows: Tensor) -> Tensor:
        return self.output(rows)

    def _decode_with_attention(
        self, tokens: Tensor, state: RNNDecoderState, keys: Tensor
    ) -> tuple[Tensor, Tensor, Hidden]:
        """States and contexts of all steps, (batch, n, hidden) each, and the last hidden state."""
        if torch.is_grad_enabled() and not has_editors():
            first = state.hidden[0][-1]
            fast = attentive_gru(self.decoder, self.score, tokens, first, keys, state.values, state.mask)
            if fast is not None:
                return self._with_queries(first, *fast, state, keys)
        hidden, context = state.hidden, state.context
        if self.input_feeding and context is None:
            context = self._context(hidden[0][-1][:, None], state, keys)
        rows: list[tuple[Tensor, Tensor]] = []
        for step, token in enumerate(tokens.split(1, 1), state.steps):
            if not self.input_feeding:
                context = self._attend(hidden, state, keys, step)
            row, hidden = self.decoder(torch.cat([token, cast(Tensor, context)], -1), hidden)
            if self.input_feeding:
                context = self._attend(hidden, state, keys, step)
            rows.append((row, cast(Tensor, context)))
        states, contexts = (torch.cat(parts, 1) for parts in zip(*rows, strict=True))
        return states, contexts, hidden

    def _with_queries(
        self, first: Tensor, states: Tensor, contexts: Tensor, state: RNNDecoderState, keys: Tensor
    ) -> tuple[Tensor, Tensor, Hidden]:
        """The same from the fast path, whose contexts are those that go into each step; observers are notified."""
        queries = torch.cat([first[:, None], states[:, :-1]], 1)  # the state before each step
        if self.input_feeding:
            queries, contexts = states, torch.cat([contexts[:, 1:], self._context(states[:, -1:], state, keys)], 1)
        score = require_score(self.score).projected
        marks: dict[str, Any] = {"cross": True, "value": state.values, "output": contexts, "first": state.steps}
        notify(self, queries, keys, score, state.mask, **marks)
        return states, contexts, (states[:, -1][None],)

    def _attend(self, hidden: Hidden, state: RNNDecoderState, keys: Tensor, step: int) -> Tensor:
        """The context (batch, 1, hidden) for the state of the top layer."""
        score = require_score(self.score).projected
        query = hidden[0][-1][:, None]
        return attend_in(self, query, keys, state.values, score=score, mask=state.mask, cross=True, first=step)

    def _context(self, query: Tensor, state: RNNDecoderState, keys: Tensor) -> Tensor:
        """The same for a query (batch, 1, hidden), without notifying observers."""
        scores = require_score(self.score).projected(query, keys)
        return masked_softmax(scores, state.mask) @ state.values


def _join_directions(last: Tensor, encoder: RNN) -> Tensor:
    """(layers · directions, batch, size) → (layers, batch, hidden): both directions of a layer side by side."""
    if not encoder.bidirectional:
        return last
    layers, (batch, size) = encoder.num_layers, last.shape[1:]
    return last.view(layers, 2, batch, size).transpose(1, 2).reshape(layers, batch, 2 * size)


# --------------------------------------------------------------------------------- the loop with its backward pass
#
# A GRU with additive attention at every step, trained fast:
#
#   q_t = W_q h_{t−1}        a_t = masked softmax_j( w · tanh(q_t + key_j) )        c_t = Σ_j a_tj value_j
#   r = σ(x_r + g_r)    z = σ(x_z + g_z)    n = tanh(x_n + r g_n)    h_t = n + z (h_{t−1} − n)
#
# where x comes from the token and from c_t, and g = W_h h_{t−1} + b. What does not depend on the step before is
# computed for all steps at once: the tokens' part of x before the loop, the gradients of all matrices after it. Keys
# enter as e^{2 key}, once for all steps (attention/loops/additive.py). Automatic differentiation would make a product
# for each matrix and each step: a training step takes 1.5 to 1.8 times as long with it (benchmarks/ablation.py). The
# result is that of Seq2Seq's own loop, to rounding.


def attentive_gru(
    net: RNN, score: nn.Module | None, tokens: Tensor, hidden: Tensor, keys: Tensor, values: Tensor, mask: Mask | None
) -> tuple[Tensor, Tensor] | None:
    """States and contexts (batch, n, hidden) each, for tokens (batch, n, size), a state (batch, hidden) and the rest.

    None where this path does not apply: another cell or score, several layers, not on a CPU, numbers out of range.
    """
    if type(score) is not Additive or net.mode != "GRU" or net.num_layers > 1 or keys.shape[-1] % 4:
        return None
    if not tokens.is_cpu or tokens.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
        return None
    if not has_values(tokens, keys) or load_kernels("steps", "models") is None or not keys.numel():
        return None
    if not float(keys.detach().abs().amax()) < REACH:
        return None
    names = ("weight_ih_l0", "bias_ih_l0", "weight_hh_l0", "bias_hh_l0")
    matrices = (score.query_weight, score.value_weight, *map(net.get_parameter, names))
    states, contexts, reach = _AttentiveGRU.apply(tokens, hidden, keys, values, *matrices, mask)  # type: ignore[no-untyped-call]
    return (states, contexts) if float(reach) < REACH else None


def _gru_step(x: Tensor, g: Tensor, state: Tensor, saved: Tensor, output: Tensor) -> Tensor:
    """One step of the cell, from x and g (batch, 3 · hidden); saved (batch, 4 · hidden) is for the backward pass."""
    size = state.shape[1]
    gates, new, inner = saved.split((2 * size, size, size), 1)
    torch.sigmoid(x[:, : 2 * size] + g[:, : 2 * size], out=gates)
    inner.copy_(g[:, 2 * size :])
    torch.tanh(torch.addcmul(x[:, 2 * size :], gates[:, :size], inner), out=new)
    return torch.addcmul(new, gates[:, size:], state - new, out=output)


class _AttentiveGRU(torch.autograd.Function):
    """States, contexts, and the largest number in a query."""

    @staticmethod
    def forward(
        ctx: Any,
        tokens: Tensor,
        hidden: Tensor,
        keys: Tensor,
        values: Tensor,
        query_weight: Tensor,
        w: Tensor,
        weight: Tensor,
        bias: Tensor,
        hidden_weight: Tensor,
        hidden_bias: Tensor,
        mask: Mask | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        (batch, n, width), (m, units), size = tokens.shape, keys.shape[1:], hidden.shape[1]
        both = torch.cat([query_weight, hidden_weight])  # what the state is multiplied by
        both_bias = torch.cat([hidden_bias.new_zeros(units), hidden_bias])
        exp_keys = keys.mul(2).exp_().mT.contiguous()  # (batch, units, m)
        # The step is the first dimension, so that the numbers of one step are contiguous.
        inputs = tokens.new_empty(n, batch, width + size)  # tokens and contexts
        inputs[..., :width] = tokens.transpose(0, 1)
        contexts, gates = inputs[..., width:], product(inputs[..., :width], weight[:, :width], bias)
        of_context = weight[:, width:].contiguous()
        states, saved = tokens.new_empty(n, batch, size), tokens.new_empty(n, batch, 4 * size)
        weights, exp_queries = tokens.new_empty(n, batch, m), tokens.new_empty(n, batch, units)
        state = hidden
        for step in range(n):
            projected = product(state, both, both_bias)  # (batch, units + 3 · hidden)
            torch.exp(projected[:, :units] * 2, out=exp_queries[step])
            scores = scores_from_exp(exp_queries[step][:, None], exp_keys, w, LIMIT[w.dtype])
            weights[step] = masked_softmax(scores, mask)[:, 0]
            context = torch.bmm(weights[step].unsqueeze(1), values).squeeze(1)
            contexts[step] = context
            x = product(context, of_context).add_(gates[step])
            state = _gru_step(x, projected[:, units:], state, saved[step], states[step])
        ctx.save_for_backward(hidden, values, w, weight, both, exp_keys, exp_queries, states, inputs, saved, weights)
        reach = torch.stack(exp_queries.aminmax()).log().abs().max() / 2
        ctx.mark_non_differentiable(reach)
        return states.transpose(0, 1), contexts.transpose(0, 1), reach

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_states: Tensor, grad_contexts: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        hidden, values, w, weight, both, exp_keys, exp_queries, states, inputs, saved, weights = ctx.saved_tensors
        (n, batch, size), units, width = states.shape, exp_keys.shape[1], inputs.shape[2] - states.shape[2]
        grad_gates, grad_products = values.new_empty(n, batch, 3 * size), values.new_empty(n, batch, units + 3 * size)
        grad_scores, grad_context = torch.empty_like(weights), torch.empty_like(states)
        grad_keys, grad_w = torch.zeros_like(exp_keys), values.new_zeros(batch, units)
        grad_state, to_context = torch.zeros_like(hidden), weight[:, width:].T.contiguous()
        for step in reversed(range(n)):
            grad_state = grad_state + grad_states[:, step]
            before = states[step - 1] if step else hidden
            parts = (grad_state, saved[step], before, grad_gates[step], grad_products[step, :, units:])
            load_kernels("steps", "models").gru_backward(*(part.numpy() for part in parts))
            torch.add(grad_contexts[:, step], product(grad_gates[step], to_context), out=grad_context[step])
            grad_weights = torch.bmm(values, grad_context[step].unsqueeze(2)).squeeze(2)  # (batch, m)
            centred = grad_weights - (weights[step] * grad_weights).sum(1, keepdim=True)
            torch.mul(weights[step], centred, out=grad_scores[step])
            grad_query, step_w = slopes_from_exp(
                exp_queries[step][:, None], exp_keys, grad_scores[step][:, None], grad_keys
            )
            torch.mul(grad_query[:, 0], 4 * w, out=grad_products[step, :, :units])
            grad_w += step_w[:, 0]
            grad_state += product(grad_products[step], both.T)
        flat_gates, flat_products = grad_gates.flatten(0, 1), grad_products.flatten(0, 1)
        earlier = torch.cat([hidden[None], states[:-1]]).flatten(0, 1)  # the state before each step
        grad_both = product(flat_products.T, earlier.T)
        return (
            product(grad_gates, weight[:, :width].T).transpose(0, 1),
            grad_state,
            grad_keys.mT * (4 * w),
            torch.bmm(weights.permute(1, 2, 0), grad_context.transpose(0, 1)),  # (batch, m, hidden)
            grad_both[:units],
            grad_scores.sum() - 2 * grad_w.sum(0),
            product(flat_gates.T, inputs.flatten(0, 1).T),
            flat_gates.sum(0),
            grad_both[units:],
            flat_products[:, units:].sum(0),
            None,
        )
