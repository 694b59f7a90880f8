"""Peers with the same weights."""

from __future__ import annotations

import os
import tempfile
from typing import Any


def silence_transformers() -> None:
    """Nothing from the network, nothing on the terminal."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def exported(model: Any, kind: str) -> Any:
    """The same weights in this class of `transformers`."""
    silence_transformers()
    import transformers

    with tempfile.TemporaryDirectory() as folder:
        model.export(folder)
        return getattr(transformers, kind).from_pretrained(folder).eval()
