"""Attention maps as a page of one file: every layer, every head, every token; nothing is loaded from elsewhere.

Weights are stored as square roots in a number of levels, each head compressed by itself, so that a browser unpacks only
what is on display; a small picture of every head, in which the largest weights of the whole stay, comes with them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import zlib
from collections.abc import Sequence
from html import escape
from importlib import resources
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from regard.attention.capture import AttentionMap
from regard.view.heads import SCORES, Pairs, scores_of

Scores = dict[str, list[list[float | None]]]  # by name, of the heads of each layer; None where a score does not apply
# Steps between 0 and 1, and how many weights of a row are kept (0: all); the first that is small enough, or the last.
LEVELS = ((255, 0), (63, 0), (15, 0), (15, 24), (15, 8))
LIMIT = 5_000_000  # bytes of weights; with what else is on it, a page has less than six million
SIDE = 48  # cells of a small picture
ROOM = 48  # tokens on a side of what is shown of a head's operands
EXACT = 1e-3  # a difference of scores that comes from rounding
TELLING = ("induction", "previous token", "duplicate token", "alignment")  # what a head does, not that it does little
# In an order in which each file finds what it imports.
SCRIPTS = ("dom", "words", "colours", "source", "grid", "strips", "heat", "inside", "panel", "view")


def html(title: str, maps: Sequence[AttentionMap], other: Sequence[AttentionMap] = (), *, limit: int = LIMIT) -> str:
    """The page, of maps with a batch of one. Its policy allows the script and the style in it, and nothing else.

    other: maps of another run, to compare with
    limit: bytes that the weights may take, as long as there are coarser levels
    """
    code, look = script("view_js.showPage(document);"), style(":root")
    digests = [_text(hashlib.sha256(part.encode()).digest()) for part in (code, look)]
    allowed = "script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data: blob:".format(*digests)
    policy = f"default-src 'none'; {allowed}; base-uri 'none'"
    data = json.dumps(content(maps, other, limit=limit), ensure_ascii=False).replace("<", "\\u003c")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{look}</style></head>\n"
        f'<body class="rv-page"><header><h1>{escape(title)}</h1></header><main id="view"></main>\n'
        f'<script type="application/json" id="data">{data}</script>\n'  # it cannot end the element it is in
        f'<script type="module">{code}</script></body></html>\n'
    )


def content(maps: Sequence[AttentionMap], other: Sequence[AttentionMap] = (), *, limit: int = LIMIT) -> dict[str, Any]:
    """All that a view without a server shows, as JSON."""
    heads = [head for layer in (*maps, *other) for head in layer.weights[0]]
    for levels, kept in LEVELS:
        # Every eleventh head tells whether all of them fit.
        sample = heads[:: max(1, min(11, len(heads) // 8))]
        size = sum(len(packed(head, levels, kept)) for head in sample) / max(1, len(sample)) * len(heads) * 4 / 3
        if size <= limit:
            break
    runs = [_run(run, levels, kept) for run in (maps, other) if run]
    return runs[0] if not other else {**runs[0], "other": runs[1]}


def _run(maps: Sequence[AttentionMap], levels: int, kept: int) -> dict[str, Any]:
    data = describe(maps, levels)
    for layer, described in zip(maps, data["layers"], strict=True):
        described["weights"] = [_text(packed(head, levels, kept)) for head in layer.weights[0]]
    index, head = data["opens"]
    known = inside(maps[index], head)
    return {**data, "kept": kept, "inside": [{"layer": index, "head": head, **known}] if known else []}


def describe(maps: Sequence[AttentionMap], levels: int) -> dict[str, Any]:
    """What a view has to know at once: the layers, small pictures and scores of their heads, and which one to open."""
    scores = head_scores(maps)
    layers = []
    for layer in maps:
        small = pooled(layer.weights[0])
        known = {**layer.to_dict(), "sink": layer.sink is not None}
        layers.append({**known, "small": _text(packed(small, levels)), "side": list(small.shape[1:])})
    return {"levels": levels, "layers": layers, "scores": scores, "opens": most_telling(scores)}


def pooled(weights: Tensor, side: int = SIDE) -> Tensor:
    """Weights (heads, n, m) in at most side × side cells, each the largest of those it stands for by its size."""
    n, m = (min(count, side) for count in weights.shape[1:])
    if (n, m) == weights.shape[1:]:
        return weights
    high, low = (functional.adaptive_max_pool2d(part[None], (n, m))[0] for part in (weights, -weights))
    return torch.where(high >= low, high, -low)


def packed(weights: Tensor, levels: int, kept: int = 0) -> bytes:
    """Weights from 0 to 1: round(√w · levels), a byte each, deflated. kept: the largest weights of a row; 0: all."""
    if 0 < kept < weights.shape[-1]:
        weights = torch.where(weights >= weights.topk(kept).values[..., -1:], weights, 0.0)
    steps = (weights.clamp(0, 1).sqrt() * levels).round().to(torch.uint8)
    deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
    return deflate.compress(steps.contiguous().numpy().tobytes()) + deflate.flush()


def script(last: str) -> str:
    """The view's modules as one script, each in a function that returns what it exports, and a last statement: a page
    of one file cannot import."""
    modules = []
    for name in SCRIPTS:
        code = re.sub(r'^import ({.*?}) from "\./(\w+)\.js";', r"const \1 = \2_js;", static(f"{name}.js"), flags=re.M)
        names = ", ".join(re.findall(r"^export (?:async )?(?:const|function) (\w+)", code, re.M))
        code = re.sub(r"^export ", "", code, flags=re.M)
        modules.append(f"const {name}_js = (() => {{\n{code}return {{ {names} }};\n}})();\n")
    return "".join(modules) + last


def widget(data: dict[str, Any]) -> Any:
    """The view as a widget for notebooks (JupyterLab, VS Code, Colab, marimo), of what `content` makes: nothing is
    fetched. Its `state` is what the reader has chosen."""
    import anywidget
    import traitlets

    class AttentionWidget(anywidget.AnyWidget):
        _esm, _css = script(static("widget.js")), style(".regard-view")
        data: Any = traitlets.Dict().tag(sync=True)
        state: Any = traitlets.Dict().tag(sync=True)

    return AttentionWidget(data=data)


def style(root: str) -> str:
    """The view's style; its colours are set on `root`."""
    return static("chart.css").replace(":root", root) + static("view.css")


def static(name: str) -> str:
    """A file that pages are made of."""
    return resources.files("regard.view").joinpath("static", name).read_text("utf-8")


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


# ------------------------------------------------------------------------------------------------------------ one head


def inside(layer: AttentionMap, head: int, row: int = 0, key: int = 0) -> dict[str, Any] | None:
    """The operands of a head, by its index, as JSON: of ROOM queries from `row` on and ROOM keys from `key` on.
    None where they were not captured."""
    operands = [getattr(layer, name, None) for name in ("query", "key", "value", "output")]
    if any(operand is None for operand in operands):
        return None
    query, keys, value, output = (operand[0, head].float() for operand in operands if operand is not None)
    weights = layer.weights[0, head]
    scale, is_exact = _scale(query @ keys.T, weights, query.shape[-1] ** -0.5)
    rows, columns = slice(row, row + ROOM), slice(key, key + ROOM)
    parts = {"query": query[rows], "key": keys[columns], "value": value[columns], "output": output[rows]}
    shown = {**parts, "weights": weights[rows, columns]}
    return {
        "rows": [row, min(row + ROOM, len(query))],
        "keys": [key, min(key + ROOM, len(keys))],
        "scale": scale,
        "exact": is_exact,  # whether softmax(scale · q·k), masked, are the weights; else something is added to scores
        "size": [query.shape[-1], value.shape[-1]],
        **{name: _text(part.contiguous().numpy().astype("<f4").tobytes()) for name, part in shown.items()},
    }


def _scale(products: Tensor, weights: Tensor, usual: float) -> tuple[float, bool]:
    """The factor of the scores, and whether it explains the weights: log w − scale · q·k is the same along a row."""
    attended = weights > 1e-12
    count = attended.sum(-1, keepdim=True).clamp(min=1)

    def centred(values: Tensor) -> Tensor:
        values = torch.where(attended, values, 0.0)
        return torch.where(attended, values - values.sum(-1, keepdim=True) / count, 0.0)

    logs, dots = centred(weights.clamp(min=1e-38).log().double()), centred(products.double())
    for scale in (usual, float((logs * dots).sum() / dots.square().sum().clamp(min=1e-12))):
        if float((logs - scale * dots).abs().max()) < EXACT * max(1.0, float(logs.abs().max())):
            return scale, True
    return usual, False


def head_scores(maps: Sequence[AttentionMap]) -> Scores:
    """The scores of all heads; tokens are the same where their texts are."""
    scores: Scores = {name.replace("_", " "): [] for name in SCORES}
    for layer in maps:
        numbers = {token: number for number, token in enumerate(layer.key_tokens)}
        ids = torch.tensor([[numbers[token] for token in layer.key_tokens]])
        places = range(ids.shape[1])
        is_known = (
            layer.kind != "cross" and list(layer.keys or places) == list(places) and set(layer.queries) <= {*places}
        )
        pairs = Pairs(layer, ids if is_known else None, None)
        for name, values in scores_of(pairs, pairs).items():
            scores[name.replace("_", " ")].append([None if math.isnan(value) else value for value in values])
    return scores


def most_telling(scores: Scores) -> tuple[int, int]:
    """Index of the layer and of the head that stands out: whose score is furthest above the mean of all heads."""
    best, place = -1.0, (0, 0)
    for name in TELLING:
        values = [value for layer in scores[name] for value in layer if value is not None]
        for index, layer in enumerate(scores[name]):
            for head, value in enumerate(layer):
                if value is not None and value - sum(values) / len(values) > best:
                    best, place = value - sum(values) / len(values), (index, head)
    return place
