"""Lines of files: those that are text, and what is wrong with the others."""

import pytest

from regard.data import texts
from regard.data.texts import Line, TextError, checked_lines, find_encoding, guess_encoding


def test_lines_keep_their_ends_and_numbers(write):
    path = write("lines", b"one\r\n\n two\ttabs\rback\nlast")
    assert list(checked_lines(path)) == [
        Line(1, "one\r\n"),
        Line(2, "\n"),
        Line(3, " two\ttabs\rback\n"),
        Line(4, "last"),
    ]
    ended = [line.text for line in checked_lines(path, newline="")]
    assert ended == ["one\r\n", "\n", " two\ttabs\r", "back\n", "last"]


def test_a_line_that_is_no_text_is_one_line(write):
    path = write("lines", b"good\n\xff bad\nn\0l\n\xc3\n\xc3\xa9\n\xed\xa0\x80\n\xf0\x9f\x99\x82 good\n")
    flaws = {line.number: line.flaw for line in checked_lines(path) if line.flaw}
    assert flaws == {
        2: "not UTF-8 (byte 0: invalid start byte)",
        3: "holds a NUL character, so it is no text",
        4: "not UTF-8 (byte 0: invalid continuation byte)",
        6: "not UTF-8 (byte 0: invalid continuation byte)",  # half a pair of surrogates
    }
    assert [line.text for line in checked_lines(path) if not line.flaw] == ["good\n", "é\n", "🙂 good\n"]


@pytest.mark.parametrize("size", [49, 50, 51, 1_009])
def test_a_line_that_is_too_long_is_skipped(write, monkeypatch, size):
    monkeypatch.setattr(texts, "MAX_LINE", 50)
    monkeypatch.setattr(texts, "BLOCK", 7)
    lines = list(checked_lines(write("lines", "é" * (size - 1) + "\nnext\n")))
    assert [line.number for line in lines] == [1, 2]
    assert lines[1] == Line(2, "next\n")
    assert bool(lines[0].flaw) == (size > 50)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_mark_tells_the_encoding(write, encoding):
    path = write("lines", "één\ntwee\n".encode(encoding))
    assert [line.text for line in checked_lines(path)] == ["één\n", "twee\n"]
    assert guess_encoding(path) == find_encoding(path)
    path.write_bytes(path.read_bytes()[:-1])
    if encoding == "utf-8-sig":
        assert [line.text for line in checked_lines(path)] == ["één\n", "twee"]
    else:
        with pytest.raises(TextError, match="lines: is not UTF-"):
            list(checked_lines(path))


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"plain\n" * 5, "UTF-8"),
        (b"", "UTF-8"),
        ("naïve\n".encode(), "UTF-8"),
        ("naïve “so” €\n".encode("cp1252"), "Windows-1252"),
        ("naïve\n".encode("cp1252") + "naïve\n".encode(), "UTF-8"),  # one damaged line
        (b"plain\n\xff\xfe\n", "UTF-8"),  # neither
        (b"plain\n\x81\n", "UTF-8"),
        ("Größe\n".encode("latin-1") + b"\0\n", "Windows-1252"),
    ],
)
@pytest.mark.parametrize("block", [1, 2, 3, 1 << 20])
def test_an_encoding_is_guessed_from_the_whole_file(write, monkeypatch, content, name, block):
    monkeypatch.setattr(texts, "BLOCK", block)
    assert guess_encoding(write("table.csv", content)).name == name
