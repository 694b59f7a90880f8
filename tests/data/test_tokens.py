"""Tokenizers: what is encoded comes back, words are words, special tokens have fixed ids."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import tokens
from regard.data.tokens import BOS, EOS, MASK, PAD, SPECIAL_TOKENS, UNK, train_tokenizer
from regard.data.words import split
from regard.models.tokenizer_files import read_tokenizer

TEXTS = ["l'homme n'est pas sur le tapis.", "est-ce que le chat dort ?", "the cat is on the mat", "猫 在 垫子 上"]
BYTE_PAIRS = train_tokenizer(TEXTS, "bpe", 300, sentences=False)


@pytest.mark.parametrize("sentences", [True, False])
@pytest.mark.parametrize("kind", ["bpe", "character", "word"])
def test_texts_come_back(kind, sentences):
    tokenizer = train_tokenizer(TEXTS, kind, 400, sentences=sentences)
    for text in TEXTS:
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


@pytest.mark.parametrize("kind", ["bpe", "character", "word"])
def test_special_tokens_have_fixed_ids(kind):
    tokenizer = train_tokenizer(TEXTS, kind, 400)
    ids = [tokenizer.token_to_id(token) for token in SPECIAL_TOKENS]
    assert ids == [PAD, BOS, EOS, UNK, MASK] == list(range(5))
    assert tokenizer.encode("the cat").ids[-1] == EOS
    assert EOS not in tokenizer.encode("the cat", add_special_tokens=False).ids
    assert EOS not in train_tokenizer(TEXTS, kind, 400, append_eos=False).encode("the cat").ids


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=40))
def test_byte_pairs_can_encode_everything(text):
    """Only what Unicode calls equal becomes equal."""
    decoded = BYTE_PAIRS.decode(BYTE_PAIRS.encode(text).ids, skip_special_tokens=False)
    assert decoded == unicodedata.normalize("NFC", text) + SPECIAL_TOKENS[EOS]


def test_words_are_the_words_of_alignments():
    tokenizer = train_tokenizer(TEXTS, "word", 400)
    for text in TEXTS:
        tokens = tokenizer.encode(text, add_special_tokens=False)
        assert [text[slice(*span)].strip() for span in tokens.offsets] == split(text)


def test_the_vocabulary_has_its_limit():
    assert train_tokenizer(TEXTS, "word", 11).get_vocab_size() == 11
    assert train_tokenizer(TEXTS, "bpe", 261).get_vocab_size() == 261
    with pytest.raises(ValueError, match=r"expected 261 or more for bpe.*got 260"):
        train_tokenizer(TEXTS, "bpe", 260)


@pytest.mark.parametrize("kind", ["bpe", "word"])
@pytest.mark.parametrize("unbroken", ["x", " ", "\n", "\U0001d160"])
def test_an_unbroken_run_makes_no_long_tokens_and_takes_no_longer_than_other_text(unbroken, kind, tmp_path):
    """As one word, 100,000 characters take seconds, and three million an hour. (The last becomes three by NFC.)"""
    tokenizer = train_tokenizer([*TEXTS, f"a{100_000 * unbroken}b"], kind, 300)
    assert max(map(len, tokenizer.get_vocab())) <= 12 * tokens.RUN + 1  # the space before it
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    read = read_tokenizer(tmp_path / "tokenizer.json")
    assert read.to_str() == tokenizer.to_str()
    if kind == "bpe":
        text = unicodedata.normalize("NFC", f"a{900 * unbroken}b")
        assert read.decode(read.encode(text).ids) == text


def test_a_damaged_tokenizer_file_is_made_anew(monkeypatch, tmp_path):
    monkeypatch.setenv("REGARD_PREPARED", str(tmp_path))
    first = tokens.trained_tokenizer({}, lambda: TEXTS, "bpe", 300)
    (path,) = tmp_path.glob("tokenizer-*.json")
    path.write_bytes(path.read_bytes()[:1_000])
    assert tokens.trained_tokenizer({}, lambda: TEXTS, "bpe", 300).to_str() == first.to_str()
    assert tokens.trained_tokenizer({}, lambda: pytest.fail("read again"), "bpe", 300).to_str() == first.to_str()


def test_capitals_can_be_ignored():
    tokenizer = train_tokenizer(TEXTS, "word", 400, lowercase=True)
    assert tokenizer.encode("The CAT").ids == tokenizer.encode("the cat").ids


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="one of bpe, character, word"):
        train_tokenizer(TEXTS, "letters")
