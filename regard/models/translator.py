"""What both translators can do, the recurrent one and the Transformer: generate the target, given the source, and say
which of its words attend to which words of the source."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from regard.attention.capture import AttentionMap, Recorder, by_layer
from regard.attention.observers import observe
from regard.data.words import spans, split
from regard.models.generation import GenerativeModel
from regard.models.model import evaluated
from regard.models.texts import encode_with_warning, padded, plain
from regard.models.tokenizer_files import panics_raised

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

LEAST = 0.1  # weight that a source word needs, to be linked to the target word that attends to it most
Links = frozenset[tuple[int, int]]  # (source word, target word)


class Translator(GenerativeModel):
    """A model that reads a source and generates a target: subclasses give `read`, `decode` and `predict`.

    The source is the prompt of `generate`: ids (batch, m) with lengths → one Hypothesis for each source.
    """

    cross_layers: ClassVar[str | None] = None  # the paths of the layers that attend to the source; None: of all

    def __init__(self, arguments: Mapping[str, Any], **choices: Collection[str]) -> None:
        super().__init__(arguments, **choices)
        sizes = [self.config[f"{side}_vocab_size"] for side in ("source", "target")]
        if self.config["share_embeddings"] and len(set(sizes)) > 1:
            raise ValueError(f"share_embeddings: expected vocabularies of one size, got {sizes[0]} and {sizes[1]}")

    def forward(self, source: Tensor, target: Tensor, source_lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """source (batch, m), target (batch, n), which begins with bos → logits (batch, n, target vocabulary)."""
        return self.predict(self.decode(target, self.read(source, source_lengths))[0])

    def read(self, source: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Any:
        """Encode a source (batch, m): the state of a decoder that has generated nothing yet."""
        raise NotImplementedError(f"{type(self).__name__} must define read")

    def decode(self, target: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Rows for `predict` of target tokens (batch, n) that follow a state, and the state after them."""
        raise NotImplementedError(f"{type(self).__name__} must define decode")

    def predict(self, rows: Tensor) -> Tensor:
        """Rows (…, size) → logits of the next token (…, target vocabulary)."""
        raise NotImplementedError(f"{type(self).__name__} must define predict")

    @evaluated
    def align(self, source: Tensor, target: Tensor, source_lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """How much each target token attends to each source token: weights (batch, layers, heads, n, m)."""
        maps: list[AttentionMap] = []
        with torch.no_grad(), observe(Recorder(self, maps.append, layers=self.cross_layers)):
            self(source, target, source_lengths)
        return torch.stack([layer.weights for layer in by_layer(maps)], 1)

    def translate(self, text: str | Sequence[str], *, length_penalty: float = 0.8, **options: Any) -> Any:
        """The translation of a text, or of each of several. Options are those of `generate`.

        A text that is longer than the model's max_positions is cut, with a CutWarning. With a length penalty of 1 the
        beam search of a model of little data prefers translations that repeat themselves.
        """
        if not isinstance(text, Sequence):
            raise TypeError(f"text: expected a text or several, got {type(text).__name__}")
        return self.generate(text, length_penalty=length_penalty, **options)

    def start(self, ids: Tensor, lengths: Tensor | Sequence[int] | None = None) -> tuple[Tensor, Any]:
        bos = self.config["bos"]
        if bos is None:
            raise ValueError(f"bos: this {type(self).__name__} has no token that begins a target: make it with bos=…")
        return self.step(torch.full((len(ids), 1), bos, device=ids.device), self.read(ids, lengths))

    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        rows, state = self.decode(ids, state)
        return self.predict(rows[:, -1]), state

    def encode_prompts(self, texts: Sequence[str]) -> list[list[int]]:
        return encode_with_warning(self.need_tokenizer(), texts, self.config.get("max_positions"))

    @panics_raised()
    def decode_output(self, prompt: list[int], ids: list[int]) -> str:
        text: str = self.need_target_tokenizer().decode(ids)
        return text

    def token_limit(self, max_new_tokens: int) -> int:
        return min(max_new_tokens, int(self.config.get("max_positions", max_new_tokens)))

    def need_target_tokenizer(self) -> Tokenizer:
        """The target's tokenizer: the source's, where there is only one."""
        return self.need_tokenizer() if self.target_tokenizer is None else self.target_tokenizer


# ------------------------------------------------------------------------------------ alignments of words


@dataclass(frozen=True)
class Alignment:
    """How much each word of the target attends to each word of the source."""

    source: list[str]
    target: list[str]
    weights: Tensor  # (target words, source words)

    @property
    def links(self) -> Links:
        """Each target word with the source word that it attends to most, and each source word with the target word
        that attends to it most.

        The latter only from LEAST on; they include the second of two source words that are translated by one.
        """
        if not self.weights.numel():
            return frozenset()
        largest = zip(*(column.tolist() for column in self.weights.max(0)), strict=True)  # of each source word
        by_source = [(source, target) for source, (weight, target) in enumerate(largest) if weight >= LEAST]
        by_target = zip(self.weights.argmax(1).tolist(), range(len(self.target)), strict=True)
        return frozenset([*by_target, *by_source])


def align(model: Translator, sources: Sequence[str], targets: Sequence[str]) -> list[Alignment]:
    """The alignments of translations, by the model's attention (the mean over layers and heads of a Transformer)."""
    return [by_words(weights.mean((0, 1))) for weights, by_words in _attention(model, sources, targets)]


def align_heads(
    model: Translator, sources: Sequence[str], targets: Sequence[str]
) -> list[dict[tuple[int, ...], Alignment]]:
    """For each translation its alignments: by the mean of all heads under (), and by each one under (layer, head)."""
    return [
        {
            (): by_words(weights.mean((0, 1))),
            **{head: by_words(weights[head]) for head in product(*map(range, weights.shape[:2]))},
        }
        for weights, by_words in _attention(model, sources, targets)
    ]


def _attention(
    model: Translator, sources: Sequence[str], targets: Sequence[str]
) -> Iterator[tuple[Tensor, Callable[[Tensor], Alignment]]]:
    """For each translation the cross-attention (layers, heads, n, m) between its tokens, and `_by_words` for it."""
    if not sources:
        return
    read = plain(model.need_tokenizer()).encode_batch(list(sources))
    written = plain(model.need_target_tokenizer()).encode_batch(list(targets), add_special_tokens=False)
    limit = model.config.get("max_positions")
    if limit is not None:
        for encoding in (*read, *written):
            encoding.truncate(limit - 1)
    source, lengths = padded([encoding.ids for encoding in read])
    target, _ = padded([[model.config["bos"], *encoding.ids] for encoding in written])
    weights = model.align(source.to(model.device), target.to(model.device), lengths).cpu()
    weights = weights if weights.dim() > 3 else weights[:, None, None]  # (batch, layers, heads, n, m)
    texts = zip(sources, targets, read, written, strict=True)
    yield from zip(weights, (partial(_by_words, *row) for row in texts), strict=True)


def _by_words(source: str, target: str, source_tokens: Encoding, target_tokens: Encoding, weights: Tensor) -> Alignment:
    """Weights (n, m) of tokens to those of words: a source word gets the weights of its tokens, a target word the mean
    weights of its tokens."""
    columns = membership(source, source_tokens)  # (source words, m)
    rows = membership(target, target_tokens)  # (target words, n)
    rows = rows / rows.sum(1, keepdim=True).clamp(min=1)
    # Row t holds the weights with which token t was predicted.
    words = rows @ weights[: rows.shape[1], : columns.shape[1]] @ columns.T
    return Alignment(split(source), split(target), words)


def membership(text: str, encoding: Encoding) -> Tensor:
    """1 where a token (column) belongs to a word (row) of the text; special tokens belong to none."""
    words = spans(text)  # in their order, so that those that a token overlaps are found by bisection
    firsts, lasts = [first for first, _ in words], [last for _, last in words]
    pairs = []
    for token, (start, end) in enumerate(encoding.offsets):
        near = range(bisect_right(lasts, start), bisect_left(firsts, end))
        if near and end > start and not encoding.special_tokens_mask[token]:
            pairs.append((max(near, key=lambda word: min(end, lasts[word]) - max(start, firsts[word])), token))
    table = torch.zeros(len(words), len(encoding.ids))
    if pairs:
        table[tuple(torch.tensor(pairs).T)] = 1
    return table
