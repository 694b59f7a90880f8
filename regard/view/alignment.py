"""Who looked at whom in a translation, by words; and which head aligns best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from matplotlib import rc_context
from matplotlib.axes import Axes

from regard.data.pairs import Pair
from regard.models.alignment import Alignment, align, align_heads
from regard.models.translator import Translator
from regard.training.metrics import alignment_error_rate
from regard.view import fonts, pictures
from regard.view.display import Display
from regard.view.terminal import print_map

__all__ = ["AlignmentDisplay", "heads_by_alignment"]

TOGETHER = 64  # sentences


class AlignmentDisplay(Display):
    """The words of a translation and those of its source: how much each looked at each, and the links that follow.

    Made by `from_model`. Rings mark the links; squares those that are right, where that is known (`gold`).

    >>> import regard, torch
    >>> from regard.models.alignment import Alignment
    >>> found = Alignment(["on", "the", "mat"], ["sur", "le", "tapis"], torch.eye(3))
    >>> regard.AlignmentDisplay(found).to_frame().shape  # words of the translation × words of its source
    (3, 3)
    """

    def __init__(self, alignment: Alignment, gold: frozenset[tuple[int, int]] | None = None) -> None:
        self.alignment, self.gold = alignment, gold
        self.height = 1.6 + 0.28 * len(alignment.target)

    @classmethod
    def from_model(
        cls,
        model: Translator,
        source: str,
        target: str | None = None,
        *,
        gold: frozenset[tuple[int, int]] | None = None,
        ax: Axes | None = None,
    ) -> AlignmentDisplay:
        """Translate, unless the translation is given, and draw."""
        written = model.translate(source) if target is None else target
        (found,) = align(model, [source], [written])
        return cls(found, gold).plot(ax=ax)

    @property
    def error_rate(self) -> float | None:
        """The alignment error rate of this sentence, where the right links are known."""
        return None if self.gold is None else alignment_error_rate([self.alignment.links], [self.gold])

    def to_frame(self) -> Any:
        """A pandas DataFrame: a row for each word of the translation, a column for each of the source."""
        import pandas

        own = self.alignment
        return pandas.DataFrame(own.weights.tolist(), index=own.target, columns=own.source)

    def print(self) -> None:
        """The heat map in the terminal."""
        print_map(self.alignment.weights, self.alignment.target, self.alignment.source)

    def _draw(self, axes: Axes) -> None:
        own = self.alignment
        with rc_context({"font.family": fonts.families([*own.source, *own.target])}):
            image = pictures.heat(axes, own.weights)
            axes.set_xticks(range(len(own.source)), own.source, rotation=90)
            axes.set_yticks(range(len(own.target)), own.target)
            axes.set(xlabel="source (looked at)", ylabel="translation (looks)")
        ring: dict[str, Any] = {"marker": "o", "facecolors": "none", "edgecolors": pictures.TRUTH, "s": 60}
        axes.scatter(*_places(own.links), label="linked", **ring)
        if self.gold is not None:
            square: dict[str, Any] = {"marker": "s", "facecolors": "none", "edgecolors": pictures.OTHER, "s": 130}
            axes.scatter(*_places(self.gold), label="right", **square)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, columnspacing=1.4, borderaxespad=0.2)
        figure = axes.get_figure(root=True)
        if figure is not None:
            figure.colorbar(image, ax=axes, label="weight", shrink=0.8)


def heads_by_alignment(model: Translator, pairs: Sequence[Pair]) -> dict[tuple[int, ...], float]:
    """The alignment error rate of each (layer, head), the best first; () is the mean of all. Pairs have gold links."""
    gold = [pair.alignment for pair in pairs]
    if not pairs or any(own is None for own in gold):
        raise ValueError("pairs: expected one or more, each with its alignment")
    found: dict[tuple[int, ...], list[frozenset[tuple[int, int]]]] = {}
    with torch.inference_mode():
        for start in range(0, len(pairs), TOGETHER):
            some = pairs[start : start + TOGETHER]
            for own in align_heads(model, [pair.source for pair in some], [pair.target for pair in some]):
                for place, alignment in own.items():
                    found.setdefault(place, []).append(alignment.links)
    rates = {place: alignment_error_rate(links, [own or frozenset() for own in gold]) for place, links in found.items()}
    return dict(sorted(rates.items(), key=lambda own: own[1]))


def _places(links: frozenset[tuple[int, int]]) -> tuple[list[int], list[int]]:
    ordered = sorted(links)
    return [source for source, _ in ordered], [target for _, target in ordered]
