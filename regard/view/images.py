"""Where in an image a model looks: a ViT by its weights, in one layer or through all of them; a ResNet, which has none,
by what each place says for the class (class activation, Zhou et al. 2016).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn import functional

from regard.attention import numbers
from regard.models.classifier import ImageClassifier
from regard.models.model import evaluation
from regard.models.resnet import ResNet
from regard.models.vision import ViT
from regard.view import pictures
from regard.view.capture import capture
from regard.view.seen import Seen
from regard.view.terminal import print_map

__all__ = ["ImageAttentionDisplay"]

ROLLOUT, ACTIVATION = "rollout", "class activation"
LEGEND = "share of the most"
MOST = 7  # pictures side by side


class ImageAttentionDisplay:
    """One image, and for each place of it how much the model looks there; made by `from_model`.

    `place(layer, head)` gives the numbers (rows, columns), which add up to 1 for a ViT; `plot`, `plot_grid` and `save`
    lay them over the image.

    >>> import regard, torch
    >>> model = regard.ViT(image_size=32, patch_size=8, size=16, layers=2, heads=4, classes=10).eval()
    >>> display = regard.ImageAttentionDisplay.from_model(model, torch.zeros(3, 32, 32, dtype=torch.uint8))
    >>> display.place(layer=1, head=3).shape
    torch.Size([4, 4])
    """

    ax_: Axes
    figure_: Figure | None

    def __init__(
        self, image: Tensor, looks: list[Seen], whole: Tensor, *, label: str, chance: float, front: int = 0
    ) -> None:
        self.image = image  # (channels, height, width), bytes
        self.looks, self.whole, self.label, self.chance = looks, whole, label, chance
        self.front = front  # tokens that are no places
        self.kind = ROLLOUT if looks else ACTIVATION

    @classmethod
    def from_model(cls, model: ImageClassifier, image: str | Path | Tensor) -> ImageAttentionDisplay:
        """Classify an image (a file, or bytes (channels, height, width)), and see where the model looks for that."""
        picture = image if isinstance(image, Tensor) else model.read(Path(image))
        inputs = model.preprocess(picture[None]).to(next(model.parameters()).device)
        (chances,) = model.probabilities(picture[None])
        best = int(chances.argmax())
        about: dict[str, Any] = {"label": str(model.labels[best]), "chance": float(chances[best])}
        with torch.inference_mode(), evaluation(model):
            if isinstance(model, ResNet):
                seen = model.encode(inputs)[0]  # (depth, rows, columns)
                says = functional.relu(torch.einsum("d,drc->rc", model.classifier.weight[best], seen)).cpu()
                return cls(picture, [], says, **about)
            if not isinstance(model, ViT):
                raise ValueError(f"a {type(model).__name__} reads no images, or not by attention")
            with capture(model) as found:
                model(inputs)
        looks = found.by_layer()
        front = 0 if model.class_token is None else 1
        through = numbers.rollout([own.weights for own in looks])[0]
        return cls(picture, looks, _places(through, front, model.grid), **about, front=front)

    def place(self, layer: int | None = None, head: int | None = None) -> Tensor:
        """How much each place is looked at, (rows, columns): through all layers, in one, by one of its heads."""
        if layer is None:
            return self.whole
        if not self.looks:
            raise IndexError("layer: this model has no attention; leave it out")
        if not -len(self.looks) <= layer < len(self.looks):
            raise IndexError(f"layer: expected a number below {len(self.looks)}, got {layer}")
        weights = self.looks[layer].weights[0].float()
        if head is not None and not 0 <= head < len(weights):
            raise IndexError(f"head: expected a number below {len(weights)}, got {head}")
        shape = (self.whole.shape[0], self.whole.shape[1])
        return _places(weights.mean(0) if head is None else weights[head], self.front, shape)

    def plot(self, layer: int | None = None, head: int | None = None, *, ax: Axes | None = None) -> Any:
        """The image, and over it where the model looks; the redder the more, from none to the most of this picture."""
        axes = pictures.figure(3.4, 4.2).subplots() if ax is None else ax
        self._overlay(axes, layer, head)
        self.ax_, self.figure_ = axes, axes.get_figure(root=True)
        return self

    def plot_grid(self) -> Any:
        """The image, then every layer, then all of them together."""
        figure = self._grid()
        self.ax_, self.figure_ = figure.axes[0], figure
        return self

    def save(self, path: str | Path, layer: int | None = None, head: int | None = None) -> Path:
        """Write .png, .svg, .pdf or .html: one overlay, or the grid where neither layer nor head is given."""
        return pictures.write(self._drawing(layer, head), path)

    def to_frame(self, layer: int | None = None, head: int | None = None) -> Any:
        """A pandas DataFrame: rows and columns of places."""
        import pandas

        return pandas.DataFrame(self.place(layer, head).tolist())

    def print(self, layer: int | None = None, head: int | None = None) -> None:
        """The places in the terminal, as a share of the most."""
        places = self.place(layer, head)
        print(f"{self.label} ({self.chance:.1%}), {self._named(layer, head)}, as a share of the most")
        rows, columns = ([str(number) for number in range(count)] for count in places.shape)
        print_map(places / places.max().clamp(min=1e-12), rows, columns, legend="rows and columns of the image")

    def _repr_html_(self) -> str:
        return pictures.html(self._drawing(None, None))

    def _drawing(self, layer: int | None, head: int | None) -> Callable[[], Figure]:
        def drawn() -> Figure:
            if layer is None and head is None and self.looks:
                return self._grid()
            figure = pictures.figure(3.4, 4.2)
            self._overlay(figure.subplots(), layer, head)
            return figure

        return drawn

    def _named(self, layer: int | None, head: int | None) -> str:
        if layer is None:
            return self.kind
        return f"layer {layer}" + ("" if head is None else f", head {head}")

    def _grid(self) -> Figure:
        shown: list[tuple[str, Tensor | None]] = [(f"{self.label} ({self.chance:.0%})", None)]
        shown += [(f"layer {number}", self.place(number)) for number in range(len(self.looks))]
        shown.append((self.kind, self.whole))
        rows = -(-len(shown) // MOST)
        columns = -(-len(shown) // rows)
        figure = pictures.figure(1.8 * rows, 1.6 * columns + 0.8)
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for own, (name, places) in zip(axes, shown, strict=False):
            image = self._draw(own, places, name)
        for own in axes[len(shown) :]:
            own.set_axis_off()
        figure.colorbar(image, ax=axes.tolist(), label=LEGEND, shrink=0.8)
        return figure

    def _overlay(self, axes: Axes, layer: int | None, head: int | None) -> None:
        name = f"{self.label} ({self.chance:.0%}), {self._named(layer, head)}"
        image = self._draw(axes, self.place(layer, head), name)
        figure = axes.get_figure(root=True)
        if figure is not None:
            figure.colorbar(image, ax=axes, label=LEGEND, shrink=0.8)

    def _draw(self, axes: Axes, places: Tensor | None, name: str) -> Any:
        height, width = self.image.shape[1:]
        picture = self.image.permute(1, 2, 0).numpy()
        if places is not None:  # paler, so that the colours over it are those of the legend
            picture = 160 + picture // 8 * 3
        image = axes.imshow(picture if picture.shape[-1] > 1 else picture[..., 0], cmap="gray", vmin=0, vmax=255)
        if places is not None:
            share = (places / places.max().clamp(min=1e-12)).numpy()
            image = axes.imshow(share, extent=(-0.5, width - 0.5, height - 0.5, -0.5), vmin=0, vmax=1)
            image.set_alpha(0.65)
        axes.grid(False)
        axes.set(xticks=[], yticks=[], xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))
        axes.set_title(name, fontsize=9)
        return image


def _places(weights: Tensor, front: int, grid: tuple[int, int]) -> Tensor:
    """Weights (n, n) between patches → how much each place counts for the answer, (rows, columns), 1 in all.

    The answer is read off the token in front, or where there is none off the mean of all.
    """
    row = (weights[0, front:] if front else weights.mean(0)).float().cpu()
    return torch.unflatten(row / row.sum().clamp(min=1e-12), 0, grid)
