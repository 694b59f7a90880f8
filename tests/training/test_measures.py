"""Metrics, alignments and the learning rate, by hand and against others."""

import math

import pytest
import sacrebleu
import torch

import regard
from regard.data.tokens import train_tokenizer
from regard.models.alignment import Alignment, align
from regard.training.metrics import alignment_error_rate, bleu
from regard.training.schedule import rate

TEXTS = ["the cat is on the mat", "a dog sleeps", "l'homme dort sur le tapis"]


def test_bleu_is_sacrebleus():
    found, expected = ["the cat sat on the mat", "a big dog"], ["the cat is on the mat", "a big dog sleeps"]
    own = bleu(found, expected)
    assert own.score == sacrebleu.corpus_bleu(found, [expected]).score
    assert "tok:13a" in own.signature
    assert "version:" in own.signature


def test_chinese_is_compared_by_characters():
    assert "tok:zh" in bleu(["猫 在 垫子 上"], ["猫 在 垫子 上"]).signature
    assert bleu(["猫 在 垫子 上"], ["猫在垫子上"]).score == pytest.approx(100)


def test_alignment_error_rate_by_hand():
    gold = [frozenset({(0, 0), (1, 2)}), frozenset({(0, 0)})]
    assert alignment_error_rate(gold, gold) == 0
    assert alignment_error_rate([frozenset({(0, 0), (1, 1)}), frozenset()], gold) == 1 - 2 / 5
    assert alignment_error_rate([frozenset({(9, 9)}), frozenset()], gold) == 1


@pytest.mark.parametrize("schedule", ["constant", "cosine", "inverse-root"])
def test_the_rate_grows_and_falls(schedule):
    found = [rate(step, schedule=schedule, highest=0.3, warmup=7, steps=101) for step in range(1, 102)]
    assert found[:7] == sorted(found[:7])
    assert max(found) == pytest.approx(0.3)
    assert found[6:] == sorted(found[6:], reverse=True)
    last = {"constant": 0.3, "cosine": 0.0, "inverse-root": 0.3 * math.sqrt(7 / 101)}
    assert found[-1] == pytest.approx(last[schedule], abs=1e-12)


@pytest.mark.parametrize("kind", ["word", "bpe", "character"])
@pytest.mark.parametrize("name", ["Seq2Seq", "Transformer"])
def test_alignments_are_the_models_own_weights_put_together_by_words(kind, name):
    torch.manual_seed(0)
    tokenizer = train_tokenizer(TEXTS, kind, 300)
    size = tokenizer.get_vocab_size()
    shape = (size, size, 12, 2, 3) if name == "Transformer" else (size, size, 12, 16)
    model = getattr(regard, name)(*shape).eval()
    model.tokenizer = tokenizer
    found = align(model, TEXTS[:2], [TEXTS[2], TEXTS[0]])
    assert [own.source for own in found] == [TEXTS[0].split(), TEXTS[1].split()]
    assert found[0].target == ["l'", "homme", "dort", "sur", "le", "tapis"]
    for own in found:
        assert own.weights.shape == (len(own.target), len(own.source))
        assert (own.weights.sum(1) < 1 + 1e-5).all()  # the rest is the end mark's, and the spaces'
    alone = align(model, TEXTS[1:2], [TEXTS[0]])
    torch.testing.assert_close(alone[0].weights, found[1].weights)
    if kind == "word":  # a word is a token: then the rows are the model's
        source = torch.tensor([tokenizer.encode(TEXTS[1]).ids])
        target = torch.tensor([[1, *tokenizer.encode(TEXTS[0], add_special_tokens=False).ids]])
        weights = model.align(source, target)
        weights = weights if weights.dim() == 3 else weights.mean((1, 2))
        torch.testing.assert_close(alone[0].weights, weights[0, :-1, :-1])


def test_links_are_where_words_look_most():
    weights = torch.tensor([[0.6, 0.3, 0.01], [0.1, 0.2, 0.02], [0.5, 0.4, 0.03]])
    own = Alignment(["a", "b", "c"], ["x", "y", "z"], weights)
    rows, columns = {(0, 0), (1, 1), (0, 2)}, {(0, 0), (1, 2)}  # nobody looks at c
    assert own.links == rows | columns
