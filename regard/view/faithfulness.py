"""Whether an explanation is true: what a prediction becomes as parts are taken away, or put back, in its order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.arguments import check_size
from regard.view.display import TableDisplay

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Faithfulness"]


class Faithfulness(TableDisplay):
    """The target's probability as parts are removed, the most important first (`deletion`: it should fall fast), and as
    they are added to nothing (`insertion`: it should rise fast), beside random orders. Made by `Attribution`.

    shares: of the parts that are removed or added, (points,) · deletion, insertion: (batch, points) · random_deletion,
    random_insertion: (seeds, batch, points) · method: that gave the order
    """

    def __init__(
        self, shares: Tensor, deletion: Tensor, insertion: Tensor, random_deletion: Tensor, method: str = ""
    ) -> None:
        self.shares, self.deletion, self.insertion, self.method = shares, deletion, insertion, method
        # To add in an order is to remove in the opposite one, read backwards; and a random order's is as random.
        self.random_deletion, self.random_insertion = random_deletion, random_deletion.flip(-1)

    @classmethod
    def measure(
        cls,
        probability: Callable[[Tensor], Tensor],
        scores: Tensor,
        removable: Sequence[bool],
        *,
        seeds: int,
        points: int,
        method: str = "",
    ) -> Faithfulness:
        """probability: of the target, (batch,), where only some parts are kept, (batch, parts)."""
        check_size("seeds", seeds)
        check_size("points", points)
        parts = torch.tensor([number for number, able in enumerate(removable) if able], device=scores.device)
        count = len(parts)
        steps = torch.linspace(0, count, min(points, count) + 1).long().tolist()
        steps = sorted({*steps, *(count - step for step in steps)})  # the same from both ends

        def curve(order: Tensor, *, adding: bool = False) -> Tensor:
            """order: (batch, count), the first to be removed or added first."""
            ranks = order.argsort(1)
            values = []
            for step in steps:
                kept = torch.ones(scores.shape, dtype=torch.bool, device=scores.device)
                kept[:, parts] = ranks < step if adding else ranks >= step
                values.append(probability(kept))
            return torch.stack(values, 1)

        order = scores[:, parts].argsort(1, descending=True)
        randoms = []
        for seed in range(seeds):
            random = torch.rand(order.shape, generator=torch.Generator().manual_seed(seed))
            randoms.append(curve(random.to(order.device).argsort(1)))
        shares = torch.tensor(steps) / count
        return cls(shares, curve(order), curve(order, adding=True), torch.stack(randoms), method)

    @property
    def deletion_area(self) -> float:
        """Between the curves of random orders and of this one: above 0, it removes what matters sooner."""
        return self._area(self.random_deletion.mean(0) - self.deletion)

    @property
    def insertion_area(self) -> float:
        """The same for adding: above 0, it adds what matters sooner."""
        return self._area(self.insertion - self.random_insertion.mean(0))

    def _area(self, heights: Tensor) -> float:
        return float(torch.trapezoid(heights.mean(0).double().cpu(), self.shares.double()))

    def _curves(self) -> list[tuple[str, Tensor, Tensor]]:
        """Names, and (batch or seeds · batch, points)."""
        return [
            ("deletion", self.deletion, self.random_deletion.flatten(0, 1)),
            ("insertion", self.insertion, self.random_insertion.flatten(0, 1)),
        ]

    def to_frame(self) -> Any:
        """A pandas DataFrame: curve, order, share, probability, on average over the batch."""
        import pandas

        rows = [
            {"curve": name, "order": order, "share": share, "probability": value}
            for name, ours, random in self._curves()
            for order, values in ((self.method, ours), ("random", random))
            for share, value in zip(self.shares.tolist(), values.mean(0).tolist(), strict=True)
        ]
        return pandas.DataFrame(rows)

    def _rows(self) -> list[Sequence[str]]:
        areas = self.deletion_area, self.insertion_area
        rows: list[Sequence[str]] = [("curve", f"mean, {self.method}", "mean, random", "area between")]
        for (name, *curves), area in zip(self._curves(), areas, strict=True):
            means = (self._area(values) for values in curves)
            rows.append((name, *(f"{mean:.4f}" for mean in means), f"{area:+.4f}"))
        return rows

    def _draw(self, axes: Axes) -> None:
        from regard.view import pictures

        for (name, ours, random), colour in zip(self._curves(), (pictures.ATTENTION, pictures.TRUTH), strict=True):
            axes.plot(self.shares, ours.mean(0).cpu(), color=colour, label=f"{name}, {self.method}")
            axes.plot(self.shares, random.mean(0).cpu(), "--", color=colour, linewidth=1.2, label=f"{name}, random")
        axes.set(xlabel="share of the parts removed or added", ylabel="probability of the target")
        axes.set_ylim(bottom=0)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, columnspacing=1.4, borderaxespad=0)
