"""Sentences and translations: one file with a tab, or two files line by line, say the same."""

import pytest

from regard.data.pairs import Pair, pair_rows, read_pairs
from regard.data.texts import RowsError, Skipped, TextError

ENGLISH = ["Go.", "", "I am here.", 'He said "no".', " \t", "Bye"]
FRENCH = ["Va !", "", "Je suis là.", "Il a dit « non ».", "", "Salut"]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_one_file_and_two_files_give_the_same_pairs(write, end, mark):
    rows = ["\t".join(row).strip() for row in zip(ENGLISH, FRENCH, strict=True)]
    table = read_pairs(write("en-fr.tsv", mark + end.join(rows)))
    english, french = write("en", mark + end.join(ENGLISH)), write("fr", mark + end.join(FRENCH) + end)
    files = read_pairs(english, french)
    assert table == files
    assert len(files) == 4
    assert files[1] == Pair("I am here.", "Je suis là.", None)


BAD_ROWS = {
    "one column": ("Go.\tVa !\nBye\n", r"line 2: expected two columns.* got 1; or give the translations as a second"),
    "three columns": ("Go.\tVa !\n\nGo.\tVa !\tCC-BY\n", r"line 3: expected two columns.* got 3;"),
    "no translation": ("Go.\tVa !\nBye\t \n", r"line 2: its translation is blank"),
    "no sentence": ("Go.\tVa !\n\tSalut\n", r"line 2: its sentence is blank"),
    "Latin-1": ("Go.\tVa !\nHere\tL\u00e0\n".encode("latin-1"), r"pairs.tsv: line 2: not UTF-8 \(byte 6"),
    "NUL": ("Go.\tVa\0!\n", r"pairs.tsv: line 1: holds a NUL character"),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_errors_name_the_line(write, name):
    content, message = BAD_ROWS[name]
    with pytest.raises(RowsError, match=message) as caught:
        read_pairs(write("pairs.tsv", content))
    assert len(str(caught.value).splitlines()) == 1


def test_all_bad_lines_are_counted_and_the_good_ones_kept(write):
    good = [f"sentence {number}\tphrase {number}\n".encode() for number in range(7)]
    bad = [content.encode() if isinstance(content, str) else content for content, _ in BAD_ROWS.values()]
    bad = [b"".join(line for line in content.splitlines(keepends=True)[-1:]) for content in bad]
    path = write("pairs.tsv", b"".join(line for rows in zip(good, [*bad, b"\n"], strict=True) for line in rows))
    skipped = Skipped("skip", "pair")
    pairs = list(pair_rows(path, None, skipped))
    assert [pair.source for pair in pairs] == [f"sentence {number}" for number in range(7)]
    assert skipped.count == len(bad) == 6
    with pytest.raises(RowsError, match="6 of 13 pairs cannot be used"):
        read_pairs(path)


def test_a_bad_line_of_one_of_two_files_leaves_out_the_pair(write):
    sources, targets = write("en", b"a\n\xff\nc\nd\0\ne\n"), write("fr", b"A\nB\n\xff\nD\xff\nE\n")
    skipped = Skipped("skip", "pair")
    assert [pair.target for pair in pair_rows(sources, targets, skipped)] == ["A", "E"]
    assert [line.split(": ")[1] for line in skipped.named] == ["line 2", "line 3", "line 4"]
    assert [line.startswith(str(sources)) for line in skipped.named] == [True, False, True]


@pytest.mark.parametrize("content", ["\n \n\t\n", ""])
def test_blank_files(write, content):
    with pytest.raises(TextError, match=r"pairs.tsv: no line in it that is not blank"):
        read_pairs(write("pairs.tsv", content))


def test_files_that_do_not_fit_together(write):
    long, short = write("long", "1\n2\n3\n4\n5\n"), write("short", "1\n2\n3\n")
    with pytest.raises(TextError, match=r"long has 5 lines and .*short has 3: expected"):
        read_pairs(long, short)
    with pytest.raises(TextError, match=r"short has 3 lines and .*long has 5: expected"):
        read_pairs(short, long)
    with pytest.raises(RowsError, match="en: line 2: its translation is blank"):
        read_pairs(write("en", "a\nb\nc\n"), write("fr", "a\n\nc\n"))


def test_folders_and_missing_files(write, tmp_path):
    lines = write("lines", "a\n")
    for arguments in [(tmp_path,), (lines, tmp_path)]:
        with pytest.raises(TextError, match="is a folder, expected a file"):
            read_pairs(*arguments)
    for arguments in [(tmp_path / "none",), (lines, tmp_path / "none")]:
        with pytest.raises(TextError, match="none: No such file"):
            read_pairs(*arguments)
