"""Between texts and ids: what the models need of a tokenizer."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["continued", "groups", "padded", "plain", "tokens"]


def tokens(tokenizer: Tokenizer, texts: Sequence[str], longest: int | None = None) -> list[list[int]]:
    """The ids of each text; cut at `longest`, if there is one, in such a way that marks at its end stay."""
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"texts: expected texts, got {type(text).__name__} at place {number}")
    tokenizer = plain(tokenizer)
    if longest is not None:
        tokenizer = copy.deepcopy(tokenizer)
        tokenizer.enable_truncation(longest)
    found = [encoded.ids for encoded in tokenizer.encode_batch(list(texts))]
    for number, own in enumerate(found):
        if not own:
            raise ValueError(f"texts: text {number} has no tokens: {texts[number]!r}")
    return found


def plain(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer without padding and truncation of its own, which some folders bring."""
    if tokenizer.padding is None and tokenizer.truncation is None:
        return tokenizer
    tokenizer = copy.deepcopy(tokenizer)  # the user's, which other threads may use, stays as it is
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def padded(ids: Sequence[Sequence[int]]) -> tuple[Tensor, list[int]]:
    """Ids (batch, n) with zeros behind the shorter sequences, and the lengths."""
    lengths = [len(own) for own in ids]
    rows = torch.zeros(len(ids), max(lengths), dtype=torch.long)
    for row, own in zip(rows, ids, strict=True):
        row[: len(own)] = torch.tensor(own, dtype=torch.long)
    return rows, lengths


def groups(lengths: Sequence[int], most: int) -> Iterator[slice]:
    """Neighbours that together have `most` tokens or fewer (or one sequence, if that alone has more)."""
    start = total = 0
    for place, length in enumerate(lengths):
        if total and total + length > most:
            yield slice(start, place)
            start, total = place, 0
        total += length
    if total:
        yield slice(start, len(lengths))


def continued(tokenizer: Tokenizer, before: list[int], written: list[int]) -> str:
    """The text of what was written. It is read together with what stood before: a space may belong to either."""
    prompt: str = tokenizer.decode(before)
    whole: str = tokenizer.decode(before + written)
    return whole[len(prompt) :]
