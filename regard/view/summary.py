"""How wide every head looks, as a table and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from regard.attention import numbers
from regard.view.display import Display
from regard.view.seen import Seen

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["HeadNumbers", "Summary"]


@dataclass(frozen=True)
class HeadNumbers:
    """One head, on average over the queries that it was seen with."""

    name: str
    kind: str
    layer: int
    head: int
    entropy: float  # of the weights, in nats
    width: float  # exp of it: how many keys share the weight
    spread: float  # keys from the first to the last of those that hold the middle 90 %
    distance: float  # how far it looks; NaN where queries and keys are different sequences
    sink: float  # the weight of the first key


HEADS = ("layer", "head", "kind", "effective width", "90 % within", "mean distance", "on first", "module")


class Summary(Display, Sequence[HeadNumbers]):
    """The numbers of every head that was seen. `plot` draws the widths by layer, a dot for each head."""

    def __init__(self, looks: Sequence[Seen]) -> None:
        self.heads = [head for look in looks for head in _heads(look)]

    def __getitem__(self, number: Any) -> Any:
        return self.heads[number]

    def __len__(self) -> int:
        return len(self.heads)

    def to_frame(self) -> Any:
        """A pandas DataFrame with a row for each head."""
        import pandas

        return pandas.DataFrame([asdict(head) for head in self.heads])

    def print(self) -> None:
        """The table, in the terminal."""
        from rich.console import Console
        from rich.table import Table

        table = Table(*HEADS, box=None, pad_edge=False)
        for row in self._rows():
            table.add_row(*row)
        Console().print(table)

    def __str__(self) -> str:
        rows = [HEADS, *self._rows()]
        wide = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
        return "\n".join("  ".join(cell.rjust(size) for cell, size in zip(row, wide, strict=True)) for row in rows)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in HEADS)
        rows = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in self._rows()]
        return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"

    def _rows(self) -> list[list[str]]:
        return [
            [
                str(own.layer),
                str(own.head),
                own.kind,
                f"{own.width:.2f}",
                f"{own.spread:.1f}",
                "" if own.distance != own.distance else f"{own.distance:.2f}",
                f"{own.sink:.1%}",
                own.name,
            ]
            for own in self.heads
        ]

    def _draw(self, axes: Axes) -> None:
        from regard.view import pictures

        layers = sorted({own.layer for own in self.heads})
        axes.plot([own.layer for own in self.heads], [own.width for own in self.heads], "o", color=pictures.TRUTH,
                  alpha=0.7, markeredgewidth=0, label="a head")  # fmt: skip
        means = [[own.width for own in self.heads if own.layer == layer] for layer in layers]
        axes.plot(layers, [sum(own) / len(own) for own in means], color=pictures.ATTENTION, label="mean of the heads")
        axes.set(xlabel="layer", ylabel="effective width (keys)", xticks=layers)
        axes.set_ylim(bottom=0)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, columnspacing=1.4, borderaxespad=0)


def _heads(look: Seen) -> list[HeadNumbers]:
    weights = look.weights
    low, high = numbers.interval(weights)
    far = numbers.distance(weights, look.queries)
    rows = {
        "entropy": numbers.entropy(weights),
        "width": numbers.width(weights),
        "spread": (high - low + 1).double(),
        "distance": far if look.kind != "cross" else far * float("nan"),
        "sink": numbers.sink(weights),
    }
    means = {name: numbers.mean_of_rows(values, weights).tolist() for name, values in rows.items()}
    return [
        HeadNumbers(look.name, look.kind, look.layer, head, **{name: own[place] for name, own in means.items()})
        for place, head in enumerate(look.heads)
    ]
