"""The encoder: every token attends to every token, in both directions, and becomes a vector in context (BERT).

    ids → token + position (+ token type) vectors → norm → blocks → vectors
    and on top, where asked for: logits of masked tokens, one class per text, one vector per text.

The search engine of the notes is made of the last: the question is a query, every text has a key, and is a value.

    weight_j = softmax_j( cos(question, text_j) / temperature )

Shapes: ids (batch, n) · vectors (batch, n, size).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.arguments import check_choice, check_count, check_ids, check_lengths, has_values
from regard.attention import Cosine, weights
from regard.attention.dropout import dropout as apply_dropout
from regard.data.texts import TextError, read_texts
from regard.models.block import ACTIVATIONS, BlockConfig
from regard.models.classifier import TextClassifier, pool
from regard.models.decode_kernels import Linear, product
from regard.models.folders import load
from regard.models.model import evaluated
from regard.models.packing import PackedBatch, pack
from regard.models.positions import LearnedPositions, add_positions
from regard.models.tensors import FolderError
from regard.models.texts import encode_with_warning, group_by_length, group_neighbours

POSITIONS, POOLINGS = ("learned", "none", "sinusoidal"), ("first", "max", "mean")
TOKENS = 1_024  # at a time: enough for fast products, few enough that what they make stays in cache
TEMPERATURE = 0.05  # a cosine that is this much larger weighs e times as much


class Encoder(TextClassifier):
    """Encoder(ids, lengths) → vectors; zeros where there is no token.

    vocab_size · size: of the vectors · layers · heads · ffn_size: of the feed-forward nets, 4 · size unless given ·
    max_positions: positions that it can read · token_types: how many kinds of text one sequence may hold, as in BERT ·
    positions: learned, none or sinusoidal · mixer: attention, convolution or recurrent · score: dot, additive,
    bilinear, cosine or gaussian · activation: gelu, gelu_tanh, relu, silu, tanh or, gated, swiglu, geglu, geglu_tanh ·
    epsilon: of the norms · pre_norm: norms before the parts of a block, not after · dropout · mlm_head: a head that
    predicts masked tokens (`mlm_logits`) · pooler: BERT's layer before the classifier · pooler_activation: of that
    layer · classes: of texts (`classify`), by their `labels` · pooling: of the vectors of a text by `embed`: first, max
    or mean · normalized: `embed` gives vectors of length 1 · max_length: tokens of a text that are read.

    >>> import regard, torch
    >>> model = regard.Encoder(vocab_size=31, size=16, layers=2, heads=4)
    >>> model(torch.randint(31, (2, 5)), lengths=[5, 3]).shape  # (batch, n) → (batch, n, size)
    torch.Size([2, 5, 16])
    """

    def __init__(
        self,
        vocab_size: int,
        size: int,
        layers: int,
        heads: int,
        *,
        ffn_size: int | None = None,
        max_positions: int = 512,
        token_types: int = 0,
        positions: str = "learned",
        mixer: str = "attention",
        score: str | None = None,
        activation: str = "gelu",
        epsilon: float = 1e-12,
        pre_norm: bool = False,
        dropout: float = 0.0,
        mlm_head: bool = False,
        pooler: bool = False,
        pooler_activation: str = "tanh",
        classes: int = 0,
        labels: Sequence[str] = (),
        pooling: str = "mean",
        normalized: bool = True,
        max_length: int | None = None,
    ) -> None:
        super().__init__(locals(), positions=POSITIONS, pooling=POOLINGS, pooler_activation=ACTIVATIONS)
        block = BlockConfig.of(self.config)
        self.token_embedding = nn.Embedding(vocab_size, size)
        self.position_embedding = LearnedPositions(max_positions, size) if positions == "learned" else None
        self.token_type_embedding = nn.Embedding(token_types, size) if check_count("token_types", token_types) else None
        self.embedding_norm = block.make_norm()
        self.blocks = block.make_blocks(layers, causal=False)
        self.norm = block.make_norm() if pre_norm else None
        self.mlm_head = MaskedLMHead(self.token_embedding, activation, block.make_norm()) if mlm_head else None
        self.pooler = nn.Linear(size, size) if pooler else None
        self.pooler_activation = ACTIVATIONS[pooler_activation]
        self.classifier = nn.Linear(size, classes) if classes else None
        self.dropout = dropout
        for embedding in (self.token_embedding, self.position_embedding, self.token_type_embedding):
            if embedding is not None:
                nn.init.normal_(embedding.weight, std=0.02)

    def forward(
        self, ids: Tensor, lengths: Tensor | Sequence[int] | None = None, token_types: Tensor | None = None
    ) -> Tensor:
        """ids (batch, n) → vectors (batch, n, size). token_types (batch, n) tell the texts in one sequence apart."""
        check_ids("ids", ids, self.token_embedding.num_embeddings)
        if token_types is not None:
            if self.token_type_embedding is None:
                raise ValueError("token_types: this Encoder does not tell texts apart: make it with token_types=2")
            check_ids("token_types", token_types, self.token_type_embedding.num_embeddings)
        batch, n = ids.shape
        lengths = None if lengths is None else check_lengths("lengths", lengths, batch, n)
        whole = torch.is_grad_enabled() or self.training or not has_values(ids if lengths is None else lengths)
        counts = [] if whole else [n] * batch if lengths is None else lengths.tolist()
        if whole or sum(counts) <= TOKENS:
            packed = pack(ids, lengths)
            return packed.unpack(self._read(packed, token_types))
        # A few sequences at a time stay in cache; nothing has to be kept for a backward pass.
        vectors = self.token_embedding.weight.new_zeros(batch, n, self.token_embedding.embedding_dim)
        for group in group_neighbours(counts, TOKENS):
            longest = max(counts[group])
            packed = pack(ids[group, :longest], counts[group])
            group_types = None if token_types is None else token_types[group, :longest]
            vectors[group, :longest] = packed.unpack(self._read(packed, group_types))
        return vectors

    def _read(self, packed: PackedBatch, token_types: Tensor | None) -> Tensor:
        rows: Tensor = self.token_embedding(packed.ids)
        if self.token_type_embedding is not None:
            table = self.token_type_embedding
            rows = rows + (table.weight[0] if token_types is None else table(packed.pack_like(token_types)))
        rows = add_positions(rows, packed.positions, self.config["positions"], self.position_embedding)
        rows = apply_dropout(self.embedding_norm(rows), self.dropout, self.training)
        for block in self.blocks:
            rows = block(rows, packed.info)
        return rows if self.norm is None else self.norm(rows)

    def mlm_logits(
        self, ids: Tensor, lengths: Tensor | Sequence[int] | None = None, token_types: Tensor | None = None
    ) -> Tensor:
        """Logits (batch, n, vocabulary) of the token at each position: what masked tokens may have been."""
        if self.mlm_head is None:
            raise ValueError("this Encoder has no head for masked tokens: make it with mlm_head=True")
        logits: Tensor = self.mlm_head(self(ids, lengths, token_types), self.token_embedding)
        return logits

    def pooled(self, ids: Tensor, lengths: Tensor | Sequence[int] | None, **options: Any) -> Tensor:
        vectors = self(ids, lengths, **options)
        if self.pooler is None:
            return pool(self.config["pooling"], vectors, lengths)
        return self.pooler_activation(self.pooler(vectors[:, 0]))

    @evaluated
    @torch.no_grad()
    def embed(self, texts: str | Sequence[str], *, progress: Callable[[int], None] | None = None) -> Tensor:
        """One vector per text, (texts, size); a single text gives (size,). `progress` is called with counts of texts.

        Texts go through the model in order of length and without padding; a text's vector does not depend on the
        others. Texts are cut at `max_length` tokens (or `max_positions`), with a CutWarning.
        """
        if isinstance(texts, str):
            return self.embed([texts], progress=progress)[0]
        limit = self.config["max_length"] or self.config["max_positions"]
        ids = encode_with_warning(self.need_tokenizer(), texts, limit)
        vectors = self.token_embedding.weight.new_empty(len(ids), self.token_embedding.embedding_dim)
        for chosen, batch, lengths in group_by_length(ids, TOKENS):
            vectors[chosen] = pool(self.config["pooling"], self(batch.to(self.device), lengths), lengths)
            if progress is not None:
                progress(len(chosen))
        return functional.normalize(vectors, dim=-1) if self.config["normalized"] else vectors


class MaskedLMHead(nn.Module):
    """BERT's head over the vocabulary: a layer, then the token embedding as output layer, with a bias of its own."""

    def __init__(self, embedding: nn.Embedding, activation: str, norm: nn.Module) -> None:
        super().__init__()
        self.dense = Linear(embedding.embedding_dim, embedding.embedding_dim)
        self.norm = norm
        self.activation = ACTIVATIONS[check_choice("activation", activation, ACTIVATIONS)]
        self.bias = nn.Parameter(torch.zeros(embedding.num_embeddings))

    def forward(self, vectors: Tensor, embedding: nn.Embedding) -> Tensor:
        return product(self.norm(self.activation(self.dense(vectors))), embedding.weight, self.bias)


# ------------------------------------------------------------------------------------------------------ search


@dataclass(frozen=True)
class Match:
    """A text, where it stands (file:line), and how well it answers."""

    place: str
    text: str
    weight: float
    cosine: float


def search(
    path: Path,
    question: str,
    model: Path,
    *,
    top: int = 5,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Match]:
    """The texts that answer a question best, the best first.

    path: a text file, whose lines are searched, or a folder, whose files' paragraphs are. model: the folder of an
    Encoder. progress: is called with how many texts have been read, and how many there are.
    """
    if not question.strip():
        raise TextError("question: expected some words, got none")
    if top < 1:
        raise ValueError(f"top: expected 1 or more, got {top}")
    texts = read_texts(path)
    encoder = load(model)
    if not isinstance(encoder, Encoder):
        raise FolderError(f"{model}: expected an Encoder, which gives vectors, got a {type(encoder).__name__}")
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        progress(done, len(texts))

    keys = encoder.embed([text.text for text in texts], progress=advance)  # (texts, size)
    query = encoder.embed(question)[None]  # (1, size)
    shares = weights(query, keys, score=Cosine(TEMPERATURE))[0].tolist()
    cosines = Cosine()(query, keys)[0].tolist()
    matches = [
        Match(text.place, text.text, share, cosine) for text, share, cosine in zip(texts, shares, cosines, strict=True)
    ]
    return sorted(matches, key=lambda match: -match.cosine)[:top]
