"""The Transformer: an encoder reads the source, a decoder writes the target and looks back at it (Vaswani et al. 2017).

    memory = encoder blocks(source words + positions)             every word looks at every word
    rows   = decoder blocks(target words + positions, memory)     at earlier target words, and at the whole memory
    logits = rows · word vectors

Shapes: source (batch, m) · target (batch, n) · memory (batch, m, size) · logits (batch, n, target vocabulary).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.arguments import (
    check_batch,
    check_choice,
    check_ids,
    check_lengths,
    check_marks,
    check_sizes,
)
from regard.attention import Mask, causal
from regard.attention import lengths as valid_lengths
from regard.attention.capture import AttentionMap, Recorder
from regard.attention.observers import observe
from regard.models.block import NORMS, dropped, make_blocks
from regard.models.cache import Cache, KVCache
from regard.models.decode_kernels import product
from regard.models.model import evaluated
from regard.models.multihead import MultiHead
from regard.models.packing import Places, pack
from regard.models.positions import LearnedPositions, sinusoidal
from regard.models.translator import Translator

__all__ = ["Transformer"]

POSITIONS = ("learned", "none", "sinusoidal", "sinusoidal_halves")


@dataclass(frozen=True)
class Decoding:
    """Where a decoder stands: what it has written, and what it looks back at.

    The memory is kept once for each source, however many rows are written for it: `owners` says whose each row is.
    """

    cache: Cache | None
    memories: tuple[KVCache, ...]  # of each block, (sources, heads, m, head size)
    counts: Tensor | None  # (sources,): how long each source is; None: all alike
    owners: Tensor  # (rows,)

    @property
    def mask(self) -> Mask | None:
        return None if self.counts is None else valid_lengths(self.counts)

    def select(self, rows: Tensor) -> Decoding:
        """Of these rows, in this order."""
        cache = None if self.cache is None else self.cache.select(rows)
        chosen = self.owners[rows]
        kept, owners, sharers = chosen.unique_consecutive(return_inverse=True, return_counts=True)
        if int(sharers.min()) != int(sharers.max()):  # not as many for each: then everybody gets a copy
            kept, owners = chosen, torch.arange(len(chosen), device=chosen.device)
        if kept.tolist() == list(range(int(self.owners[-1]) + 1)):  # the same sources
            return replace(self, cache=cache, owners=owners)
        counts = None if self.counts is None else self.counts[kept]
        return Decoding(cache, tuple(memory.select(kept) for memory in self.memories), counts, owners)


class Transformer(Translator):
    """Transformer(source, target, source_lengths) → logits of the target word after each place.

    `target` begins with the mark `bos`. `share_embeddings`: source and target have one table of word vectors; `tie_embeddings`: the
    target's table is also the output layer. `translate` writes.

    >>> import regard, torch
    >>> model = regard.Transformer(source_vocab_size=31, target_vocab_size=37, size=16, layers=2, heads=4)
    >>> source, target = torch.randint(3, 31, (2, 5)), torch.randint(3, 37, (2, 7))
    >>> model(source, target, source_lengths=[5, 3]).shape  # (batch, n) · (batch, m) → (batch, m, words)
    torch.Size([2, 7, 37])
    """

    def __init__(
        self,
        source_vocab_size: int,
        target_vocab_size: int,
        size: int = 512,
        layers: int = 6,
        heads: int = 8,
        *,
        ffn_size: int | None = None,
        decoder_layers: int | None = None,
        decoder_heads: int | None = None,
        decoder_ffn_size: int | None = None,
        max_positions: int = 1_024,
        positions: str = "sinusoidal",
        score: str | None = None,
        activation: str = "relu",
        epsilon: float = 1e-5,
        pre_norm: bool = False,
        dropout: float = 0.0,
        share_embeddings: bool = False,
        tie_embeddings: bool = True,
        scale_embeddings: bool = True,
        output_bias: bool = False,
        bos: int = 1,
        eos: int = 2,
        forbidden: Sequence[int] = (),
    ) -> None:
        super().__init__(locals())
        _check(self.config)
        self.target_word = nn.Embedding(target_vocab_size, size)
        self.source_word = None if share_embeddings else nn.Embedding(source_vocab_size, size)
        learned = positions == "learned"
        self.source_position = LearnedPositions(max_positions, size) if learned else None
        self.target_position = LearnedPositions(max_positions, size) if learned else None

        options: dict[str, Any] = {
            "score": score,
            "activation": activation,
            "epsilon": epsilon,
            "pre_norm": pre_norm,
            "dropout": dropout,
        }
        self.encoder_blocks = make_blocks(layers, size, heads, ffn_size, causal=False, **options)
        self.decoder_blocks = make_blocks(
            decoder_layers or layers,
            size,
            decoder_heads or heads,
            decoder_ffn_size or ffn_size,
            causal=True,
            cross=True,
            **options,
        )
        self.encoder_norm = NORMS["layer"](size, eps=epsilon) if pre_norm else None
        self.decoder_norm = NORMS["layer"](size, eps=epsilon) if pre_norm else None
        self.output = None if tie_embeddings else nn.Linear(size, target_vocab_size, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(1, target_vocab_size)) if output_bias else None
        self.scale = math.sqrt(size) if scale_embeddings else 1.0
        self.dropout = dropout
        self._reset(size**-0.5 if scale_embeddings else 0.02)

    def _reset(self, spread: float) -> None:
        for embedding in (self.source_word, self.target_word, self.source_position, self.target_position):
            if embedding is not None:
                nn.init.normal_(embedding.weight, std=spread)

    def forward(self, source: Tensor, target: Tensor, source_lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """source (batch, m), target (batch, n) → logits (batch, n, target vocabulary)."""
        rows, _ = self._decode(target, self.read(source, source_lengths))
        return self._predict(rows)

    def encode(self, source: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """source (batch, m) → memory (batch, m, size), zeros where there is no token."""
        table = self.target_word if self.source_word is None else self.source_word
        check_ids("source", source, table.num_embeddings)
        packed = pack(source, lengths, "source_lengths")
        rows = self._begin(packed.ids, packed.positions, table, self.source_position)
        places = Places(packed.mask, counts=packed.counts)
        for block in self.encoder_blocks:
            rows = block(rows, places)
        return packed.unpack(rows if self.encoder_norm is None else self.encoder_norm(rows))

    def read(self, source: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Decoding:
        """The beginning of a translation: the source is encoded, its keys and values are projected, once."""
        memory = self.encode(source, lengths)
        batch, m = source.shape
        counts = (
            None
            if lengths is None
            else torch.tensor(check_lengths("source_lengths", lengths, batch, m), device=source.device)
        )
        memories = tuple(cross.project_kv(memory) for cross in self._crosses())
        return Decoding(None, memories, counts, torch.arange(batch, device=source.device))

    def step(self, ids: Tensor, state: Decoding) -> tuple[Tensor, Decoding]:
        """Write ids (rows, n): logits of the word after them (rows, target vocabulary), and the state to go on with."""
        rows, state = self._decode(ids, state)
        return self._predict(rows[:, -1]), state

    @evaluated
    def align(self, source: Tensor, target: Tensor, source_lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """How much each target token attends to each source token: weights (batch, layers, heads, n, m)."""
        maps: list[AttentionMap] = []
        with torch.no_grad(), observe(Recorder(self, maps.append, layers="decoder_blocks.*.cross")):
            self(source, target, source_lengths)
        return torch.stack([layer.weights for layer in maps], 1)

    def _crosses(self) -> list[MultiHead]:
        return [block.cross for block in self.decoder_blocks if block.cross is not None]

    def _decode(self, target: Tensor, state: Decoding) -> tuple[Tensor, Decoding]:
        check_ids("target", target, self.target_word.num_embeddings)
        check_batch("target", target, len(state.owners), "the source")
        before = 0 if state.cache is None else state.cache.columns
        positions = torch.arange(before, before + target.shape[1], device=target.device)[None]
        rows = self._begin(target, positions, self.target_word, self.target_position)
        places = Places(causal(offset=before) if target.shape[1] > 1 else None)
        mask = state.mask
        kept = []
        for number, block in enumerate(self.decoder_blocks):
            past = None if state.cache is None else state.cache.layers[number]
            rows, own = block.extend(rows, places, past, state.memories[number], mask)
            kept.append(own)
        seen = torch.arange(before + target.shape[1], device=target.device)[None]
        return rows, replace(state, cache=Cache(tuple(kept), seen))

    def _begin(self, ids: Tensor, positions: Tensor, word: nn.Embedding, position: LearnedPositions | None) -> Tensor:
        last = int(positions.max()) + 1
        if last > self.config["max_positions"]:
            raise ValueError(
                f"ids: expected at most {self.config['max_positions']} positions, the model's max_positions, got {last}"
            )
        rows = word(ids) * self.scale
        if position is not None:
            rows = rows + position(positions)
        elif self.config["positions"] != "none":
            halves = self.config["positions"] == "sinusoidal_halves"
            rows = rows + sinusoidal(positions, rows.shape[-1], halves=halves).to(rows.dtype)
        return dropped(rows, self.dropout, self.training)

    def _predict(self, rows: Tensor) -> Tensor:
        rows = rows if self.decoder_norm is None else self.decoder_norm(rows)
        table = self.target_word if self.output is None else self.output
        logits = product(rows, table.weight)
        return logits if self.output_bias is None else logits + self.output_bias


def _check(own: dict[str, Any]) -> None:
    """What has to fit together before anything is built."""
    source, target, size, heads = (own[name] for name in ("source_vocab_size", "target_vocab_size", "size", "heads"))
    check_sizes(source_vocab_size=source, target_vocab_size=target, size=size, heads=heads)
    check_sizes(layers=own["layers"], decoder_layers=own["decoder_layers"], max_positions=own["max_positions"])
    check_marks(target, bos=own["bos"], eos=own["eos"], forbidden=own["forbidden"])
    check_choice("positions", own["positions"], POSITIONS)
    if own["share_embeddings"] and source != target:
        raise ValueError(f"share_embeddings: expected vocabularies of one size, got {source} and {target}")
    if size % heads:
        raise ValueError(f"heads: expected a divisor of size {size}, got {heads}")
