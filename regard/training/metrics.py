"""Metrics of translations, of alignments and of classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Bleu", "alignment_error_rate", "bleu", "chrf", "confusion", "macro_f1"]

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


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """sacreBLEU's chrF2 of translations: F-score of n-grams of 1 to 6 characters, in which recall counts twice."""
    from sacrebleu.metrics.chrf import CHRF

    return float(CHRF().corpus_score(list(hypotheses), [list(references)]).score)


def alignment_error_rate(predicted: Sequence[Links], gold: Sequence[Links]) -> float:
    """1 − 2 |predicted ∩ gold| / (|predicted| + |gold|), over all sentences: 0 is perfect."""
    both = sum(len(links & expected) for links, expected in zip(predicted, gold, strict=True))
    total = sum(map(len, predicted)) + sum(map(len, gold))
    return 1 - 2 * both / total if total else 0.0


def confusion(expected: Sequence[int], predicted: Sequence[int], classes: int) -> list[list[int]]:
    """How often each class (row) was predicted as each class (column), both as numbers below `classes`."""
    counts = [[0] * classes for _ in range(classes)]
    for row, column in zip(expected, predicted, strict=True):
        counts[row][column] += 1
    return counts


def macro_f1(counts: Sequence[Sequence[int]]) -> float:
    """The mean of 2 · hits / (expected + predicted) over the classes of a confusion matrix that occur in it."""
    expected, predicted = [sum(row) for row in counts], [sum(column) for column in zip(*counts, strict=True)]
    scores = [
        2 * counts[number][number] / (rows + columns)
        for number, (rows, columns) in enumerate(zip(expected, predicted, strict=True))
        if rows + columns
    ]
    return math.fsum(scores) / len(scores)
