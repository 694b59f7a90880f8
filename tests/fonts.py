"""Fonts that a system has, for a test."""

from contextlib import contextmanager
from pathlib import Path

import matplotlib
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib import font_manager


@contextmanager
def system_font(folder, letters, *, weight=400):
    """Within this block the system has matplotlib's fonts and, if there are any letters, `Only One`, which has them."""
    manager = font_manager.fontManager
    before, shipped = manager.ttflist, Path(matplotlib.get_data_path())
    manager.ttflist = [font for font in before if shipped in Path(font.fname).parents]
    try:
        if letters:
            _write(folder / "one.ttf", letters, weight)
            manager.addfont(folder / "one.ttf")
        yield
    finally:
        manager.ttflist = before


def _write(path, letters, weight):
    pen = TTGlyphPen(None)
    for move, point in (("moveTo", (0, 0)), ("lineTo", (500, 0)), ("lineTo", (500, 500))):
        getattr(pen, move)(point)
    pen.closePath()
    names = {ord(letter): f"u{ord(letter):X}" for letter in letters}
    glyphs = [".notdef", *sorted(set(names.values()))]
    font = FontBuilder(1_000, isTTF=True)
    font.setupGlyphOrder(glyphs)
    font.setupCharacterMap(names)
    font.setupGlyf(dict.fromkeys(glyphs, pen.glyph()))
    font.setupHorizontalMetrics(dict.fromkeys(glyphs, (600, 0)))
    font.setupHorizontalHeader(ascent=800, descent=-200)
    font.setupNameTable({"familyName": "Only One", "styleName": "Regular"})
    font.setupOS2(usWeightClass=weight)
    font.setupPost()
    font.save(path)
