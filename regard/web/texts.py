"""The parts *Heads*, *Translate*, *Write* and *Your models*: a text, what comes of it, and what a model attends to."""

from __future__ import annotations

import math
from typing import Any

from regard.models.alignment import align
from regard.models.translator import Translator
from regard.view.attention import AttentionDisplay
from regard.view.heads import find_heads
from regard.view.page import Scores, describe, packed
from regard.view.page import inside as describe_inside
from regard.view.reading import prepare, read
from regard.web.model_store import Kept, ModelStore
from regard.web.params import Params

__all__ = ["answer", "inside", "weights"]

SHORTEST = 13  # tokens for which `find_heads` repeats some
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
    described = describe(display.maps, LEVELS)
    _complete(store, name, text, described["scores"])
    return {**result, **described, "display": number}


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


def _read(store: ModelStore, name: str, text: str, target: str | None, **chosen: Any) -> AttentionDisplay:
    return read(store.model(name), text, target, tokenizer=store.tokenizer(name), **chosen)


def _complete(store: ModelStore, name: str, text: str, scores: Scores) -> None:
    """Where a text repeats no token, what its heads do with repeated ones comes from `find_heads`, once for a model."""
    if store.kind(name) != "language" or any(value is not None for layer in scores["induction"] for value in layer):
        return
    if name not in store.scores:
        ids = prepare(store.model(name), text, tokenizer=store.tokenizer(name)).inputs[0]
        if ids.shape[1] < SHORTEST:
            return
        found = find_heads(store.model(name), ids).heads
        for score in ("duplicate_token", "induction"):
            values: list[list[float | None]] = [[] for _ in scores["induction"]]
            for head in found:
                values[head.layer].append(None if math.isnan(head.scores[score]) else head.scores[score])
            store.scores.setdefault(name, {})[score.replace("_", " ")] = values
    scores.update(store.scores[name])


def _chosen(store: ModelStore, params: Params) -> tuple[Any, int, Kept]:
    """The layer, the index of the head in it, and the text that it is from."""
    kept = store.display(params.integer("display", 0, 10**9))
    layer = kept.display.maps[params.integer("layer", 0, len(kept.display.maps) - 1)]
    return layer, params.integer("head", 0, len(layer.heads) - 1), kept
