"""Text of any size: blocks and chunks lose nothing, tokens are those of each chunk, bad lines are named."""

import os
import random
import sys
from pathlib import Path

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import corpus as module
from regard.data.corpus import Reading, corpus_of, open_corpus, topics
from regard.data.split import SplitError, split
from regard.data.texts import RowsError, TextError
from regard.data.tokens import train_tokenizer

CONTENT = "One.\r\n\r\n  Two\ttabs, Ünïcode 好 \x0c and\u2028marks.\n\nThe end, without a line's"
WORDS = ["ant", "bee", "cat", "Ünï", "好", "dog,", "elk.", "fox", "gnu"]
EOS = 2


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_PREPARED", str(tmp_path / "prepared"))
    return tmp_path / "prepared"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def prose(size, seed=0, ends=("\n", " ", " ")):
    generator = random.Random(seed)
    return "".join(generator.choice(WORDS) + generator.choice(ends) for _ in range(size))


def chunks(path, **options):
    return list(open_corpus(path, **options).chunks(Reading(), "reading"))


def documents(path, **options):
    """The texts, put together again."""
    texts = [""]
    for chunk in chunks(path, **options):
        texts[-1] += chunk.text
        if chunk.last:
            texts.append("")
    return texts[:-1]


def test_a_file_is_one_document_as_it_is(folder):
    path = folder / "book.txt"
    for mark in (b"", b"\xef\xbb\xbf"):
        path.write_bytes(mark + CONTENT.encode())
        assert documents(path) == [CONTENT]


def test_a_folder_is_a_document_per_file_in_order(folder):
    (folder / "b").mkdir()
    (folder / ".git").mkdir()
    contents = {"c.md": "third\n", "b/z.txt": "second\n", "a.txt": CONTENT, ".git/x": "hidden", ".y": "hidden"}
    for name, content in contents.items():
        (folder / name).write_bytes(content.encode())
    (folder / "blank.txt").write_text(" \n\n" * 5_003)
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    assert documents(folder) == [CONTENT, "second\n", "third\n"]
    assert open_corpus(folder).others == [folder / "picture.png"]


@pytest.mark.skipif(sys.platform == "win32", reason="names are text there, and pipes no files")
def test_names_that_are_no_text_are_names_and_pipes_are_not_waited_for(folder):
    strange = folder / os.fsdecode(b"caf\xe9\n.txt")
    for path in (folder / "a.txt", strange):
        path.write_bytes(prose(3_000).encode() + b"bad \xff line\n")
    os.mkfifo(folder / "pipe")
    corpus = open_corpus(folder, "skip")
    store = corpus.tokens(train_tokenizer(WORDS, "character", 300, append_eos=False, sentences=False), EOS)
    count, named = store.facts["skipped"].values()
    assert count == 2
    assert [reason.partition(": ")[0] for reason in named] == [str(folder / "a.txt"), str(strange).replace("\n", " ")]
    for path in (folder / "pipe", Path("/dev/zero")):
        with pytest.raises(TextError, match="is a pipe or a device, expected a file: save the text in one first"):
            open_corpus(path).sample()


TEXT = st.text(st.sampled_from("ab\n \r\t好🙂é\u0301"), max_size=200)


@given(TEXT, st.integers(5, 40), st.integers(1, 20))
def test_blocks_and_chunks_lose_nothing_and_stay_short(tmp_path_factory, text, block, chunk):
    path = tmp_path_factory.mktemp("corpus") / "a.txt"
    path.write_bytes(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        patch.setattr(module, "CHUNK", chunk)
        found = chunks(path)
    assert text.endswith("".join(piece.text for piece in found))
    left_out = text[: len(text) - sum(len(piece.text) for piece in found)]
    assert not left_out.strip()
    assert [piece.last for piece in found] == [False] * (len(found) - 1) + [True] * bool(found)
    for piece in found:
        assert len(piece.text) <= 2 * chunk
        assert len(piece.text.encode()) <= block


def test_chunks_are_whole_lines_where_lines_are_short(folder):
    path = folder / "a.txt"
    path.write_text(prose(60_000), encoding="utf-8")
    found = chunks(path)
    assert all(chunk.text.endswith("\n") for chunk in found[:-1])
    lengths = [len(chunk.text) for chunk in found]
    assert len(found) > 100
    assert sum(2_000 <= length < 2_100 for length in lengths) > 0.95 * len(found)


@pytest.mark.parametrize("space", [" ", ""])
def test_one_line_of_any_length_is_cut_between_words_or_characters(folder, space):
    path, text = folder / "text8", prose(400_000, ends=(space,))
    path.write_text(text, encoding="utf-8")
    assert len(text.encode()) > 1.2 * module.BLOCK
    found = [chunk.text for chunk in chunks(path)]
    assert "".join(found) == text
    assert max(map(len, found)) <= 2 * module.CHUNK
    if space:
        assert all(text.startswith(" ") for text in found[1:])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Grüße".encode("latin-1"), r"a.txt: line 1: not UTF-8 \(byte 2: .*; there is no other line"),
        (b"fine\n" + "Grüße".encode("latin-1"), r"a.txt: line 2: not UTF-8 \(byte 2: .*; fix it or pass --on-error"),
        ("one\n".encode("utf-16"), r"a.txt: is UTF-16, expected UTF-8: save it in that encoding"),
        (b"BZh91AY&SY", r"a.txt: is compressed \(bz2\), expected plain text: unpack it"),
        (b"x" * 10_007 + b"\0", r"a.txt: line 1: holds a NUL"),
        (b"one\n" + b"two" * 500_000 + b"\xff\nthree", r"a.txt: line 2: not UTF-8 \(byte 1500000"),
        (b" \n ", r": no text in it"),
        (b"", r": no text in it"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_names_the_line(folder, content, message):
    (folder / "a.txt").write_bytes(content)
    for path in (folder / "a.txt", folder):
        with pytest.raises((TextError, RowsError), match=message):
            open_corpus(path).sample()


def test_all_bad_lines_are_counted_and_can_be_left_out(folder):
    good, bad = [f"line {number}\n".encode() for number in range(50_000)], [b"NUL \0\n", b"\xff\xfe\n"]
    lines = [bad[number % 2] if number % 5_000 == 17 else line for number, line in enumerate(good)]
    (folder / "a.txt").write_bytes(b"".join(lines))
    with pytest.raises(RowsError) as caught:
        open_corpus(folder / "a.txt").sample()
    assert "10 of 50,000 lines cannot be used" in str(caught.value)
    assert "a.txt: line 18: not UTF-8 (byte 0: invalid start byte)" in str(caught.value)
    assert "a.txt: line 45018: not UTF-8" in str(caught.value)
    (text,) = documents(folder / "a.txt", on_error="skip")
    assert text.encode() == b"".join(line for line in lines if line not in bad)
    tokenizer = train_tokenizer([text], "character")
    store = open_corpus(folder / "a.txt", "skip").tokens(tokenizer, None)
    assert store.facts["skipped"]["count"] == 10
    assert sum(store.facts["bytes"].values()) == len(text)


def test_what_is_left_of_a_broken_file_is_text(folder):
    """Bits of a file are flipped: with --on-error skip exactly the lines that are no text are missing."""
    content, generator = prose(3_000, ends=("\n", " ")).encode(), random.Random(5)
    for _ in range(50):
        changed = bytearray(content)
        for _ in range(generator.randint(1, 20)):
            changed[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
        (folder / "a.txt").write_bytes(changed)
        lines = [line + b"\n" for line in changed.removesuffix(b"\n").split(b"\n")]
        fine = [line for line in lines if b"\0" not in line and line.decode(errors="ignore").encode() == line]
        if len(fine) < len(lines):
            with pytest.raises(RowsError, match=rf"{len(lines) - len(fine):,} of {len(lines):,} lines|line \d+: "):
                open_corpus(folder / "a.txt").sample()
        (text,) = documents(folder / "a.txt", on_error="skip")
        assert text.rstrip("\n").encode() == b"".join(fine).rstrip(b"\n")


def test_missing_files_and_empty_folders(folder):
    with pytest.raises(TextError, match="none: No such file"):
        open_corpus(folder / "none")
    with pytest.raises(TextError, match="no text in it"):
        open_corpus(folder).sample()


def simple(texts, tokenizer, eos, share):
    """The ids of each part, and its bytes, in memory."""
    pieces = []
    for text in texts:
        lines = [""]
        for line in text.splitlines(keepends=True):
            if len(lines[-1]) >= module.CHUNK:
                lines.append("")
            lines[-1] += line
        pieces += [(line, number == len(lines)) for number, line in enumerate(lines, 1)]
    parts = split(pieces, lambda piece: piece[0], share, share)
    ids, sizes = {}, {}
    for name in ("train", "validation", "test"):
        part = getattr(parts, name)
        sizes[name] = sum(len(text.encode()) for text, _ in part)
        ids[name] = []
        for text, last in part:
            ids[name] += tokenizer.encode(text, add_special_tokens=False).ids + ([eos] if last and eos else [])
    return ids, sizes, [text for text, _ in parts.validation[:2]]


@pytest.mark.parametrize("kind", ["bpe", "character", "word"])
@pytest.mark.parametrize("eos", [EOS, None])
@pytest.mark.parametrize("size", [1_500, 30_000])
def test_tokens_are_those_of_the_simple_way(folder, kind, eos, size, monkeypatch):
    texts = [prose(size, seed) for seed in range(3)]
    for number, text in enumerate(texts):
        (folder / f"{number}.txt").write_text(text, encoding="utf-8")
    monkeypatch.setattr(module, "ENOUGH", 10_000)
    total = sum(len(text.encode()) for text in texts)
    tokenizer = train_tokenizer(texts, kind, 300, append_eos=False, sentences=False)
    ids, sizes, samples = simple(texts, tokenizer, eos, min(0.05, 10_000 / total))
    for corpus in (open_corpus(folder), corpus_of(texts, "texts")):
        monkeypatch.setenv("REGARD_PREPARED", str(folder.parent / corpus.digest[:5] / corpus.name.strip("/")[-5:]))
        store = corpus.tokens(tokenizer, eos)
        for part, expected in ids.items():
            assert store.column(part).between(0, 1 << 60).tolist() == expected
        assert store.facts["bytes"] == sizes
        assert store.facts["samples"] == samples
        everything = corpus.all_tokens(tokenizer, eos)
        assert len(everything.column("all")) == sum(map(len, ids.values()))
        assert everything.facts["bytes"] == {"all": total}
        plain = tokenizer.encode("".join(texts[:1])[:700], add_special_tokens=False).ids[:100]
        assert everything.column("all").between(0, 100).tolist() == plain


def test_a_store_belongs_to_a_content_and_a_tokenizer_wherever_the_file_is(folder):
    text = prose(9_000)
    tokenizers = [train_tokenizer([text], "character", size) for size in (20, 21)]
    (folder / "a.txt").write_text(text, encoding="utf-8")
    first = open_corpus(folder / "a.txt").tokens(tokenizers[0], EOS)
    assert open_corpus(folder / "a.txt").tokens(tokenizers[1], EOS).key != first.key
    assert open_corpus(folder / "a.txt").tokens(tokenizers[0], None).key != first.key
    (folder / "a.txt").rename(folder / "b.txt")
    assert open_corpus(folder / "b.txt").tokens(tokenizers[0], EOS).key == first.key
    (folder / "b.txt").write_text(text + ".", encoding="utf-8")
    assert open_corpus(folder / "b.txt").tokens(tokenizers[0], EOS).key != first.key


def test_a_file_that_changes_while_it_is_read_is_refused(folder, home):
    path = folder / "a.txt"
    path.write_text(prose(9_000), encoding="utf-8")
    corpus = open_corpus(path)
    tokenizer = train_tokenizer(corpus.sample(), "character")
    with path.open("a") as file:
        file.write("more")
    with pytest.raises(TextError, match="changed while it was read"):
        corpus.tokens(tokenizer, EOS)
    assert not [name for name in home.iterdir() if name.is_dir()]


def test_a_sample_is_spread_over_the_training_part(folder, monkeypatch):
    path = folder / "a.txt"
    lines = [f"{number} {'x' * 50}\n" for number in range(40_000)]
    path.write_text("".join(lines))
    everything = open_corpus(path).sample()
    size = path.stat().st_size
    monkeypatch.setattr("regard.data.tokens.SAMPLE", size // 10)
    sample = open_corpus(path).sample()
    assert set(sample) < set(everything)
    assert 0.09 * size < sum(map(len, sample)) <= 0.1 * size + 2 * module.CHUNK
    numbers = numpy.array([int(text.split()[0]) for text in sample])
    assert numpy.all(numpy.diff(numbers) > 0)
    assert numpy.diff(numbers).max() < 1_500
    tokenizer = train_tokenizer(sample, "character")
    store = open_corpus(path).tokens(tokenizer, None)
    held_out = tokenizer.decode(store.column("validation").between(0, 1 << 60).tolist())
    assert not any(text in held_out for text in sample)


def test_a_text_that_repeats_itself_still_has_three_parts(folder, monkeypatch):
    """A book that stands in a file again and again: the shares of a large file are less than one of its chunks."""
    monkeypatch.setattr(module, "ENOUGH", 100)
    path, book = folder / "a.txt", prose(3_000, ends=("\n",))
    path.write_text(book * 100, encoding="utf-8")
    tokenizer = train_tokenizer([book], "character")
    store = open_corpus(path).tokens(tokenizer, None)
    assert all(len(store.column(part)) for part in ("train", "validation", "test"))
    path.write_text("the same line\n" * 10_000)
    message = "expected three different chunks of about 2,000 characters or more, .* got 2 in 140,000 characters"
    with pytest.raises(SplitError, match=message):
        open_corpus(path).tokens(tokenizer, None)


def test_the_topics_of_python_are_documents():
    documents = topics()
    assert len(documents) > 50
    assert 200_000 < sum(map(len, documents)) < 2_000_000
    assert all(document.strip() for document in documents)
    assert sum(document.startswith('The "assert" statement') for document in documents) == 1
