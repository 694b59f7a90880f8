"""How wide every head attends: of the maps of a capture, and in the course of a training run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.attention import numbers
from regard.attention.capture import AttentionMap
from regard.view.display import Display, TableDisplay

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEADS = ("layer", "head", "kind", "effective width", "90 % within", "mean distance", "on first", "module")


@dataclass(frozen=True)
class HeadNumbers:
    """One head, on average over its queries."""

    name: str
    kind: str
    layer: int
    head: int
    entropy: float  # of the weights, in nats
    width: float  # exp of it: how many keys share the weight
    spread: float = math.nan  # keys from the first to the last of those that hold the middle 90 %
    distance: float = math.nan  # from the query to the keys, on average; NaN where they are of different sequences
    sink: float = math.nan  # the weight of the first key


class Summary(TableDisplay, Sequence[HeadNumbers]):
    """The numbers of every head that was captured. `plot` draws the widths by layer, a dot for each head."""

    def __init__(self, maps: Sequence[AttentionMap]) -> None:
        self.heads = [head for layer in maps for head in _heads(layer)]

    def __getitem__(self, number: Any) -> Any:
        return self.heads[number]

    def __len__(self) -> int:
        return len(self.heads)

    def to_frame(self) -> Any:
        """A pandas DataFrame with a row for each head."""
        import pandas

        return pandas.DataFrame([asdict(head) for head in self.heads])

    def _rows(self) -> list[Sequence[str]]:
        formats = {"width": ".2f", "spread": ".1f", "distance": ".2f", "sink": ".1%"}
        rows: list[Sequence[str]] = [HEADS]
        for head in self.heads:
            values = [(getattr(head, name), form) for name, form in formats.items()]
            cells = ["" if math.isnan(value) else f"{value:{form}}" for value, form in values]
            rows.append([str(head.layer), str(head.head), head.kind, *cells, head.name])
        return rows

    def _draw(self, axes: Axes) -> None:
        from regard.view import pictures

        dots: dict[str, Any] = {"color": pictures.TRUTH, "alpha": 0.7, "markeredgewidth": 0, "label": "a head"}
        axes.plot([head.layer for head in self.heads], [head.width for head in self.heads], "o", **dots)
        layers = sorted({head.layer for head in self.heads})
        widths = [[head.width for head in self.heads if head.layer == layer] for layer in layers]
        means = [sum(layer) / len(layer) for layer in widths]
        axes.plot(layers, means, color=pictures.ATTENTION, label="mean of the heads")
        axes.set(xlabel="layer", ylabel="effective width (keys)", xticks=layers)
        axes.set_ylim(bottom=0)
        pictures.legend(axes)


def _heads(layer: AttentionMap) -> list[HeadNumbers]:
    weights = layer.weights
    if layer.summary is not None:
        means = {name: getattr(layer.summary, name).mean((0, 2)).tolist() for name in ("entropy", "width")}
    else:
        low, high = numbers.interval(weights)
        distance = numbers.distance(weights, layer.queries)
        by_query = {  # (batch, heads, n)
            "entropy": numbers.entropy(weights),
            "width": numbers.width(weights),
            "spread": (high - low + 1).double(),
            "distance": distance if layer.kind != "cross" else distance * math.nan,
            "sink": numbers.sink(weights),
        }
        means = {name: numbers.mean_of_rows(values, weights).tolist() for name, values in by_query.items()}
    return [
        HeadNumbers(layer.name, layer.kind, layer.layer, head, **{name: mean[index] for name, mean in means.items()})
        for index, head in enumerate(layer.heads)
    ]


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
        """Read the log of a run that was trained with --widths, and draw."""
        from regard.training.folder import read_log

        records = [record for record in read_log(Path(folder)) if record.get("widths")]
        if not records:
            raise ValueError(f"{folder}: its log has no widths: train with --widths")
        widths = {layer: [record["widths"][layer] for record in records] for layer in records[0]["widths"]}
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
        from regard.view import pictures

        for number, (layer, by_step) in enumerate(self.widths.items()):
            for head, widths in enumerate(zip(*by_step, strict=True)):
                label = f"{layer}, {len(by_step[0])} heads" if head == 0 else None
                axes.plot(self.steps, widths, color=f"C{number % 10}", linewidth=1.2, label=label)
        axes.set(xlabel="step", ylabel="effective width (keys)")
        axes.set_ylim(bottom=0)
        pictures.legend(axes, fontsize=8)
