"""Metrics of translations, of alignments and of classes."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
from torch import Tensor

Links = frozenset[tuple[int, int]]
Outcome = tuple[list[int], list[int], list[float]]


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


def _bleu_metric(references: Sequence[str]) -> Any:
    from sacrebleu.metrics.bleu import BLEU

    chinese = sum("\u4e00" <= letter <= "\u9fff" for text in references for letter in text)
    return BLEU(tokenize="zh") if 2 * chinese > sum(map(len, references)) / 2 else BLEU()


def translation_metrics(blocks: Iterable[tuple[Sequence[str], Sequence[str]]]) -> dict[str, Any]:
    """`bleu`, `chrf`, and the signature of BLEU, of blocks of (translations, references); only sums of counts are held.

    The first block decides how words are counted, see `bleu`.
    """
    from sacrebleu.metrics.chrf import CHRF

    metrics: list[Any] = []
    sums: list[list[float]] = [[], []]
    for hypotheses, references in blocks:
        metrics = metrics or [_bleu_metric(references), CHRF()]
        for index, metric in enumerate(metrics):
            # What sacreBLEU's corpus_score adds up, for which it has no public name.
            counts = metric._extract_corpus_statistics(list(hypotheses), [list(references)])
            before = [sums[index]] if sums[index] else []
            sums[index] = [sum(column) for column in zip(*before, *counts, strict=True)]
    scores = [float(metric._compute_score_from_stats(row).score) for metric, row in zip(metrics, sums, strict=True)]
    return {"bleu": scores[0], "chrf": scores[1], "signature": str(metrics[0].get_signature())}


def alignment_error_rate(predicted: Sequence[Links], gold: Sequence[Links]) -> float:
    """1 − 2 |predicted ∩ gold| / (|predicted| + |gold|), over all sentences: 0 is perfect."""
    both = sum(len(links & expected) for links, expected in zip(predicted, gold, strict=True))
    total = sum(map(len, predicted)) + sum(map(len, gold))
    return 1 - 2 * both / total if total else 0.0


def class_outcome(log_probabilities: Tensor, targets: Tensor) -> Outcome:
    """Class, likeliest class and loss of each example, of log-probabilities (n, classes) and the numbers of classes."""
    losses = -log_probabilities.gather(1, targets[:, None])[:, 0]
    return targets.tolist(), log_probabilities.argmax(1).tolist(), losses.tolist()


def class_metrics(outcomes: Iterable[Outcome], names: Sequence[Any]) -> dict[str, Any]:
    """The share of examples whose likeliest class is right, F1 (the mean over classes that occur), the mean loss, and

    `confusion`: a row for each true class and a column for each predicted one. outcomes: of blocks of examples.
    """
    counts, loss = numpy.zeros((len(names), len(names)), numpy.int64), 0.0
    for targets, predictions, losses in outcomes:
        numpy.add.at(counts, (targets, predictions), 1)
        loss = sum(losses, loss)
    total, hits = int(counts.sum()), counts.diagonal()
    occurrences = counts.sum(0) + counts.sum(1)  # of each class, expected and predicted
    f1 = (2 * hits / numpy.maximum(occurrences, 1))[occurrences > 0]
    return {
        "accuracy": int(hits.sum()) / total,
        "f1": math.fsum(f1) / len(f1),
        "loss": loss / total,
        "confusion": {"labels": list(names), "counts": counts.tolist()},
    }
