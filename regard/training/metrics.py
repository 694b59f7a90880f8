"""How good a model is, in the numbers that people compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Bleu", "alignment_error_rate", "bleu"]

Links = frozenset[tuple[int, int]]


@dataclass(frozen=True)
class Bleu:
    """sacreBLEU's score, and the signature that says how it was computed."""

    score: float
    signature: str


def bleu(found: Sequence[str], expected: Sequence[str]) -> Bleu:
    """BLEU of translations; those into Chinese are compared by characters, as sacreBLEU recommends."""
    from sacrebleu.metrics.bleu import BLEU

    chinese = sum("\u4e00" <= letter <= "\u9fff" for text in expected for letter in text)
    options: dict[str, Any] = {"tokenize": "zh"} if 2 * chinese > sum(map(len, expected)) / 2 else {}
    metric = BLEU(**options)
    score = metric.corpus_score(list(found), [list(expected)]).score
    return Bleu(float(score), str(metric.get_signature()))


def alignment_error_rate(found: Sequence[Links], gold: Sequence[Links]) -> float:
    """1 − 2 |found ∩ gold| / (|found| + |gold|), over all sentences: 0 is perfect."""
    both = sum(len(own & right) for own, right in zip(found, gold, strict=True))
    links = sum(map(len, found)) + sum(map(len, gold))
    return 1 - 2 * both / links if links else 0.0
