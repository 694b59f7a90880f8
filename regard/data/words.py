"""The words of a text and their positions, to which alignments refer."""

from __future__ import annotations

import re

# Letters, with an apostrophe that ends them (l'homme is two words), digits, or a single other character.
PATTERN = r"[^\W\d_]+['’]?|\d+|[^\w\s]|_"
_WORD = re.compile(PATTERN)


def spans(text: str) -> list[tuple[int, int]]:
    """Where each word begins and ends, in characters."""
    return [word.span() for word in _WORD.finditer(text)]


def split(text: str) -> list[str]:
    """The words of a text."""
    return _WORD.findall(text)
