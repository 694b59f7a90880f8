"""Fonts for tokens in any script: those of this system that have letters which matplotlib's default font lacks."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable
from pathlib import Path

from matplotlib import font_manager
from matplotlib.ft2font import FT2Font

__all__ = ["families"]

DEFAULT = "DejaVu Sans"  # comes with matplotlib
# Fonts with many scripts come before the others.
PREFERRED = (DEFAULT, "Noto Sans CJK SC", "Source Han Sans SC", "WenQuanYi Zen Hei", "PingFang SC", "Microsoft YaHei")


def families(texts: Iterable[str]) -> list[str]:
    """The fonts to write these texts with: each letter is taken from the first that has it.

    Warns of letters that no font of the system has.
    """
    missing = {letter for text in texts for letter in text if letter.isprintable()}
    names = [DEFAULT]
    for name, path in _files().items():
        if not missing:
            break
        if name != DEFAULT and missing & _letters(path):
            names.append(name)
        missing -= _letters(path)
    if missing:
        listed = " ".join(sorted(missing)[:8])
        warnings.warn(
            f"no font of this system has {listed}: boxes are drawn instead; install one, such as Noto Sans CJK",
            stacklevel=2,
        )
    return names


def _files() -> dict[str, str]:
    """The file of each font, upright and of normal weight where there is one; where there is none, matplotlib's
    `findfont` would log a warning."""
    fonts = sorted(
        font_manager.fontManager.ttflist,
        key=lambda font: (font.name, font.style == "normal", font.weight in (400, "normal"), font.stretch == "normal"),
    )
    files = {font.name: font.fname for font in fonts}  # the last of each name
    known = {name: files.pop(name) for name in PREFERRED if name in files}
    return {**known, **files}


@functools.cache
def _letters(path: str) -> frozenset[str]:
    """The letters that a font has; none if it is a placeholder, in which a few glyphs stand for all letters.

    One comes with matplotlib: Last Resort draws a box with the name of the script.
    """
    if not Path(path).exists():  # removed since matplotlib listed it
        return frozenset()
    glyphs = FT2Font(path).get_charmap()  # code point → glyph
    return frozenset() if len(glyphs) > 4 * len(set(glyphs.values())) else frozenset(map(chr, glyphs))
