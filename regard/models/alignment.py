"""Which words of a translation attend to which words of the source."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.data.words import spans, split
from regard.models.texts import padded, plain
from regard.models.translator import Translator

if TYPE_CHECKING:
    from tokenizers import Encoding

LEAST = 0.1  # weight that a source word needs, to be linked to the target word that attends to it most
Links = frozenset[tuple[int, int]]  # (source word, target word)


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
    return [tokens.by_words(weights.mean((0, 1))) for weights, tokens in _attention(model, sources, targets)]


def align_heads(
    model: Translator, sources: Sequence[str], targets: Sequence[str]
) -> list[dict[tuple[int, ...], Alignment]]:
    """For each translation its alignments: by the mean of all heads under (), and by each one under (layer, head)."""
    return [
        {
            (): tokens.by_words(weights.mean((0, 1))),
            **{head: tokens.by_words(weights[head]) for head in product(*map(range, weights.shape[:2]))},
        }
        for weights, tokens in _attention(model, sources, targets)
    ]


@dataclass(frozen=True)
class _Tokens:
    """A source and its translation, as texts and as tokens."""

    source: str
    target: str
    source_tokens: Encoding
    target_tokens: Encoding

    def by_words(self, weights: Tensor) -> Alignment:
        """Weights (n, m) of tokens to those of words: a source word gets the weights of its tokens, a target word the
        mean weights of its tokens."""
        columns = membership(self.source, self.source_tokens)  # (source words, m)
        rows = membership(self.target, self.target_tokens)  # (target words, n)
        rows = rows / rows.sum(1, keepdim=True).clamp(min=1)
        # Row t holds the weights with which token t was predicted.
        words = rows @ weights[: rows.shape[1], : columns.shape[1]] @ columns.T
        return Alignment(split(self.source), split(self.target), words)


def _attention(model: Translator, sources: Sequence[str], targets: Sequence[str]) -> Iterator[tuple[Tensor, _Tokens]]:
    """For each translation the cross-attention (layers, heads, n, m) between its tokens."""
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
    device = next(model.parameters()).device
    weights = model.align(source.to(device), target.to(device), lengths).cpu()
    weights = weights if weights.dim() > 3 else weights[:, None, None]  # (batch, layers, heads, n, m)
    yield from zip(weights, map(_Tokens, sources, targets, read, written), strict=True)


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
