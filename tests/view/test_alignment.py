"""Alignments as pictures, and those of every head."""

import pytest

import regard
from regard.data.grammar import corpus
from regard.data.tokens import train_tokenizer
from regard.models.translator import align, align_heads
from regard.view.attention import AlignmentDisplay

PAIRS = corpus("fr", 200).test[:7]


@pytest.fixture(params=["rnn", "transformer"])
def model(request):
    texts = zip(*((pair.source, pair.target) for pair in PAIRS), strict=True)
    tokenizers = [train_tokenizer(list(side), "word", 200) for side in texts]
    sizes = [tokenizer.get_vocab_size() for tokenizer in tokenizers]
    model = regard.Seq2Seq(*sizes, 12, 14) if request.param == "rnn" else regard.Transformer(*sizes, 24, 2, 3)
    model.tokenizer, model.target_tokenizer = tokenizers
    return model.eval()


def test_every_head_aligns(model):
    sentences = [pair.source for pair in PAIRS], [pair.target for pair in PAIRS]
    for by_head, mean in zip(align_heads(model, *sentences), align(model, *sentences), strict=True):
        assert len(by_head) == (2 if isinstance(model, regard.Seq2Seq) else 1 + 2 * 3)
        assert by_head[()].links == mean.links


def test_a_picture_with_links_and_gold(model, tmp_path):
    pair = PAIRS[0]
    display = AlignmentDisplay.from_model(model, pair.source, pair.target, gold=pair.alignment)
    assert 0 <= display.error_rate <= 1
    drawn, right = display.ax_.collections[:2]
    assert len(drawn.get_offsets()) == len(display.alignment.links)
    assert len(right.get_offsets()) == len(pair.alignment)
    assert display.to_frame().shape == (len(display.alignment.target), len(display.alignment.source))
    assert display.save(tmp_path / "alignment.png").stat().st_size > 1_000
