"""Which words of a translation attend to which words of its source; and which head aligns best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from matplotlib import rc_context
from matplotlib.axes import Axes

from regard.data.pairs import Pair
from regard.models.alignment import Alignment, Links, align, align_heads
from regard.models.translator import Translator
from regard.training.metrics import alignment_error_rate
from regard.view import fonts, pictures
from regard.view.display import Display
from regard.view.terminal import print_map

__all__ = ["AlignmentDisplay", "heads_by_alignment"]

BATCH = 64  # sentences


class AlignmentDisplay(Display):
    """The words of a translation and those of its source: how much each attends to each, and the links that follow.

    Made by `from_model`. Rings mark the links; squares the right ones, where they are known (`gold`).

    >>> import regard, torch
    >>> from regard.models.alignment import Alignment
    >>> alignment = Alignment(["on", "the", "mat"], ["sur", "le", "tapis"], torch.eye(3))
    >>> regard.AlignmentDisplay(alignment).to_frame().shape  # words of the translation × words of its source
    (3, 3)
    """

    def __init__(self, alignment: Alignment, gold: Links | None = None) -> None:
        self.alignment, self.gold = alignment, gold
        self.height = 1.6 + 0.28 * len(alignment.target)

    @classmethod
    def from_model(
        cls,
        model: Translator,
        source: str,
        target: str | None = None,
        *,
        gold: Links | None = None,
        ax: Axes | None = None,
    ) -> AlignmentDisplay:
        """Translate, unless the translation is given, and draw."""
        translation = model.translate(source) if target is None else target
        (alignment,) = align(model, [source], [translation])
        return cls(alignment, gold).plot(ax=ax)

    @property
    def error_rate(self) -> float | None:
        """The alignment error rate of this sentence, where the right links are known."""
        return None if self.gold is None else alignment_error_rate([self.alignment.links], [self.gold])

    def to_frame(self) -> Any:
        """A pandas DataFrame: a row for each word of the translation, a column for each of the source."""
        import pandas

        words = self.alignment
        return pandas.DataFrame(words.weights.tolist(), index=words.target, columns=words.source)

    def print(self) -> None:
        """The heat map in the terminal."""
        print_map(self.alignment.weights, self.alignment.target, self.alignment.source)

    def _draw(self, axes: Axes) -> None:
        words = self.alignment
        with rc_context({"font.family": fonts.families([*words.source, *words.target])}):
            image = pictures.heat(axes, words.weights)
            axes.set_xticks(range(len(words.source)), words.source, rotation=90)
            axes.set_yticks(range(len(words.target)), words.target)
            axes.set(xlabel="source (looked at)", ylabel="translation (looks)")
        _mark(axes, words.links, marker="o", edgecolors=pictures.TRUTH, s=60, label="linked")
        if self.gold is not None:
            _mark(axes, self.gold, marker="s", edgecolors=pictures.OTHER, s=130, label="right")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, columnspacing=1.4, borderaxespad=0.2)
        figure = axes.get_figure(root=True)
        if figure is not None:
            figure.colorbar(image, ax=axes, label="weight", shrink=0.8)


def heads_by_alignment(model: Translator, pairs: Sequence[Pair]) -> dict[tuple[int, ...], float]:
    """The alignment error rate of each (layer, head), the best first; () is the mean of all. Pairs have gold links."""
    gold = [pair.alignment for pair in pairs if pair.alignment is not None]
    if not pairs or len(gold) < len(pairs):
        raise ValueError("pairs: expected one or more, each with its alignment")
    links: dict[tuple[int, ...], list[Links]] = {}
    with torch.inference_mode():
        for start in range(0, len(pairs), BATCH):
            batch = pairs[start : start + BATCH]
            for heads in align_heads(model, [pair.source for pair in batch], [pair.target for pair in batch]):
                for head, alignment in heads.items():
                    links.setdefault(head, []).append(alignment.links)
    rates = {head: alignment_error_rate(by_pair, gold) for head, by_pair in links.items()}
    return dict(sorted(rates.items(), key=lambda rate: rate[1]))


def _mark(axes: Axes, links: Links, **style: Any) -> None:
    ordered = sorted(links)
    axes.scatter([source for source, _ in ordered], [target for _, target in ordered], facecolors="none", **style)
