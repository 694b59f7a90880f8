"""Peers with the same weights, and regard without one of its parts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any
from unittest import mock


def silence_transformers() -> None:
    """Nothing from the network, nothing on the terminal."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def exported(model: Any, kind: Any) -> Any:
    """The same weights in `transformers`."""
    with tempfile.TemporaryDirectory() as folder:
        model.export(folder)
        return kind.from_pretrained(folder).eval()


def without(path: str, replacement: Any, work: Callable[[], Any]) -> Callable[[], Any]:
    """The same work without a fast path: this function of ours is replaced while it runs."""

    def run() -> Any:
        with mock.patch(path, replacement):
            return work()

    return run
