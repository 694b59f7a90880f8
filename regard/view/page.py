"""Attention maps as a page of one file: every layer, every head, every token; nothing is loaded from elsewhere.

Weights are stored as square roots in a number of levels, each head compressed by itself, so that a browser unpacks only
what is on display. 12 layers of 12 heads over 512 tokens, 38 million weights, take a few megabytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Sequence
from html import escape
from importlib import resources

import torch
from torch import Tensor

from regard.attention.capture import AttentionMap

__all__ = ["html", "packed", "static"]

LEVELS = (255, 63, 15)  # steps between 0 and 1; the first with which the weights are small enough, or the last
LIMIT = 8_000_000  # bytes of weights


def packed(weights: Tensor, levels: int) -> bytes:
    """Weights (n, m) of one head: round(√w · levels), a byte each, deflated."""
    steps = (weights.clamp(0, 1).sqrt() * levels).round().to(torch.uint8)
    deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
    return deflate.compress(steps.contiguous().numpy().tobytes()) + deflate.flush()


def html(title: str, maps: Sequence[AttentionMap], *, limit: int = LIMIT) -> str:
    """The page, of maps with a batch of one. Its policy allows the script and the style in it, and nothing else.

    limit: bytes that the weights may take, as long as there are coarser levels
    """
    script = static("maps.js") + '\nshowMaps(document.getElementById("maps"), fromPage(document));\n'
    style = static("maps.css")
    policy = f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head>\n"
        f'<body><main><h1>{escape(title)}</h1><div id="maps"></div></main>\n'
        f'<script type="application/json" id="data">{_data(maps, limit)}</script>\n'
        f'<script type="module">{script}</script></body></html>\n'
    )


def static(name: str) -> str:
    """A file that pages are made of."""
    return resources.files("regard.view").joinpath("static", name).read_text("utf-8")


def _data(maps: Sequence[AttentionMap], limit: int) -> str:
    """JSON that cannot end the element it is in."""
    for levels in LEVELS:
        weights = [[base64.b64encode(packed(head, levels)).decode() for head in layer.weights[0]] for layer in maps]
        if sum(len(head) for layer in weights for head in layer) <= limit:
            break
    layers = [{**layer.to_dict(), "weights": heads} for layer, heads in zip(maps, weights, strict=True)]
    return json.dumps({"levels": levels, "layers": layers}, ensure_ascii=False).replace("<", "\\u003c")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
