"""Alignments as pictures, and the heads that align best."""

from dataclasses import replace

import pytest
import torch

import regard
from regard.data.grammar import corpus
from regard.data.tokens import train_tokenizer
from regard.models.alignment import align
from regard.training.metrics import alignment_error_rate
from regard.view.alignment import AlignmentDisplay, heads_by_alignment

PAIRS = corpus("fr").test[:7]


@pytest.fixture(params=["rnn", "transformer"])
def model(request):
    torch.manual_seed(0)
    reader, writer = (
        train_tokenizer([getattr(pair, side) for pair in PAIRS], "word", 200) for side in ("source", "target")
    )
    counts = reader.get_vocab_size(), writer.get_vocab_size()
    made = regard.Seq2Seq(*counts, 12, 14) if request.param == "rnn" else regard.Transformer(*counts, 24, 2, 3)
    made.tokenizer, made.target_tokenizer = reader, writer
    return made.eval()


def test_every_head_is_judged(model):
    rates = heads_by_alignment(model, PAIRS)
    assert len(rates) == (2 if isinstance(model, regard.Seq2Seq) else 1 + 2 * 3)
    assert list(rates.values()) == sorted(rates.values())
    links = [own.links for own in align(model, [pair.source for pair in PAIRS], [pair.target for pair in PAIRS])]
    assert rates[()] == alignment_error_rate(links, [pair.alignment for pair in PAIRS])


def test_a_picture_with_links_and_gold(model, tmp_path):
    pair = PAIRS[0]
    display = AlignmentDisplay.from_model(model, pair.source, pair.target, gold=pair.alignment)
    assert 0 <= display.error_rate <= 1
    drawn, right = display.ax_.collections[:2]
    assert len(drawn.get_offsets()) == len(display.alignment.links)
    assert len(right.get_offsets()) == len(pair.alignment)
    assert display.to_frame().shape == (len(display.alignment.target), len(display.alignment.source))
    for ending in ("png", "svg", "pdf", "html"):
        assert display.save(tmp_path / f"alignment.{ending}").stat().st_size > 1_000


def test_pairs_without_gold_are_refused(model):
    with pytest.raises(ValueError, match="each with its alignment"):
        heads_by_alignment(model, [replace(PAIRS[0], alignment=None)])
