"""What a model of regard's attends to in what it is given, be that a text or a picture; and the same for JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.models.classifier import ImageClassifier
from regard.models.model import Model
from regard.view.attention import AttentionDisplay
from regard.view.images import ImageAttentionDisplay
from regard.view.reading import read

__all__ = ["as_record", "look"]

PICTURES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")


def look(model: Model, given: str) -> AttentionDisplay | ImageAttentionDisplay:
    """A display of the model's attention. given: a text; for a classifier of images, the path of a picture."""
    path, name = Path(given), type(model).__name__
    if isinstance(model, ImageClassifier):
        if not path.exists():
            raise ValueError(f"a {name} reads pictures: expected the path of one, got {given!r}")
        return ImageAttentionDisplay.from_model(model, path)
    if path.suffix.lower() in PICTURES and path.is_file():
        raise ValueError(f"a {name} reads text, and {given} is a picture")
    return read(model, given)


def as_record(
    display: AttentionDisplay | ImageAttentionDisplay, layer: int | None = None, head: int | None = None
) -> dict[str, Any]:
    """A display as a dictionary for JSON: all layers of a text or one of them; of a picture one map."""
    if isinstance(display, ImageAttentionDisplay):
        heatmap = display.place(layer, head).tolist()
        return {"label": display.label, "probability": display.chance, "kind": display.kind, "heatmap": heatmap}
    layers = [
        {
            "layer": attention.look.layer,
            "name": attention.look.name,
            "kind": attention.look.kind,
            "queries": attention.rows,
            "keys": attention.columns,
            "weights": dict(zip(map(str, attention.look.heads), attention.weights.tolist(), strict=True)),
        }
        for attention in display.maps
        if layer in (None, attention.look.layer)
    ]
    return {"layers": layers}
