"""The tabs *Translate*, *Language* and *Model*: a text, what a model makes of it, and what it attends to meanwhile."""

from __future__ import annotations

from typing import Any

import torch

from regard.attention import masked_softmax
from regard.models.alignment import align
from regard.models.language_model import LanguageModel
from regard.models.model import evaluation
from regard.models.texts import encode
from regard.models.translator import Translator
from regard.view.page import packed
from regard.view.reading import read
from regard.web.model_store import ModelStore
from regard.web.params import Params

__all__ = ["answer", "weights"]

MAX_LENGTH = 20_000  # characters
LEVELS = 255  # of a weight, when it is sent
NEXT = 12  # tokens that may follow


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
    if isinstance(model, LanguageModel):
        result["next"] = _next_tokens(model, text)
    display = read(model, text, translation)
    layers = [layer.to_dict() for layer in display.maps]
    return {**result, "levels": LEVELS, "layers": layers, "display": store.add_display(display)}


def weights(store: ModelStore, params: Params) -> bytes:
    """The weights of one head, packed."""
    maps = store.display(params.integer("display", 0, 10**9)).maps
    layer = maps[params.integer("layer", 0, len(maps) - 1)]
    return packed(layer.weights[0, params.integer("head", 0, len(layer.heads) - 1)], LEVELS)


def _next_tokens(model: LanguageModel, text: str) -> list[dict[str, Any]]:
    """The likeliest next tokens."""
    tokenizer = model.need_tokenizer()
    (ids,) = encode(tokenizer, [text], model.config["max_positions"])
    with torch.inference_mode(), evaluation(model):
        probabilities = masked_softmax(model(torch.tensor([ids]))[0, -1:])[0]  # (vocabulary,)
    best = probabilities.topk(min(NEXT, len(probabilities)))
    return [
        {"word": tokenizer.decode([token], skip_special_tokens=False), "probability": probability}
        for token, probability in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
