"""Text from files: lines that are text, what is wrong with the others, and rows that cannot be used."""

import gzip
import json

import pytest

from regard.data import texts
from regard.data.texts import (
    Line,
    RowsError,
    Skipped,
    TextError,
    checked_lines,
    find_encoding,
    guess_encoding,
    read_texts,
)


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


def test_what_is_packed_is_no_text(write):
    with pytest.raises(TextError, match=r"lines: is compressed \(gzip\), expected plain text: unpack it"):
        list(checked_lines(write("lines", gzip.compress(b"one\n"))))


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


def test_more_than_fits_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(texts, "MAX_BYTES", 101)
    (tmp_path / "a").write_text("12345\n" * 17)
    with pytest.raises(TextError, match="a: line 17: expected 101 bytes at most"):
        read_texts(tmp_path / "a")


# ------------------------------------------------------------------------------------------------------------ bad rows


def collected(count, policy="stop", unit="row"):
    skipped = Skipped(policy, unit)
    for row in range(1, count + 1):
        skipped.add("a.tsv", row, f"reason {row}")
    return skipped


def test_no_bad_row_is_no_error_and_no_note():
    for policy in ("stop", "skip"):
        skipped = Skipped(policy)
        skipped.check(0)
        assert skipped.notes() == []


def test_a_single_row_is_named_in_one_line():
    with pytest.raises(RowsError, match=r"^a.tsv: line 1: reason 1; fix it or pass --on-error skip$"):
        collected(1).check(7)


@pytest.mark.parametrize("count", [2, 10, 11, 1_307])
def test_all_are_counted_and_ten_are_named(count):
    with pytest.raises(RowsError) as caught:
        collected(count, unit="pair").check(5)
    first, *named, last = str(caught.value).splitlines()
    assert first == f"{count:,} of {count + 5:,} pairs cannot be used:"
    assert named[:10] == [f"  a.tsv: line {row}: reason {row}" for row in range(1, min(count, 10) + 1)]
    assert named[10:] == ([f"  and {count - 10:,} more"] if count > 10 else [])
    assert last == "fix them or pass --on-error skip"
    skipped = collected(count, "skip", "pair")
    skipped.check(5)
    assert skipped.notes() == [f"{count:,} pairs are left out:", *named]


@pytest.mark.parametrize("policy", ["stop", "skip"])
@pytest.mark.parametrize(("count", "message"), [(1, "there is no other row"), (3, "none of the 3 rows can be used")])
def test_nothing_usable_is_an_error_under_both_policies(policy, count, message):
    with pytest.raises(RowsError, match=message):
        collected(count, policy).check(0)


def test_a_store_remembers_them():
    again = Skipped("skip", facts=json.loads(json.dumps(collected(13).facts())))
    assert again.notes() == collected(13, "skip").notes()


def test_a_place_may_be_a_file_and_a_reason_stays_on_its_line():
    skipped = Skipped("skip", "image")
    skipped.add("a.png", None, "is\ntruncated")
    assert skipped.notes()[1:] == ["  a.png: is truncated"]


def test_another_policy_is_refused():
    with pytest.raises(ValueError, match="policy: expected stop or skip, got 'ignore'"):
        Skipped("ignore")
