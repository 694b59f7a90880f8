"""Ids that are looked up are those that the tokenizer gives."""

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from regard.data import tokens
from regard.data.corpus import topics
from regard.data.tokens import SPECIAL_TOKENS, WordCache, is_separable, train_tokenizer

TOKENIZER = train_tokenizer(topics()[:20], "bpe", 900, sentences=False)
# Everything that could matter: white space of all kinds, marks that combine, jamo that compose, apostrophes, digits.
SIGNS = (
    "aB9 \n\t\r\x0b\x0c\x1c\x1f\x85\xa0\u1680\u2003\u2028\u202f\u3000\u200b\u0301\u0327é'’,.好🙂\u1100\u1161\u11a8½\0"
)
TEXTS = st.text(st.sampled_from(SIGNS) | st.characters(exclude_categories=["Cs"]), max_size=40)
WORDS = st.sampled_from(
    [*SPECIAL_TOKENS, " ", "  ", "   ", "\n ", " \n", "it's", "don't ", "the", " the", "1 2", "( x", "…"]
)


@settings(max_examples=300)
@given(st.lists(TEXTS | WORDS, max_size=12).map("".join))
def test_ids_are_those_of_the_tokenizer(text):
    cache = WordCache(TOKENIZER, numpy.uint16)
    expected = TOKENIZER.encode(text, add_special_tokens=False).ids
    for _ in range(2):  # encoded, then looked up
        assert cache.encode(text).tolist() == expected


def test_a_space_before_any_character_begins_a_word():
    cache = WordCache(TOKENIZER, numpy.uint16)
    for number in (*range(0x3100), *range(0x3100, 0xD800, 7), *range(0xE000, 0x110000, 1009)):
        text = f"a1.{chr(number)} {chr(number)}{chr(number)} \n{chr(number)}  {chr(number)}b 2"
        assert cache.encode(text).tolist() == TOKENIZER.encode(text, add_special_tokens=False).ids, hex(number)
        cache.clear()


@pytest.mark.parametrize("about", [{"lstrip": True}, {"rstrip": True}, {"single_word": True}, {"content": "a b"}, {}])
def test_texts_with_added_tokens_are_encoded_as_a_whole(about):
    tokenizer = with_token(**{"content": "<x>", "normalized": False, **about})
    assert is_separable(tokenizer)
    cache = WordCache(tokenizer, numpy.uint16)
    for text in ("one   <x>  two", "one<x>", "<x>", "a b", "  a b  c", "x a  b"):
        assert cache.encode(text).tolist() == tokenizer.encode(text, add_special_tokens=False).ids


def test_few_words_are_remembered_and_no_long_ones(monkeypatch):
    monkeypatch.setattr(tokens, "WORDS", 50)
    cache, texts = WordCache(TOKENIZER, numpy.uint16), topics()[30:33]
    for text in [*texts, "x " + "long" * 11 + " y"]:
        assert cache.encode(text).tolist() == TOKENIZER.encode(text, add_special_tokens=False).ids
        assert len(cache) <= 50
        assert max(map(len, cache)) <= tokens.LONG


def changed(**parts):
    tokenizer = Tokenizer.from_str(TOKENIZER.to_str())
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    return tokenizer


def with_token(**about):
    tokenizer = changed()
    tokenizer.add_tokens([AddedToken(**about)])
    return tokenizer


@pytest.mark.parametrize(
    ("tokenizer", "expected"),
    [
        (TOKENIZER, True),
        (changed(normalizer=normalizers.NFC()), True),
        (with_token(content="<x>", normalized=False), True),
        (with_token(content="<x>", normalized=True), False),
        (changed(normalizer=normalizers.NFKC()), False),
        (changed(normalizer=normalizers.Sequence([normalizers.NFC(), normalizers.Strip()])), False),
        (changed(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True)), False),
        (changed(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)), False),
        (changed(pre_tokenizer=pre_tokenizers.Whitespace()), False),
        (Tokenizer(models.BPE()), False),
        (train_tokenizer(["a b"], "word"), False),
        (train_tokenizer(["a b"], "character"), False),
        (train_tokenizer(["a b"], "bpe", 300), False),
        (train_tokenizer(["a b"], "bpe", 300, sentences=False, lowercase=True), False),
    ],
)
def test_which_tokenizers_encode_word_by_word(tokenizer, expected):
    assert is_separable(tokenizer) == expected
