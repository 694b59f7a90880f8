"""The RNN encoder–decoder, with attention (Bahdanau et al. 2014) or without (the bottleneck that it removed).

    states  = encoder(source words)                          one state for each word
    context = attend(query = the decoder's state, key = value = states)      anew at every step
    state   = decoder([target word, context], state)
    logits  = output([state, context])

Without attention every step gets the same context: the encoder's last state, into which all of the sentence has to fit.

Shapes: source (batch, m) · target (batch, n) · states (batch, m, hidden) · logits (batch, n, target vocabulary).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.arguments import (
    check_batch,
    check_choice,
    check_dropout,
    check_ids,
    check_lengths,
    check_marks,
    check_sizes,
)
from regard.attention import Mask, Score
from regard.attention import lengths as valid_lengths
from regard.attention.capture import AttentionMap, Recorder, by_layer
from regard.attention.formula import attend_in
from regard.attention.observers import notify, observe
from regard.attention.scores import require_score
from regard.models.block import dropped
from regard.models.model import evaluated
from regard.models.multihead import make_score
from regard.models.recurrence import attentive_gru
from regard.models.translator import Translator

__all__ = ["Seq2Seq"]

CELLS = {"gru": nn.GRU, "lstm": nn.LSTM}
Hidden = tuple[Tensor, ...]  # (layers, batch, hidden) each: one of a GRU, two of an LSTM


@dataclass(frozen=True)
class Writing:
    """Where a decoder stands, and what it looks back at."""

    hidden: Hidden
    values: Tensor  # (batch, m, hidden): the encoder's states, or its last one, (batch, 1, hidden), without attention
    keys: Tensor | None  # the same as the score wants them, projected once; None without attention
    counts: Tensor | None  # (batch,): how long each source is; None: all alike

    @property
    def mask(self) -> Mask | None:
        return None if self.counts is None else valid_lengths(self.counts)

    def select(self, rows: Tensor) -> Writing:
        """Of these rows, in this order."""
        values, keys, counts = (
            None if own is None else own.index_select(0, rows) for own in (self.values, self.keys, self.counts)
        )
        hidden = tuple(own.index_select(1, rows) for own in self.hidden)
        return Writing(hidden, values, keys, counts)  # type: ignore[arg-type]


class Seq2Seq(Translator):
    """Seq2Seq(source, target, source_lengths) → logits of the target word after each place.

    `target` begins with the mark `bos`. `attention` is a score, by name or your own, or None. A bidirectional encoder
    gives half of the hidden size to each direction.

    >>> import regard, torch
    >>> model = regard.Seq2Seq(source_vocab_size=31, target_vocab_size=37, size=16, hidden_size=16)
    >>> source, target = torch.randint(3, 31, (2, 5)), torch.randint(3, 37, (2, 7))
    >>> model(source, target, source_lengths=[5, 3]).shape  # (batch, n) · (batch, m) → (batch, m, words)
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
        bos: int = 1,
        eos: int = 2,
        forbidden: Sequence[int] = (),
    ) -> None:
        super().__init__(locals())
        check_sizes(source_vocab_size=source_vocab_size, target_vocab_size=target_vocab_size, size=size)
        check_marks(target_vocab_size, bos=bos, eos=eos, forbidden=forbidden)
        check_sizes(hidden_size=hidden_size, layers=layers)
        if bidirectional and hidden_size % 2:
            raise ValueError(f"hidden_size: expected an even number for two directions, got {hidden_size}")
        make = CELLS[check_choice("cell", cell, CELLS)]
        own_size = hidden_size // 2 if bidirectional else hidden_size
        between = dropout if layers > 1 else 0.0  # PyTorch drops between layers, and warns where there is only one
        self.source_word = nn.Embedding(source_vocab_size, size)
        self.target_word = nn.Embedding(target_vocab_size, size)
        self.encoder = make(size, own_size, layers, batch_first=True, bidirectional=bidirectional, dropout=between)
        self.score = None if attention is None else make_score(attention, hidden_size, hidden_size, "attention")
        self.decoder = make(size + hidden_size, hidden_size, layers, batch_first=True, dropout=between)
        self.output = nn.Linear(2 * hidden_size, target_vocab_size)
        self.dropout = check_dropout(dropout)

    def forward(self, source: Tensor, target: Tensor, source_lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """source (batch, m), target (batch, n) → logits (batch, n, target vocabulary)."""
        rows, _ = self._decode(target, self.read(source, source_lengths))
        logits: Tensor = self.output(rows)
        return logits

    def encode(self, source: Tensor, lengths: Sequence[int] | None = None) -> tuple[Tensor, Hidden]:
        """source (batch, m) → states (batch, m, hidden), zeros where there is no token, and the last ones."""
        rows = dropped(self.source_word(source), self.dropout, self.training)
        if lengths is None:
            states, last = self.encoder(rows)
        else:
            packed = nn.utils.rnn.pack_padded_sequence(rows, list(lengths), batch_first=True, enforce_sorted=False)
            states, last = self.encoder(packed)
            states, _ = nn.utils.rnn.pad_packed_sequence(states, batch_first=True, total_length=source.shape[1])
        return states, tuple(_side_by_side(own, self.encoder) for own in (last if isinstance(last, tuple) else (last,)))

    def read(self, source: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Writing:
        """The beginning of a translation: the source is read, and its keys are projected, once."""
        check_ids("source", source, self.source_word.num_embeddings)
        batch, m = source.shape
        counts = None if lengths is None else check_lengths("source_lengths", lengths, batch, m)
        states, hidden = self.encode(source, counts)
        if self.score is None:
            return Writing(hidden, hidden[0][-1][:, None], None, None)
        valid = None if counts is None or min(counts) == m else torch.tensor(counts, device=source.device)
        return Writing(hidden, states, self._score().project_key(states), valid)

    def step(self, ids: Tensor, state: Writing) -> tuple[Tensor, Writing]:
        """Write ids (batch, n): logits of the word after them (batch, target vocabulary), and the state after it."""
        rows, state = self._decode(ids, state)
        logits: Tensor = self.output(rows[:, -1])
        return logits, state

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

    def _score(self) -> Score:
        return require_score(self.score)

    def _decode(self, target: Tensor, state: Writing) -> tuple[Tensor, Writing]:
        """[state, context] after each target word, (batch, n, 2 · hidden)."""
        check_ids("target", target, self.target_word.num_embeddings)
        check_batch("target", target, state.hidden[0].shape[1], "the source")
        words = dropped(self.target_word(target), self.dropout, self.training)  # (batch, n, size)
        hidden, mask = state.hidden, state.mask
        if state.keys is None:  # the context is the same at every step, so the decoder can run through
            contexts = state.values.expand(-1, target.shape[1], -1)
            rows, hidden = self._run(torch.cat([words, contexts], -1), hidden)
            return self._beside(rows, contexts), replace(state, hidden=hidden)
        score = self._score().projected
        if torch.is_grad_enabled():
            first = hidden[0][-1]
            fast = attentive_gru(self.decoder, self.score, words, first, state.keys, state.values, mask)
            if fast is not None:
                queries = torch.cat([first[:, None], fast[0][:, :-1]], 1)  # the state before each step
                notify(self, queries, state.keys, score, mask, cross=True)
                return self._beside(*fast), replace(state, hidden=(fast[0][:, -1][None],))
        looks: list[Tensor] = []
        found: list[Tensor] = []
        for word in words.split(1, 1):
            query = hidden[0][-1][:, None]  # (batch, 1, hidden): the state of the top layer asks
            context = attend_in(self, query, state.keys, state.values, score=score, mask=mask, cross=True)
            row, hidden = self._run(torch.cat([word, context], -1), hidden)
            looks.append(context)
            found.append(row)
        return self._beside(torch.cat(found, 1), torch.cat(looks, 1)), replace(state, hidden=hidden)

    def _run(self, rows: Tensor, hidden: Hidden) -> tuple[Tensor, Hidden]:
        """The decoder's cells over rows (batch, n, size + hidden)."""
        output, after = self.decoder(rows, hidden if len(hidden) > 1 else hidden[0])
        return output, after if isinstance(after, tuple) else (after,)

    def _beside(self, rows: Tensor, contexts: Tensor) -> Tensor:
        return dropped(torch.cat([rows, contexts], -1), self.dropout, self.training)


def _side_by_side(last: Tensor, encoder: nn.RNNBase) -> Tensor:
    """(layers · directions, batch, own size) → (layers, batch, hidden): a layer's two directions next to each other."""
    if not encoder.bidirectional:
        return last
    layers, (batch, size) = encoder.num_layers, last.shape[1:]
    return last.view(layers, 2, batch, size).transpose(1, 2).reshape(layers, batch, 2 * size)
