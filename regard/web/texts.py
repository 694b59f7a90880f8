"""The tabs *Translate*, *Language* and *Model*: a text, what a model makes of it, and what it looks at meanwhile."""

from __future__ import annotations

from typing import Any

import torch

from regard.attention import masked_softmax
from regard.models.alignment import align
from regard.models.language_model import LanguageModel
from regard.models.model import evaluation
from regard.models.texts import encode
from regard.models.translator import Translator
from regard.view.attention import AttentionDisplay
from regard.view.page import packed
from regard.view.reading import read
from regard.web.model_store import Shelf
from regard.web.params import Asked

__all__ = ["LEVELS", "answer", "weights"]

LONGEST = 20_000  # characters
LEVELS = 255
NEXT = 12  # words


def answer(shelf: Shelf, asked: Asked) -> dict[str, Any]:
    """What a model makes of a text, and the layers whose weights can be asked for."""
    name, text = asked.text("model", 1_000), asked.text("text", LONGEST)
    model = shelf.model(name)
    found: dict[str, Any] = {"model": name}
    if isinstance(model, Translator):
        found["translation"] = model.translate(text)
        display = read(model, text, found["translation"])
        if getattr(model, "score", True) is not None and found["translation"]:
            (own,) = align(model, [text], [found["translation"]])
            found["alignment"] = {"source": own.source, "target": own.target, "weights": own.weights.tolist()}
    else:
        display = read(model, text)
    if isinstance(model, LanguageModel):
        found["next"] = _next(model, text)
    return {**found, **_layers(display), "display": shelf.keep(display)}


def weights(shelf: Shelf, asked: Asked) -> bytes:
    """The weights of one head, packed."""
    display = shelf.display(asked.whole("display", 0, 10**9))
    layer = asked.whole("layer", 0, len(display.maps) - 1)
    head = asked.whole("head", 0, len(display.maps[layer].weights) - 1)
    return packed(display.maps[layer].weights[head], LEVELS)


def _layers(display: AttentionDisplay) -> dict[str, Any]:
    layers = [
        {
            "number": own.look.layer,
            "name": own.look.name,
            "kind": own.look.kind,
            "heads": list(own.look.heads),
            "rows": own.rows,
            "columns": own.columns,
        }
        for own in display.maps
    ]
    return {"levels": LEVELS, "layers": layers}


def _next(model: LanguageModel, text: str) -> list[dict[str, Any]]:
    """The likeliest next words."""
    tokenizer = model.need_tokenizer()
    (ids,) = encode(tokenizer, [text], model.config["max_positions"])
    with torch.inference_mode(), evaluation(model):
        chances = masked_softmax(model(torch.tensor([ids]))[0, -1:])[0]
    best = chances.topk(min(NEXT, len(chances)))
    return [
        {"word": tokenizer.decode([number], skip_special_tokens=False), "probability": chance}
        for number, chance in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
