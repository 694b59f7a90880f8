"""Metrics, by hand and against sacreBLEU."""

import pytest
import sacrebleu

from regard.training.metrics import alignment_error_rate, bleu


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
