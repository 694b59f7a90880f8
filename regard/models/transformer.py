"""The Transformer: an encoder reads the source, a decoder generates the target and attends to it (Vaswani et al. 2017).

    memory = encoder blocks(source tokens + positions)            every token attends to every token
    rows   = decoder blocks(target tokens + positions, memory)    to earlier target tokens, and to the whole memory
    logits = rows · token vectors

Shapes: source (batch, m) · target (batch, n) · memory (batch, m, size) · logits (batch, n, target vocabulary).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.arguments import check_batch, check_ids, check_lengths
from regard.attention import Mask, causal, relative, t5_buckets
from regard.attention import lengths as valid_lengths
from regard.attention.dropout import dropout as apply_dropout
from regard.models.block import BlockConfig
from regard.models.cache import Cache, KVCache
from regard.models.decode_kernels import Linear, product
from regard.models.packing import SequenceInfo, pack
from regard.models.positions import LearnedPositions, add_positions, check_positions
from regard.models.translator import Translator

POSITIONS = ("learned", "none", "relative", "sinusoidal", "sinusoidal_halves")


@dataclass(frozen=True)
class DecoderState:
    """How far a decoder is: what it has generated, and the memory that it attends to.

    The memory is kept once for each source, however many rows are generated for it: `sources` says which one is whose.
    """

    cache: Cache | None
    memories: tuple[KVCache, ...]  # of each block, (sources, heads, m, head size)
    lengths: Tensor | None  # (sources,): of the sources; None: all alike
    sources: Tensor  # (rows,): the source of each row

    @property
    def mask(self) -> Mask | None:
        return None if self.lengths is None else valid_lengths(self.lengths)

    def select(self, rows: Tensor) -> "DecoderState":
        """These rows, in this order."""
        cache = None if self.cache is None else self.cache.select(rows)
        chosen = self.sources[rows]
        unique, sources, counts = chosen.unique_consecutive(return_inverse=True, return_counts=True)
        if int(counts.min()) != int(counts.max()):  # not as many rows for each source: then each row gets a copy
            unique, sources = chosen, torch.arange(len(chosen), device=chosen.device)
        if unique.tolist() == list(range(int(self.sources[-1]) + 1)):  # the same sources
            return replace(self, cache=cache, sources=sources)
        lengths = None if self.lengths is None else self.lengths[unique]
        return DecoderState(cache, tuple(memory.select(unique) for memory in self.memories), lengths, sources)


class Transformer(Translator):
    """Transformer(source, target, source_lengths) → logits of the target token after each one; `translate` for texts.

    source_vocab_size · target_vocab_size · size: of the vectors · layers · heads · ffn_size: of the feed-forward nets,
    4 · size unless given · decoder_layers, decoder_heads, decoder_ffn_size: as the encoder's unless given · head_size:
    size / heads unless given · max_positions: positions that it can read · positions: learned, none, relative,
    sinusoidal or sinusoidal_halves · relative_buckets, relative_distance: of relative positions, as in `t5_buckets` ·
    score: dot, additive, bilinear, cosine or gaussian · score_scale: of dot products, 1 / √head_size unless given ·
    activation: gelu, gelu_tanh, relu, silu, tanh or, gated, swiglu, geglu, geglu_tanh · norm: layer or rms · epsilon:
    of the norms · pre_norm: norms before the parts of a block, not after · bias: of all projections · dropout ·
    share_embeddings: one embedding for source and target · tie_embeddings: the target's embedding is also the output
    layer · scale_embeddings: by √size · scale_output: what the output layer reads by 1 / √size · output_bias: of the
    logits · bos: id of the token that begins a target, which `generate` needs · eos: of the one that ends it ·
    forbidden: ids that are not generated.

    >>> import regard, torch
    >>> model = regard.Transformer(source_vocab_size=31, target_vocab_size=37, size=16, layers=2, heads=4)
    >>> source, target = torch.randint(3, 31, (2, 5)), torch.randint(3, 37, (2, 7))
    >>> model(source, target, source_lengths=[5, 3]).shape  # (batch, m) · (batch, n) → (batch, n, vocabulary)
    torch.Size([2, 7, 37])
    """

    cross_layers = "decoder_blocks.*.cross"

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
        head_size: int | None = None,
        max_positions: int = 1_024,
        positions: str = "sinusoidal",
        relative_buckets: int = 32,
        relative_distance: int = 128,
        score: str | None = None,
        score_scale: float | None = None,
        activation: str = "relu",
        norm: str = "layer",
        epsilon: float = 1e-5,
        pre_norm: bool = False,
        bias: bool = True,
        dropout: float = 0.0,
        share_embeddings: bool = False,
        tie_embeddings: bool = True,
        scale_embeddings: bool = True,
        scale_output: bool = False,
        output_bias: bool = False,
        bos: int | None = 1,
        eos: int | None = 2,
        forbidden: Sequence[int] = (),
    ) -> None:
        super().__init__(locals(), positions=POSITIONS)
        learned = positions == "learned"
        self.target_embedding = nn.Embedding(target_vocab_size, size)
        self.source_embedding = None if share_embeddings else nn.Embedding(source_vocab_size, size)
        self.source_position_embedding = LearnedPositions(max_positions, size) if learned else None
        self.target_position_embedding = LearnedPositions(max_positions, size) if learned else None
        encoder = BlockConfig.of(self.config)
        decoder = replace(encoder, heads=decoder_heads or heads, ffn_size=decoder_ffn_size or ffn_size)
        self.encoder_blocks = encoder.make_blocks(layers, causal=False)
        self.decoder_blocks = decoder.make_blocks(decoder_layers or layers, causal=True, cross=True)
        self.encoder_norm = encoder.make_norm() if pre_norm else None
        self.decoder_norm = decoder.make_norm() if pre_norm else None
        self.output = None if tie_embeddings else Linear(size, target_vocab_size, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(1, target_vocab_size)) if output_bias else None
        self.scale = math.sqrt(size) if scale_embeddings else 1.0
        self.output_scale = 1 / math.sqrt(size) if scale_output else 1.0
        self.encoder_relative, self.decoder_relative = self._make_relative(encoder.heads, decoder.heads)
        self.dropout = dropout
        positions_of_both = (self.source_position_embedding, self.target_position_embedding)
        for embedding in (self.source_embedding, self.target_embedding, *positions_of_both):
            if embedding is not None:
                nn.init.normal_(embedding.weight, std=size**-0.5 if scale_embeddings else 0.02)

    def _make_relative(self, *heads: int) -> list[nn.Embedding | None]:
        """T5's tables of what is added to the scores, by distance and head, for all blocks of a side."""
        if self.config["positions"] != "relative":
            return [None for _ in heads]
        buckets, distance = self.config["relative_buckets"], self.config["relative_distance"]
        self.encoder_buckets = t5_buckets(buckets, distance)
        self.decoder_buckets = t5_buckets(buckets, distance, bidirectional=False)
        return [nn.Embedding(buckets, count) for count in heads]

    def encode(self, source: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """source (batch, m) → memory (batch, m, size), zeros where there is no token."""
        embedding = self.target_embedding if self.source_embedding is None else self.source_embedding
        check_ids("source", source, embedding.num_embeddings)
        packed = pack(source, lengths, "source_lengths")
        rows = self._embed(packed.ids, packed.positions, embedding, self.source_position_embedding)
        info = packed.info
        if self.encoder_relative is not None:  # packed or not: in a sequence, rows are as far apart as positions
            distances = relative(self.encoder_relative.weight, self.encoder_buckets)
            mask = distances if info.mask is None else info.mask & distances
            info = SequenceInfo(mask, lengths=info.lengths, valid=info.valid)
        for block in self.encoder_blocks:
            rows = block(rows, info)
        return packed.unpack(rows if self.encoder_norm is None else self.encoder_norm(rows))

    def read(self, source: Tensor, lengths: Tensor | Sequence[int] | None = None) -> DecoderState:
        """Encode a source (batch, m), and project the keys and values of its memory, once."""
        memory = self.encode(source, lengths)
        batch, m = source.shape
        counts = None if lengths is None else check_lengths("source_lengths", lengths, batch, m)
        valid = None if counts is None else counts.to(source.device)
        crosses = (block.cross for block in self.decoder_blocks)
        memories = tuple(cross.project_kv(memory) for cross in crosses if cross is not None)
        return DecoderState(None, memories, valid, torch.arange(batch, device=source.device))

    def decode(self, target: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        check_ids("target", target, self.target_embedding.num_embeddings)
        check_batch("target", target, state.sources.shape[0], "the source")
        before = 0 if state.cache is None else state.cache.columns
        positions = torch.arange(before + target.shape[1], device=target.device)[None]
        rows = self._embed(target, positions[:, before:], self.target_embedding, self.target_position_embedding)
        info = SequenceInfo(self._target_mask(target.shape[1], before), first=before)
        mask, layers = state.mask, []
        for number, block in enumerate(self.decoder_blocks):
            past = None if state.cache is None else state.cache.layers[number]
            rows, layer = block.extend(rows, info, past, state.memories[number], mask)
            layers.append(layer)
        return rows, replace(state, cache=Cache(tuple(layers), positions))

    def _target_mask(self, n: int, before: int) -> Mask | None:
        """What n target tokens after others may attend to, and how distances count."""
        mask = causal(offset=before) if n > 1 else None
        if self.decoder_relative is None:
            return mask
        distances = relative(self.decoder_relative.weight, self.decoder_buckets, offset=before)
        return distances if mask is None else mask & distances

    def _embed(
        self, ids: Tensor, positions: Tensor, embedding: nn.Embedding, learned: LearnedPositions | None
    ) -> Tensor:
        check_positions(positions, self.config["max_positions"])
        rows = add_positions(embedding(ids) * self.scale, positions, self.config["positions"], learned)
        return apply_dropout(rows, self.dropout, self.training)

    def predict(self, rows: Tensor) -> Tensor:
        rows = rows if self.decoder_norm is None else self.decoder_norm(rows)
        table = self.target_embedding if self.output is None else self.output
        rows = rows * self.output_scale if self.output_scale != 1 else rows
        return product(rows, table.weight, None if self.output_bias is None else self.output_bias[0])
