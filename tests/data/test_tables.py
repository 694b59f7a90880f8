"""Tables: what is read, and the errors of those that cannot be."""

import numpy
import pandas
import pytest

from regard.data.tables import TableError, read_columns


@pytest.mark.parametrize(
    "text", ["a,b\n1,2\n3,4\n", "a;b\n1;2\n\n3;4", "a\tb\r\n1\t2\r\n3\t4\r\n", "\ufeffa, b\n1, 2\n3, 4\n"]
)
def test_commas_semicolons_tabs_and_marks(write, text):
    table = read_columns(write("data.csv", text), ["b", "a"])
    assert table.names == ("b", "a")
    assert table.rows.tolist() == [[2, 1], [4, 3]]
    assert table.left_out == 0


def test_rows_that_miss_a_value_are_left_out_and_counted(write):
    table = read_columns(write("data.csv", "a,b,c\n1,2,x\n,3,y\nNA,4,\n5,6,z\n"), ["a", "b"])
    assert table.rows.tolist() == [[1, 2], [5, 6]]
    assert (table.left_out, table.first_left_out) == (2, 3)


BAD = {
    "text among numbers": ("a,b\n1,2\n3,many\n", r"data.csv: line 3, column 'b': expected a number, got 'many'"),
    "a decimal comma": ('a,b\n1,"2,5"\n', r"got '2,5' \(write a decimal point, not a comma\)"),
    "a missing column": ("age,b\n1,2\n", r"data.csv: no column 'a' .*columns: age, b"),
    "a short row": ("a,b\n1,2\n3\n", r"data.csv: line 3: expected 2 columns, got 1"),
    "infinity": ("a,b\n1,inf\n", r"data.csv: line 2, column 'b': expected a finite number, got infinity"),
    "no rows": ("a,b\n", r"data.csv: no rows below the header"),
    "nothing": ("", r"data.csv: is empty"),
    "no whole row": ("a,b\n1,\n,2\n", r"data.csv: no row has a number in every one of the columns a, b"),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_name_the_line_and_the_column(write, name):
    text, message = BAD[name]
    with pytest.raises(TableError, match=message):
        read_columns(write("data.csv", text), ["a", "b"])


def test_names_that_are_almost_right(write):
    path = write("data.csv", "height,b\n1,2\n")
    with pytest.raises(TableError, match=r"no column 'heigth'; did you mean 'height'\?"):
        read_columns(path, ["heigth"])
    with pytest.raises(TableError, match=r"separate columns by spaces: height b"):
        read_columns(path, ["height,b"])


def test_files_that_are_no_tables(write, tmp_path):
    with pytest.raises(TableError, match="no such file"):
        read_columns(tmp_path / "none.csv", ["a"])
    with pytest.raises(TableError, match="is a folder"):
        read_columns(tmp_path, ["a"])
    with pytest.raises(TableError, match="is not UTF-8 text"):
        read_columns(write("data.csv", "grün,b\n1,2\n".encode("latin-1")), ["b"])
    with pytest.raises(TableError, match="is not a parquet file"):
        read_columns(write("data.parquet", "a,b\n1,2\n"), ["a"])


def test_parquet(tmp_path):
    path = tmp_path / "data.parquet"
    pandas.DataFrame({"a": [1, 2, 3], "b": [0.5, numpy.nan, 1.5], "c": ["x", "y", "z"]}).to_parquet(path)
    table = read_columns(path, ["a", "b"])
    assert table.rows.tolist() == [[1, 0.5], [3, 1.5]]
    assert (table.left_out, table.first_left_out) == (1, 2)
    with pytest.raises(TableError, match="column 'c': expected numbers, got"):
        read_columns(path, ["c"])
