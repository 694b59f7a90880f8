"""`regard curve`."""

import csv
import json

import numpy
import pytest

from regard import KernelRegressionDisplay, KernelRegressor
from regard.attention.kernels import KERNELS
from regard.cli import main
from regard.kernel.estimator import RULES
from tests.cli.curves import files, read


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
    header, *predictions = read(folder / "bumps-predictions.csv")
    assert header == ["x", "z", "y", "row", "predicted", "low", "high"]
    low, high = model.interval(rows[:, :1], 0.95)
    expected = numpy.column_stack([rows, numpy.arange(2, 153), model.predict(rows[:, :1]), low, high])
    numpy.testing.assert_allclose(numpy.array(predictions, dtype=float), expected, rtol=1e-12)
    with (folder / "bumps.csv").open(newline="") as file:
        assert [row[:3] for row in predictions] == list(csv.reader(file))[1:]  # digit by digit
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


def test_the_ending_of_a_table_of_predictions_decides_what_separates_its_cells(folder):
    for name in ("p.csv", "p.TSV"):
        assert main(["curve", "bumps.csv", "--x", "x", "--y", "y", "--bandwidth", "1", "--predictions", name]) == 0
    commas, tabs = (folder / name for name in ("p.csv", "p.TSV"))
    assert commas.read_text().splitlines()[0] == "x,z,y,row,predicted,low,high"
    assert tabs.read_text() == commas.read_text().replace(",", "\t")


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
    "a bandwidth of 0": ("curve bumps.csv --x x --y y --bandwidth 0", "bandwidth: expected positive"),
    "an unknown table": (
        "curve --predictions p.json",
        "predictions: expected a name that ends in .csv, .tsv, got p.json",
    ),
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


def test_rows_of_weight_0_are_predicted_and_not_fitted(folder, capsys):
    (folder / "w.csv").write_text("x,y,w,kind\n1,2,1,a\n2,90,0,a\n3,4,1,a\n4,1,0,b\n5,2,0,b\n")
    assert main(["curve", "w.csv", "--x", "x", "--y", "y", "--weights", "w", "--by", "kind", "--bandwidth", "1"]) == 0
    assert "1 groups of fewer than two rows have no curve" in capsys.readouterr().out
    expected = KernelRegressor(bandwidth=1).fit([[1], [3]], [2, 4]).predict([[1], [2], [3]])
    assert [float(row[5]) for row in read(folder / "w-predictions.csv")[1:4]] == expected.tolist()
    (folder / "w.csv").write_text("x,y,w\n1,2,0\n2,3,0\n")
    assert main(["curve", "w.csv", "--x", "x", "--y", "y", "--weights", "w"]) == 2
    error = "no row has a value in every one of the columns x, y, w, and in w one above 0"
    assert error in capsys.readouterr().err


def test_json_has_no_infinity(folder, capsys):
    (folder / "c.csv").write_text("x,z,y\n" + "\n".join(f"5,{z},{z * z % 7}" for z in range(19)))
    assert main(["curve", "c.csv", "--x", "x", "z", "--y", "y", "--json"]) == 0
    report = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(name))
    assert report["bandwidth"]["x"] is None
    assert report["bandwidth"]["z"] > 0
    assert main(["curve", "c.csv", "--x", "x", "--y", "y"]) == 0
    assert "bandwidth         infinite" in capsys.readouterr().out


def test_a_name_that_the_encoding_cannot_hold(folder, capsys):
    (folder / "c.csv").write_text("日期,销量\n1,2\n2,3\n", encoding="gb18030")
    assert main(["curve", "c.csv", "--x", "日期", "--y", "销量"]) == 2
    assert "was it read in the right encoding? try --encoding gb18030" in capsys.readouterr().err
    assert main(["curve", "c.csv", "--x", "none", "--y", "none"]) == 2
    assert "encoding" not in capsys.readouterr().err


def test_one_row(folder, capsys):
    (folder / "one.csv").write_text("x,y\n1,2\n")
    assert main(["curve", "one.csv", "--x", "x", "--y", "y"]) == 2
    assert "needs 2 samples or more, got n_samples = 1" in capsys.readouterr().err


def test_warnings_are_lines(folder, capsys):
    random = numpy.random.default_rng(4)
    walk = numpy.cumsum(random.normal(size=300))
    (folder / "walk.csv").write_text("x,y\n" + "\n".join(f"{x},{y}" for x, y in enumerate(walk)))
    assert main(["curve", "walk.csv"]) == 0
    error = capsys.readouterr().err
    assert error.startswith("regard: leave-one-out has chosen a window")
    assert error.count("\n") == 1


def test_a_file_that_cannot_be_written_leaves_nothing(folder, capsys):
    (folder / "c.png").mkdir()
    assert main(["curve", "--picture", "c.png", "--overwrite"]) == 1
    assert "c.png" in capsys.readouterr().err
    assert files(folder) == ["bumps.csv", "c.png"]


def test_the_kernels_are_named_in_the_help(capsys):
    assert main(["curve", "--help"]) == 0
    text = capsys.readouterr().out
    assert [name for name in (*KERNELS, *RULES) if name not in text] == []


def test_ctrl_c_leaves_nothing(folder, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(KernelRegressionDisplay, "plot", stop)
    assert main(["curve"]) == 130
    assert files(folder) == ["bumps.csv"]
