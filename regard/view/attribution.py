"""What a prediction depended on: tokens, layers or heads, by the method of one's choice, and whether that is true."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

import torch
from torch import Tensor, nn

from regard.arguments import check_choice
from regard.view.display import Display
from regard.view.explain import TOKEN_METHODS
from regard.view.faithfulness import Faithfulness
from regard.view.prediction import Forward, Prediction
from regard.view.residual import PART_METHODS, Part, without_parts
from regard.view.terminal import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Attribution"]

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

        labels, scores, text = self.labels[self.entry], self.scores[self.entry].tolist(), Text()
        largest = max(map(abs, scores)) or 1.0
        for label, score in zip(labels, scores, strict=True):
            faded = round(255 * (1 - abs(score) / largest))
            colour = f"rgb(255,{faded},{faded})" if score > 0 else f"rgb({faded},{faded},255)"
            text.append(label, f"black on {colour}").append(" ")
        first = sorted(range(len(scores)), key=lambda part: -abs(scores[part]))[:LISTED]
        numbers = ", ".join(f"{labels[part]} ({part}) {scores[part]:+.3g}" for part in first)
        Console(file=file or sys.stdout, highlight=False).print(text, f"\n{self.method}: {numbers}", soft_wrap=True)

    def _draw(self, axes: Axes) -> None:
        from regard.view import fonts, pictures

        scores, labels = self.scores[self.entry].double().cpu(), self.labels[self.entry]
        chosen = sorted(scores.abs().topk(min(SHOWN, len(scores))).indices.tolist())
        values = scores[chosen].tolist()
        colours = [pictures.ATTENTION if value > 0 else pictures.TRUTH for value in values]
        axes.barh(range(len(chosen)), values, color=colours)
        axes.set_yticks(range(len(chosen)), [labels[part] for part in chosen], fontfamily=fonts.families(labels))
        axes.invert_yaxis()
        axes.set(xlabel=self.method.replace("_", " "))
