"""Where in an image a model attends: a ViT by its weights, in one layer or through all of them; a ResNet, which has
none, by how much each position says for the class (class activation, Zhou et al. 2016).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, TextIO

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn import functional

from regard.attention import numbers
from regard.attention.capture import AttentionMap
from regard.models.classifier import ImageClassifier
from regard.models.model import evaluation
from regard.models.vision import ResNet, ViT
from regard.view import pictures
from regard.view.capture import capture
from regard.view.display import LayersDisplay, print_map

ROLLOUT, ACTIVATION = "rollout", "class activation"
LEGEND = "share of the most"
ACROSS = 7  # pictures side by side


@dataclass(eq=False, repr=False)
class ImageAttentionDisplay(LayersDisplay):
    """One image, and for each position in it how much the model attends to it; made by `from_model`.

    `heatmap(layer, head)` gives the numbers (rows, columns), which add up to 1 for a ViT; `plot`, `plot_grid` and
    `save` lay them over the image.

    image: bytes (channels, height, width)
    maps: the attention of each layer; none for a ResNet
    total: the heat map (rows, columns) through all layers
    label, probability: the class that the model takes the image for
    class_tokens: how many tokens there are before those of the patches

    >>> import regard, torch
    >>> model = regard.ViT(image_size=32, patch_size=8, size=16, layers=2, heads=4, classes=10).eval()
    >>> display = regard.ImageAttentionDisplay.from_model(model, torch.zeros(3, 32, 32, dtype=torch.uint8))
    >>> display.heatmap(layer=1, head=3).shape
    torch.Size([4, 4])
    """

    image: Tensor
    maps: list[AttentionMap]
    total: Tensor
    _: KW_ONLY
    label: str
    probability: float
    class_tokens: int = 0

    @property
    def kind(self) -> str:
        """What `total` is."""
        return ROLLOUT if self.maps else ACTIVATION

    @classmethod
    def from_model(cls, model: ImageClassifier, image: str | Path | Tensor) -> ImageAttentionDisplay:
        """Classify an image (a file, or bytes (channels, height, width)), and keep what the model attends to."""
        pixels = image if isinstance(image, Tensor) else model.read(Path(image))
        inputs = model.preprocess(pixels[None]).to(next(model.parameters()).device)
        (probabilities,) = model.probabilities(pixels[None])
        best = int(probabilities.argmax())
        prediction: dict[str, Any] = {"label": str(model.labels[best]), "probability": float(probabilities[best])}
        with torch.inference_mode(), evaluation(model):
            if isinstance(model, ResNet):
                features = model.encode(inputs)[0]  # (depth, rows, columns)
                evidence = torch.einsum("d,drc->rc", model.classifier.weight[best], features)
                return cls(pixels, [], functional.relu(evidence).cpu(), **prediction)
            if not isinstance(model, ViT):
                raise ValueError(f"a {type(model).__name__} reads no images, or not by attention")
            with capture(model) as captured:
                model(inputs)
        maps, class_tokens = captured.by_layer(), 0 if model.class_token is None else 1
        rollout = numbers.rollout([layer.weights for layer in maps])[0]
        return cls(pixels, maps, _heatmap(rollout, class_tokens, model.grid), **prediction, class_tokens=class_tokens)

    def heatmap(self, layer: int | None = None, head: int | None = None) -> Tensor:
        """How much each position is attended to, (rows, columns): through all layers, in one, by one of its heads."""
        if layer is None and head is not None:
            raise IndexError(f"layer: expected that of head {head}, got None")
        if layer is None:
            return self.total
        if not self.maps:
            raise IndexError("layer: this model has no attention; leave it out")
        if not -len(self.maps) <= layer < len(self.maps):
            raise IndexError(f"layer: expected a number below {len(self.maps)}, got {layer}")
        weights = self.maps[layer].weights[0].float()  # (heads, n, n)
        if head is not None and not 0 <= head < len(weights):
            raise IndexError(f"head: expected a number below {len(weights)}, got {head}")
        rows, columns = self.total.shape
        return _heatmap(weights.mean(0) if head is None else weights[head], self.class_tokens, (rows, columns))

    def plot(
        self, layer: int | None = None, head: int | None = None, *, ax: Axes | None = None
    ) -> ImageAttentionDisplay:
        """The image, and over it the heat map, in colours from none to its largest number."""
        axes = pictures.figure(3.4, 4.2).subplots() if ax is None else ax
        name = f"{self.label} ({self.probability:.0%}), {self._name(layer, head)}"
        image = self._overlay(axes, self.heatmap(layer, head), name)
        self.ax_, self.figure_ = axes, pictures.colorbar(axes, image, LEGEND, shrink=0.8)
        return self

    def to_frame(self, layer: int | None = None, head: int | None = None) -> Any:
        """The heat map as a pandas DataFrame."""
        import pandas

        return pandas.DataFrame(self.heatmap(layer, head).tolist())

    def print(self, layer: int | None = None, head: int | None = None, *, file: TextIO | None = None) -> None:
        """The heat map in the terminal, as shares of its largest number."""
        heatmap = self.heatmap(layer, head)
        name = f"{self.label} ({self.probability:.1%}), {self._name(layer, head)}"
        print(f"{name}, as a share of the most", file=file)
        rows, columns = ([str(number) for number in range(count)] for count in heatmap.shape)
        print_map(_shares(heatmap), rows, columns, legend="rows and columns of the image", file=file)

    @property
    def _has_grid(self) -> bool:
        return bool(self.maps)

    def _name(self, layer: int | None, head: int | None) -> str:
        if layer is None:
            return self.kind
        return f"layer {layer}" + ("" if head is None else f", head {head}")

    def _grid(self) -> Figure:
        """The image, then every layer, then all of them together."""
        parts: list[tuple[str, Tensor | None]] = [(f"{self.label} ({self.probability:.0%})", None)]
        parts += [(f"layer {number}", self.heatmap(number)) for number in range(len(self.maps))]
        parts.append((self.kind, self.total))
        rows = -(-len(parts) // ACROSS)
        columns = -(-len(parts) // rows)
        figure = pictures.figure(1.8 * rows, 1.6 * columns + 0.8)
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, (name, heatmap) in zip(grid, parts, strict=False):
            image = self._overlay(axes, heatmap, name)
        for axes in grid[len(parts) :]:
            axes.set_axis_off()
        figure.colorbar(image, ax=grid.tolist(), label=LEGEND, shrink=0.8)
        return figure

    def _overlay(self, axes: Axes, heatmap: Tensor | None, name: str) -> Any:
        height, width = self.image.shape[1:]
        pixels = self.image.permute(1, 2, 0).numpy()
        if heatmap is not None:  # paler, so that the colours over it are those of the legend
            pixels = 160 + pixels // 8 * 3
        image = axes.imshow(pixels if pixels.shape[-1] > 1 else pixels[..., 0], cmap="gray", vmin=0, vmax=255)
        if heatmap is not None:
            extent = (-0.5, width - 0.5, height - 0.5, -0.5)
            image = axes.imshow(_shares(heatmap).numpy(), extent=extent, vmin=0, vmax=1)
            image.set_alpha(0.65)
        axes.grid(False)
        axes.set(xticks=[], yticks=[], xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))
        axes.set_title(name, fontsize=9)
        return image


def _heatmap(weights: Tensor, class_tokens: int, grid: tuple[int, int]) -> Tensor:
    """Weights (n, n) between tokens → how much each patch counts for the class, (rows, columns), 1 in all.

    The class is read off the class token, which attends to the patches, or else off the mean of all patches.
    """
    row = (weights[0, class_tokens:] if class_tokens else weights.mean(0)).float().cpu()
    return torch.unflatten(row / row.sum().clamp(min=1e-12), 0, grid)


def _shares(heatmap: Tensor) -> Tensor:
    return heatmap / heatmap.max().clamp(min=1e-12)
