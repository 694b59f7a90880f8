"""Which words belong together, by the weights of a translator."""

import random
from types import SimpleNamespace

import pytest
import torch

import regard
from regard.data.tokens import train_tokenizer
from regard.data.words import spans
from regard.models.translator import Alignment, align, membership

TEXTS = ["the cat is on the mat", "a dog sleeps", "l'homme dort sur le tapis"]


@pytest.mark.parametrize("kind", ["word", "bpe", "character"])
@pytest.mark.parametrize("name", ["Seq2Seq", "Transformer"])
def test_alignments_are_the_weights_of_the_model_summed_by_words(kind, name):
    torch.manual_seed(0)
    tokenizer = train_tokenizer(TEXTS, kind, 300)
    size = tokenizer.get_vocab_size()
    shape = (size, size, 12, 2, 3) if name == "Transformer" else (size, size, 12, 16)
    model = getattr(regard, name)(*shape).eval()
    model.tokenizer = tokenizer
    alignments = align(model, TEXTS[:2], [TEXTS[2], TEXTS[0]])
    assert [alignment.source for alignment in alignments] == [TEXTS[0].split(), TEXTS[1].split()]
    assert alignments[0].target == ["l'", "homme", "dort", "sur", "le", "tapis"]
    for alignment in alignments:
        assert alignment.weights.shape == (len(alignment.target), len(alignment.source))
        assert (alignment.weights.sum(1) < 1 + 1e-5).all()  # the rest goes to eos, and to spaces
    (alone,) = align(model, TEXTS[1:2], [TEXTS[0]])
    torch.testing.assert_close(alone.weights, alignments[1].weights)
    if kind == "word":  # a word is a token: then the rows are the model's
        source = torch.tensor([tokenizer.encode(TEXTS[1]).ids])
        target = torch.tensor([[1, *tokenizer.encode(TEXTS[0], add_special_tokens=False).ids]])
        weights = model.align(source, target)
        weights = weights if weights.dim() == 3 else weights.mean((1, 2))
        torch.testing.assert_close(alone.weights, weights[0, :-1, :-1])


def test_links_are_the_largest_weights_of_rows_and_columns():
    weights = torch.tensor([[0.6, 0.3, 0.01], [0.1, 0.2, 0.02], [0.5, 0.4, 0.03]])
    rows, columns = {(0, 0), (1, 1), (0, 2)}, {(0, 0), (1, 2)}  # no word attends to c
    assert Alignment(["a", "b", "c"], ["x", "y", "z"], weights).links == rows | columns


def test_a_token_belongs_to_the_word_that_it_overlaps_most():
    """Tokens of any places: empty ones, of several words, of none; compared with every word, one by one."""
    chance, text = random.Random(0), "a cat, it's   on the longest of mats "
    places = [tuple(sorted(chance.choices(range(len(text) + 2), k=2))) for _ in range(500)]
    special = [int(chance.random() < 0.1) for _ in places]
    encoding = SimpleNamespace(ids=[0] * 500, offsets=places, special_tokens_mask=special)
    table = membership(text, encoding)
    for token, (start, end) in enumerate(places):
        overlaps = [max(0, min(end, last) - max(start, first)) for first, last in spans(text)]
        expected = [0.0] * len(overlaps)
        if max(overlaps) and not special[token]:
            expected[overlaps.index(max(overlaps))] = 1.0
        assert table[:, token].tolist() == expected, places[token]
