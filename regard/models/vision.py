"""The Vision Transformer: an image is a sequence of patches, and every patch attends to every patch (ViT).

    patches → vectors, + positions, with a class token in front → blocks → norm → class token, or mean → logits

Shapes: images (batch, channels, height, width) · rows (batch, patches, size) · logits (batch, classes).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.attention.dropout import dropout as apply_dropout
from regard.models.block import BlockConfig
from regard.models.classifier import ImageClassifier, check_image_size, check_images
from regard.models.positions import sinusoidal


class ViT(ImageClassifier):
    """ViT(images) → logits. `resize` makes the model ready for images of another size, `classify` reads pictures.

    image_size: one number, or height and width · patch_size: edge of a patch · size: of the vectors · layers · heads ·
    classes · channels · ffn_size: of the feed-forward nets, 4 · size unless given · positions: learned, none or
    sinusoidal · pooling: class (a class token) or mean · score: dot, additive, bilinear, cosine or gaussian ·
    activation: gelu, gelu_tanh, relu, silu, tanh or, gated, swiglu, geglu, geglu_tanh · epsilon: of the norms ·
    query_bias: of the projections of queries, keys and values · dropout · labels: names of the classes · mean,
    deviation: of the training images, one number or one for each channel.

    >>> import regard, torch
    >>> model = regard.ViT(image_size=32, patch_size=8, size=16, layers=2, heads=4, classes=10)
    >>> model(torch.randn(2, 3, 32, 32)).shape  # (batch, channels, height, width) → (batch, classes)
    torch.Size([2, 10])
    """

    def __init__(
        self,
        image_size: int | Sequence[int],
        patch_size: int,
        size: int,
        layers: int,
        heads: int,
        classes: int,
        *,
        channels: int = 3,
        ffn_size: int | None = None,
        positions: str = "learned",
        pooling: str = "class",
        score: str | None = None,
        activation: str = "gelu",
        epsilon: float = 1e-6,
        query_bias: bool = True,
        dropout: float = 0.0,
        labels: Sequence[str] = (),
        mean: Sequence[float] = (0.5,),
        deviation: Sequence[float] = (0.5,),
    ) -> None:
        super().__init__(locals(), positions=("learned", "none", "sinusoidal"), pooling=("class", "mean"))
        block = BlockConfig.of(self.config, attention_bias=query_bias, attention_output_bias=True)
        self.grid = _grid(image_size, patch_size)
        self.patch_embedding = nn.Conv2d(channels, size, patch_size, stride=patch_size)
        self.class_token = nn.Parameter(torch.zeros(1, 1, size)) if pooling == "class" else None
        self.position_embedding: nn.Parameter | None = None
        if positions == "learned":
            count = self.grid[0] * self.grid[1] + (self.class_token is not None)
            self.position_embedding = nn.Parameter(torch.empty(1, count, size).normal_(std=0.02))
        self.blocks = block.make_blocks(layers, causal=False)
        self.norm = block.make_norm()
        self.classifier = nn.Linear(size, classes)
        self.dropout = dropout

    def forward(self, images: Tensor) -> Tensor:
        """images (batch, channels, height, width) → logits (batch, classes)."""
        rows = self.encode(images)
        logits: Tensor = self.classifier(rows.mean(1) if self.class_token is None else rows[:, 0])
        return logits

    def encode(self, images: Tensor) -> Tensor:
        """images → rows (batch, patches, size), the class token first if there is one."""
        height, width = (count * self.config["patch_size"] for count in self.grid)
        advice = "; model.resize(…) makes it read another size"
        check_images(images, self.config["channels"], height, width, advice=advice)
        rows = self.patch_embedding(images).flatten(2).transpose(1, 2)  # (batch, patches, size), row by row of the grid
        if self.config["positions"] == "sinusoidal":
            rows = rows + _sinusoidal_grid(self.grid, rows.shape[-1], rows.device).to(rows.dtype)
        if self.class_token is not None:
            rows = torch.cat([self.class_token.expand(rows.shape[0], -1, -1), rows], 1)
        if self.position_embedding is not None:
            rows = rows + self.position_embedding
        rows = apply_dropout(rows, self.dropout, self.training)
        for block in self.blocks:
            rows = block(rows)
        return self.norm(rows)  # type: ignore[no-any-return]

    @torch.no_grad()
    def resize(self, image_size: int | Sequence[int]) -> ViT:
        """Make this model read images of another size: learned positions are interpolated."""
        grid = _grid(image_size, self.config["patch_size"])
        if self.position_embedding is not None:
            front = 0 if self.class_token is None else 1
            old = self.position_embedding
            table = old[:, front:].unflatten(1, self.grid).permute(0, 3, 1, 2)  # (1, size, rows, columns)
            table = functional.interpolate(table, size=grid, mode="bicubic", align_corners=False)
            table = table.permute(0, 2, 3, 1).flatten(1, 2)
            self.position_embedding = nn.Parameter(torch.cat([old[:, :front], table], 1))
        self.grid, self.config["image_size"] = grid, image_size
        return self


def _grid(image_size: int | Sequence[int], patch_size: int) -> tuple[int, int]:
    """Patches from top to bottom, and from left to right."""
    sides = check_image_size(image_size)
    for side in sides:
        if side % patch_size:
            raise ValueError(f"image_size: expected a multiple of the patch size {patch_size}, got {side}")
    return sides[0] // patch_size, sides[1] // patch_size


def _sinusoidal_grid(grid: tuple[int, int], size: int, device: torch.device) -> Tensor:
    """Sinusoidal positions in two dimensions: the first half of a vector holds the row, the second the column."""
    down, across = (torch.arange(count, device=device) for count in grid)
    rows = sinusoidal(down, size // 2)[:, None].expand(-1, grid[1], -1)
    columns = sinusoidal(across, size - size // 2)[None].expand(grid[0], -1, -1)
    return torch.cat([rows, columns], -1).flatten(0, 1)  # (patches, size)
