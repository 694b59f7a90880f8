"""`regard look`: what a model looks at, in the terminal or as a picture."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.data.image_files import ImageError
from regard.models.classifier import ImageClassifier
from regard.models.folders import load
from regard.models.model import Model
from regard.models.tensors import FolderError
from regard.using import UseError
from regard.view.attention import AttentionDisplay
from regard.view.images import ImageAttentionDisplay
from regard.view.reading import read

__all__ = ["Request", "run"]

ENDINGS = (".html", ".json", ".pdf", ".png", ".svg")
PICTURES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
SHOWN = 40  # tokens that a terminal has room for; of more, the last


@dataclass(frozen=True)
class Request:
    """What the command line asked for."""

    model: Path
    given: str
    layer: int | None = None
    head: int | None = None
    out: Path | None = None


def run(request: Request) -> int:
    """Show or write. Exit code 2 where model, text and options do not fit, 1 where nothing can be written."""
    try:
        if request.out is not None and request.out.suffix.lower() not in ENDINGS:
            raise UseError(f"--out: expected a name that ends in {', '.join(ENDINGS)}, got {request.out}")
        if request.out is not None and not request.out.parent.is_dir():
            raise UseError(f"--out: there is no folder {request.out.parent}; make it first")
        model = load(request.model)
        _shown(request, model) if request.out is None else _written(request, request.out, model)
    except (FolderError, ImageError, UseError, ValueError, IndexError) as error:
        print(f"regard: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"regard: {request.out}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def _seen(request: Request, model: Model) -> AttentionDisplay | ImageAttentionDisplay:
    if isinstance(model, ImageClassifier):
        if not Path(request.given).exists():
            raise UseError(f"a {type(model).__name__} reads pictures: expected the path of one, got {request.given!r}")
        return ImageAttentionDisplay.from_model(model, request.given)
    if Path(request.given).suffix.lower() in PICTURES and Path(request.given).is_file():
        raise UseError(f"a {type(model).__name__} reads text, and {request.given} is a picture")
    return read(model, request.given)


def _shown(request: Request, model: Model) -> None:
    display = _seen(request, model)
    if isinstance(display, ImageAttentionDisplay):
        display.print(request.layer, request.head)
        return
    display.summary().print()  # first: it may be long, and what is asked for should not scroll away
    print()
    display.print(-1 if request.layer is None else request.layer, request.head, last=SHOWN)


def _written(request: Request, out: Path, model: Model) -> None:
    display = _seen(request, model)
    if out.suffix.lower() == ".json":
        out.write_text(json.dumps(_record(request, display), ensure_ascii=False) + "\n", encoding="utf-8")
    else:
        display.save(out, request.layer, request.head)
    print(f"wrote {out}", file=sys.stderr)


def _record(request: Request, display: AttentionDisplay | ImageAttentionDisplay) -> dict[str, Any]:
    """For a program to read."""
    if isinstance(display, ImageAttentionDisplay):
        heatmap = display.heatmap(request.layer, request.head).tolist()
        return {"label": display.label, "probability": display.probability, "kind": display.kind, "heatmap": heatmap}
    layers = [
        {
            **layer.to_dict(),
            "weights": {str(head): rows for head, rows in zip(layer.heads, layer.weights[0].tolist(), strict=True)},
        }
        for layer in display.maps
        if request.layer in (None, layer.layer)
    ]
    return {"layers": layers}
