"""What displays of one picture share, in scikit-learn's pattern. matplotlib is imported when something is drawn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Display"]


class Display(ABC):
    """Something that is computed once; `plot` draws it on axes, `save` into a file."""

    ax_: Axes
    figure_: Figure | None
    height = 3.3  # inches

    @abstractmethod
    def _draw(self, axes: Axes) -> None:
        """Draw on these axes."""

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw on these axes, or on those of a new figure; sets `ax_` and `figure_`."""
        axes = self._figure().axes[0] if ax is None else ax
        if ax is not None:
            self._draw(ax)
        self.ax_, self.figure_ = axes, axes.get_figure(root=True)
        return self

    def save(self, path: str | Path) -> Path:
        """Write .png, .svg, .pdf or .html, by the name's ending."""
        from regard.view import pictures

        return pictures.write(self._figure, path)

    def _repr_html_(self) -> str:
        from regard.view import pictures

        return pictures.html(self._figure)

    def _figure(self) -> Figure:
        from regard.view import pictures

        figure = pictures.figure(self.height)
        self._draw(figure.subplots())
        return figure
