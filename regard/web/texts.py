"""The parts *Heads*, *Translate*, *Write* and *Your models*: a text, what a model makes of it, and what it attends to."""

from __future__ import annotations

from typing import Any

from regard.models.alignment import align
from regard.models.translator import Translator
from regard.view.inside import inside as describe_inside
from regard.view.page import describe, packed
from regard.view.reading import read
from regard.web.model_store import Kept, ModelStore
from regard.web.params import Params

__all__ = ["answer", "inside", "weights"]

MAX_LENGTH = 20_000  # characters
LEVELS = 255  # of a weight, when it is sent


def answer(store: ModelStore, params: Params) -> dict[str, Any]:
    """What a model makes of a text, and the layers whose weights can be fetched."""
    name, text = params.text("model", 1_000), params.text("text", MAX_LENGTH)
    model = store.model(name)
    result: dict[str, Any] = {"model": name}
    translation = None
    if isinstance(model, Translator):
        translation = result["translation"] = model.translate(text)
        if getattr(model, "score", True) is not None and translation:
            (alignment,) = align(model, [text], [translation])
            result["alignment"] = {
                "source": alignment.source,
                "target": alignment.target,
                "weights": alignment.weights.tolist(),
            }
    display = _read(store, name, text, translation)
    number = store.keep(Kept(name, text, translation, display))
    return {**result, **describe(display.maps, LEVELS), "display": number}


def weights(store: ModelStore, params: Params) -> bytes:
    """The weights of one head, packed."""
    layer, head, _ = _chosen(store, params)
    return packed(layer.weights[0, head], LEVELS)


def inside(store: ModelStore, params: Params) -> dict[str, Any] | None:
    """The operands of one head, for which the text is read again."""
    layer, head, kept = _chosen(store, params)
    row, key = params.integer("row", 0, len(layer.tokens)), params.integer("key", 0, len(layer.key_tokens))
    chosen: Any = {"layers": [layer.layer], "heads": [layer.heads[head]], "operands": True}
    (again,) = _read(store, kept.model, kept.text, kept.target, **chosen).maps
    return describe_inside(again, 0, row, key)


def _read(store: ModelStore, name: str, text: str, target: str | None, **chosen: Any) -> Any:
    return read(store.model(name), text, target, **chosen)


def _chosen(store: ModelStore, params: Params) -> tuple[Any, int, Kept]:
    """The layer, the index of the head in it, and the text that it is from."""
    kept = store.display(params.integer("display", 0, 10**9))
    layer = kept.display.maps[params.integer("layer", 0, len(kept.display.maps) - 1)]
    return layer, params.integer("head", 0, len(layer.heads) - 1), kept
