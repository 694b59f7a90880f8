"""The tab *Image*: a picture, its class, and where a model looks for that."""

from __future__ import annotations

import base64
import binascii
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.data.image_files import ImageError
from regard.data.images import digits
from regard.models.classifier import ImageClassifier
from regard.view.images import ImageAttentionDisplay
from regard.web.model_store import ModelStore
from regard.web.params import Params

__all__ = ["answer", "examples"]

MAX_LENGTH = 7_000_000  # characters of base64


def answer(store: ModelStore, params: Params) -> dict[str, Any]:
    """The class of a picture, and how much a model attends to each place: through all layers, by layer, by head."""
    name = params.text("model", 1_000)
    model = store.model(name)
    if not isinstance(model, ImageClassifier):
        raise ValueError(f"model: {name} reads no pictures")
    picture = _decode(model, params.text("picture", MAX_LENGTH))
    display = ImageAttentionDisplay.from_model(model, picture)
    heads = [
        [display.heatmap(number, head).tolist() for head in range(len(layer.heads))]
        for number, layer in enumerate(display.maps)
    ]
    return {
        "model": name,
        "label": display.label,
        "probability": display.probability,
        "kind": display.kind,
        "picture": _data_url(picture),
        "all_layers": display.heatmap().tolist(),
        "layers": [display.heatmap(number).tolist() for number in range(len(display.maps))],
        "heads": heads,
    }


def examples() -> dict[str, Any]:
    """Pictures to begin with: handwritten digits, one of each."""
    data = digits().train
    first = [int((data.labels == digit).nonzero()[0]) for digit in range(10)]
    return {"pictures": [_data_url(data.pixels[index]) for index in first]}


def _decode(model: ImageClassifier, text: str) -> Tensor:
    """A picture from the page, as the model reads it."""
    try:
        content = base64.b64decode(text.partition("base64,")[2] or text, validate=True)
    except binascii.Error as error:
        raise ValueError("picture: expected a file's content") from error
    with tempfile.NamedTemporaryFile(prefix="regard-") as file:
        file.write(content)
        file.flush()
        try:
            return model.read(Path(file.name))
        except ImageError as error:
            raise ValueError(str(error).replace(file.name, "the picture")) from error


def _data_url(pixels: Tensor) -> str:
    """Pixels (channels, height, width) as an address that holds them."""
    from PIL import Image

    array = pixels.permute(1, 2, 0).numpy()
    file = BytesIO()
    Image.fromarray(array if array.shape[-1] > 1 else array[..., 0]).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
