"""`regard train`: a run as a command, with its exit codes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.data.image_files import ImageError
from regard.data.split import SplitError
from regard.data.tables import TableError
from regard.data.texts import TextError
from regard.models.tensors import FolderError
from regard.training.checkpoints import CheckpointError
from regard.training.folder import RunError
from regard.training.loop import Diverged
from regard.training.memory import keep_memory
from regard.training.options import OptionError, read_yaml
from regard.training.report import told
from regard.training.run import carry_out
from regard.training.signals import Stopped
from regard.training.task import TaskError

__all__ = ["DATA_ERRORS", "run"]

DATA_ERRORS = (FolderError, ImageError, OptionError, SplitError, TableError, TaskError, TextError)


def run(task: str, flags: Mapping[str, Any], out: Path, *, config: str | None, resume: bool, as_json: bool) -> int:
    """Train, and tell. 0: done · 1: it could not go on · 2: wrong data or options · 128 + n: stopped by a signal."""
    keep_memory()
    try:
        found = {} if config is None else read_yaml(Path(config))
        if found.pop("task", task) != task:
            raise OptionError(f"{config}: is for another task")
        trained = carry_out(task, {**found, **flags}, out, resume=resume, quiet=False)
    except (*DATA_ERRORS, RunError) as error:
        print(f"regard: {error}", file=sys.stderr)
        return 2
    except (CheckpointError, Diverged) as error:
        print(f"regard: {error}", file=sys.stderr)
        return 1
    except Stopped as stopped:
        print(f"regard: {stopped}", file=sys.stderr)
        return 128 + stopped.number
    if os.environ.get("RANK", "0") == "0":
        found = {"folder": str(trained.folder), **trained.results}
        print(json.dumps(found, ensure_ascii=False) if as_json else _text(trained.folder, trained.results))
    return 0


def _text(folder: Path, results: Mapping[str, Any]) -> str:
    spent = f"{results['steps']:,} steps, {results['seconds']:,.0f} s of training"
    speed = f"{results['tokens_per_second']:,.0f} {results['unit']}/s"
    return "\n".join(
        [
            f"test: {told(results['test'])}",
            *([f"      sacreBLEU {results['test']['signature']}"] if "signature" in results["test"] else []),
            f"{spent} at {speed}; best at step {results['best_step']:,}",
            f"the model is in {folder}",
        ]
    )
