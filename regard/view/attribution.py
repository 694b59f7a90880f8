"""What a prediction depended on: tokens, layers or heads, by the method of one's choice; and whether that is true: what
the prediction becomes as parts are taken away, or put back, in that order."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import torch
from torch import Tensor, nn

from regard.arguments import check_choice, check_size
from regard.errors import visible
from regard.view.display import Display, TableDisplay, shown
from regard.view.explain import PART_METHODS, TOKEN_METHODS, Part, without_parts
from regard.view.prediction import Forward, Prediction

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = 40  # bars in a picture: the largest
LISTED = 5  # numbers below the text in the terminal
Tokens = Sequence[str] | Sequence[Sequence[str]]


class Attribution(Display):
    """How much each token, layer or head contributed to a prediction. Made by `from_model`.

    scores: (batch, parts) · labels: texts of the parts, for each entry · method: its name · entry: which one of the
    batch is drawn and printed

    of tokens, for log p of the target: weights (the prediction's query, mean of heads and layers), rollout,
    value_norms (‖α · v · W_o‖), gradient_weights (gradient × weight), gradient, gradient_input (gradient × input),
    integrated_gradients, occlusion (the drop when the token is absent)
    of layers, for log p: logit_lens (what each adds to what the last norm and the output layer read)
    of heads and other modules, for the logit: direct_logits (what each writes there directly)

    `faithfulness` tests it: deletion and insertion curves against random orders.

    >>> import regard, torch
    >>> model = regard.LanguageModel(vocab_size=31, size=16, layers=2, heads=4).eval()
    >>> found = regard.Attribution.from_model(model, torch.tensor([[5, 6, 7]]), method="integrated_gradients")
    >>> found.scores.shape, found.labels
    (torch.Size([1, 3]), [('5', '6', '7')])
    >>> found.faithfulness().deletion.shape  # (batch, points): nothing removed, one token, two, all
    torch.Size([1, 4])
    """

    def __init__(self, scores: Tensor, labels: Sequence[Sequence[str]], method: str = "", *, entry: int = 0) -> None:
        if scores.dim() != 2 or [len(texts) for texts in labels] != [scores.shape[1]] * len(scores):
            raise ValueError(f"labels: expected one for each of the scores (batch, parts), got {tuple(scores.shape)}")
        self.scores, self.method, self.entry = scores.detach().float(), method, range(len(scores))[entry]
        self.labels = [tuple(map(shown, texts)) for texts in labels]
        self.height = 0.9 + 0.19 * min(scores.shape[1], SHOWN)
        self._prediction: Prediction | None = None
        self._parts: list[Part] | None = None  # None: tokens

    @classmethod
    def from_model(
        cls,
        model: nn.Module,
        ids: Tensor,
        *,
        method: str = "integrated_gradients",
        target: Tensor | int | None = None,
        position: Tensor | int = -1,
        tokens: Tokens | None = None,
        baseline: int | None = None,
        forward: Forward | None = None,
        entry: int = 0,
    ) -> Attribution:
        """Explain what a model predicts for ids (batch, n).

        model: any that looks up ids in an nn.Embedding and returns logits (batch, classes) or (batch, n, vocabulary),
        as they are or in an object of Hugging Face's · target: class or token, one for all or one for each, (batch,);
        None: what the model predicts · position: for logits of each token, which of them, one for all or one for each ·
        tokens: texts · baseline: the id that stands for an absent token, such as that of a mask; None: a vector of
        zeros · forward: how the model is run on ids, if it is not model(ids) · entry: which one is drawn and printed
        """
        check_choice("method", method, [*TOKEN_METHODS, *PART_METHODS])
        prediction = Prediction(model, ids, target=target, position=position, baseline=baseline, forward=forward)
        if method in TOKEN_METHODS:
            scores, parts = TOKEN_METHODS[method](prediction), None
            texts = [list(map(str, row)) for row in ids.tolist()] if tokens is None else tokens
            labels: Any = [texts] * len(ids) if isinstance(texts[0], str) else texts
        else:
            scores, parts = PART_METHODS[method](prediction)
            labels = [[part.label for part in parts]] * len(ids)
        attribution = cls(scores, labels, method, entry=entry)
        attribution._prediction, attribution._parts = prediction, parts
        return attribution

    @property
    def target(self) -> Tensor:
        """What is explained: a class or token for each entry, (batch,)."""
        return self._need_prediction().target

    def faithfulness(self, *, seeds: int = 5, points: int = 20) -> Faithfulness:
        """The target's probability as parts are removed and added in the order of their scores, and in random ones.

        Absent tokens are the baseline; a layer is left out, and the output of a head or module is zeros. seeds: random
        orders · points: steps of the curves, at most as many as parts
        """
        prediction, parts = self._need_prediction(), self._parts

        @torch.no_grad()
        def probability(kept: Tensor) -> Tensor:
            leave_out = prediction.without_tokens(kept) if parts is None else without_parts(prediction, parts, kept)
            with leave_out:
                return prediction.log_probability().exp()

        removable = [True] * self.scores.shape[1] if parts is None else [part.removable for part in parts]
        options: Any = {"seeds": seeds, "points": points, "method": self.method}
        return Faithfulness.measure(probability, self.scores, removable, **options)

    def _need_prediction(self) -> Prediction:
        if self._prediction is None:
            raise ValueError("this Attribution knows no model: make it by Attribution.from_model(model, ids)")
        return self._prediction

    def to_frame(self) -> Any:
        """A pandas DataFrame with a row for each part of each entry: entry, part, label, score."""
        import pandas

        rows = [
            {"entry": entry, "part": part, "label": label, "score": score}
            for entry, (labels, scores) in enumerate(zip(self.labels, self.scores.tolist(), strict=True))
            for part, (label, score) in enumerate(zip(labels, scores, strict=True))
        ]
        return pandas.DataFrame(rows)

    def print(self, *, file: TextIO | None = None) -> None:
        """The labels in the terminal, red for what speaks for the target, blue against it; and the largest scores."""
        from rich.console import Console
        from rich.text import Text

        labels, scores = [*map(visible, self.labels[self.entry])], self.scores[self.entry].tolist()
        text = Text()
        largest = max(map(abs, scores)) or 1.0
        for label, score in zip(labels, scores, strict=True):
            faded = round(255 * (1 - abs(score) / largest))
            colour = f"rgb(255,{faded},{faded})" if score > 0 else f"rgb({faded},{faded},255)"
            text.append(label, f"black on {colour}").append(" ")
        first = sorted(range(len(scores)), key=lambda part: -abs(scores[part]))[:LISTED]
        numbers = ", ".join(f"{labels[part]} ({part}) {scores[part]:+.3g}" for part in first)
        listed = Text(f"\n{self.method}: {numbers}")
        Console(file=file or sys.stdout, highlight=False).print(text, listed, soft_wrap=True)

    def _draw(self, axes: Axes) -> None:
        from regard.view import pictures

        scores, labels = self.scores[self.entry].double().cpu(), self.labels[self.entry]
        chosen = sorted(scores.abs().topk(min(SHOWN, len(scores))).indices.tolist())
        values = scores[chosen].tolist()
        colours = [pictures.ATTENTION if value > 0 else pictures.TRUTH for value in values]
        axes.barh(range(len(chosen)), values, color=colours)
        axes.set_yticks(range(len(chosen)), [labels[part] for part in chosen], fontfamily=pictures.families(labels))
        axes.invert_yaxis()
        axes.set(xlabel=self.method.replace("_", " "))


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
        pictures.legend(axes)
