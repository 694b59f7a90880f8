"""Classifiers of images, with attention and without: the Vision Transformer and the residual network.

    ViT      patches → vectors, + positions, with a class token in front → blocks → norm → class token, or mean → logits
    ResNet   stem → stages of blocks, each half as high and wide and twice as deep as the one before → mean → logits

In a ViT every patch attends to every patch; a ResNet has convolutions of neighbours, with shortcuts around them (He et
al. 2015).

Shapes: images (batch, channels, height, width) · rows (batch, patches, size) · logits (batch, classes).
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.arguments import check_sizes
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
        # (batch, patches, size), row by row of the grid
        rows: Tensor = self.patch_embedding(images).flatten(2).transpose(1, 2)
        if self.config["positions"] == "sinusoidal":
            rows = rows + _sinusoidal_grid(self.grid, rows.shape[-1], rows.device).to(rows.dtype)
        if self.class_token is not None:
            rows = torch.cat([self.class_token.expand(rows.shape[0], -1, -1), rows], 1)
        if self.position_embedding is not None:
            rows = rows + self.position_embedding
        rows = apply_dropout(rows, self.dropout, self.training)
        for layer in (*self.blocks, self.norm):
            rows = layer(rows)
        return rows

    @torch.no_grad()
    def resize(self, image_size: int | Sequence[int]) -> "ViT":
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


# ------------------------------------------------------------------------------------------------- the residual network


def _convolution(inputs: int, outputs: int, width: int, stride: int = 1) -> nn.Sequential:
    """A convolution that keeps height and width (divided by the stride), and batch norm."""
    net = nn.Conv2d(inputs, outputs, width, stride, padding=width // 2, bias=False)
    nn.init.kaiming_normal_(net.weight, mode="fan_out", nonlinearity="relu")
    return nn.Sequential(net, _BatchNorm(outputs))


class _BatchNorm(nn.BatchNorm2d):
    """One number of a channel has no variance: it is normalised as in evaluation, instead of ending the training."""

    def forward(self, input: Tensor) -> Tensor:
        if self.training and input.shape[1:].numel() * len(input) == self.num_features:
            running = self.running_mean, self.running_var
            return functional.batch_norm(input, *running, self.weight, self.bias, eps=self.eps)
        return super().forward(input)


def _channels_last(images: Tensor) -> Tensor:
    return images.contiguous(memory_format=torch.channels_last)


class Residual(nn.Module):
    """relu(x + convolutions(x)); the shortcut gets a convolution of its own where the shape changes.

    Basic: two convolutions of width 3. Bottleneck: 1, 3 and 1, the last one four times as deep.
    """

    def __init__(self, inputs: int, depth: int, stride: int, bottleneck: bool, stride_first: bool) -> None:
        super().__init__()
        outputs = depth * (4 if bottleneck else 1)
        shapes = [(inputs, depth, 3, stride), (depth, outputs, 3, 1)]
        if bottleneck:
            first, second = (stride, 1) if stride_first else (1, stride)
            shapes = [(inputs, depth, 1, first), (depth, depth, 3, second), (depth, outputs, 1, 1)]
        self.convolutions = nn.ModuleList(_convolution(*shape) for shape in shapes)
        same = inputs == outputs and stride == 1
        self.shortcut, self.stride = None if same else _convolution(inputs, outputs, 1), stride
        nn.init.zeros_(self.convolutions[-1][1].weight)  # type: ignore[index]  # at first a block changes nothing

    def forward(self, images: Tensor) -> Tensor:
        changed = images
        for number, convolution in enumerate(self.convolutions):
            changed = convolution(functional.relu(changed) if number else changed)
        if self.shortcut is not None:
            # A convolution of width 1 with a stride, but oneDNN's own writes beyond its memory with channels last.
            images = self.shortcut(_channels_last(images[:, :, :: self.stride, :: self.stride]))
        return functional.relu(changed + images)


class ResNet(ImageClassifier):
    """ResNet(images) → logits.

    depths: the number of blocks of each stage · classes · width: channels of the first stage · bottleneck: blocks of
    three convolutions instead of two · stride_first: a bottleneck halves the image in its first convolution, as in the
    paper and Keras, instead of in its second, as in torchvision · stem: imagenet (7 × 7 and pooling) or cifar (3 × 3) ·
    channels: of the images · image_size: to which image files are scaled, one number, or height and width; None: as
    they are · labels: names of the classes · mean, deviation: of the training images, one number or one for each
    channel. (3, 4, 6, 3) with bottleneck=True is ResNet-50, (2, 2, 2, 2) without is ResNet-18; stem="cifar", width=16
    and (3, 3, 3) is the ResNet-20 for images of 32 × 32.

    >>> import regard, torch
    >>> model = regard.ResNet((1, 1), classes=10, width=8, stem="cifar")
    >>> model(torch.randn(2, 3, 32, 32)).shape  # (batch, channels, height, width) → (batch, classes)
    torch.Size([2, 10])
    """

    def __init__(
        self,
        depths: Sequence[int],
        classes: int,
        *,
        width: int = 64,
        bottleneck: bool = False,
        stride_first: bool = False,
        stem: str = "imagenet",
        channels: int = 3,
        image_size: int | Sequence[int] | None = None,
        labels: Sequence[str] = (),
        mean: Sequence[float] = (0.5,),
        deviation: Sequence[float] = (0.5,),
    ) -> None:
        super().__init__(locals(), stem=("cifar", "imagenet"))
        if not isinstance(depths, Sequence) or not depths or min(depths) < 1:
            raise ValueError(f"depths: expected how many blocks each stage has, such as (2, 2, 2, 2), got {depths!r}")
        if stride_first and not bottleneck:
            raise ValueError("stride_first: expected bottleneck=True beside it; other blocks have no choice")
        check_sizes(stages=len(depths), layers=sum(depths))
        if image_size is not None:
            check_image_size(image_size)
        wide = stem == "imagenet"
        self.stem = _convolution(channels, width, 7 if wide else 3, 2 if wide else 1)
        self.pool = nn.MaxPool2d(3, 2, padding=1) if wide else nn.Identity()
        stages: list[nn.Module] = []
        inputs = width
        for number, count in enumerate(depths):
            depth = width * 2**number
            for index in range(count):
                stride = 2 if number and not index else 1
                stages.append(Residual(inputs, depth, stride, bottleneck, stride_first))
                inputs = depth * (4 if bottleneck else 1)
        self.blocks = nn.ModuleList(stages)
        self.classifier = nn.Linear(inputs, classes)

    def forward(self, images: Tensor) -> Tensor:
        """images (batch, channels, height, width) → logits (batch, classes)."""
        logits: Tensor = self.classifier(self.encode(images).mean((2, 3)))
        return logits

    def encode(self, images: Tensor) -> Tensor:
        """images → the output of the last block, (batch, depth, height, width)."""
        check_images(images, self.config["channels"], "height", "width")
        # With the channels of a pixel side by side a training step on a CPU takes three quarters of the time. Of one
        # channel PyTorch cannot tell the order, so it is chosen once more behind the stem.
        images = self.pool(functional.relu(self.stem(_channels_last(images))))
        images = _channels_last(images)
        for block in self.blocks:
            images = block(images)
        return images
