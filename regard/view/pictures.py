"""The style of all pictures: a theme for light pages, one for dark ones, and what several of them draw.

Figures are made without pyplot: there is no global state, and no display is needed. A drawing is a function that makes
a figure; it is called within the theme in which its picture is wanted.
"""

import base64
import functools
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from html import escape
from importlib import resources
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib import colormaps, font_manager, rc_context, rc_params_from_file, rcParams, style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font
from matplotlib.image import AxesImage
from numpy import ma
from torch import Tensor

from regard import files

Drawing = Callable[[], Figure]

# The notes draw samples yellow, the truth blue and attention red; so do we. Each name stands for a colour of the theme.
SAMPLES, TRUTH, ATTENTION, POOLED, OTHER = "C0", "C1", "C2", "C3", "C4"
# Of groups: the palette of Okabe and Ito as the page has it, which people see who do not see all colours.
SERIES = ("C5", "C6", "C7", "C8", "C9", "C10")
LINES = ("-", (0, (5, 2)))  # after six groups the colours begin again with another line

HEAT = {  # of weights, from none to 1
    "light": ["#fdf3e6", "#fbcb92", "#ee6c4b", "#a3121d"],
    "dark": ["#2b2b36", "#7a2c4c", "#e4584b", "#ffd681"],
}
for _name, _colours in HEAT.items():
    colormaps.register(LinearSegmentedColormap.from_list(f"regard-{_name}", _colours), force=True)


def _sheet(name: str) -> dict[str, Any]:
    path = Path(str(resources.files("regard.view"))) / "static" / f"{name}.mplstyle"
    parameters: Any = rc_params_from_file(path, use_default_template=False)
    return dict(parameters)


THEMES = {name: _sheet("pictures") | _sheet(name) for name in HEAT}


def figure(height: float = 3.0, width: float = 6.4) -> Figure:
    """An empty figure; sizes in inches, and 6.4 is the width of the page's column."""
    return Figure(figsize=(width, height), layout="constrained")


def legend(axes: Axes, columns: int = 2, **options: Any) -> None:
    """The legend of axes, above them, where it hides nothing."""
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0}
    axes.legend(ncols=columns, columnspacing=1.4, **place | options)


def colorbar(axes: Axes, image: Any, label: str, **options: Any) -> Figure | None:
    """The scale of an image's colours, beside it; and the figure that both are in."""
    figure = axes.get_figure(root=True)
    if figure is not None:
        figure.colorbar(image, ax=axes, label=label, **options)
    return figure


def heat(axes: Axes, weights: Tensor) -> AxesImage:
    """Weights (n, m) as a heat map: a row for each query, a column for each key, and no colour where a weight is
    exactly 0."""
    drawn = ma.masked_equal(weights.detach().double().numpy(), 0.0)
    image = axes.imshow(drawn, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.set_xticks(range(drawn.shape[1]))
    axes.set_yticks(range(drawn.shape[0]))
    return image


def signed(axes: Axes, matrix: Tensor, largest: float) -> AxesImage:
    """A matrix of both signs: blue below 0, the background at 0, red above; darkest at ± `largest`."""
    colours = LinearSegmentedColormap.from_list("signed", [TRUTH, rcParams["axes.facecolor"], ATTENTION])
    image = axes.imshow(matrix.detach().double().numpy(), cmap=colours, vmin=-largest, vmax=largest)
    axes.grid(False)
    axes.spines[:].set_color(rcParams["grid.color"])
    axes.spines[:].set_visible(True)
    axes.set(xticks=[], yticks=[])
    return image


def png(drawing: Drawing, theme: str) -> bytes:
    """The picture in one of the THEMES, whatever the user's matplotlib settings are."""
    with style.context(["default", THEMES[theme]]), _quiet_fonts():
        file = BytesIO()
        canvas: Any = FigureCanvasAgg(drawing())  # Any: print_png has no types
        canvas.print_png(file, metadata={"Software": None})  # unlike savefig, this draws once and not twice
    return file.getvalue()


ENDINGS = (".png", ".svg", ".pdf", ".html")
# Where a reader prefers dark pages, the ground is as dark as the picture.
PAGE = (
    '<!doctype html><meta charset=utf-8><meta name=viewport content="width=device-width">'
    '<meta name=color-scheme content="light dark"><style>body { text-align: center }</style>'
)
SVG = {"svg.hashsalt": "regard", "svg.fonttype": "path"}


@contextmanager
def _quiet_fonts() -> Iterator[None]:
    """Without what matplotlib says of fonts while it draws: that a letter is in none of them, of which `families`
    has warned already, and which weight it takes of a font that has no normal one."""
    logger, is_error = logging.getLogger("matplotlib.font_manager"), lambda record: record.levelno >= logging.ERROR
    logger.addFilter(is_error)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            yield
    finally:
        logger.removeFilter(is_error)


def write(drawing: Drawing, path: str | Path) -> Path:
    """The picture as a file, in the format of its ending."""
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise ValueError(f"path: expected a name that ends in {', '.join(ENDINGS)}, got {str(path)!r}")
    if ending == ".html":
        content = f"{PAGE}<title>{escape(path.stem)}</title><body>{html(drawing)}".encode()
    elif ending == ".png":
        content = png(drawing, "light")
    else:
        file = BytesIO()
        undated = {"CreationDate": None} if ending == ".pdf" else {"Date": None}  # the same picture is the same file
        with style.context(["default", THEMES["light"], SVG]), _quiet_fonts():
            drawing().savefig(file, format=ending[1:], metadata=undated)
        content = file.getvalue()
    files.write(path, content)
    return path


def html(drawing: Drawing) -> str:
    """The picture as an element of a page, for light and dark ones."""
    light, dark = (base64.b64encode(png(drawing, theme)).decode() for theme in ("light", "dark"))
    kind = "data:image/png;base64,"
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{kind}{dark}">'
        f'<img alt="" src="{kind}{light}" style="max-width:100%;width:640px"></picture>'
    )


# --------------------------------------------------------------------------------------------------------------- fonts

DEFAULT = "DejaVu Sans"  # comes with matplotlib
# Fonts with many scripts come before the others.
PREFERRED = (DEFAULT, "Noto Sans CJK SC", "Source Han Sans SC", "WenQuanYi Zen Hei", "PingFang SC", "Microsoft YaHei")


def fonts_for(*texts: str) -> AbstractContextManager[None]:
    """Within this block new texts are written in fonts that have the letters of these, in any script."""
    return rc_context({} if all(text.isascii() for text in texts) else {"font.family": families(texts)})


def families(texts: Iterable[str]) -> list[str]:
    """The fonts to write these texts with: each letter is taken from the first that has it.

    Warns of letters that no font of the system has.
    """
    missing = {letter for text in texts for letter in text if letter.isprintable()}
    names = [DEFAULT]
    # The file of each font, upright and of normal weight where there is one; where there is none, matplotlib's
    # `findfont` would log a warning.
    fonts = sorted(
        font_manager.fontManager.ttflist,
        key=lambda font: (font.name, font.style == "normal", font.weight in (400, "normal"), font.stretch == "normal"),
    )
    paths = {font.name: font.fname for font in fonts}  # the last of each name
    for name in dict.fromkeys([name for name in PREFERRED if name in paths] + list(paths)):
        if not missing:
            break
        if name != DEFAULT and missing & _letters(paths[name]):
            names.append(name)
        missing -= _letters(paths[name])
    if missing:
        listed = " ".join(sorted(missing)[:8])
        warnings.warn(
            f"no font of this system has {listed}: boxes are drawn instead; install one, such as Noto Sans CJK",
            stacklevel=2,
        )
    return names


@functools.cache
def _letters(path: str) -> frozenset[str]:
    """The letters that a font has; none if it is a placeholder, in which a few glyphs stand for all letters.

    One comes with matplotlib: Last Resort draws a box with the name of the script.
    """
    if not Path(path).exists():  # removed since matplotlib listed it
        return frozenset()
    glyphs = FT2Font(path).get_charmap()  # code point → glyph
    return frozenset() if len(glyphs) > 4 * len(set(glyphs.values())) else frozenset(map(chr, glyphs))
