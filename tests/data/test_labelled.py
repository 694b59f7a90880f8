"""Texts with labels: three formats that say the same, and the errors of those that cannot be used."""

import csv
import json

import pytest

from regard.data.labelled import Labelled, labelled_rows, read_labelled
from regard.data.tables import TableError
from regard.data.texts import RowsError, Skipped, TextError

ROWS = [("good film", "pos"), ('"so", he said; bad', "neg"), ("naïve, plain", "neg"), ("très 好", "pos"), ("x", "neg")]


def as_csv(path, separator):
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerows([("id", "label", "text"), *((str(i), label, text) for i, (text, label) in enumerate(ROWS))])
    return path


def as_tsv(path):
    path.write_text("".join(f"{text}\t{label}\n" for text, label in [("text", "label"), *ROWS]), encoding="utf-8")
    return path


def as_json(path):
    lines = (json.dumps({"label": label, "n": 1, "text": text}) for text, label in ROWS)
    path.write_text("\n\n".join(lines), encoding="utf-8")
    return path


def test_every_format_gives_the_same(tmp_path):
    files = [as_csv(tmp_path / "a.csv", ","), as_csv(tmp_path / "b.CSV", ";"), as_csv(tmp_path / "c.csv", "\t")]
    files += [as_tsv(tmp_path / "a.tsv"), as_json(tmp_path / "a.jsonl"), as_json(tmp_path / "a.ndjson")]
    for path in files:
        assert read_labelled(path) == [Labelled(*row) for row in ROWS]


def test_quotation_marks_join_lines_in_csv_and_are_characters_in_tsv(write):
    examples = read_labelled(write("data.csv", 'text,label\n"one\ntwo",a\n\n"three\n\nfour",b\nfive,a\n'))
    assert examples == [Labelled("one\ntwo", "a"), Labelled("three\n\nfour", "b"), Labelled("five", "a")]
    examples = read_labelled(write("data.tsv", 'text\tlabel\n"open\ta\nclosed"\tb\n'))
    assert examples == [Labelled('"open', "a"), Labelled('closed"', "b")]


def test_columns_of_other_names(write):
    path = write("data.csv", "text,review,label,stars\nx,fine,y,5\nx,poor,y,1\n")
    assert read_labelled(path, "review", "stars") == [Labelled("fine", "5"), Labelled("poor", "1")]


@pytest.mark.parametrize("labels", [(0, -7, 11), (True, False), ("true", "0")])
def test_numbers_and_truth_values_are_labels_as_json_writes_them(write, labels):
    lines = [json.dumps({"text": "x", "label": label}) for label in labels]
    examples = read_labelled(write("data.jsonl", "\n".join(lines)))
    assert [example.label for example in examples] == [
        label if isinstance(label, str) else json.dumps(label) for label in labels
    ]


@pytest.mark.parametrize(("one", "other"), [(1, "1"), ("1", 1), (True, "true"), (0, False), (3, "three")])
def test_labels_of_two_types_are_an_error_that_names_both_rows(write, one, other):
    path = write("data.jsonl", "\n".join(json.dumps({"text": "x", "label": label}) for label in (one, one, other)))
    message = f"line 3: its label {json.dumps(other)} is .*, but that of line 1, {json.dumps(one)}, is"
    for policy in ("stop", "skip"):
        with pytest.raises(TableError, match=message):
            list(labelled_rows(path, "text", "label", Skipped(policy)))


HEAD = "text,label\n"
BAD_TABLES = {
    "a missing column.csv": ("tezt,label\nx,a\n", r"no column 'text'; did you mean 'tezt'\? \(columns: tezt, label\)"),
    "a missing column.tsv": ("text\tlabels\nx\ta\n", r"no column 'label'; did you mean 'labels'\?"),
    "twins.csv": ("text,label,text\nx,a,y\n", r"line 1: columns 1, 3 are all called 'text'"),
    "other twins.tsv": ("text\tlabel\tn\t n\nx\ta\t1\t2\n", r"line 1: columns 3, 4 are all called 'n'"),
    "one class.csv": (f"{HEAD}x,a\ny,a\nz,a\n", r"expected two classes or more, all 3 rows are 'a'"),
    "no rows.csv": (HEAD, r"no rows"),
    "no rows.jsonl": ("\n\n", r"no rows"),
    "nothing.csv": ("", r"line 1: expected a header with the columns 'text' and 'label', got none"),
    "nothing.tsv": ("", r"line 1: expected a header"),
    "a blank header.csv": ("\nx,a\n", r"line 1: expected a header"),
    "NUL in the header.csv": ("te\0xt,label\nx,a\n", r"line 1: the header cannot be read: holds a NUL"),
    "an open header.csv": ('"text,label\nx,a\n', r"line 1: the header cannot be read: unexpected end of data"),
    "another format.txt": ("x", r"expected a file that ends in .csv, .tsv, .jsonl, .ndjson, got .txt"),
    "no ending": ("x", r"expected a file that ends in .* got no ending"),
}
PACKED = {
    "a workbook.csv": (b"PK\3\4\0\0\0\0", r"is a workbook of Excel, or a zip archive, expected plain text"),
    "an old workbook.csv": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", r"is a workbook of Excel"),
    "packed.csv": (b"\x1f\x8b\x08\0\0\0\0\0", r"is compressed \(gzip\), expected plain text"),
}
BAD_ROWS = {
    "a missing key.jsonl": ('{"text": "x", "lable": 1}', r"line 1: no column 'label'; did you mean 'lable'\?"),
    "no text.csv": (f"{HEAD}x,a\n ,b\n", r"line 3: column 'text' is empty"),
    "a long row before.csv": (f'{HEAD}"x\n\ny",a\n ,b\n', r"line 5: column 'text' is empty"),
    "no label.csv": (f"{HEAD}x,a\ny,\n", r"line 3: column 'label' is empty"),
    "no label.tsv": ("text\tlabel\nx\t\n", r"line 2: column 'label' is empty"),
    "a comma too many.csv": (f"{HEAD}x,a\ny, z,b\n", r"line 3: expected 2 columns, got 3"),
    "a short row.tsv": ("text\tlabel\nx\ta\ny\n", r"line 3: expected 2 columns, got 1"),
    "an open mark.csv": (f'{HEAD}x,a\n"y,b\nz,a\nv,b\n', r"line 3: unexpected end of data; is a quotation mark open"),
    "no JSON.jsonl": ('{"text": "x", "label": 1}\n{"text": \n', r"line 2: is not JSON"),
    "a list.jsonl": ('["x", "a"]', r"line 1: expected a JSON object .* got \['x', 'a'\]"),
    "a number as text.jsonl": ('{"text": 5, "label": 1}', r"line 1: 'text': expected a string, got 5"),
    "a list as label.jsonl": (
        '{"text": "x", "label": [1]}',
        r"line 1: 'label': expected a string, a whole number, .* got \[1\]",
    ),
    "null.jsonl": ('{"text": "x", "label": null}', r"line 1: 'label': expected .*, true or false, got None"),
    "half a character.jsonl": (r'{"text": "x\ud800", "label": "a"}', r"line 1: 'text': holds '\\ud800'"),
    "a written NUL.jsonl": (r'{"text": "x\u0000", "label": "a"}', r"line 1: 'text': holds '\\x00'"),
    "deep.jsonl": ("[" * 100_000, r"line 1: is not JSON"),
    "a long number.jsonl": (f'{{"text": "x", "label": {"7" * 50_000}}}', r"line 1: is not JSON"),
    "no UTF-8.csv": (b"text,label\nx,\xff\n", r"line 2: not UTF-8 \(byte 2: invalid start byte\)"),
    "no UTF-8.tsv": (b"text\tlabel\n\xe9\xa9\tb\xc3\xa9\n", r"line 2: not UTF-8 \(byte 0: invalid continuation byte\)"),
    "no UTF-8.jsonl": (b'{"text": "x\xe9", "label": "a"}', r"line 1: not UTF-8 \(byte 11"),
    "NUL.csv": (f"{HEAD}x,a\ny\0,b\n", r"line 3: holds a NUL"),
    "NUL.tsv": ("text\tlabel\nx\ty\0\n", r"line 2: holds a NUL"),
    "NUL.jsonl": ('{"text": "x\0", "label": "a"}', r"line 1: holds a NUL"),
    "NUL in a long row.csv": (f'{HEAD}x,a\n"y\n\0z",b\n', r"line 4: holds a NUL"),
}


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (kind, name)
        for kind, names in ((TableError, BAD_TABLES), (TextError, PACKED), (RowsError, BAD_ROWS))
        for name in names
    ],
)
def test_errors_name_the_line_in_one_line(write, error, name):
    content, message = (BAD_TABLES | PACKED | BAD_ROWS)[name]
    with pytest.raises(error, match=f"{name}: {message}") as caught:
        read_labelled(write(name, content))
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("name", BAD_ROWS)
def test_bad_rows_are_left_out_and_the_rows_around_them_are_read(write, name):
    """Two good rows before a bad one and three after it."""
    content = BAD_ROWS[name][0]
    header, *bad = (content if isinstance(content, bytes) else content.encode()).splitlines(keepends=True)
    good = {
        "csv": lambda number: f"good {number},c\n",
        "tsv": lambda number: f"good {number}\tc\n",
        "jsonl": lambda number: f'{{"text": "good {number}", "label": "c"}}\n',
    }[name.rpartition(".")[2]]
    if name.endswith("jsonl"):
        header, bad = b"", [header, *bad, b"\n"]
    before, after = (b"".join(good(number).encode() for number in numbers) for numbers in ((1, 2), (3, 4, 5)))
    skipped = Skipped("skip")
    path = write(name, header + before + b"".join(bad) + after)
    if name == "no JSON.jsonl":  # its good row has a number as label
        path.write_bytes(path.read_bytes().replace(b'"label": 1', b'"label": "c"'))
    texts = [example.text for example in labelled_rows(path, "text", "label", skipped)]
    assert [text for text in texts if text.startswith("good")] == [f"good {number}" for number in range(1, 6)]
    assert skipped.count == 1


MESSY = 'text{0}label\r\n"naïve{0} plain"{0}pos\r\n“quoted” — dash{0}neg\r\n\r\nœuvre{0}neg\r\n'


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-32"])
@pytest.mark.parametrize("end", ["\r\n", "\n", "\r"])
def test_messy_tables_are_read(write, separator, encoding, end):
    content = MESSY.format(separator).replace("\r\n", end)
    expected = [
        Labelled(f"naïve{separator} plain", "pos"),
        Labelled("“quoted” — dash", "neg"),
        Labelled("œuvre", "neg"),
    ]
    for first in ("", f"sep={separator}{end}"):
        assert read_labelled(write("data.csv", (first + content).encode(encoding))) == expected


def test_a_file_in_utf_8_with_a_damaged_line_is_not_taken_for_windows_1252(write):
    rows = [f"déjà {number},{'ab'[number % 2]}\n".encode() for number in range(7)]
    path = write("data.csv", HEAD.encode() + b"".join(rows[:4]) + b"caf\xe9,a\n" + b"".join(rows[4:]))
    with pytest.raises(RowsError, match=r"data.csv: line 6: not UTF-8 \(byte 3"):
        read_labelled(path)
    skipped = Skipped("skip")
    assert [row.text for row in labelled_rows(path, "text", "label", skipped)] == [f"déjà {n}" for n in range(7)]


def test_a_missing_file_is_named(tmp_path):
    for ending in ("csv", "tsv", "jsonl"):
        with pytest.raises(TextError, match=f"none.{ending}: No such file"):
            read_labelled(tmp_path / f"none.{ending}")


def test_folders_and_a_column_named_twice(write, tmp_path):
    with pytest.raises(TableError, match="is a folder"):
        read_labelled(tmp_path)
    with pytest.raises(TableError, match="expected two columns, text and label, got 'label' for both"):
        read_labelled(write("data.csv", "label\nx\n"), "label", "label")


def test_a_header_of_many_columns_and_line_ends_makes_a_short_message(write):
    header = ",".join(f'"column\n{number}"' for number in range(1009))
    with pytest.raises(TableError, match="no column 'text'") as caught:
        read_labelled(write("data.csv", f"{header}\n"))
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 600
