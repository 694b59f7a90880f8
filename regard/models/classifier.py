"""What all classifiers can do, those of texts and those of images: say which class, and how likely each is.

p_c = softmax_c(logits)
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.arguments import check_count, check_positive, check_size, shape_text
from regard.attention import masked_softmax
from regard.attention.dropout import dropout as apply_dropout
from regard.data.image_files import read_image
from regard.models.model import Model, evaluated
from regard.models.texts import encode_with_warning, group_by_length

TOKENS = 4_096  # at a time
PIXELS = 1 << 20  # at a time
Picture = str | Path | Tensor


class Classifier(Model):
    """A model that may have classes, with names (`labels`) if they were given."""

    def __init__(self, arguments: Mapping[str, Any], **choices: Collection[str]) -> None:
        super().__init__(arguments, **choices)
        labels, classes = self.config["labels"], check_count("classes", self.config["classes"])
        if isinstance(labels, str) or not all(isinstance(label, str) for label in labels):
            raise TypeError(f"labels: expected the names of the classes, got {labels!r}")
        if labels and len(labels) != classes:
            raise ValueError(f"labels: expected {classes} names, one for each class, got {len(labels)}")
        if len(set(labels)) < len(labels):
            raise ValueError("labels: expected different names, got one twice")

    @property
    def labels(self) -> list[Any]:
        """The name of each class: its number, where no names were given."""
        return list(self.config["labels"]) or list(range(self.config["classes"]))

    def best_labels(self, probabilities: Tensor) -> list[Any]:
        """The label of the likeliest class of each row (rows, classes)."""
        labels = self.labels
        return [labels[index] for index in probabilities.argmax(-1).tolist()]


class TextClassifier(Classifier):
    """Classes of texts: subclasses give `pooled`, and `classifier`, a layer, or None without classes."""

    classifier: nn.Linear | None
    dropout: float

    def pooled(self, ids: Tensor, lengths: Tensor | Sequence[int] | None, **options: Any) -> Tensor:
        """One vector for each text, ids (batch, n) → (batch, size)."""
        raise NotImplementedError(f"{type(self).__name__} must define pooled")

    def class_logits(self, ids: Tensor, lengths: Tensor | Sequence[int] | None = None, **options: Any) -> Tensor:
        """Logits (batch, classes) of the class of each text, ids (batch, n); options as those of `forward`."""
        if self.classifier is None:
            raise ValueError(f"this {type(self).__name__} has no head for classes: make it with classes=…")
        vectors = apply_dropout(self.pooled(ids, lengths, **options), self.dropout, self.training)
        logits: Tensor = self.classifier(vectors)
        return logits

    @evaluated
    @torch.inference_mode()
    def probabilities(self, texts: Sequence[str]) -> Tensor:
        """The probability of each class for each text, (texts, classes). Texts too long for the model are cut,
        with a CutWarning."""
        max_length = self.config.get("max_length") or self.config["max_positions"]
        ids = encode_with_warning(self.need_tokenizer(), texts, max_length)
        rows: dict[int, Tensor] = {}
        for chosen, batch, lengths in group_by_length(ids, TOKENS):
            logits = self.class_logits(batch.to(self.device), lengths)
            rows |= dict(zip(chosen, masked_softmax(logits), strict=True))
        return torch.stack([rows[number] for number in range(len(ids))])

    def classify(self, text: str | Sequence[str]) -> Any:
        """The class of a text, or of each of several."""
        if isinstance(text, str):
            return self.classify([text])[0]
        if not isinstance(text, Sequence):
            raise TypeError(f"text: expected a text or several, got {type(text).__name__}")
        return self.best_labels(self.probabilities(text)) if text else []


class ImageClassifier(Classifier):
    """Classes of images: calling the model gives logits. `mean` and `deviation` are those of its training images."""

    def __init__(self, arguments: Mapping[str, Any], **choices: Collection[str]) -> None:
        super().__init__(arguments, **choices)
        check_size("classes", self.config["classes"])
        check_normalization(*(self.config[name] for name in ("mean", "deviation", "channels")))

    def preprocess(self, images: Tensor) -> Tensor:
        """Images of bytes (batch, channels, height, width) as the model expects them: numbers, normalised."""
        mean, deviation = (
            torch.tensor(self.config[name], device=images.device).view(-1, 1, 1) for name in ("mean", "deviation")
        )
        return (images.float() / 255 - mean) / deviation

    @evaluated
    @torch.inference_mode()
    def probabilities(self, images: Tensor | Sequence[Picture]) -> Tensor:
        """The probability of each class for each image, (images, classes)."""
        if isinstance(images, Tensor) and images.dim() == 3:
            images = images[None]
        pictures = [image if isinstance(image, Tensor) else self.read(Path(image)) for image in images]
        rows = [torch.empty(0, self.config["classes"])]
        for batch in _batch_by_size(pictures):
            inputs = batch if batch.is_floating_point() else self.preprocess(batch)
            rows.append(masked_softmax(self(inputs.to(self.device))))
        return torch.cat(rows)

    def classify(self, image: Picture | Sequence[Picture]) -> Any:
        """The class of an image, or of each of several: files, bytes (channels, height, width), or a batch of them."""
        if isinstance(image, str | Path):
            return self.classify([image])[0]
        if isinstance(image, Tensor) and image.dim() == 3:
            return self.classify(image[None])[0]
        return self.best_labels(self.probabilities(image))

    def read(self, path: Path) -> Tensor:
        """A picture from a file, resized if the model reads one size only."""
        size = self.config["image_size"]
        return read_image(path, self.config["channels"], None if size is None else check_image_size(size))


def _batch_by_size(images: Sequence[Tensor]) -> Iterator[Tensor]:
    """Batches of neighbouring images of one size, PIXELS numbers at a time at most."""
    for _, group in groupby(images, key=lambda image: tuple(image.shape)):
        same = list(group)
        count = max(1, PIXELS // max(1, same[0].numel()))
        for start in range(0, len(same), count):
            yield torch.stack(same[start : start + count])


def check_image_size(image_size: object) -> tuple[int, int]:
    """Height and width, from one number or two."""
    sides = [image_size, image_size] if isinstance(image_size, int) else image_size
    if not isinstance(sides, Sequence) or len(sides) != 2:
        raise ValueError(f"image_size: expected a number, or height and width, got {image_size}")
    height, width = (check_size("image_size", side) for side in sides)
    return height, width


def check_images(images: object, channels: int, *sides: int | str, advice: str = "") -> None:
    """A tensor of numbers, as `preprocess` gives them, (batch, channels, height, width); sides may be any number."""
    if not isinstance(images, Tensor) or not images.is_floating_point():
        came = images.dtype if isinstance(images, Tensor) else type(images).__name__
        raise TypeError(f"images: expected a floating-point tensor (batch, channels, height, width), got {came}")
    sizes = zip(images.shape[1:], (channels, *sides), strict=False)
    if images.dim() != 4 or any(isinstance(expected, int) and size != expected for size, expected in sizes):
        expected = ", ".join(map(str, (channels, *sides)))
        raise ValueError(f"images: expected shape (batch, {expected}), got {shape_text(images)}{advice}")


def check_normalization(mean: Sequence[float], deviation: Sequence[float], channels: int) -> None:
    """Mean and deviation of each channel, or of all channels alike."""
    for name, numbers in (("mean", mean), ("deviation", deviation)):
        if not isinstance(numbers, Sequence) or not all(isinstance(number, int | float) for number in numbers):
            raise TypeError(f"{name}: expected numbers in a list, got {numbers!r}")
        if len(numbers) not in (1, channels):
            raise ValueError(f"{name}: expected one number, or one for each of {channels} channels, got {numbers!r}")
    for number in deviation:
        check_positive("deviation", number)


def pool(pooling: str, vectors: Tensor, lengths: Tensor | Sequence[int] | None) -> Tensor:
    """One vector of many, (batch, n, size) → (batch, size)."""
    if pooling == "first":
        return vectors[:, 0]
    n = vectors.shape[1]
    counts = torch.full((vectors.shape[0],), n) if lengths is None else torch.as_tensor(lengths)
    counts = counts.to(vectors.device)[:, None]
    if pooling == "mean":
        return vectors.sum(1) / counts  # there are zeros where there is no token
    padding = torch.arange(n, device=vectors.device) >= counts  # (batch, n)
    return vectors.masked_fill(padding[..., None], -torch.inf).amax(1)
