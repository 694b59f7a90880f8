"""Pairs and texts in a store: the ids are those of a plain encoding of each row."""

import numpy
import pytest
from tokenizers import Tokenizer, models

from regard.data import tokens
from regard.data.labelled import StoredTexts, choose_balanced, read_labelled, store_texts, texts_in_file
from regard.data.pairs import Pair, StoredPairs, pairs_in_files, pairs_in_memory, read_pairs, store_pairs
from regard.data.split import PARTS, Parts, split, survey
from regard.data.tokens import train_tokenizer
from tests.training.tiny import balanced_subset

LENGTHS = (1, 2, 3, 5, 8, 13)


def sentence(number):
    return " ".join(f"word{(number * place) % 19}" for place in range(1, LENGTHS[number % len(LENGTHS)] + 1))


@pytest.fixture(params=[97, 1 << 19])
def _block(request, monkeypatch):
    monkeypatch.setattr(tokens, "BLOCK", request.param)


@pytest.mark.usefixtures("_block")
@pytest.mark.parametrize(("kind", "vocab_size"), [("word", 23), ("bpe", 300), ("character", 70_000)])
def test_pairs_are_those_of_a_plain_encoding(write, kind, vocab_size):
    lines = [f"{sentence(number)} {number}\t{sentence(number + 1).upper()}\n" for number in range(151)]
    path = write("pairs.tsv", "".join(lines))
    pairs = read_pairs(path)
    source, target = (
        train_tokenizer([getattr(pair, side) for pair in pairs], kind, vocab_size) for side in ("source", "target")
    )
    limit = {"word": 7, "bpe": 23, "character": 40}[kind]
    store = store_pairs(survey(pairs_in_files(path), "stop", 1_000), source, target, limit)
    for name in PARTS:
        expected = getattr(split(pairs, lambda pair: pair.source), name)
        ids = [
            (source.encode(pair.source).ids, target.encode(pair.target, add_special_tokens=False).ids)
            for pair in expected
        ]
        fitting = [(left, right) for left, right in ids if len(left) <= limit and len(right) < limit]
        stored = StoredPairs(store, name)
        assert [(pair.source.tolist(), pair.target.tolist()) for pair in stored] == fitting
        assert stored.lengths.take(range(len(stored))).tolist() == [[len(a), len(b) + 1] for a, b in fitting]
        assert stored.too_long == len(ids) - len(fitting)
        assert len(stored) == len(fitting)
        if name == "train":
            assert stored.too_long > 0
            some = [5, 2, 2, len(fitting) - 1]
            assert [pair.source.tolist() for pair in stored.take(some)] == [fitting[row][0] for row in some]
        else:
            assert stored.texts() == expected
            assert stored.texts(3) == expected[:3]


def test_alignments_are_kept_and_so_is_their_absence():
    pairs = [
        Pair("a b", "c d", frozenset({(0, 1), (1, 0)})),
        Pair("b", "d", frozenset()),
        Pair("a a a", "c", frozenset({(2, 0)})),
        Pair("b b", "c"),
    ]
    tokenizer = train_tokenizer(["a b c d"], "word", 11)
    store = store_pairs(
        survey(pairs_in_memory("made", Parts(pairs[:1], pairs[1:3], pairs[3:])), "stop", 1), tokenizer, tokenizer, 5
    )
    assert StoredPairs(store, "validation").texts() == pairs[1:3]
    assert StoredPairs(store, "test").texts() == pairs[3:]


def test_a_pair_has_a_number():
    pairs = [Pair(f"a{'a' * number}", "c") for number in range(7)]
    tokenizer = train_tokenizer(["ac"], "character", 11)
    made = survey(pairs_in_memory("made", Parts(pairs[:5], pairs[5:6], pairs[6:])), "stop", 1)
    stored = StoredPairs(store_pairs(made, tokenizer, tokenizer, 5), "train")
    assert [len(stored[row].source) for row in (0, -1)] == [2, 5]  # with eos; the longest of them does not fit
    with pytest.raises(IndexError, match="row: expected one of 4, got 4"):
        stored[4]


@pytest.mark.usefixtures("_block")
@pytest.mark.parametrize("examples", [0, 61])
def test_texts_are_those_of_a_plain_encoding(write, examples):
    rows = [f"{sentence(number)} {number},{('late', 'early', 'noon')[number % 3]}\n" for number in range(151)]
    path = write("texts.csv", "text,label\n" + "".join(rows))
    read = read_labelled(path)
    tokenizer = train_tokenizer([example.text for example in read], "word", 200)
    parts = split(read, lambda example: example.text)
    known = choose_balanced(survey(texts_in_file(path, "text", "label"), "stop", 1_000), examples)
    store = store_texts(known, tokenizer, 7, examples)
    for name in PARTS:
        expected = balanced_subset(parts.train, examples) if name == "train" else getattr(parts, name)
        ids = [tokenizer.encode(example.text).ids for example in expected]
        cut = [row if len(row) <= 7 else [*row[:6], row[-1]] for row in ids]  # the end token stays
        stored = StoredTexts(store, name)
        everything = range(len(stored))
        assert stored.names == ["early", "late", "noon"]
        assert [row.tolist() for row in stored.ids(everything)] == cut
        assert stored.lengths.take(everything).tolist() == [len(row) for row in cut]
        assert [stored.names[number] for number in stored.classes.take(everything)] == [row.label for row in expected]
        if name != "train":
            assert stored.texts(everything) == [example.text for example in expected]
    assert tokenizer.truncation is None


def test_ids_take_as_few_bytes_as_they_need(write):
    path = write("pairs.tsv", "".join(f"{sentence(number)} {number}\tx\n" for number in range(31)))
    small = train_tokenizer([path.read_text()], "word", 97)
    store = store_pairs(survey(pairs_in_files(path), "stop", 100), small, small, 64)
    assert store.ragged("train.source").values.dtype == numpy.uint16


def test_texts_without_tokens_are_left_out_and_counted(write):
    rows = [f"{'odd' if number % 5 == 0 else 'know'} {number},{'ab'[number % 2]}\n" for number in range(101)]
    path = write("texts.csv", "text,label\n" + "".join(rows))
    tokenizer = Tokenizer(models.BPE({"k": 0, "w": 1}, []))  # drops what it does not know
    store = store_texts(survey(texts_in_file(path, "text", "label"), "stop", 100), tokenizer, 7, 0)
    assert store.facts["empty"] == 21
    assert sum(len(StoredTexts(store, name)) for name in PARTS) == 80
