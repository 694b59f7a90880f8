"""`regard evaluate`: how good a model is, on the test part of its data, or on other data."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.training.evaluate import evaluate
from regard.training.report import format_metrics

__all__ = ["Request", "run"]


@dataclass(frozen=True)
class Request:
    """The arguments of the command."""

    model: Path
    data: Path | None = None
    target: Path | None = None
    text: str | None = None
    label: str | None = None
    beam_size: int | None = None
    as_json: bool = False


def run(request: Request) -> int:
    """Print the metrics. Exit code 2 where model and data do not fit."""
    columns: dict[str, Any] = {"text": request.text, "label": request.label, "beam_size": request.beam_size}
    try:
        metrics = evaluate(request.model, request.data, request.target, **columns)
    except ValueError as error:
        print(f"regard: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(json.dumps(metrics, ensure_ascii=False) if request.as_json else format_metrics(metrics))
    if "signature" in metrics and not request.as_json:
        print(f"sacreBLEU {metrics['signature']}")
    return 0
