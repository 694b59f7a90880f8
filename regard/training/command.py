"""`regard train`: a run as a command, with its exit codes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.errors import RegardError
from regard.training.memory import keep_memory
from regard.training.options import OptionError, read_yaml
from regard.training.report import format_metrics
from regard.training.run import train

__all__ = ["run"]


def run(task: str, flags: Mapping[str, Any], out: Path, *, config: str | None, resume: bool, as_json: bool) -> int:
    """Train, and print results. 0: done · 1: failed · 2: wrong data or options · 128 + n: stopped by signal n."""
    keep_memory()
    try:
        given = {} if config is None else read_yaml(Path(config))
        if given.pop("task", task) != task:
            raise OptionError(f"{config}: is for another task")
        for name in given.keys() & {"out", "resume", "quiet"}:
            raise OptionError(f"{config}: {name}: no option of {task}")
        trained = train(task, out=out, resume=resume, quiet=False, **{**given, **flags})
    except RegardError as error:
        print(f"regard: {error}", file=sys.stderr)
        return error.exit_code
    if os.environ.get("RANK", "0") == "0":
        results = {"folder": str(trained.folder), **trained.results}
        print(json.dumps(results, ensure_ascii=False) if as_json else _text(trained.folder, trained.results))
    return 0


def _text(folder: Path, results: Mapping[str, Any]) -> str:
    spent = f"{results['steps']:,} steps, {results['seconds']:,.0f} s of training"
    speed = f"{results['tokens_per_second']:,.0f} {results['unit']}/s"
    return "\n".join(
        [
            f"test: {format_metrics(results['test'])}",
            *([f"      sacreBLEU {results['test']['signature']}"] if "signature" in results["test"] else []),
            f"{spent} at {speed}; best at step {results['best_step']:,}",
            f"the model is in {folder}",
        ]
    )
