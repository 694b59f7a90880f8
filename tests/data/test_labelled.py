"""Texts with labels: three formats that say the same, and the errors of those that cannot be used."""

import csv
import json

import pytest

from regard.data.labelled import Labelled, read_labelled
from regard.data.tables import TableError
from regard.data.texts import TextError

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


def test_numbers_and_truth_values_are_labels_as_json_writes_them(write):
    lines = [json.dumps({"text": "x", "label": label}) for label in (0, -7, True, "true", "0")]
    examples = read_labelled(write("data.jsonl", "\n".join(lines)))
    assert [example.label for example in examples] == ["0", "-7", "true", "true", "0"]


HEAD = "text,label\n"
BAD = {
    "a missing column.csv": ("tezt,label\nx,a\n", r"no column 'text'; did you mean 'tezt'\? \(columns: tezt, label\)"),
    "a missing column.tsv": ("text\tlabels\nx\ta\n", r"no column 'label'; did you mean 'labels'\?"),
    "a missing key.jsonl": ('{"text": "x", "lable": 1}', r"line 1: no column 'label'; did you mean 'lable'\?"),
    "no text.csv": (f"{HEAD}x,a\n ,b\n", r"line 3, column 'text': is empty"),
    "a long row before.csv": (f'{HEAD}"x\n\ny",a\n ,b\n', r"line 5, column 'text': is empty"),
    "no label.csv": (f"{HEAD}x,a\ny,\n", r"line 3, column 'label': is empty"),
    "no label.tsv": ("text\tlabel\nx\t\n", r"line 2, column 'label': is empty"),
    "a comma too many.csv": (f"{HEAD}x,a\ny, z,b\n", r"line 3: expected 2 columns, got 3"),
    "a short row.tsv": ("text\tlabel\nx\ta\ny\n", r"line 3: expected 2 columns, got 1"),
    "an open mark.csv": (f'{HEAD}x,a\n"y,b\nz,a\nv,b\n', r"line 3: unexpected end of data; is a quotation mark open"),
    "a long cell.csv": (f'{HEAD}x,a\n"{"y" * 200_000}",b\n', r"line 3: field larger than field limit"),
    "one class.csv": (f"{HEAD}x,a\ny,a\nz,a\n", r"expected two classes or more, all 3 rows are 'a'"),
    "no rows.csv": (HEAD, r"no rows"),
    "no rows.jsonl": ("\n\n", r"no rows"),
    "nothing.csv": ("", r"line 1: expected a header with the columns 'text' and 'label', got none"),
    "nothing.tsv": ("", r"line 1: expected a header"),
    "a blank header.csv": ("\nx,a\n", r"line 1: expected a header"),
    "no JSON.jsonl": ('{"text": "x", "label": 1}\n{"text": \n', r"line 2: is not JSON"),
    "a list.jsonl": ('["x", "a"]', r"line 1: expected a JSON object .* got \['x', 'a'\]"),
    "a number as text.jsonl": ('{"text": 5, "label": 1}', r"line 1, 'text': expected a string, got 5"),
    "a list as label.jsonl": ('{"text": "x", "label": [1]}', r"line 1, 'label': expected a string, got \[1\]"),
    "null.jsonl": ('{"text": "x", "label": null}', r"line 1, 'label': expected a string, got None"),
    "half a character.jsonl": (r'{"text": "x\ud800", "label": "a"}', r"line 1, 'text': holds '\\ud800'"),
    "a written NUL.jsonl": (r'{"text": "x\u0000", "label": "a"}', r"line 1, 'text': holds '\\x00'"),
    "deep.jsonl": ("[" * 100_000, r"line 1: is not JSON"),
    "a long number.jsonl": (f'{{"text": "x", "label": {"7" * 50_000}}}', r"line 1: is not JSON"),
    "another format.txt": ("x", r"expected a file that ends in .csv, .tsv, .jsonl, .ndjson, got .txt"),
    "no ending": ("x", r"expected a file that ends in .* got no ending"),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_name_the_line_in_one_line(write, name):
    content, message = BAD[name]
    with pytest.raises(TableError, match=f"{name}: {message}") as caught:
        read_labelled(write(name, content))
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(("ending", "header"), [("csv", b"text,label"), ("tsv", b"text\tlabel"), ("jsonl", b"")])
def test_what_is_no_text(write, ending, header):
    with pytest.raises(TextError, match=r"line 2: not UTF-8 \(byte 2"):
        read_labelled(write(f"data.{ending}", header + b"\nna\xefve\n"))
    with pytest.raises(TextError, match="line 1: holds a NUL"):
        read_labelled(write(f"data.{ending}", "te\0xt,label\n"))
    with pytest.raises(TextError, match="No such file"):
        read_labelled(write(f"data.{ending}", "x").with_name(f"none.{ending}"))


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
