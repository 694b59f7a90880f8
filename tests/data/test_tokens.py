"""Tokenizers: what is encoded comes back, words are words, marks have their places."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from regard.data.tokens import BEGIN, END, MARKS, MASK, PADDING, UNKNOWN, train_tokenizer
from regard.data.words import split

TEXTS = ["l'homme n'est pas sur le tapis.", "est-ce que le chat dort ?", "the cat is on the mat", "猫 在 垫子 上"]


@pytest.mark.parametrize("sentences", [True, False])
@pytest.mark.parametrize("kind", ["bpe", "character", "word"])
def test_texts_come_back(kind, sentences):
    tokenizer = train_tokenizer(TEXTS, kind, 400, sentences=sentences)
    for text in TEXTS:
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


@pytest.mark.parametrize("kind", ["bpe", "character", "word"])
def test_marks_are_where_they_are_expected(kind):
    tokenizer = train_tokenizer(TEXTS, kind, 400)
    assert [tokenizer.token_to_id(mark) for mark in MARKS] == [PADDING, BEGIN, END, UNKNOWN, MASK] == list(range(5))
    assert tokenizer.encode("the cat").ids[-1] == END
    assert END not in tokenizer.encode("the cat", add_special_tokens=False).ids
    assert END not in train_tokenizer(TEXTS, kind, 400, ended=False).encode("the cat").ids


@given(some.text(alphabet=some.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=40))
def test_bytes_can_say_everything(text):
    """Byte pairs know no unknown words; only what Unicode calls equal becomes equal."""
    import unicodedata

    tokenizer = _bytes()
    found = tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False)
    assert found == unicodedata.normalize("NFC", text) + MARKS[END]


def _bytes(kept=[]):  # noqa: B006 (it is trained once)
    if not kept:
        kept.append(train_tokenizer(TEXTS, "bpe", 300, sentences=False))
    return kept[0]


def test_words_are_the_words_of_alignments():
    tokenizer = train_tokenizer(TEXTS, "word", 400)
    for text in TEXTS:
        tokens = tokenizer.encode(text, add_special_tokens=False)
        assert [text[slice(*place)].strip() for place in tokens.offsets] == split(text)


def test_the_vocabulary_has_its_limit():
    assert train_tokenizer(TEXTS, "word", 11).get_vocab_size() == 11
    assert train_tokenizer(TEXTS, "word", 11).encode("tapis").ids[0] in range(11)


def test_byte_pairs_need_room_for_every_byte():
    assert train_tokenizer(TEXTS, "bpe", 261).get_vocab_size() == 261
    with pytest.raises(ValueError, match=r"expected 261 or more for bpe.*got 260"):
        train_tokenizer(TEXTS, "bpe", 260)


def test_capitals_can_be_read_over():
    tokenizer = train_tokenizer(TEXTS, "word", 400, lowercase=True)
    assert tokenizer.encode("The CAT").ids == tokenizer.encode("the cat").ids


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="one of bpe, character, word"):
        train_tokenizer(TEXTS, "letters")
