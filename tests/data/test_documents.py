"""Documents for language models: whole files, as they are."""

import pytest

from regard.data import texts
from regard.data.texts import TextError, read_documents, read_texts
from regard.data.topics import topics

CONTENT = "One.\r\n\r\n  Two\ttabs, Ünïcode 好 \x0c and\u2028marks.\n\nThe end, without a line's"


def test_a_file_is_one_document_as_it_is(tmp_path):
    path = tmp_path / "book.txt"
    for mark in (b"", b"\xef\xbb\xbf"):
        path.write_bytes(mark + CONTENT.encode())
        assert read_documents(path) == [CONTENT]


def test_a_folder_is_a_document_per_file_in_order(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / ".git").mkdir()
    contents = {"c.md": "third\n", "b/z.txt": "second\n", "a.txt": CONTENT, ".git/x": "hidden", ".y": "hidden"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content.encode())
    (tmp_path / "blank.txt").write_text(" \n\n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    assert read_documents(tmp_path) == [CONTENT, "second\n", "third\n"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Grüße".encode("latin-1"), r"a.txt: line 1: not UTF-8 \(byte 2"),
        ("one\n".encode("utf-16"), r"a.txt: line 1: not UTF-8 \(byte 0"),
        (b"x" * 10_007 + b"\0", r"a.txt: line 1: holds a NUL"),
        (b"\n" + b"x" * (texts.MAX_LINE + 1), r"a.txt: line 2 is longer than 1048576 bytes"),
        (b" \n ", r": no text in it"),
        (b"", r": no text in it"),
    ],
)
def test_what_cannot_be_read_is_an_error_and_not_left_out(tmp_path, content, message):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    for file_or_folder in (path, tmp_path):
        with pytest.raises(TextError, match=message):
            read_documents(file_or_folder)


def test_the_longest_line_is_still_read(tmp_path):
    line = "x" * (texts.MAX_LINE - 1) + "\n"
    (tmp_path / "a.txt").write_text(line * 3)
    assert read_documents(tmp_path / "a.txt") == [line * 3]


def test_more_than_fits_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(texts, "MAX_BYTES", 101)
    for name in ("a", "b"):
        (tmp_path / name).write_text("12345\n" * 13)
    assert len(read_documents(tmp_path / "a")) == 1
    with pytest.raises(TextError, match="holds 156 bytes of text, expected 101 at most"):
        read_documents(tmp_path)
    (tmp_path / "a").write_text("12345\n" * 17)
    for read in (read_documents, read_texts):
        with pytest.raises(TextError, match="a: line 17: expected 101 bytes at most"):
            read(tmp_path / "a")


def test_missing_files_and_empty_folders(tmp_path):
    with pytest.raises(TextError, match="none: No such file"):
        read_documents(tmp_path / "none")
    with pytest.raises(TextError, match="no text in it"):
        read_documents(tmp_path)


def test_the_topics_of_python_are_documents():
    documents = topics()
    assert len(documents) > 50
    assert 200_000 < sum(map(len, documents)) < 2_000_000
    assert all(document.strip() for document in documents)
    assert sum(document.startswith('The "assert" statement') for document in documents) == 1
