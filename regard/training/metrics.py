"""Metrics of translations and of alignments."""

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


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Bleu:
    """BLEU of translations; those into Chinese are compared by characters, as sacreBLEU recommends."""
    from sacrebleu.metrics.bleu import BLEU

    chinese = sum("\u4e00" <= letter <= "\u9fff" for text in references for letter in text)
    options: dict[str, Any] = {"tokenize": "zh"} if 2 * chinese > sum(map(len, references)) / 2 else {}
    metric = BLEU(**options)
    score = metric.corpus_score(list(hypotheses), [list(references)]).score
    return Bleu(float(score), str(metric.get_signature()))


def alignment_error_rate(predicted: Sequence[Links], gold: Sequence[Links]) -> float:
    """1 − 2 |predicted ∩ gold| / (|predicted| + |gold|), over all sentences: 0 is perfect."""
    both = sum(len(links & expected) for links, expected in zip(predicted, gold, strict=True))
    total = sum(map(len, predicted)) + sum(map(len, gold))
    return 1 - 2 * both / total if total else 0.0
