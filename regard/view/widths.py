"""How wide the heads of a model attend while it learns, from the log of a run that was trained with --widths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from regard.training.folder import read_log
from regard.view.display import Display

__all__ = ["TrainingWidthsDisplay"]


class TrainingWidthsDisplay(Display):
    """A line for each head: its effective width, in keys, by the steps of training; made by `from_run`.

    steps: of the evaluations
    widths: path of a layer → a list for each evaluation → a number for each head

    >>> import regard
    >>> display = regard.TrainingWidthsDisplay([0, 100], {"blocks.0.mixer": [[7.0, 7.1], [6.5, 1.2]]})
    >>> display.to_frame().query("step == 100")["width"].tolist()
    [6.5, 1.2]
    """

    def __init__(self, steps: list[int], widths: dict[str, list[list[float]]]) -> None:
        self.steps, self.widths = steps, widths

    @classmethod
    def from_run(cls, folder: str | Path, *, ax: Axes | None = None) -> TrainingWidthsDisplay:
        """Read a run's log, and draw."""
        records = [record for record in read_log(Path(folder)) if record.get("widths")]
        if not records:
            raise ValueError(f"{folder}: its log has no widths: train with --widths")
        layers = list(records[0]["widths"])
        widths = {layer: [record["widths"][layer] for record in records] for layer in layers}
        return cls([record["step"] for record in records], widths).plot(ax=ax)

    def to_frame(self) -> Any:
        """A pandas DataFrame: step, layer, head, width."""
        import pandas

        rows = [
            {"step": step, "layer": layer, "head": head, "width": width}
            for layer, by_step in self.widths.items()
            for step, heads in zip(self.steps, by_step, strict=True)
            for head, width in enumerate(heads)
        ]
        return pandas.DataFrame(rows)

    def _draw(self, axes: Axes) -> None:
        for number, (layer, by_step) in enumerate(self.widths.items()):
            for head, widths in enumerate(zip(*by_step, strict=True)):
                label = f"{layer}, {len(by_step[0])} heads" if head == 0 else None
                axes.plot(self.steps, widths, color=f"C{number % 10}", linewidth=1.2, label=label)
        axes.set(xlabel="step", ylabel="effective width (keys)")
        axes.set_ylim(bottom=0)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=8, columnspacing=1.4, borderaxespad=0)
