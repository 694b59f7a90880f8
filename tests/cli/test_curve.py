"""`regard curve`."""

import csv
import json

import numpy
import pytest

from regard import KernelRegressionDisplay, KernelRegressor
from regard.attention.kernels import KERNELS
from regard.cli import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with a table of 151 rows; the third column says nothing about y."""
    random = numpy.random.default_rng(0)
    x, z = random.uniform(0, 5, (2, 151))
    y = 2 * numpy.sin(x) + random.normal(0, 0.3, len(x))
    rows = "\n".join(",".join(map(repr, row)) for row in numpy.column_stack([x, z, y]).tolist())
    (tmp_path / "bumps.csv").write_text(f"x,z,y\n{rows}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_without_a_file_it_is_the_noisy_curve(folder, capsys):
    assert main(["curve"]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    assert "the noisy curve of the notes: y by x, 200 rows" in output.out
    assert files(folder) == ["bumps.csv", "regard-curve.png", "regard-predictions.csv"]


def test_a_file_is_fitted_printed_written_and_drawn(folder, capsys):
    assert main(["curve", "bumps.csv", "--x", "x", "--y", "y"]) == 0
    printed = capsys.readouterr().out
    rows = numpy.loadtxt("bumps.csv", delimiter=",", skiprows=1)
    model = KernelRegressor().fit(rows[:, :1], rows[:, 2])
    assert f"bandwidth         {model.bandwidth_[0]:.4g}" in printed
    assert f"leave-one-out R²  {model.loo_score_:.4f}" in printed
    with (folder / "bumps-predictions.csv").open(newline="") as file:
        header, *predictions = csv.reader(file)
    assert header == ["x", "y", "predicted"]
    expected = numpy.column_stack([rows[:, [0, 2]], model.predict(rows[:, :1])])
    numpy.testing.assert_allclose(numpy.array(predictions, dtype=float), expected, rtol=1e-8)
    assert (folder / "bumps-curve.png").read_bytes().startswith(b"\x89PNG")


def test_several_columns_for_a_program(folder, capsys):
    options = "curve bumps.csv --x x z --y y --kernel tricube --degree 1 --picture both.svg --predictions p.csv --json"
    assert main(options.split()) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["x"] == ["x", "z"]
    assert (report["kernel"], report["degree"], report["rows"], report["left_out"]) == ("tricube", 1, 151, 0)
    assert report["bandwidth"]["z"] > 2 * report["bandwidth"]["x"]
    assert 0.9 < report["loo_r2"] < 1
    assert set(report["window"]["interval"]) == {"x", "z"}
    assert files(folder) == ["both.svg", "bumps.csv", "p.csv"]


@pytest.mark.parametrize("picture", ["c.png", "c.svg", "c.pdf", "c.html"])
def test_pictures_of_every_kind(folder, picture):
    assert main(["curve", "--picture", picture]) == 0
    assert (folder / picture).stat().st_size > 5000


def test_a_bandwidth_that_is_given(folder, capsys):
    assert main(["curve", "bumps.csv", "--x", "x", "z", "--y", "y", "--bandwidth", "0.5,2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bandwidth"] == {"x": 0.5, "z": 2.0}


BAD = {
    "no such file": ("curve none.csv --x x --y y", "none.csv: no such file"),
    "no columns": ("curve bumps.csv", "bumps.csv: say which columns: --x COL [COL …] --y COL (columns: x, z, y)"),
    "columns of nothing": ("curve --x a --y b", "choose columns of a file"),
    "a missing column": ("curve bumps.csv --x t --y y", "bumps.csv: no column 't' (columns: x, z, y)"),
    "a file among the columns": ("curve --y y --x x bumps.csv", "choose columns of a file"),
    "two columns as one": ("curve bumps.csv --x x,z --y y", "no column 'x,z'; separate columns by spaces: x z"),
    "y by itself": ("curve bumps.csv --x x y --y y", "y: expected a column that is not among those of x, got 'y'"),
    "no folder": ("curve --picture none/c.png", "picture: no folder none"),
    "an unknown kernel": ("curve bumps.csv --x x --y y --kernel round", "kernel: expected one of gaussian"),
    "an unknown rule": ("curve bumps.csv --x x --y y --bandwidth best", "bandwidth: expected a positive number"),
    "a bandwidth of 0": ("curve bumps.csv --x x --y y --bandwidth 0", "bandwidth: expected positive, finite numbers"),
    "an unknown picture": ("curve --picture c.gif", "picture: expected a name that ends in .png, .svg, .pdf, .html"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_one_line_and_nothing_is_written(folder, capsys, name):
    command, message = BAD[name]
    assert main(command.split()) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("regard: ")
    assert output.err.count("\n") == 1
    assert message in output.err
    assert files(folder) == ["bumps.csv"]


def test_one_row_and_a_constant_column(folder, capsys):
    (folder / "one.csv").write_text("x,y\n1,2\n")
    assert main(["curve", "one.csv", "--x", "x", "--y", "y"]) == 2
    assert "needs 2 samples or more, got n_samples = 1" in capsys.readouterr().err
    (folder / "flat.csv").write_text("x,y\n1,2\n1,3\n")
    assert main(["curve", "flat.csv", "--x", "x", "--y", "y"]) == 2
    assert "is constant" in capsys.readouterr().err


def test_rows_without_a_value_are_counted(folder, capsys):
    (folder / "holes.csv").write_text("x,y\n1,2\n2,\n3,4\n5,1\n")
    assert main(["curve", "holes.csv", "--x", "x", "--y", "y"]) == 0
    assert "left out 1 of 4 rows, which miss a value (the first: line 3)" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_leaves_nothing(folder, capsys):
    (folder / "c.png").mkdir()
    assert main(["curve", "--picture", "c.png"]) == 1
    assert "c.png" in capsys.readouterr().err
    assert files(folder) == ["bumps.csv", "c.png"]


def test_the_kernels_are_named_in_the_help(capsys):
    assert main(["curve", "--help"]) == 0
    text = capsys.readouterr().out
    assert [name for name in KERNELS if name not in text] == []


def test_ctrl_c_leaves_nothing(folder, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(KernelRegressionDisplay, "from_estimator", stop)
    assert main(["curve"]) == 130
    assert files(folder) == ["bumps.csv"]
