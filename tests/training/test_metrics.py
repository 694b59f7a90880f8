"""Metrics, by hand and against sacreBLEU."""

import math

import pytest
import sacrebleu
import torch
from sklearn.metrics import confusion_matrix, f1_score

from regard.training.metrics import alignment_error_rate, bleu, class_metrics, class_outcome
from regard.training.report import format_metrics


def test_bleu_is_sacrebleus():
    hypotheses, references = ["the cat sat on the mat", "a big dog"], ["the cat is on the mat", "a big dog sleeps"]
    score = bleu(hypotheses, references)
    assert score.score == sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert "tok:13a" in score.signature
    assert "version:" in score.signature


@pytest.mark.parametrize("seed", range(7))
def test_confusion_and_f1_are_scikit_learns(seed):
    """Also where a class is never expected, or never predicted, or neither."""
    generator = torch.Generator().manual_seed(seed)
    expected, predicted = (torch.randint(low, 11, (13,), generator=generator).tolist() for low in (0, 3))
    blocks = [(expected[rows], predicted[rows], [1.0] * len(expected[rows])) for rows in (slice(5), slice(5, None))]
    metrics = class_metrics(blocks, range(11))
    assert metrics["confusion"]["counts"] == confusion_matrix(expected, predicted, labels=range(11)).tolist()
    assert metrics["f1"] == pytest.approx(f1_score(expected, predicted, average="macro"))


def test_metrics_of_classes():
    """The line on the screen has numbers only; the matrix goes with the names of its rows and columns."""
    probabilities = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.6, 0.3, 0.1]])
    outcome = class_outcome(probabilities.log(), torch.tensor([0, 1, 1]))
    metrics = class_metrics([outcome], ["ant", "bee", "cat"])
    assert metrics["confusion"] == {"labels": ["ant", "bee", "cat"], "counts": [[1, 0, 0], [1, 1, 0], [0, 0, 0]]}
    assert metrics["loss"] == pytest.approx(-math.log(0.7 * 0.8 * 0.3) / 3)
    assert format_metrics(metrics) == f"accuracy 66.7% · F1 0.667 · loss {metrics['loss']:.3f}"


def test_chinese_is_compared_by_characters():
    assert "tok:zh" in bleu(["猫 在 垫子 上"], ["猫 在 垫子 上"]).signature
    assert bleu(["猫 在 垫子 上"], ["猫在垫子上"]).score == pytest.approx(100)


def test_alignment_error_rate_by_hand():
    gold = [frozenset({(0, 0), (1, 2)}), frozenset({(0, 0)})]
    assert alignment_error_rate(gold, gold) == 0
    assert alignment_error_rate([frozenset({(0, 0), (1, 1)}), frozenset()], gold) == 1 - 2 / 5
    assert alignment_error_rate([frozenset({(9, 9)}), frozenset()], gold) == 1
