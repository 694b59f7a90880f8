"""Fonts for tokens in any script: those of this system that have what matplotlib's own font has not."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable

from matplotlib import font_manager
from matplotlib.ft2font import FT2Font

__all__ = ["families"]

OWN = "DejaVu Sans"  # comes with matplotlib
PREFERRED = ("Noto Sans CJK SC", "Source Han Sans SC", "WenQuanYi Zen Hei", "PingFang SC", "Microsoft YaHei")


def families(texts: Iterable[str]) -> list[str]:
    """The fonts to write these texts with, the first that has a letter writes it. Says so where no font has one."""
    missing = {letter for text in texts for letter in text if letter.isprintable()} - _letters(OWN)
    found = [OWN]
    for name in _others() if missing else ():
        if missing & _letters(name):
            found.append(name)
            missing -= _letters(name)
        if not missing:
            break
    if missing:
        shown = " ".join(sorted(missing)[:8])
        warnings.warn(
            f"no font of this system has {shown}: boxes are drawn instead; install one, such as Noto Sans CJK",
            stacklevel=2,
        )
    return found


def _others() -> list[str]:
    """All fonts of the system, those made for many scripts first."""
    names = sorted({font.name for font in font_manager.fontManager.ttflist} - {OWN})
    return sorted(names, key=lambda name: PREFERRED.index(name) if name in PREFERRED else len(PREFERRED))


@functools.cache
def _letters(name: str) -> frozenset[str]:
    """What a font can write."""
    path = font_manager.findfont(font_manager.FontProperties(family=[name]), fallback_to_default=False)
    return frozenset(map(chr, FT2Font(path).get_charmap()))
