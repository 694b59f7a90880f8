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

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.arguments import check_batch, check_dropout, check_ids, check_lengths, has_values
from regard.attention import Mask, masked_softmax
from regard.attention import lengths as valid_lengths
from regard.attention.api import attend_in
from regard.attention.capture import AttentionMap, Recorder, by_layer
from regard.attention.dropout import dropout as apply_dropout
from regard.attention.mods import require_score
from regard.attention.observers import has_editors, notify, observe
from regard.models.mixers import RNN, Hidden
from regard.models.model import evaluated
from regard.models.multihead import make_score
from regard.models.recurrence import attentive_gru
from regard.models.translator import Translator


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

    def select(self, rows: Tensor) -> RNNDecoderState:
        """These rows, in this order."""
        keys, lengths, context = (
            None if tensor is None else tensor.index_select(0, rows)
            for tensor in (self.keys, self.lengths, self.context)
        )
        hidden = tuple(state.index_select(1, rows) for state in self.hidden)
        return RNNDecoderState(hidden, self.values.index_select(0, rows), keys, lengths, self.steps, context)


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
        self.output = nn.Linear(2 * hidden_size, target_vocab_size)
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

    @evaluated
    def align(self, source: Tensor, target: Tensor, source_lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """How much each target token attends to each source token: weights (batch, n, m)."""
        if self.score is None:
            raise ValueError("this Seq2Seq has no attention, so nothing is aligned: make it with attention='additive'")
        steps: list[AttentionMap] = []
        with torch.no_grad(), observe(Recorder(self, steps.append)):
            self(source, target, source_lengths)
        (attention,) = by_layer(steps)
        return attention.weights[:, 0]

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
        logits: Tensor = self.output(rows)
        return logits

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
