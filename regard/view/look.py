"""What a model attends to in a text, a translation or a picture: its display, printed and as JSON."""

from __future__ import annotations

import shutil
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, TextIO

from torch import nn

from regard.models.alignment import align
from regard.models.classifier import ImageClassifier
from regard.models.translator import Translator
from regard.view.attention import AlignmentDisplay, AttentionDisplay
from regard.view.images import ImageAttentionDisplay
from regard.view.reading import read

__all__ = ["as_record", "look", "look_at_translation", "print_attention"]

PICTURES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
MARGIN, CELL = 14, 3  # characters of the terminal: for the name of a token in front of a row, and for each weight


def look(model: nn.Module, given: str) -> AttentionDisplay | ImageAttentionDisplay:
    """The attention of a model to a text; of a classifier of images to a picture, given by its path."""
    path, name = Path(given), type(model).__name__
    if isinstance(model, ImageClassifier):
        if not path.exists():
            raise ValueError(f"a {name} reads pictures: expected the path of one, got {given!r}")
        return ImageAttentionDisplay.from_model(model, path)
    if path.suffix.lower() in PICTURES and path.is_file():
        raise ValueError(f"a {name} reads text, and {given} is a picture")
    return read(model, given)


def look_at_translation(model: Translator, source: str, target: str) -> AlignmentDisplay:
    """Which words of a translation attend to which words of its source."""
    (alignment,) = align(model, [source], [target])
    return AlignmentDisplay(alignment)


def print_attention(
    display: AttentionDisplay | ImageAttentionDisplay | AlignmentDisplay,
    layer: int | None = None,
    head: int | None = None,
    *,
    file: TextIO | None = None,
) -> None:
    """Print a display: of a text the last layer, or another one, and the last tokens that the terminal has room for."""
    with redirect_stdout(file or sys.stdout):
        if isinstance(display, AlignmentDisplay):
            display.print()
        elif isinstance(display, ImageAttentionDisplay):
            display.print(layer, head)
        else:
            tokens = max(8, (shutil.get_terminal_size().columns - MARGIN) // CELL)
            display.print(-1 if layer is None else layer, head, last=tokens)


def as_record(
    display: AttentionDisplay | ImageAttentionDisplay, layer: int | None = None, head: int | None = None
) -> dict[str, Any]:
    """A display as a dictionary for JSON: all layers of a text or one of them; of a picture one heat map."""
    if isinstance(display, ImageAttentionDisplay):
        heatmap = display.heatmap(layer, head).tolist()
        return {"label": display.label, "probability": display.probability, "kind": display.kind, "heatmap": heatmap}
    layers = [
        {
            **attention.to_dict(),
            "weights": dict(zip(map(str, attention.heads), attention.weights[0].tolist(), strict=True)),
        }
        for attention in display.maps
        if layer in (None, attention.layer)
    ]
    return {"layers": layers}
