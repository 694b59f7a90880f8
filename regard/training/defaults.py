"""Defaults that follow from the data: a table for each task, from the name of an option to a rule.

A rule is a function of facts about the data, which its arguments name: text_bytes (of the files), examples (to train
on), tokens (of all examples), edge (of an image, in pixels). It is used for an option that was not given.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from regard.training.options import (
    ImagesOptions,
    LanguageOptions,
    Options,
    TextOptions,
    TranslateOptions,
    applies,
)

__all__ = ["RULES", "complete"]

AnyOptions = TypeVar("AnyOptions", bound=Options)
Rule = Callable[..., Any]

EVERY: dict[str, Rule] = {
    "warmup": lambda examples: 100,
    "evaluate_every": lambda examples: 250,
    "save_every": lambda examples: 250,
    "dropout": lambda examples: 0.1,
    "batch": lambda examples: 4_096,
    "learning_rate": lambda examples: 1e-3,
}
RULES: dict[type[Options], dict[str, Rule]] = {
    TranslateOptions: {
        **EVERY,
        "vocab_size": lambda text_bytes: 8_000,
        "size": lambda examples: 256,
        "hidden_size": lambda examples: 512,
        "layers": lambda examples: 1,
        "heads": lambda examples: 4,
        "dropout": lambda examples: 0.2,
        "steps": lambda examples: 2_000,
    },
    LanguageOptions: {
        **EVERY,
        "vocab_size": lambda text_bytes: 4_096,
        "size": lambda tokens: 192,
        "layers": lambda tokens: 4,
        "heads": lambda tokens: 6,
        "context": lambda tokens: 128,
        "dropout": lambda tokens: 0.0,
        "steps": lambda tokens: 1_000,
    },
    TextOptions: {
        **EVERY,
        "vocab_size": lambda text_bytes: 4_096,
        "size": lambda examples: 128,
        "layers": lambda examples: 2,
        "heads": lambda examples: 4,
        "steps": lambda examples: 600,
        "learning_rate": lambda examples: 5e-4,
        "evaluate_every": lambda examples: 100,
    },
    ImagesOptions: {
        **EVERY,
        "image_size": lambda edge: 0,
        "patch_size": lambda edge: 4,
        "size": lambda examples: 192,
        "layers": lambda examples: 6,
        "heads": lambda examples: 6,
        "width": lambda examples: 16,
        "batch": lambda examples: 128,
        "steps": lambda examples: 2_000,
    },
}


def complete(options: AnyOptions, **facts: Any) -> AnyOptions:
    """Options with those filled in that follow from these facts and were not given.

    A run for some minutes has no number of steps until its speed is known.
    """
    chosen = {}
    for name, rule in RULES[type(options)].items():
        needed = inspect.signature(rule).parameters
        if getattr(options, name) is None and needed.keys() <= facts.keys() and applies(options, name):
            chosen[name] = rule(**{fact: facts[fact] for fact in needed})
    if options.minutes is not None:
        chosen.pop("steps", None)
    return dataclasses.replace(options, **chosen)
