"""Metrics of translations, of alignments and of classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Bleu", "TranslationScores", "alignment_error_rate", "bleu", "chrf", "confusion", "macro_f1"]

Links = frozenset[tuple[int, int]]


@dataclass(frozen=True)
class Bleu:
    """sacreBLEU's score, and the signature that says how it was computed."""

    score: float
    signature: str


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Bleu:
    """BLEU of translations; those into Chinese are compared by characters, as sacreBLEU recommends."""
    metric = _bleu_metric(references)
    score = metric.corpus_score(list(hypotheses), [list(references)]).score
    return Bleu(float(score), str(metric.get_signature()))


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """sacreBLEU's chrF2 of translations: F-score of n-grams of 1 to 6 characters, in which recall counts twice."""
    from sacrebleu.metrics.chrf import CHRF

    return float(CHRF().corpus_score(list(hypotheses), [list(references)]).score)


def _bleu_metric(references: Sequence[str]) -> Any:
    from sacrebleu.metrics.bleu import BLEU

    chinese = sum("\u4e00" <= letter <= "\u9fff" for text in references for letter in text)
    return BLEU(tokenize="zh") if 2 * chinese > sum(map(len, references)) / 2 else BLEU()


class TranslationScores:
    """BLEU and chrF of translations that come a block at a time: only sums of counts are held.

    The first block decides how words are counted, see `bleu`.
    """

    def __init__(self) -> None:
        self._metrics: list[Any] = []
        self._sums: list[list[float]] = []

    def add(self, hypotheses: Sequence[str], references: Sequence[str]) -> None:
        """Translations, and what was expected."""
        from sacrebleu.metrics.chrf import CHRF

        if not self._metrics:
            self._metrics = [_bleu_metric(references), CHRF()]
            self._sums = [[], []]
        for index, metric in enumerate(self._metrics):
            # What sacreBLEU's corpus_score adds up, for which it has no public name.
            counts = metric._extract_corpus_statistics(list(hypotheses), [list(references)])
            before = [self._sums[index]] if self._sums[index] else []
            self._sums[index] = [sum(column) for column in zip(*before, *counts, strict=True)]

    def metrics(self) -> dict[str, Any]:
        """`bleu`, `chrf`, and the signature of BLEU."""
        scores = [
            float(metric._compute_score_from_stats(counts).score)
            for metric, counts in zip(self._metrics, self._sums, strict=True)
        ]
        return {"bleu": scores[0], "chrf": scores[1], "signature": str(self._metrics[0].get_signature())}


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
