"""How wide every head attends, as a table and as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from regard.attention import numbers
from regard.attention.capture import AttentionMap
from regard.view.display import TableDisplay

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["HeadNumbers", "Summary"]


@dataclass(frozen=True)
class HeadNumbers:
    """One head, on average over its queries."""

    name: str
    kind: str
    layer: int
    head: int
    entropy: float  # of the weights, in nats
    width: float  # exp of it: how many keys share the weight
    spread: float  # keys from the first to the last of those that hold the middle 90 %
    distance: float  # from the query to the keys, on average; NaN where they are of different sequences
    sink: float  # the weight of the first key


HEADS = ("layer", "head", "kind", "effective width", "90 % within", "mean distance", "on first", "module")


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
        rows = [
            [
                str(head.layer),
                str(head.head),
                head.kind,
                f"{head.width:.2f}",
                "" if math.isnan(head.spread) else f"{head.spread:.1f}",
                "" if math.isnan(head.distance) else f"{head.distance:.2f}",
                "" if math.isnan(head.sink) else f"{head.sink:.1%}",
                head.name,
            ]
            for head in self.heads
        ]
        return [HEADS, *rows]

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
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, columnspacing=1.4, borderaxespad=0)


def _heads(layer: AttentionMap) -> list[HeadNumbers]:
    weights = layer.weights
    if layer.summary is not None:
        means = {name: getattr(layer.summary, name).mean((0, 2)).tolist() for name in ("entropy", "width")}
        unknown = dict.fromkeys(("spread", "distance", "sink"), math.nan)
        return [
            HeadNumbers(
                layer.name, layer.kind, layer.layer, head, means["entropy"][index], means["width"][index], **unknown
            )
            for index, head in enumerate(layer.heads)
        ]
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
