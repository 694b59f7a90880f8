"""Encoding in parallel gives what encoding each text gives; a tokenizer is trained once, on a sample."""

import os
import threading

import numpy
import pytest

from regard.data import tokens
from regard.data.corpus import topics
from regard.data.tokens import encode_blocks, ids_dtype, tokenizer_digest, train_tokenizer, trained_tokenizer

TEXTS = [text[start : start + 700] for text in topics()[:9] for start in range(0, len(text), 700)]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_PREPARED", str(tmp_path / "prepared"))


@pytest.mark.parametrize("kind", ["bpe", "character", "word"])
@pytest.mark.parametrize("add_special_tokens", [False, True])
@pytest.mark.parametrize(("sentences", "processors"), [(True, 2), (False, 2), (False, 7)])
def test_ids_are_those_of_each_text_by_itself(kind, add_special_tokens, sentences, processors, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(processors)), raising=False)
    tokenizer = train_tokenizer(TEXTS, kind, 500, sentences=sentences)
    texts = ["", "é 三 🙂", *TEXTS]
    blocks = [texts[start : start + 5] for start in range(0, len(texts), 5)]
    encoded = list(encode_blocks(tokenizer, iter(blocks), add_special_tokens=add_special_tokens))
    assert [len(block) for block in encoded] == [len(block) for block in blocks]
    for text, ids in zip(texts, (ids for block in encoded for ids in block), strict=True):
        assert ids.dtype == numpy.uint16
        assert ids.tolist() == tokenizer.encode(text, add_special_tokens=add_special_tokens).ids


def test_few_blocks_are_read_ahead():
    tokenizer, read = train_tokenizer(TEXTS, "character"), []

    def blocks():
        for number in range(1_000):
            read.append(number)
            yield [TEXTS[number % len(TEXTS)]]

    encoded = encode_blocks(tokenizer, blocks())
    for _ in range(3):
        next(encoded)
    assert len(read) < 3 + 2 * 64 + 1
    before = threading.active_count()
    encoded.close()
    while threading.active_count() == before:  # its threads end
        pass


def test_what_goes_wrong_while_blocks_are_made_or_encoded_is_raised():
    tokenizer = train_tokenizer(TEXTS, "character")

    def blocks():
        yield ["fine"]
        raise RuntimeError("cannot be read")

    with pytest.raises(RuntimeError, match="cannot be read"):
        list(encode_blocks(tokenizer, blocks()))
    with pytest.raises(TypeError):
        list(encode_blocks(tokenizer, [["fine"], [5]]))


def test_ids_take_two_bytes_where_they_suffice():
    assert ids_dtype(65_535) == numpy.uint16
    assert ids_dtype(65_536) == numpy.uint32


def test_a_tokenizer_is_trained_once_for_each_key_and_option():
    calls = []

    def sample():
        calls.append(1)
        return iter(TEXTS)

    plain = train_tokenizer(TEXTS, "bpe", 300, sentences=False)
    for _ in range(2):
        tokenizer = trained_tokenizer({"content": "a"}, sample, "bpe", 300, sentences=False)
        assert tokenizer_digest(tokenizer) == tokenizer_digest(plain)
    assert len(calls) == 1
    digests = {
        tokenizer_digest(trained_tokenizer({"content": "a"}, sample, *options))
        for options in (("bpe", 300), ("bpe", 310), ("word", 300))
    }
    trained_tokenizer({"content": "b"}, sample, "bpe", 300, sentences=False)
    assert len(digests) == 3
    assert len(calls) == 5


def test_a_tokenizer_is_trained_on_so_much_and_no_more(monkeypatch):
    monkeypatch.setattr(tokens, "SAMPLE", 2_100)

    texts = [letter * 700 for letter in "abc"]

    def sample():
        yield from texts
        yield "d"
        pytest.fail("read too far")

    tokenizer = trained_tokenizer({}, sample, "character", 500)
    assert tokenizer_digest(tokenizer) == tokenizer_digest(train_tokenizer(texts, "character", 500))


@pytest.mark.parametrize(("kind", "size", "least"), [("bpe", 7, 261), ("character", 5, 6), ("word", -1, 6)])
def test_what_goes_wrong_while_a_tokenizer_is_trained_leaves_none(kind, size, least, tmp_path):
    with pytest.raises(ValueError, match=rf"vocab_size: expected {least} or more.* got {size}"):
        trained_tokenizer({}, lambda: TEXTS, kind, size)
    assert not list((tmp_path / "prepared").glob("*.json"))
