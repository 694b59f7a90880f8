"""The style of all pictures: a theme for light pages, one for dark ones, and what several of them draw.

Figures are made without pyplot: there is no global state, and no display is needed. A drawing is a function that makes
a figure; it is called within the theme in which its picture is wanted.
"""

import base64
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any

from cycler import cycler
from matplotlib import colormaps, rcParams, style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from numpy import ma, ndenumerate
from torch import Tensor

from regard import files

Drawing = Callable[[], Figure]

# The notes draw samples yellow, the truth blue and attention red; so do we. Each name stands for a colour of the theme.
SAMPLES, TRUTH, ATTENTION, POOLED, OTHER = "C0", "C1", "C2", "C3", "C4"
# Of groups: the palette of Okabe and Ito as the page has it, which people see who do not see all colours.
SERIES = ("C5", "C6", "C7", "C8", "C9", "C10")
LINES = ("-", (0, (5, 2)))  # after six groups the colours begin again with another line

_SHAPE = {
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.titlepad": 8,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.unicode_minus": True,
    "grid.linewidth": 0.6,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "lines.linewidth": 2,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "mathtext.fontset": "dejavusans",
    "figure.dpi": 225,
}


def _theme(
    name: str, paper: str, ink: str, faint: str, *, colours: Sequence[str], series: Sequence[str], heat: Sequence[str]
) -> dict[str, Any]:
    colormaps.register(LinearSegmentedColormap.from_list(f"regard-{name}", heat), force=True)
    texts = ("text.color", "axes.labelcolor", "axes.titlecolor", "xtick.labelcolor", "ytick.labelcolor")
    return {
        **_SHAPE,
        **dict.fromkeys(texts, ink),
        **dict.fromkeys(("grid.color", "axes.edgecolor"), faint),
        **dict.fromkeys(("figure.facecolor", "axes.facecolor"), paper),
        "axes.prop_cycle": cycler(color=[*colours, *series]),
        "image.cmap": f"regard-{name}",
    }


THEMES = {
    "light": _theme(
        "light",
        *("#ffffff", "#30353d", "#dfe2e7"),
        colours=["#e2a300", "#2f6bdb", "#d4303f", "#7d5bc9", "#0f8a6c"],
        series=["#0072b2", "#c44b00", "#007a59", "#b0528a", "#8a6400", "#5b6370"],
        heat=["#fdf3e6", "#fbcb92", "#ee6c4b", "#a3121d"],
    ),
    "dark": _theme(
        "dark",
        *("#191c22", "#c9ced6", "#363b44"),
        colours=["#f4c550", "#77adff", "#ff6f6f", "#b9a0ff", "#52d3aa"],
        series=["#56b4e9", "#ff9a5c", "#3dcb9e", "#e59bc4", "#f0c14b", "#a3abb8"],
        heat=["#2b2b36", "#7a2c4c", "#e4584b", "#ffd681"],
    ),
}


def figure(height: float = 3.0, width: float = 6.4) -> Figure:
    """An empty figure; sizes in inches, and 6.4 is the width of the page's column."""
    return Figure(figsize=(width, height), layout="constrained")


def legend(figure: Figure) -> None:
    """The legend of a figure, above its axes, where it hides nothing."""
    figure.legend(loc="outside upper left", ncols=4, columnspacing=1.4, handlelength=1.6)


def heat(axes: Axes, weights: Tensor, *, largest: float = 1.0, digits: int | None = None) -> AxesImage:
    """Weights (n, m) as a heat map: a row for each query, a column for each key, and no colour where a weight is
    exactly 0. largest: the weight of the darkest colour; digits: write the numbers into the cells, to so many places.
    """
    shown = ma.masked_equal(weights.detach().double().numpy(), 0.0)
    image = axes.imshow(shown, vmin=0, vmax=largest, aspect="auto", interpolation="nearest")
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.set_xticks(range(shown.shape[1]))
    axes.set_yticks(range(shown.shape[0]))
    if digits is not None:
        for (row, column), weight in ndenumerate(shown.filled(0)):
            red, green, blue, _ = image.to_rgba(weight)
            dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.55
            colour = rcParams["grid.color"] if weight == 0 else "#ffffff" if dark else "#30353d"
            text = "0" if weight == 0 else f"{weight:.{digits}f}".lstrip("0")
            label = axes.text(column, row, text, ha="center", va="center", fontsize=8, color=colour)
            label.set_in_layout(False)  # it lies inside the axes, and measuring hundreds of them takes a second
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


def frame(axes: Axes, row: int, column: int, *, width: int = 1) -> None:
    """A frame around a cell of a heat map, or around several side by side."""
    axes.add_patch(Rectangle((column - 0.5, row - 0.5), width, 1, fill=False, edgecolor=TRUTH, linewidth=1.4))


def png(drawing: Drawing, theme: str) -> bytes:
    """The picture in one of the THEMES, whatever the user's matplotlib settings are."""
    with style.context(["default", THEMES[theme]]), _quiet_fonts():
        file = BytesIO()
        canvas: Any = FigureCanvasAgg(drawing())  # Any: print_png has no types
        canvas.print_png(file, metadata={"Software": None})  # unlike savefig, this draws once and not twice
    return file.getvalue()


ENDINGS = (".png", ".svg", ".pdf", ".html")
SVG = {"svg.hashsalt": "regard", "svg.fonttype": "path"}


@contextmanager
def _quiet_fonts() -> Iterator[None]:
    """Without what matplotlib says of fonts while it draws: that a letter is in none of them, of which fonts.py has
    warned already, and which weight it takes of a font that has no normal one."""
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
        content = f"<!doctype html><meta charset=utf-8><title>{escape(path.stem)}</title>{html(drawing)}".encode()
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
