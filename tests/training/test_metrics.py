"""Metrics and the learning rate, by hand and against sacreBLEU."""

import math

import pytest
import sacrebleu

from regard.training.loop import learning_rate
from regard.training.metrics import alignment_error_rate, bleu
from regard.training.options import resolve


def test_bleu_is_sacrebleus():
    hypotheses, references = ["the cat sat on the mat", "a big dog"], ["the cat is on the mat", "a big dog sleeps"]
    score = bleu(hypotheses, references)
    assert score.score == sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert "tok:13a" in score.signature
    assert "version:" in score.signature


def test_chinese_is_compared_by_characters():
    assert "tok:zh" in bleu(["猫 在 垫子 上"], ["猫 在 垫子 上"]).signature
    assert bleu(["猫 在 垫子 上"], ["猫在垫子上"]).score == pytest.approx(100)


def test_alignment_error_rate_by_hand():
    gold = [frozenset({(0, 0), (1, 2)}), frozenset({(0, 0)})]
    assert alignment_error_rate(gold, gold) == 0
    assert alignment_error_rate([frozenset({(0, 0), (1, 1)}), frozenset()], gold) == 1 - 2 / 5
    assert alignment_error_rate([frozenset({(9, 9)}), frozenset()], gold) == 1


@pytest.mark.parametrize("schedule", ["constant", "cosine", "inverse-root"])
def test_the_learning_rate_grows_and_falls(schedule):
    options = resolve("text", {"schedule": schedule, "learning_rate": 0.3, "warmup": 7, "steps": 101})
    rates = [learning_rate(step, options) for step in range(1, 102)]
    assert rates[:7] == sorted(rates[:7])
    assert max(rates) == pytest.approx(0.3)
    assert rates[6:] == sorted(rates[6:], reverse=True)
    last = {"constant": 0.3, "cosine": 0.0, "inverse-root": 0.3 * math.sqrt(7 / 101)}
    assert rates[-1] == pytest.approx(last[schedule], abs=1e-12)
