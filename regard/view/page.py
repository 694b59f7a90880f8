"""Weights as a page of one file: every layer, every head, every token; nothing is loaded from anywhere.

Weights are kept as the square root in so many levels, each head packed by itself, so that a browser unpacks only what
is looked at. 12 layers of 12 heads over 512 tokens, 38 million weights, take a few megabytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard import files

__all__ = ["Content", "Layer", "html", "packed", "static", "write"]

LEVELS = (255, 63, 15)  # steps between 0 and 1; the first with which the page is small enough
MOST = 8_000_000  # bytes of weights, after which a coarser step is taken


@dataclass(frozen=True)
class Layer:
    """What the page shows of a layer: weights (heads, n, m) and what stands at both axes."""

    number: int
    name: str
    kind: str
    heads: Sequence[int]
    weights: Tensor
    rows: Sequence[str]
    columns: Sequence[str]


@dataclass(frozen=True)
class Content:
    """A page."""

    title: str
    layers: Sequence[Layer]


def packed(weights: Tensor, levels: int) -> bytes:
    """Weights (n, m) of one head: round(√w · levels), a byte each, deflated."""
    steps = (weights.clamp(0, 1).sqrt() * levels).round().to(torch.uint8)
    squeezed = zlib.compressobj(6, zlib.DEFLATED, -15)
    return squeezed.compress(steps.contiguous().numpy().tobytes()) + squeezed.flush()


def write(content: Content, path: str | Path) -> Path:
    """The page as a file; it appears whole or not at all."""
    text = html(content)
    files.write(Path(path), text)
    return Path(path)


def html(content: Content) -> str:
    """The page. Its policy allows the one script and the one style that are in it, and nothing else."""
    script, style = (static(name) for name in ("maps.js", "maps.css"))
    start = script + '\nshowMaps(document.getElementById("maps"), fromPage(document));\n'
    policy = f"default-src 'none'; script-src '{_hash(start)}'; style-src '{_hash(style)}'; base-uri 'none'"
    data = json.dumps(_data(content), ensure_ascii=False).replace("<", "\\u003c")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(content.title)}</title><style>{style}</style></head>\n"
        f'<body><main><h1>{escape(content.title)}</h1><div id="maps"></div></main>\n'
        f'<script type="application/json" id="data">{data}</script>\n'
        f'<script type="module">{start}</script></body></html>\n'
    )


def static(name: str) -> str:
    """A file that pages are made of."""
    return resources.files("regard.view").joinpath("static", name).read_text("utf-8")


def _data(content: Content) -> dict[str, Any]:
    """The finest levels that are small enough, or the coarsest."""
    for levels in LEVELS:
        heads = [[packed(head, levels) for head in layer.weights] for layer in content.layers]
        if sum(len(own) for layer in heads for own in layer) <= MOST * 3 // 4:  # as base64 it is 4 / 3 of that
            break
    return {
        "levels": levels,
        "layers": [
            {
                "number": layer.number,
                "name": layer.name,
                "kind": layer.kind,
                "heads": list(layer.heads),
                "rows": list(layer.rows),
                "columns": list(layer.columns),
                "weights": [base64.b64encode(own).decode() for own in packs],
            }
            for layer, packs in zip(content.layers, heads, strict=True)
        ],
    }


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
