"""The residual network: convolutions of neighbours, with shortcuts around them (He et al. 2015).

    stem → stages of blocks, each stage half as high and wide and twice as deep as the one before → mean → logits

It stands beside the ViT: the same task, without attention.
Shapes: images (batch, channels, height, width) · logits (batch, classes).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.arguments import check_sizes
from regard.models.classifier import ImageClassifier, check_image_size, check_images


def _convolution(inputs: int, outputs: int, width: int, stride: int = 1) -> nn.Sequential:
    """A convolution that keeps height and width (divided by the stride), and batch norm."""
    net = nn.Conv2d(inputs, outputs, width, stride, padding=width // 2, bias=False)
    nn.init.kaiming_normal_(net.weight, mode="fan_out", nonlinearity="relu")
    return nn.Sequential(net, nn.BatchNorm2d(outputs))


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
