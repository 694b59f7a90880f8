"""The part *Write*: what may come next, what each head adds to it, and what changes without some of the heads."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.models.model import evaluation
from regard.view.attribution import Attribution
from regard.view.intervene import intervene
from regard.view.prediction import logits_of
from regard.view.reading import Reading, prepare, token_names, tokenizer_of
from regard.web.model_store import Kept, ModelStore
from regard.web.params import Params

__all__ = ["contributions", "next_tokens"]

SHOWN, MOST = 10, 12  # tokens: the likeliest of one answer; of the answers before and after a cut
MAX_CUT = 4_096  # heads


def next_tokens(store: ModelStore, params: Params) -> dict[str, Any]:
    """The likeliest next tokens with their probabilities, at a temperature and among the top k: of the model as it is,
    and where heads are cut, without them."""
    kept, cut = store.display(params.integer("display", 0, 10**9)), _cut(params)
    temperature, top_k = params.number("temperature", 0.05, 10, 1.0), params.integer("top_k", 0, 10**6, 0)
    before, after = (_probabilities(_logits(store, kept, heads), temperature, top_k) for heads in (frozenset(), cut))
    best = [distribution.topk(min(SHOWN, len(distribution))).indices.tolist() for distribution in (before, after)]
    larger = torch.maximum(before, after)
    tokens = sorted(dict.fromkeys(best[0] + best[1]), key=lambda token: -float(larger[token]))[:MOST]
    tokenizer = tokenizer_of(store.model(kept.model), store.tokenizer(kept.model))
    change = float((after * (after.clamp(min=1e-12) / before.clamp(min=1e-12)).log()).sum())
    rows = [
        {"id": token, "word": word, "before": float(before[token])} | ({"after": float(after[token])} if cut else {})
        for token, word in zip(tokens, token_names(tokenizer, tokens), strict=True)
    ]
    return {"tokens": rows, "change": change if cut else None}


def contributions(store: ModelStore, params: Params) -> dict[str, Any]:
    """What each head adds to the logit of a token directly: its output through the output projection, the last norm,
    whose scale is taken as it is, and the output layer. By layer and head, as the display has them."""
    kept = store.display(params.integer("display", 0, 10**9))
    reading, token = _reading(store, kept), params.integer("token", 0, 10**7)
    found = Attribution.from_model(reading.model, reading.inputs[0], method="direct_logits", target=token)
    by_label = dict(zip(found.labels[0], found.scores[0].tolist(), strict=True))
    layers = [[by_label.pop(f"{layer.layer}.{head}", None) for head in layer.heads] for layer in kept.display.maps]
    return {"layers": layers, "others": sum(by_label.values())}


def _cut(params: Params) -> frozenset[tuple[int, int]]:
    """The heads that are cut, as numbers of their layer and of their own."""
    pairs = params.table("cut", (0, MAX_CUT), (2, 2)) if params.fields.get("cut") else []
    return frozenset((int(layer), int(head)) for layer, head in pairs)


def _reading(store: ModelStore, kept: Kept) -> Reading:
    if store.kind(kept.model) != "language":
        raise ValueError(f"model: {kept.model} predicts no next word")
    return prepare(store.model(kept.model), kept.text, tokenizer=store.tokenizer(kept.model))


def _logits(store: ModelStore, kept: Kept, cut: frozenset[tuple[int, int]]) -> Tensor:
    """Of the next token, (vocabulary,), without the heads that are cut."""
    if cut not in kept.logits:
        reading = _reading(store, kept)
        with torch.inference_mode(), evaluation(reading.model), intervene(reading.model) as edit:
            for layer, head in cut:
                edit.ablate(layers=[layer], heads=[head])
            kept.logits[cut] = logits_of(reading.run())[0, -1].float().cpu()
    return kept.logits[cut]


def _probabilities(logits: Tensor, temperature: float, top_k: int) -> Tensor:
    if 0 < top_k < len(logits):
        logits = torch.where(logits >= logits.topk(top_k).values[-1], logits, -torch.inf)
    return (logits / temperature).softmax(-1)
