"""Tables: what is read from files in many forms, and the errors of those that cannot be."""

import bz2
import gzip
import io
import lzma
import os
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy
import pandas
import pyarrow
import pytest

from regard.data import tables
from regard.data.columns import column_kinds, text_column, understand
from regard.data.tables import TableError, read_table


def columns(path, names=None, **options):
    table = read_table(path)
    return understand(table, names or [name.strip() for name in table.names], **options)


def values(column):
    return [None if missing else value for value, missing in zip(column.values, column.missing, strict=True)]


TEXTS = {
    "commas": "a,b\n1,2\n3,4\n",
    "semicolons": "a;b\n1;2\n\n3;4",
    "tabs": "a\tb\r\n1\t2\r\n3\t4\r\n",
    "bars": "a|b\n1|2\n3|4\n",
    "blanks": "a   b\n1   2\n3   4\n",
    "blanks around": "\ufeffa, b\n1, 2\n3, 4\n",
    "quotes": '"a","b"\n"1","2"\n"3","4"\n',
    "old Macs": "a,b\r1,2\r3,4",
    "comments": "# by a program\na,b\n1,2\n# more\n3,4\n",
    "a commented header": "# by a program\n# a b\n1 2\n3 4\n",
    "Excel's first line": "sep=;\na;b\n1;2\n3;4\n",
    "a title": "Sales of the year\n\na;b\n1;2\n3;4\n",
    "a title with separators": "Sales of the year,\nby shop,\n,\na,b\n1,2\n3,4\n",
    "separators at the ends": "a,b\n1,2,\n3,4,\n",
    "separators at all ends": "a,b,,\n1,2,,\n3,4,,\n",
}
PACKED = {
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda raw: pyarrow.compress(raw, "zstd", asbytes=True),
    "UTF-16": lambda raw: raw.decode().encode("utf-16"),
    "UTF-16 without a mark": lambda raw: raw.decode().encode("utf-16-be"),
}


@pytest.mark.parametrize("form", TEXTS)
def test_texts_in_many_forms(write, form):
    found = columns(write("data.csv", TEXTS[form]), ["b", "a"])
    assert list(found) == ["b", "a"]
    assert found["a"].values.tolist() == [1, 3]
    assert found["b"].values.tolist() == [2, 4]
    assert [column.kind for column in found.values()] == ["numbers", "numbers"]


@pytest.mark.parametrize("packing", PACKED)
def test_compressed_and_encoded_files(write, packing):
    path = write("data", PACKED[packing]("größe,b\n1,2\n3,4\n".encode()))
    assert columns(path, ["größe"])["größe"].values.tolist() == [1, 3]
    assert packing.split()[0] in read_table(path).form


def test_an_archive_with_one_file(write):
    for names in (["a.csv"], ["a.csv", "b.csv"]):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            for name in names:
                archive.writestr(name, "a,b\n1,2\n")
        path = write("data.zip", stream.getvalue())
        if len(names) == 1:
            assert columns(path)["b"].values.tolist() == [2]
        else:
            with pytest.raises(TableError, match="expected one file in it, got 2"):
                read_table(path)


@pytest.mark.parametrize(
    ("codec", "name", "said"),
    [("latin-1", "größe", "Latin-1"), ("cp1252", "preis €", "Windows-1252"), ("gb18030", "销售额", "gb18030")],
)
def test_encodings_of_old(write, codec, name, said):
    path = write("data.csv", f"{name},b\n1,2\n".encode(codec))
    table = read_table(path, codec if codec == "gb18030" else None)
    assert table.names == (name, "b")
    assert said in table.form


def test_workbooks_are_refused(write):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in ("xl/workbook.xml", "xl/worksheets/sheet1.xml"):
            archive.writestr(name, "<xml/>")
    for content in (stream.getvalue(), b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"):
        with pytest.raises(TableError, match="is a workbook of Excel; save it as CSV"):
            read_table(write("data.xlsx", content))


def test_stdin(monkeypatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"a,b\n1,2\n")))
    table = read_table(Path("-"))
    assert (table.place, table.names, len(table)) == ("stdin", ("a", "b"), 1)


def test_parquet_is_known_by_its_content(monkeypatch, tmp_path):
    stream = io.BytesIO()
    pandas.DataFrame({"a": [1, 2], "b": [3.5, None]}).to_parquet(stream)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(stream.getvalue())))
    table = read_table(Path("-"))
    assert (table.place, table.names, table.form, len(table)) == ("stdin", ("a", "b"), "parquet", 2)


def test_a_stream_without_an_end_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(tables, "STREAMED", 1000)
    with open("/dev/zero", "rb") as zeros:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=zeros))
        with pytest.raises(TableError, match=r"^stdin: expected a table that ends.*: got more than 1,000 bytes$"):
            read_table(Path("-"))
    os.mkfifo(pipe := tmp_path / "pipe")
    for content, match in ((b"a,b\n" + b"1,2\n" * 249, None), (b"1,2\n" * 251, "pipe: expected a table that ends")):
        with ThreadPoolExecutor(1) as writer, pytest.raises(TableError, match=match) if match else nullcontext():
            writer.submit(pipe.write_bytes, content)
            read_table(pipe)


NUMBERS = {
    "plain": (["1", "-2.5", "3e2", ".5", "+7"], [1, -2.5, 300, 0.5, 7]),
    "all digits": (["1700000000123", "0.1234567890123456"], [1700000000123, 0.1234567890123456]),
    "missing": (["1", "", "NA", "n/a", "-", "null", "nan", ".", "—"], [1, *[None] * 8]),
    "thousands": (["1,234.5", "12", "-1,234,567"], [1234.5, 12, -1234567]),
    "India": (["12,34,567.5", "3"], [1234567.5, 3]),
    "decimal commas": (["1,5", "-2,25", "3"], [1.5, -2.25, 3]),
    "German": (["1.234,5", "999", "1.234.567"], [1234.5, 999, 1234567]),
    "thousands by points": (["1.234.567", "1.234"], [1234567, 1234]),
    "French": (["1 234,5", "1\u00a0234,5", "1\u202f234"], [1234.5, 1234.5, 1234]),
    "Swiss": (["1'234.50", "1’234"], [1234.5, 1234]),
    "small commas": (["0,125", "1,250"], [0.125, 1.25]),
    "percent": (["12%", "3.5 %", "-1%"], [12, 3.5, -1]),
    "dollars": (["$1,234.50", "-$2", "$-3", "($4.50)", "5"], [1234.5, -2, -3, -4.5, 5]),
    "euros": (["1.234,50 €", "€ 2", "-3 €"], [1234.5, 2, -3]),
    "codes": (["USD 1,200.00", "5 USD"], [1200, 5]),
    "kronor": (["1 200,50 kr", "3 kr"], [1200.5, 3]),
    "yuan": (["￥1,200.5", "¥3"], [1200.5, 3]),
    "parentheses": (["(1,200)", "(3)", "1.5"], [-1200, -3, 1.5]),
    "minus signs": (["−3", "4.5"], [-3, 4.5]),
    "trailing minus": (["3.5-", "4"], [-3.5, 4]),
    "ambiguous commas": (["1,234", "5,678"], [1234, 5678]),
    "ambiguous points": (["1.234", "5.678"], [1.234, 5.678]),
}


@pytest.mark.parametrize("form", NUMBERS)
def test_numbers_as_people_write_them(write, form):
    texts, expected = NUMBERS[form]
    path = write("data.csv", "i|y\n" + "\n".join(f"{i}|{text}" for i, text in enumerate(texts)))
    for numbers in ((), ("y",)):
        column = columns(path, ["y"], numbers=numbers)["y"]
        assert column.kind == "numbers"
        assert values(column) == expected


def test_what_is_said_of_numbers(write):
    path = write("data.csv", "a;b;c;d;e\n1.234,50 €;12 %;7;1.234;x\n3;5 %;8;999;y\n")
    notes = [column.note for column in columns(path).values()]
    assert notes == [
        "numbers with decimal comma and thousands separators, in €",
        "numbers, in %",
        "numbers",
        "numbers with thousands separators",
        "2 categories",
    ]


def test_an_ambiguous_comma_is_said_and_can_be_decided(write):
    path = write("data.csv", "a\tb\n1,234\t1\n5,678\t2\n")
    column = columns(path, ["a"])["a"]
    assert column.note == "numbers with thousands separators (1,234 is taken as 1234: --decimal decides)"
    column = columns(path, ["a"], decimal=",")["a"]
    assert (column.values.tolist(), column.note) == ([1.234, 5.678], "numbers with decimal comma")
    with pytest.raises(TableError, match="line 4, column 'a': expected a number, got '3,45'"):  # as most are by a comma
        columns(write("data.csv", "a;b\n1,234;x\n2,345;y\n3,45;z\n"), ["a"], decimal=".")
    # What another column shows decides as well, and so does a separator that makes room for commas.
    shown = columns(write("other.csv", "a\tb\n1,234\t1,5\n5,678\t2\n"))["a"]
    assert shown.values.tolist() == [1.234, 5.678]
    semicolons = columns(write("semicolons.csv", "a;b\n1,234;x\n5,678;y\n"))["a"]
    assert semicolons.values.tolist() == [1.234, 5.678]


JANUARY, DECEMBER = (numpy.datetime64(day).astype(float) for day in ("2019-01-03", "2020-12-31"))
DATES = {
    "ISO": ("2019-01-03", "2020-12-31", "dates"),
    "slashes": ("2019/01/03", "2020/12/31", "dates"),
    "compact": ("20190103", "20201231", "dates"),
    "day first": ("3/1/2019", "31/12/2020", "dates (day first)"),
    "month first": ("1/3/2019", "12/31/2020", "dates (month first)"),
    "points": ("03.01.2019", "31.12.2020", "dates (day first)"),
    "short years": ("03.01.19", "31.12.20", "dates (day first)"),
    "names": ("Jan 3, 2019", "Dec 31, 2020", "dates"),
    "long names": ("3 January 2019", "31 December 2020", "dates"),
    "days of the week": ("Thu, 03 Jan 2019", "Thu, 31 Dec 2020", "dates"),
    "dashes": ("03-Jan-2019", "31-Dec-20", "dates"),
    "Chinese": ("2019年1月3日", "2020年12月31日", "dates"),
}
TIMES = {
    "seconds": ("2019-01-03 12:00:00", "2020-12-31T18:00:00", "dates"),
    "zones": ("2019-01-03T14:00:00+02:00", "2020-12-31T18:00:00Z", "dates (UTC)"),
    "halves of the day": ("1/3/2019 12:00 PM", "12/31/2020 6:00 PM", "dates (month first)"),
    "minutes": ("03.01.2019 12:00", "31.12.2020 18:00", "dates (day first)"),
    "mixed": ("03.01.2019 12:00", "31.12.2020 18:00:00.000", "dates (day first)"),
    "letters": ("Thu, 03 Jan 2019 12:00:00 GMT", "Thu, 31 Dec 2020 18:00:00 GMT", "dates (UTC)"),
    "logs": ("03/Jan/2019:12:00:00 +0000", "31/Dec/2020:18:00:00 +0000", "dates (UTC)"),
}


@pytest.mark.parametrize("form", [*DATES, *TIMES])
def test_dates_as_people_write_them(write, form):
    first, last, note = (DATES | TIMES)[form]
    column = columns(write("data.csv", f"t|y\n{first}|1\n-|2\n{last}|3\n"), ["t"])["t"]
    hours = [0.5, 0.75] if form in TIMES else [0, 0]
    assert column.kind == "dates"
    assert values(column) == [JANUARY + hours[0], None, DECEMBER + hours[1]]
    assert column.note.startswith(f"{note}, 2019-01-03")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["Jan 2019", "Feb 2020"], ["2019-01-01", "2020-02-01"]),
        (["Jan-19", "Feb-20"], ["2019-01-01", "2020-02-01"]),
        (["2019-01", "2020-02"], ["2019-01-01", "2020-02-01"]),
        (["2019Q1", "2020-Q3"], ["2019-01-01", "2020-07-01"]),
        (["Q1 2019", "Q3 2020"], ["2019-01-01", "2020-07-01"]),
    ],
)
def test_months_and_quarters(write, texts, expected):
    column = columns(write("data.csv", "t\n" + "\n".join(texts)))["t"]
    assert column.values.tolist() == numpy.array(expected, dtype="datetime64[D]").astype(float).tolist()


def test_the_order_of_day_and_month_is_that_of_the_whole_column(write):
    path = write("data.csv", "t,y\n" + "03/04/2019,1\n" * 5000 + "13/04/2019,2\n")
    assert columns(path, ["t"])["t"].note == "dates (day first), 2019-04-03 … 2019-04-13"


def test_dates_in_an_order_that_nobody_can_know_are_said_and_can_be_decided(write):
    path = write("data.csv", "t,y\n03/04/2019,1\n05/04/2019,2\n")
    column = columns(path, ["t"])["t"]
    assert column.note == "dates (month first, or day first: --day-first decides), 2019-03-04 … 2019-05-04"
    assert columns(path, ["t"], day_first=True)["t"].note == "dates (day first), 2019-04-03 … 2019-04-05"


def test_what_is_no_date(write):
    path = write(
        "data.csv",
        "year,epoch,month,shop,time,id\n2019,1700000000123,May,store 3,12:30,1_2\n2020,1,Sat,A12,13:00,1_3\n",
    )
    categories = dict.fromkeys(["month", "shop", "time", "id"], "categories")
    assert column_kinds(read_table(path)) == {"year": "numbers", "epoch": "numbers", **categories}


def test_categories_keep_what_looks_missing(write):
    table = read_table(write("data.csv", "continent,y\nNA,1\n EU ,2\n,3\n"))
    assert text_column(table, "continent").values.tolist() == ["NA", "EU", None]


def test_lines_and_cells_are_those_of_the_file(write):
    path = write("data.csv", '# a comment\nid,note,y\n007,"two\nlines",1.50\n\n# more\n0.10, x ,2\n9,5" disk,3\n')
    table = read_table(path)
    assert table.lines.tolist() == [3, 7, 8]
    assert table.cells.to_numpy().tolist() == [
        ["007", "two\nlines", "1.50"],
        ["0.10", "x ", "2"],
        ["9", '5" disk', "3"],
    ]


def test_a_column_without_values(write):
    for text in ("a,b\n1,\n2,-\n", "a,b\n,\n,NA\n"):
        column = columns(write("data.csv", text), ["b"])["b"]
        assert (column.kind, values(column)) == ("numbers", [None, None])


@pytest.mark.parametrize(
    "text", ["1,2\n3,4\n", "1,5;2,5\n3,5;4,5\n", "1,\n3,4\n", "NA,2\n3,4\n", "2019-01,€2\n2019-02,€3\n"]
)
def test_a_table_without_a_header(write, text):
    table = read_table(write("data.csv", text))
    assert (table.names, len(table)) == (("1", "2"), 2)
    assert "no header" in table.form


@pytest.mark.parametrize("header", ["2019-01,2019-02", ",0", '"in\nkilograms",0', "a,2019"])
def test_a_header_of_few_letters(write, header):
    table = read_table(write("data.csv", f"{header}\n1,2\n3,4\n"))
    assert (",".join(table.names), len(table)) == (header.replace('"', ""), 2)


def test_a_name_of_several_lines_is_written_in_one(write):
    column = columns(write("data.csv", '"mass,\n in kg";y\n1,5;2\n2,5;3\n'), ["mass, in kg"])["mass, in kg"]
    assert values(column) == [1.5, 2.5]


BAD = {
    "text among numbers": ("a,b\n1,2\n3,many\n", r"data.csv: line 3, column 'b': expected a number, got 'many'"),
    "text in a quarter": (
        "a,b\n1,2\n# c\n3,4\n\n5,6\n7,x\n",
        r"data.csv: line 7, column 'b': expected a number, got 'x'",
    ),
    "a number without %": ("a,b\n1,2%\n2,0.5\n", r"line 3, column 'b': expected a number in %, got '0.5'"),
    "two currencies": ("a,b\n1,$2\n2,$3\n3,£4\n", r"line 4, column 'b': expected a number in \$, got '£4'"),
    "two decimals": ("a|b\n1|2,55\n2|3,51\n3|4.55\n", r"line 4, column 'b': expected a number, got '4.55'"),
    "two columns of a name": ("a,b,a\n1,2,3\n", r"data.csv: 2 columns are named 'a'; rename all but one"),
    "JSON": ('[{"a": 1, "b": 2}]', r"data.csv: is JSON; save it as CSV"),
    "lines of JSON": ('{"a": 1, "b": 2}\n{"a": 1, "b": 2}\n', r"data.csv: is JSON; save it as CSV"),
    "a missing column": ("age,b\n1,2\n", r"data.csv: no column 'a' .*columns: age, b"),
    "a short row": ("a,b\n1,2\n3\n", r"data.csv: line 3: expected 2 columns, got 1"),
    "a short row with quotes": ('a,b\n1,2\n"3"\n', r"data.csv: line 3: expected 2 columns, got 1"),
    "a long row": ("a,b\n1,2\n3,4,5\n", r"data.csv: line 3: expected 2 columns, as in the header, got 3"),
    "a long row far below": ("a,b\n" + "1,2\n" * 99 + "3,4,5\n", r"data.csv: line 101: expected 2 columns, got 3"),
    "an open quotation mark": ('a,b\n1,"2\n3,4\n', r"data.csv: row 2: a quotation mark is left open"),
    "infinity": ("a,b\n1,inf\n", r"data.csv: line 2, column 'b': expected a finite number, got infinity"),
    "no rows": ("a,b\n", r"data.csv: no rows below the header"),
    "nothing": ("", r"data.csv: is empty"),
    "no text": ("a,b\n1,\0\n", r"data.csv: holds a NUL character, so it is no text"),
    "comments": ("# nothing\n# else\n", r"data.csv: is empty but for comments"),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_name_the_line_and_the_column(write, name):
    text, message = BAD[name]
    with pytest.raises(TableError, match=message):
        columns(write("data.csv", text), ["a", "b"], numbers=["b"])


@pytest.mark.parametrize(
    ("last", "message"),
    [
        ("31.02.2020", "expected a date, got '31.02.2020'"),
        ("2020-13-45", "expected a date"),
        ("later", "expected a date"),
    ],
)
def test_dates_that_are_none(write, last, message):
    with pytest.raises(TableError, match=rf"data.csv: line 4, column 't': {message}"):
        columns(write("data.csv", f"t\n03.01.2019\n30.01.2019\n{last}\n"))


def test_names_that_are_almost_right(write):
    path = write("data.csv", "height,b\n1,2\n")
    with pytest.raises(TableError, match=r"no column 'heigth'; did you mean 'height'\?"):
        columns(path, ["heigth"])
    with pytest.raises(TableError, match=r"separate columns by spaces: height b"):
        columns(path, ["height,b"])


def test_files_that_are_no_tables(write, tmp_path):
    for path, message in (
        (tmp_path / "none.csv", "no such file"),
        (tmp_path, "is a folder"),
        (Path(os.devnull), "is a device"),
        (write("broken.gz", gzip.compress(b"a,b\n1,2\n")[:-9]), "cannot be decompressed as gzip"),
        (write("data.parquet", "a,b\n1,2\n"), "is not a parquet file"),
    ):
        with pytest.raises(TableError, match=message):
            read_table(path)
    for encoding, message in (("utf-16", "is not utf-16 text"), ("klingon", "no encoding 'klingon'")):
        with pytest.raises(TableError, match=message):
            read_table(write("data.csv", "a,b\n1,2"), encoding)


def test_parquet(tmp_path):
    path = tmp_path / "data.parquet"
    days = pandas.to_datetime(["2019-01-03", None, "2020-12-31"])
    frame = {"a": [1, 2, 3], "b": [0.5, numpy.nan, 1.5], "c": ["x", "y", "z"], "t": days, "money": ["$1", "$2", "-"]}
    pandas.DataFrame(frame | {"ok": [True, False, None], "list": [[1], [2], [3]]}).to_parquet(path)
    found = columns(path, ["a", "b", "c", "t", "money", "ok"])
    assert [column.kind for column in found.values()] == [
        "numbers", "numbers", "categories", "dates", "numbers", "numbers"
    ]  # fmt: skip
    assert values(found["b"]) == [0.5, None, 1.5]
    assert values(found["t"]) == [JANUARY, None, DECEMBER]
    assert values(found["money"]) == [1, 2, None]
    with pytest.raises(TableError, match="column 'list': expected numbers, dates or text, got"):
        columns(path, ["list"])
    for name, message in (("c", "line 1, column 'c': expected a number, got 'x'"), ("t", "'t': expected numbers, got")):
        with pytest.raises(TableError, match=message):
            columns(path, [name], numbers=[name])
