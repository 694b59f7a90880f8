"""Defaults that follow from the data: a table for each task, from the name of an option to a rule.

A rule says in words, and computes, what an option is that was not given, from facts about the data or from the kind of
model:

    examples               to train on: pairs, texts, images
    text_bytes, tokens     of all texts to train on; BYTES bytes are about a token
    edge, common           of the images, in pixels: the shorter edge, and the largest divisor of both
    model                  the option of this name

The rules keep to one idea: a batch grows with the root of the data, and the number of steps hardly at all. So a run
reads √data times a constant, small data many times over and large data once or twice.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from regard.training.options import ImagesOptions, LanguageOptions, Options, TextOptions, TranslateOptions, applies

AnyOptions = TypeVar("AnyOptions", bound=Options)

BYTES = 4
FACTS = {"examples": "examples", "text_bytes": "bytes", "tokens": "tokens"}  # in words


@dataclass(frozen=True)
class Rule:
    """What an option is: in words, and as a function of facts by their names; KeyError if one is not known yet."""

    text: str
    value: Callable[[Mapping[str, Any]], Any]


def always(value: Any) -> Rule:
    """The same for all data."""
    return Rule(_format(value), lambda facts: value)


def growing(fact: str, table: Mapping[int, Any]) -> Rule:
    """The value of the last row whose number the fact has reached; the first row's is 0."""
    first, *rest = table.items()
    texts = [_format(first[1]), *(f"{_format(value)} from {start:,} {FACTS[fact]}" for start, value in rest)]
    return Rule(", ".join(texts), lambda facts: table[max(start for start in table if start <= facts[fact])])


def root(factor: float, fact: str, low: int, high: int, multiple: int) -> Rule:
    """factor · √fact, rounded to a multiple, no less than `low` and no more than `high`."""
    times = "" if factor == 1 else f"{factor:g} "
    return Rule(
        f"{times}√{FACTS[fact]}, from {low:,} to {high:,}, a multiple of {multiple}",
        lambda facts: min(high, max(low, multiple * round(factor * math.sqrt(facts[fact]) / multiple))),
    )


def per_model(**rules: Rule) -> Rule:
    """A rule for each kind of model."""
    text = "; ".join(f"{model}: {rule.text}" for model, rule in rules.items())
    return Rule(text, lambda facts: rules[facts["model"]].value(facts))


def _format(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _patch_size(facts: Mapping[str, Any]) -> int:
    """The divisor of both edges that cuts the shorter one into PATCHES parts, or nearly so."""
    edge, common = facts["edge"], facts["common"]
    divisors = [number for number in range(1, common + 1) if common % number == 0]
    return min(divisors, key=lambda number: abs(math.log(edge / number / PATCHES)))


PATCHES = 7
VOCABULARY = root(2, "text_bytes", 500, 16_000, 100)
TRANSLATE: dict[str, Rule] = {
    "vocab_size": VOCABULARY,
    "size": per_model(
        rnn=growing("examples", {0: 128, 30_000: 256, 1_000_000: 512}),
        transformer=growing("examples", {0: 128, 20_000: 192, 100_000: 256, 1_000_000: 512}),
    ),
    "hidden_size": growing("examples", {0: 128, 30_000: 256, 100_000: 512, 1_000_000: 1_024}),
    "layers": per_model(rnn=growing("examples", {0: 1}), transformer=growing("examples", {0: 3, 1_000_000: 6})),
    "heads": growing("examples", {0: 4, 1_000_000: 8}),
    "dropout": growing("examples", {0: 0.2, 1_000_000: 0.1}),
    "batch": root(1, "tokens", 256, 16_384, 64),
    "learning_rate": per_model(
        rnn=growing("examples", {0: 4e-3, 100_000: 2e-3, 1_000_000: 1e-3}),
        transformer=growing("examples", {0: 1e-3, 1_000_000: 5e-4}),
    ),
    "warmup": always(200),
    "steps": growing("tokens", {0: 8_000, 500_000: 16_000, 5_000_000: 20_000, 50_000_000: 40_000}),
    "evaluate_every": always(1_000),
    "save_every": always(1_000),
    "average": always(0.99),
}
LANGUAGE: dict[str, Rule] = {
    "vocab_size": VOCABULARY,
    "size": growing("tokens", {0: 128, 500_000: 192, 5_000_000: 256, 50_000_000: 384, 500_000_000: 768}),
    "layers": growing("tokens", {0: 4, 5_000_000: 6, 500_000_000: 12}),
    "heads": growing("tokens", {0: 4, 50_000_000: 6, 500_000_000: 12}),
    "context": growing("tokens", {0: 128, 5_000_000: 256, 500_000_000: 512}),
    "dropout": growing("tokens", {0: 0.1, 200_000: 0.0}),
    "batch": root(1.5, "tokens", 512, 16_384, 64),
    "learning_rate": growing("tokens", {0: 2e-3, 5_000_000: 1e-3, 500_000_000: 6e-4}),
    "warmup": always(100),
    "steps": growing("tokens", {0: 4_000, 20_000_000: 8_000, 200_000_000: 20_000}),
    "evaluate_every": always(250),
    "save_every": always(250),
    "average": always(0.99),
}
TEXT: dict[str, Rule] = {
    "vocab_size": VOCABULARY,
    "size": growing("examples", {0: 128, 100_000: 192, 1_000_000: 256}),
    "layers": growing("examples", {0: 2, 100_000: 4}),
    "heads": always(4),
    "dropout": growing("examples", {0: 0.3, 10_000: 0.2, 100_000: 0.1}),
    "batch": root(4, "tokens", 1_024, 16_384, 128),
    "learning_rate": always(5e-4),
    "warmup": always(100),
    "steps": growing("examples", {0: 1_000, 10_000: 2_000, 1_000_000: 10_000}),
    "evaluate_every": always(100),
    "save_every": always(250),
    "average": always(0.99),
}
IMAGES: dict[str, Rule] = {
    "image_size": Rule("as they are up to an edge of 64, else 64", lambda facts: 0 if facts["edge"] <= 64 else 64),
    "patch_size": Rule(f"the divisor of both edges nearest to edge / {PATCHES}", _patch_size),
    "size": growing("examples", {0: 64, 10_000: 128, 100_000: 192, 1_000_000: 384}),
    "layers": growing("examples", {0: 4, 100_000: 6, 1_000_000: 12}),
    "heads": growing("examples", {0: 4, 100_000: 6}),
    "width": growing("examples", {0: 16, 100_000: 32, 1_000_000: 64}),
    "dropout": growing("examples", {0: 0.1, 1_000_000: 0.0}),
    "batch": root(0.5, "examples", 32, 256, 16),
    "learning_rate": always(1e-3),
    "warmup": always(100),
    "steps": growing("examples", {0: 2_000, 100_000: 5_000, 1_000_000: 20_000}),
    # Rarely where epochs are long: else patience ends a run of some minutes before its last steps, which are its best.
    "evaluate_every": growing("examples", {0: 200, 10_000: 500}),
    "save_every": always(500),
    "average": always(0.99),
}
RULES: dict[type[Options], dict[str, Rule]] = {
    TranslateOptions: TRANSLATE,
    LanguageOptions: LANGUAGE,
    TextOptions: TEXT,
    ImagesOptions: IMAGES,
}


def complete(options: AnyOptions, **facts: Any) -> AnyOptions:
    """Options with those filled in that follow from these facts and were not given.

    A run for some minutes has no number of steps until its speed is known.
    """
    facts = {"model": getattr(options, "model", None), **facts}
    if "text_bytes" in facts:
        facts.setdefault("tokens", facts["text_bytes"] // BYTES)
    if "edge" in facts:
        facts.setdefault("common", facts["edge"])
    chosen = {}
    for name, rule in RULES[type(options)].items():
        if getattr(options, name) is None and applies(options, name):
            with suppress(KeyError):
                chosen[name] = rule.value(facts)
    if options.minutes is not None:
        chosen.pop("steps", None)
    return dataclasses.replace(options, **chosen)
