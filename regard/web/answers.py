"""What the page asks for, part by part: a function of the models and of the request's fields for each question."""

from __future__ import annotations

import base64
import binascii
import math
import tempfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from regard import attention
from regard.attention import Additive, Cosine, Dot, Kernel, Mask, attend, causal, keep, masked_softmax
from regard.attention.kernels import KERNELS
from regard.data.image_files import ImageError
from regard.data.images import digits
from regard.kernel import KernelRegressor
from regard.models.classifier import ImageClassifier
from regard.models.model import evaluation
from regard.models.translator import Translator, align
from regard.view import page
from regard.view.attribution import Attribution
from regard.view.heads import find_heads
from regard.view.images import ImageAttentionDisplay
from regard.view.intervene import intervene
from regard.view.prediction import logits_of
from regard.view.reading import Reading, prepare, read, token_names, tokenizer_of
from regard.web.guard import Params
from regard.web.model_store import CUTS, Kept, ModelStore

SHORTEST = 13  # tokens for which `find_heads` repeats some
TEXT_LENGTH, PICTURE_LENGTH = 20_000, 7_000_000  # characters of a text; of a picture in base64
LEVELS = 255  # of a weight, when it is sent
SHOWN, MOST = 10, 12  # tokens: the likeliest of one answer; of the answers before and after a cut
MAX_CUT = 4_096  # heads
ROWS, SIZE = (1, 12), (1, 8)  # of the queries, keys and values of the formula
SCORES = ("dot", "scaled dot", "cosine", "additive", "gaussian")
MASKS = ("none", "causal", "lengths")
SAMPLES = (2, 2_000)  # of a curve
POINTS, CELLS = 200, 64  # of the curve; of the weight map, a side
DIGITS = 6  # of its weights, which are only looked at: all of their digits would be half of what is sent
RULES = ("number", "loo", "gradient", "silverman")

# ---------------------------------------------------------------------------------------------------------------- texts


def text(store: ModelStore, params: Params) -> dict[str, Any]:
    """What a model makes of a text, and the layers whose weights can be fetched."""
    name, given = params.text("model", 1_000), params.text("text", TEXT_LENGTH)
    model = store.model(name)
    result: dict[str, Any] = {"model": name}
    translation = None
    if isinstance(model, Translator):
        translation = result["translation"] = model.translate(given)
        if getattr(model, "score", True) is not None and translation:
            (alignment,) = align(model, [given], [translation])
            result["alignment"] = {
                "source": alignment.source,
                "target": alignment.target,
                "weights": alignment.weights.tolist(),
            }
    display = read(model, given, translation, tokenizer=store.tokenizer(name))
    number = store.keep(Kept(name, given, translation, display))
    described = page.describe(display.maps, LEVELS)
    _complete(store, name, given, described["scores"])
    return {**result, **described, "display": number}


def weights(store: ModelStore, params: Params) -> bytes:
    """The weights of one head, packed."""
    layer, head, _ = _chosen(store, params)
    return page.packed(layer.weights[0, head], LEVELS)


def inside(store: ModelStore, params: Params) -> dict[str, Any] | None:
    """The operands of one head, for which the text is read again."""
    layer, head, kept = _chosen(store, params)
    row, key = params.integer("row", 0, len(layer.tokens)), params.integer("key", 0, len(layer.key_tokens))
    chosen: Any = {"layers": [layer.layer], "heads": [layer.heads[head]], "operands": True}
    model, tokenizer = store.model(kept.model), store.tokenizer(kept.model)
    (again,) = read(model, kept.text, kept.target, tokenizer=tokenizer, **chosen).maps
    return page.inside(again, 0, row, key)


def _complete(store: ModelStore, name: str, text: str, scores: page.Scores) -> None:
    """Where a text repeats no token, what its heads do with repeated ones comes from `find_heads`, once for a model."""
    if store.kind(name) != "language" or any(value is not None for layer in scores["induction"] for value in layer):
        return
    if name not in store.scores:
        ids = prepare(store.model(name), text, tokenizer=store.tokenizer(name)).inputs[0]
        if ids.shape[1] < SHORTEST:
            return
        scored = find_heads(store.model(name), ids).heads
        for score in ("duplicate_token", "induction"):
            values: list[list[float | None]] = [[] for _ in scores["induction"]]
            for head in scored:
                values[head.layer].append(None if math.isnan(head.scores[score]) else head.scores[score])
            store.scores.setdefault(name, {})[score.replace("_", " ")] = values
    scores.update(store.scores[name])


def _chosen(store: ModelStore, params: Params) -> tuple[Any, int, Kept]:
    """The layer, the index of the head in it, and the text that it is from."""
    kept = store.display(params.integer("display", 0, 10**9))
    layer = kept.display.maps[params.integer("layer", 0, len(kept.display.maps) - 1)]
    return layer, params.integer("head", 0, len(layer.heads) - 1), kept


# --------------------------------------------------------------------------------------------------- what may come next


def next_tokens(store: ModelStore, params: Params) -> dict[str, Any]:
    """The likeliest next tokens with their probabilities, at a temperature and among the top k: of the model as it is,
    and where heads are cut, without them."""
    kept = store.display(params.integer("display", 0, 10**9))
    pairs = params.table("cut", (0, MAX_CUT), (2, 2)) if params.fields.get("cut") else []
    cut = frozenset((int(layer), int(head)) for layer, head in pairs)  # numbers of layers and of their heads
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
    attribution = Attribution.from_model(reading.model, reading.inputs[0], method="direct_logits", target=token)
    by_label = dict(zip(attribution.labels[0], attribution.scores[0].tolist(), strict=True))
    layers = [[by_label.pop(f"{layer.layer}.{head}", None) for head in layer.heads] for layer in kept.display.maps]
    return {"layers": layers, "others": sum(by_label.values())}


def _reading(store: ModelStore, kept: Kept) -> Reading:
    if store.kind(kept.model) != "language":
        raise ValueError(f"model: {kept.model} predicts no next word")
    return prepare(store.model(kept.model), kept.text, tokenizer=store.tokenizer(kept.model))


def _logits(store: ModelStore, kept: Kept, cut: frozenset[tuple[int, int]]) -> Tensor:
    """Of the next token, (vocabulary,), without the heads that are cut."""
    if cut not in kept.logits:
        if len(kept.logits) >= CUTS:
            kept.logits.clear()
        reading = _reading(store, kept)
        with torch.inference_mode(), evaluation(reading.model), intervene(reading.model) as edit:
            for layer, head in cut:
                edit.ablate(layers=[layer], heads=[head])
            kept.logits[cut] = logits_of(reading.run())[0, -1].float().cpu()
    return kept.logits[cut]


def _probabilities(logits: Tensor, temperature: float, top_k: int) -> Tensor:
    kept = logits >= logits.topk(min(top_k or len(logits), len(logits))).values[-1]
    return masked_softmax(logits[None] / temperature, keep(kept[None]))[0]


# ------------------------------------------------------------------------------------------------------------- pictures


def picture(store: ModelStore, params: Params) -> dict[str, Any]:
    """The class of a picture, and how much a model attends to each place: through all layers, by layer, by head."""
    name = params.text("model", 1_000)
    model = store.model(name)
    if not isinstance(model, ImageClassifier):
        raise ValueError(f"model: {name} reads no pictures")
    pixels = _decode(model, params.text("picture", PICTURE_LENGTH))
    display = ImageAttentionDisplay.from_model(model, pixels)
    heads = [
        [display.heatmap(number, head).tolist() for head in range(len(layer.heads))]
        for number, layer in enumerate(display.maps)
    ]
    return {
        "model": name,
        "label": display.label,
        "probability": display.probability,
        "kind": display.kind,
        "picture": _data_url(pixels),
        "all_layers": display.heatmap().tolist(),
        "layers": [display.heatmap(number).tolist() for number in range(len(display.maps))],
        "heads": heads,
    }


def examples(store: ModelStore, params: Params) -> dict[str, Any]:
    """Pictures to begin with: handwritten digits, one of each."""
    pixels, labels = digits()
    first = [int((labels == digit).nonzero()[0]) for digit in range(10)]
    return {"pictures": [_data_url(pixels[index]) for index in first]}


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


# ------------------------------------------------------------------------------------------------------- formula, curve


def formula(store: ModelStore, params: Params) -> dict[str, Any]:
    """Scores, which of them the mask leaves, weights and output, as `regard.attend` computes them."""
    query, key, value = (torch.tensor(params.table(name, ROWS, SIZE), dtype=torch.float64) for name in "qkv")
    if query.shape[1] != key.shape[1]:
        raise ValueError(f"k: expected as many numbers in a row as queries have, {query.shape[1]}, got {key.shape[1]}")
    if len(key) != len(value):
        raise ValueError(f"v: expected a value for each of {len(key)} keys, got {len(value)}")
    score = _score(params, query.shape[1])
    mask, visible = _mask(params, len(query), len(key))
    with torch.no_grad():
        return {
            "scores": score(query, key).tolist(),
            "visible": visible.tolist(),
            "weights": attention.weights(query, key, score=score, mask=mask).tolist(),
            "output": attend(query, key, value, score=score, mask=mask).tolist(),
        }


def _score(params: Params, size: int) -> nn.Module:
    kind = params.choice("score", SCORES, "scaled dot")
    temperature = params.number("temperature", 0.01, 100, 1)
    if kind == "cosine":
        return Cosine(temperature)
    if kind == "gaussian":
        return Kernel("gaussian", temperature)
    if kind == "additive":
        # W_q and W_k are the identity and w_v is all ones: tanh(q + k), added up.
        score = Additive(size, size, size).double()
        with torch.no_grad():
            score.query_weight.copy_(torch.eye(size))
            score.key_weight.copy_(torch.eye(size))
            score.value_weight.fill_(1 / temperature)
        return score
    return Dot((1.0 if kind == "dot" else size**-0.5) / temperature)


def _mask(params: Params, n: int, m: int) -> tuple[Mask | None, Tensor]:
    """The mask, and which pairs of queries and keys it leaves, (n, m)."""
    kind = params.choice("mask", MASKS, "none")
    pairs = torch.ones(n, m, dtype=torch.bool)
    if kind == "causal":
        return causal(align="start"), pairs.tril()
    if kind == "lengths":
        valid = torch.arange(m) < params.integer("length", 0, m, m)  # (m,)
        return keep(valid[None]), valid.expand(n, m)
    return None, pairs


def curve(store: ModelStore, params: Params) -> dict[str, Any]:
    """Curve, window, weight map and errors for samples (x, y)."""
    samples = numpy.array(params.table("samples", SAMPLES, (2, 2)))
    kernel = params.choice("kernel", sorted(KERNELS))
    rule = params.choice("bandwidth_by", RULES, "number")
    bandwidth: Any = params.number("bandwidth", 1e-4, 1e4) if rule == "number" else rule
    x, y = samples[:, :1], samples[:, 1]
    model = KernelRegressor(kernel, bandwidth, empty="mean").fit(x, y)
    points, queries = (numpy.linspace(float(x.min()), float(x.max()), count)[:, None] for count in (POINTS, CELLS))
    window = model.window(points)
    order = numpy.argsort(x[:, 0], kind="stable")
    keys = order[numpy.unique(numpy.linspace(0, len(order) - 1, min(len(order), CELLS)).astype(int))]
    weights = model.weights(queries)[:, keys]  # (queries, keys)
    return {
        "bandwidth": float(model.bandwidth_[0]),
        "x": points[:, 0].tolist(),
        "y": model.predict(points).tolist(),
        "low": window.low.tolist(),
        "high": window.high.tolist(),
        "effective": window.effective.tolist(),
        "weights": numpy.nan_to_num(weights).round(DIGITS).tolist(),
        "keys": x[keys, 0].tolist(),
        "queries": queries[:, 0].tolist(),
        "error": float(numpy.mean((model.predict(x) - y) ** 2)),
        "loo_error": float(model.loo_error_),
    }


ANSWERS: dict[str, Callable[[ModelStore, Params], Any]] = {
    "curve": curve,
    "formula": formula,
    "text": text,
    "weights": weights,
    "inside": inside,
    "next": next_tokens,
    "contributions": contributions,
    "models": lambda store, params: {"models": store.list_models()},
    "picture": picture,
    "examples": examples,
}
