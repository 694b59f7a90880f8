"""Between texts and ids: what the models need of a tokenizer."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from regard.files import is_text
from regard.models.tokenizer_files import panics_raised

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer


class CutWarning(UserWarning):
    """Texts that are longer than the model can read: it reads a part of them."""


def encode(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    max_length: int | None = None,
    *,
    empty: Sequence[int] = (),
    name: str = "texts",
) -> list[list[int]]:
    """The ids of each text, cut at max_length, special tokens at the end included.

    empty: the ids of a text that has none. name: what an error calls the texts.
    """
    ids = [encoding.ids or list(empty) for encoding in _encodings(tokenizer, texts, max_length)]
    for number, sequence in enumerate(ids):
        if not sequence:
            where = f" at index {number}" if len(ids) > 1 else ""
            raise ValueError(f"{name}: expected one token or more, got none in {texts[number]!r}{where}")
    return ids


def encode_with_warning(tokenizer: Tokenizer, texts: Sequence[str], max_length: int | None) -> list[list[int]]:
    """The same of whole texts, as they are trained on: without space around them; a CutWarning where they are cut."""
    texts = [text.strip() if isinstance(text, str) else text for text in texts]
    ids = encode(tokenizer, texts, max_length)
    full = [text for text, sequence in zip(texts, ids, strict=True) if len(sequence) == max_length]
    if max_length is not None and full:
        counts = [len(encoding.ids) for encoding in _encodings(tokenizer, full, None)]
        warn_of_cuts("texts", counts, len(texts), max_length, "beginning")
    return ids


def warn_of_cuts(
    name: str, counts: Sequence[int], total: int, max_length: int, kept: Literal["beginning", "end"]
) -> None:
    """A CutWarning, if any of these numbers of tokens is more than max_length; total: how many texts there are."""
    cut = [count for count in counts if count > max_length]
    if cut:
        which, most = ("", "") if total == 1 else (f"{len(cut)} of {total} ", "up to ")
        message = f"{name}: {which}cut from {most}{max(cut)} to {max_length} tokens, as many as the model reads"
        warnings.warn(f"{message}; the {kept} is kept", CutWarning, stacklevel=3)


def _encodings(tokenizer: Tokenizer, texts: Sequence[str], max_length: int | None) -> list[Encoding]:
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"texts: expected texts, got {type(text).__name__} at index {number}")
        if not is_text(text):
            raise ValueError(f"texts: expected Unicode, got a lone surrogate in {text[:60]!r}, at index {number}")
    tokenizer = plain(tokenizer)
    if max_length is not None:
        tokenizer = copy.deepcopy(tokenizer)
        tokenizer.enable_truncation(max_length)
    with panics_raised():
        encodings: list[Encoding] = tokenizer.encode_batch(list(texts))
    return encodings


def plain(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer without the padding and truncation that some folders configure."""
    if tokenizer.padding is None and tokenizer.truncation is None:
        return tokenizer
    tokenizer = copy.deepcopy(tokenizer)  # the user's, which other threads may use, stays as it is
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def padded(ids: Sequence[Sequence[int]]) -> tuple[Tensor, list[int]]:
    """Ids (batch, n) with zeros behind the shorter sequences, and the lengths."""
    lengths = [len(sequence) for sequence in ids]
    rows = torch.zeros(len(ids), max(lengths), dtype=torch.long)
    is_token = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]  # (batch, n)
    rows[is_token] = torch.tensor([*chain.from_iterable(ids)], dtype=torch.long)
    return rows, lengths


def group_neighbours(lengths: Sequence[int], max_tokens: int) -> Iterator[slice]:
    """Neighbouring sequences that together have max_tokens tokens or fewer (or one, if that alone has more)."""
    start = total = 0
    for index, length in enumerate(lengths):
        if total and total + length > max_tokens:
            yield slice(start, index)
            start, total = index, 0
        total += length
    if total:
        yield slice(start, len(lengths))


def group_by_length(ids: Sequence[Sequence[int]], max_tokens: int) -> Iterator[tuple[list[int], Tensor, list[int]]]:
    """Batches of sequences of similar length: their indices, and them padded with their lengths."""
    order = sorted(range(len(ids)), key=lambda index: len(ids[index]))
    for group in group_neighbours([len(ids[index]) for index in order], max_tokens):
        yield order[group], *padded([ids[index] for index in order[group]])
