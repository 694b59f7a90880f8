"""The encoder: every word looks at every word, in both directions, and becomes a vector that knows its sentence (BERT).

    ids → word + position (+ type) vectors → norm → blocks → vectors
    and on top, where asked for: the words behind masks, one class per text, one vector per text.

Shapes: ids (batch, n) · vectors (batch, n, size).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.arguments import check_choice, check_count, check_ids, check_lengths, check_sizes
from regard.models.block import ACTIVATIONS, NORMS, dropped, make_blocks
from regard.models.classifier import TextClassifier, check_labels, pooled
from regard.models.model import evaluated
from regard.models.packing import PackedBatch, Places, pack
from regard.models.positions import LearnedPositions, sinusoidal
from regard.models.texts import groups, padded, tokens

__all__ = ["Encoder"]

POOLINGS = ("first", "max", "mean")
POSITIONS = ("learned", "none", "sinusoidal")
TOKENS = 1_024  # at a time: enough for fast products, few enough that what they make stays in cache


class Encoder(TextClassifier):
    """Encoder(ids, lengths) → vectors; zeros where there is no token.

    With `mlm_head` it has a head that guesses words behind masks (`mlm_logits`), with `classes` one that classifies texts
    (`classify`, by their `labels`); `pooler` puts BERT's layer before the latter. `embed` gives one vector per text, by
    `pooling`, of length 1 if `normalized`.

    positions: learned, none or sinusoidal · mixer: attention, convolution or recurrent · score: dot, additive,
    bilinear, cosine or gaussian · activation: gelu, gelu_tanh, relu, silu, tanh or swiglu · pooling: first, max or
    mean · ffn_size: of the feed-forward nets, 4 · size unless given · max_positions: positions that it can read · types:
    how many kinds of text one sequence may hold, as in BERT · max_length: tokens of a text that `embed` reads.

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
        classes: int = 0,
        labels: Sequence[str] = (),
        pooling: str = "mean",
        normalized: bool = True,
        max_length: int | None = None,
    ) -> None:
        super().__init__(locals())
        check_sizes(vocab_size=vocab_size, size=size, layers=layers, heads=heads, max_positions=max_positions)
        check_choice("positions", positions, POSITIONS)
        self.pooling = check_choice("pooling", pooling, POOLINGS)
        self.word = nn.Embedding(vocab_size, size)
        self.position = LearnedPositions(max_positions, size) if positions == "learned" else None
        self.token_types = nn.Embedding(token_types, size) if check_count("types", token_types) else None
        self.norm = NORMS["layer"](size, eps=epsilon)
        self.blocks = make_blocks(
            layers,
            size,
            heads,
            ffn_size,
            causal=False,
            mixer=mixer,
            score=score,
            activation=activation,
            epsilon=epsilon,
            pre_norm=pre_norm,
            dropout=dropout,
        )
        self.last_norm = NORMS["layer"](size, eps=epsilon) if pre_norm else None
        self.guesser = _Guesser(self.word, activation, epsilon) if mlm_head else None
        self.pooler = nn.Linear(size, size) if pooler else None
        check_labels(labels, classes)
        self.classifier = nn.Linear(size, classes) if check_count("classes", classes) else None
        self.dropout = dropout
        for embedding in (self.word, self.position, self.token_types):
            if embedding is not None:
                nn.init.normal_(embedding.weight, std=0.02)

    @property
    def example(self) -> str:
        return "classify('a text')" if self.config["classes"] else "embed('a text')"

    def forward(
        self, ids: Tensor, lengths: Tensor | Sequence[int] | None = None, token_types: Tensor | None = None
    ) -> Tensor:
        """ids (batch, n) → vectors (batch, n, size). `token_types` tells two texts in one sequence apart, (batch, n)."""
        check_ids("ids", ids, self.word.num_embeddings)
        batch, n = ids.shape
        counts = [n] * batch if lengths is None else check_lengths("lengths", lengths, batch, n)
        if torch.is_grad_enabled() or sum(counts) <= TOKENS or self.training:
            packed = pack(ids, counts)
            return packed.unpack(self._read(packed, token_types))
        # What a few sequences need at a time stays in cache; nothing has to be kept for a backward pass.
        vectors = self.word.weight.new_zeros(batch, n, self.word.embedding_dim)
        for group in groups(counts, TOKENS):
            longest = max(counts[group])
            packed = pack(ids[group, :longest], counts[group])
            own_token_types = None if token_types is None else token_types[group, :longest]
            vectors[group, :longest] = packed.unpack(self._read(packed, own_token_types))
        return vectors

    def _read(self, packed: PackedBatch, token_types: Tensor | None = None) -> Tensor:
        rows = self.word(packed.ids)
        if token_types is not None:
            if self.token_types is None:
                raise ValueError("token_types: this Encoder does not tell texts apart: make it with token_types=2")
            check_ids("types", token_types, self.token_types.num_embeddings)
        if self.token_types is not None:
            rows = rows + (
                self.token_types.weight[0] if token_types is None else self.token_types(packed.pick(token_types))
            )
        if self.position is not None:
            rows = rows + self.position(packed.positions)
        elif self.config["positions"] == "sinusoidal":
            rows = rows + sinusoidal(packed.positions, rows.shape[-1]).to(rows.dtype)
        rows = dropped(self.norm(rows), self.dropout, self.training)
        places = Places(packed.mask, counts=packed.counts)
        for block in self.blocks:
            rows = block(rows, places)
        return rows if self.last_norm is None else self.last_norm(rows)  # type: ignore[no-any-return]

    def mlm_logits(
        self, ids: Tensor, lengths: Tensor | Sequence[int] | None = None, token_types: Tensor | None = None
    ) -> Tensor:
        """Logits (batch, n, vocabulary) of the word at each place: what masked words may have been."""
        if self.guesser is None:
            raise ValueError("this Encoder has no head for words: make it with mlm_head=True")
        guessed: Tensor = self.guesser(self(ids, lengths, token_types), self.word)
        return guessed

    def class_logits(
        self, ids: Tensor, lengths: Tensor | Sequence[int] | None = None, token_types: Tensor | None = None
    ) -> Tensor:
        """Logits (batch, classes) of the class of each text."""
        if self.classifier is None:
            raise ValueError("this Encoder has no head for classes: make it with classes=…")
        vectors = self(ids, lengths, token_types)
        if self.pooler is not None:
            vector = torch.tanh(self.pooler(vectors[:, 0]))
        else:
            vector = pooled(self.pooling, vectors, lengths)
        logits: Tensor = self.classifier(dropped(vector, self.dropout, self.training))
        return logits

    @evaluated
    @torch.no_grad()
    def embed(self, texts: str | Sequence[str], *, progress: Callable[[int], None] | None = None) -> Tensor:
        """One vector per text, (texts, size); a single text gives (size,). `progress` hears how many are done.

        Texts go through the model in order of length and without padding, those of equal length at once; a text's
        vector does not depend on the others. What is longer than `max_length` tokens (or `maximum`) is cut there.
        """
        if isinstance(texts, str):
            return self.embed([texts], progress=progress)[0]
        longest = self.config["max_length"] or self.config["max_positions"]
        ids = tokens(self.need_tokenizer(), texts, longest)
        vectors = self.word.weight.new_empty(len(ids), self.word.embedding_dim)
        order = sorted(range(len(ids)), key=lambda number: len(ids[number]))
        for group in groups([len(ids[number]) for number in order], TOKENS):
            chosen = order[group]
            vectors[chosen] = self._embed_ids([ids[number] for number in chosen])
            if progress is not None:
                progress(len(chosen))
        return functional.normalize(vectors, dim=-1) if self.config["normalized"] else vectors

    def _embed_ids(self, ids: list[list[int]]) -> Tensor:
        rows, lengths = padded(ids)
        return pooled(self.pooling, self(rows.to(self.word.weight.device), lengths), lengths)


class _Guesser(nn.Module):
    """BERT's head over words: a layer, then the word vectors again, with a bias of their own."""

    def __init__(self, word: nn.Embedding, activation: str, epsilon: float) -> None:
        super().__init__()
        self.dense = nn.Linear(word.embedding_dim, word.embedding_dim)
        self.norm = NORMS["layer"](word.embedding_dim, eps=epsilon)
        self.activation = ACTIVATIONS[activation]
        self.bias = nn.Parameter(torch.zeros(word.num_embeddings))

    def forward(self, vectors: Tensor, word: nn.Embedding) -> Tensor:
        return functional.linear(self.norm(self.activation(self.dense(vectors))), word.weight, self.bias)
