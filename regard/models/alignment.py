"""Which words of a translation look at which words of the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.data.words import spans, split
from regard.models.texts import padded, plain
from regard.models.translator import Translator

if TYPE_CHECKING:
    from tokenizers import Encoding

__all__ = ["Alignment", "align", "align_heads"]

LEAST = 0.1  # weight with which a source word has to be looked at, to be linked for that alone


@dataclass(frozen=True)
class Alignment:
    """How much each word of the target looks at each word of the source."""

    source: list[str]
    target: list[str]
    weights: Tensor  # (target words, source words)

    @property
    def links(self) -> frozenset[tuple[int, int]]:
        """(source word, target word): where a target word looks most, and by whom a source word is looked at most.

        The latter counts from LEAST on; it finds the second of two words that are translated by one.
        """
        if not self.weights.numel():
            return frozenset()
        most, lookers = self.weights.max(0)
        seen = [(place, looker) for place, looker in enumerate(lookers.tolist()) if float(most[place]) >= LEAST]
        return frozenset([*zip(self.weights.argmax(1).tolist(), range(len(self.target)), strict=True), *seen])


def align(model: Translator, sources: Sequence[str], targets: Sequence[str]) -> list[Alignment]:
    """The alignments of translations, by the model's attention (the mean over layers and heads of a Transformer)."""
    return [found[()] for found in align_heads(model, sources, targets, each=False)]


def align_heads(
    model: Translator, sources: Sequence[str], targets: Sequence[str], *, each: bool = True
) -> list[dict[tuple[int, ...], Alignment]]:
    """For each translation its alignments: by every (layer, head), and under () by the mean of all; or that alone."""
    if not sources:
        return []
    read = plain(model.need_tokenizer()).encode_batch(list(sources))
    written = plain(model.need_target_tokenizer()).encode_batch(list(targets), add_special_tokens=False)
    begin, longest = model.config["bos"], model.config.get("max_positions")
    if longest is not None:
        for own in (*read, *written):
            own.truncate(longest - 1)
    source, lengths = padded([own.ids for own in read])
    target, _ = padded([[begin, *own.ids] for own in written])
    device = next(model.parameters()).device
    looks = model.align(source.to(device), target.to(device), lengths).cpu()  # (batch, …, n, m)
    looks = looks if looks.dim() > 3 else looks[:, None, None]  # (batch, layers, heads, n, m)
    return [
        {place: _by_words(table, *texts, *tokens) for place, table in _chosen(own, each=each).items()}
        for own, texts, tokens in zip(
            looks, zip(sources, targets, strict=True), zip(read, written, strict=True), strict=True
        )
    ]


def _chosen(looks: Tensor, *, each: bool) -> dict[tuple[int, ...], Tensor]:
    """Looks (layers, heads, n, m) by layer and head, and their mean."""
    layers, heads = looks.shape[:2]
    single = [(layer, head) for layer in range(layers) for head in range(heads)] if each else []
    return {(): looks.mean((0, 1)), **{place: looks[place] for place in single}}


def _by_words(looks: Tensor, source: str, target: str, read: Encoding, written: Encoding) -> Alignment:
    """Tokens to words: a word gets what its tokens get, and looks where its tokens look on average."""
    columns = _membership(source, read)  # (source words, m)
    rows = _membership(target, written)  # (target words, n)
    rows = rows / rows.sum(1, keepdim=True).clamp(min=1)
    weights = rows @ looks[: rows.shape[1], : columns.shape[1]] @ columns.T  # row t is the look that wrote token t
    return Alignment(split(source), split(target), weights)


def _membership(text: str, encoding: Encoding) -> Tensor:
    """1 where a token (column) belongs to a word (row) of the text; marks belong to none."""
    words = spans(text)
    table = torch.zeros(len(words), len(encoding.ids))
    for token, (start, end) in enumerate(encoding.offsets):
        shared = [min(end, last) - max(start, first) for first, last in words]
        if shared and max(shared) > 0 and not encoding.special_tokens_mask[token]:
            table[shared.index(max(shared)), token] = 1
    return table
