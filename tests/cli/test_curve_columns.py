"""`regard curve` on columns of messy files: dates, groups, text, missing values."""

import gzip
import io
import json
from types import SimpleNamespace

import numpy
import pytest

from regard import KernelRegressor
from regard.cli import main
from tests.cli.curves import files, read


def sales(rows=181):
    """Sales as a spreadsheet in Germany writes them, with a comment, gaps and two shops; the days and the amounts."""
    random = numpy.random.default_rng(1)
    days = numpy.sort(random.integers(17900, 19600, rows))
    amounts = 3000 + 900 * numpy.sin(days / 58) + random.normal(0, 200, rows)
    lines = ["# Export", "Datum;Filiale;Umsatz"]
    for number, (day, amount) in enumerate(zip(days, amounts, strict=True)):
        date = numpy.datetime64(int(day), "D").item()
        written = f"{amount:,.2f}".translate(str.maketrans(",.", ".,"))
        shop = "Süd" if number % 3 else "Nord"
        lines.append(f"{date:%d.%m.%Y};{shop};{'-' if number % 50 == 7 else f'{written} €'}")
    return days, numpy.round(amounts, 2), "\r\n".join(lines)


def test_dated_sales_in_a_messy_file(folder, capsys):
    days, amounts, text = sales()
    (folder / "sales.csv").write_bytes(text.encode("cp1252"))
    assert main(["curve", "sales.csv"]) == 0
    output = capsys.readouterr()
    assert (
        "read              sales.csv: ';'-separated, Windows-1252, 1 comment line, 181 rows; Datum: dates (day first), "
    ) in output.out
    assert "Umsatz: numbers with decimal comma and thousands separators, in €; 4 rows miss Umsatz" in output.out
    assert "chosen            x = Datum, y = Umsatz: there is no other choice" in output.out
    header, *rows = read(folder / "sales-predictions.csv")
    assert header == ["Datum", "Filiale", "Umsatz", "row", "predicted", "low", "high"]
    assert [row[:3] for row in rows] == [line.split(";") for line in text.split("\r\n")[2:]]
    assert [int(row[3]) for row in rows] == list(range(3, 184))
    known = numpy.arange(181) % 50 != 7
    model = KernelRegressor().fit(days[known, None].astype(float), amounts[known])
    predicted = model.predict(days[:, None].astype(float))  # rows without y as well
    assert [float(row[4]) for row in rows] == predicted.tolist()
    assert f"bandwidth         {model.bandwidth_[0]:.4g} days" in output.out


def test_the_same_table_in_other_clothes(folder, capsys, monkeypatch):
    """Gzip, UTF-16 and stdin give what the plain file gives."""
    _, _, text = sales()
    (folder / "plain.csv").write_text(text, encoding="utf-8", newline="")
    (folder / "packed.csv.gz").write_bytes(gzip.compress(text.encode("utf-16")))
    assert main(["curve", "plain.csv"]) == main(["curve", "packed.csv.gz"]) == 0
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))
    assert main(["curve", "-"]) == 0
    contents = {name: (folder / f"{name}-predictions.csv").read_bytes() for name in ("plain", "packed", "stdin")}
    assert contents["plain"] == contents["packed"] == contents["stdin"]
    assert "';'-separated, gzip, UTF-16" in capsys.readouterr().out


def test_groups_have_a_curve_each(folder, capsys):
    days, amounts, text = sales()
    (folder / "sales.csv").write_text(text, encoding="utf-8")
    assert main(["curve", "sales.csv", "--by", "Filiale", "--bandwidth", "2w", "--degree", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {label: group["bandwidth"] for label, group in report["groups"].items()} == {
        "Süd": {"Datum": 14.0},
        "Nord": {"Datum": 14.0},
    }
    number = numpy.arange(181)
    assert [group["rows"] for group in report["groups"].values()] == [
        ((number % 3 != 0) & (number % 50 != 7)).sum(),
        ((number % 3 == 0) & (number % 50 != 7)).sum(),
    ]
    rows = read(folder / "sales-predictions.csv")[1:]
    for shop, of_shop in (("Nord", number % 3 == 0), ("Süd", number % 3 != 0)):
        fitted = of_shop & (number % 50 != 7)
        model = KernelRegressor(bandwidth=14.0, degree=1).fit(days[fitted, None].astype(float), amounts[fitted])
        predicted = model.predict(days[of_shop, None].astype(float))
        numpy.testing.assert_allclose([float(row[4]) for row in rows if row[1] == shop], predicted, rtol=1e-12)
    assert main(["curve", "sales.csv", "--by", "Filiale", "--overwrite"]) == 0
    count = ((number % 3 != 0) & (number % 50 != 7)).sum()
    assert f"groups            Süd   {count} rows, bandwidth " in capsys.readouterr().out


def test_a_group_of_one_row_has_no_curve(folder, capsys):
    rows = "".join(f"{x},{x * x},{'abc'[x % 2]}\n" for x in range(20))
    (folder / "squares.v2.csv").write_text(f"x,y,kind\n{rows}20,400,c\n")
    assert main("curve squares.v2.csv --x x --y y --by kind --bandwidth 2 --no-band".split()) == 0  # noqa: SIM905
    assert "1 groups of fewer than two rows have no curve" in capsys.readouterr().out
    rows = read(folder / "squares.v2-predictions.csv")[1:]
    assert [row[4] == "" for row in rows] == [False] * 20 + [True]


def test_a_second_run_overwrites_nothing_unless_asked(folder, capsys):
    command = ["curve", "bumps.csv", "--x", "x", "--y", "y", "--bandwidth"]
    assert main([*command, "1"]) == 0
    first = (folder / "bumps-predictions.csv").read_bytes()
    capsys.readouterr()
    assert main([*command, "2"]) == 0
    assert "because files were there; --overwrite replaces them" in capsys.readouterr().out
    assert (folder / "bumps-predictions.csv").read_bytes() == first
    second = (folder / "bumps-predictions-2.csv").read_bytes()
    assert main([*command, "3"]) == 0
    assert main([*command, "2", "--overwrite"]) == 0
    assert (folder / "bumps-predictions.csv").read_bytes() == second
    numbers = ("", "-2", "-3")
    expected = [
        f"bumps-{kind}{number}.{end}" for kind, end in (("curve", "png"), ("predictions", "csv")) for number in numbers
    ]
    assert files(folder) == sorted([*expected, "bumps.csv"])


def test_all_digits_and_columns_are_kept(folder):
    (folder / "t.csv").write_text(
        'row,id,t,predicted,y\n7,007,1700000000123,"a,b",1\n8,1e3,1700000000456,,2.50\n9,x,1700000000999,"q""",3\n'
    )
    assert main(["curve", "t.csv", "--x", "t", "--y", "y", "--bandwidth", "300", "--no-band"]) == 0
    header, *rows = read(folder / "t-predictions.csv")
    assert header == ["row", "id", "t", "predicted", "y", "predicted_2"]
    assert [row[:5] for row in rows] == [
        ["7", "007", "1700000000123", "a,b", "1"],
        ["8", "1e3", "1700000000456", "", "2.50"],
        ["9", "x", "1700000000999", 'q"', "3"],
    ]
    t = numpy.array([[1700000000123.0], [1700000000456.0], [1700000000999.0]])
    assert [float(row[5]) for row in rows] == KernelRegressor(bandwidth=300).fit(t, [1, 2.5, 3]).predict(t).tolist()


def test_rows_that_miss_something(folder, capsys):
    (folder / "holes.csv").write_text("x,y,w\n1,2,1\n2,,1\n,4,1\n3,4,1\n4,9,\n5,1,2\n")
    assert main(["curve", "holes.csv", "--x", "x", "--y", "y", "--weights", "w", "--bandwidth", "1"]) == 0
    assert "1 row misses x; 1 row misses y; 1 row misses w" in capsys.readouterr().out
    model = KernelRegressor(bandwidth=1).fit([[1], [3], [5]], [2, 4, 1], sample_weight=[1, 1, 2])
    expected = model.predict([[1], [2], [3], [4], [5]]).tolist()
    rows = read(folder / "holes-predictions.csv")[1:]
    assert [row[4] for row in rows if row[0]] == [repr(value) for value in expected]
    assert [row[4:] for row in rows if not row[0]] == [["", "", ""]]


def test_log_scales(folder, capsys):
    random = numpy.random.default_rng(2)
    x = 10 ** random.uniform(0, 4, 89)
    y = x**0.7 * numpy.exp(random.normal(0, 0.3, 89))
    (folder / "power.csv").write_text(
        "x,y\n" + "\n".join(f"{a!r},{b!r}" for a, b in zip(x.tolist(), y.tolist(), strict=True))
    )
    assert (
        main(
            [
                "curve",
                "power.csv",
                "--x",
                "x",
                "--y",
                "y",
                "--log-x",
                "--log-y",
                "--degree",
                "1",
                "--bandwidth",
                "0.5",
                "--band",
                "0.9",
            ]
        )
        == 0
    )
    output = capsys.readouterr().out
    assert "bandwidth         0.5 powers of ten" in output
    assert "the curve is closer to a median than to a mean" in output
    model = KernelRegressor(bandwidth=0.5, degree=1).fit(numpy.log10(x)[:, None], numpy.log(y))
    expected = [model.predict(numpy.log10(x)[:, None]), *model.interval(numpy.log10(x)[:, None], 0.9)]
    rows = numpy.array(read(folder / "power-predictions.csv")[1:], dtype=float)
    numpy.testing.assert_allclose(rows[:, 3:], numpy.exp(numpy.column_stack(expected)), rtol=1e-10)


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        (["--log-x"], "zero.csv: line 3, column 'x': expected a positive number, because of --log-x, got 0"),
        (["--log-y"], "zero.csv: line 4, column 'y': expected a positive number, because of --log-y, got -1"),
        (["--weights", "y"], "zero.csv: line 4, column 'y': expected a weight of 0 or more, got -1"),
        (["--bandwidth", "7d"], "bandwidth: 7d is a duration, but column 'x' has no dates"),
        (["--by", "x"], "by: expected a column that is neither x nor y, got 'x'"),
        (["--band", "1.5"], "band: expected a level between 0 and 1, got 1.5"),
        (["--rule", "loo", "--bandwidth", "2"], "give --bandwidth or --rule, not both"),
        (["--degree", "4"], "4 is not in the range 0<=x<=3"),
        (["--encoding", "klingon"], "no encoding 'klingon'"),
    ],
)
def test_what_columns_cannot_do(folder, capsys, options, wrong):
    (folder / "zero.csv").write_text("x,y,z\n1,2,3\n0,3,3\n2,-1,3\n")
    y = "z" if "--weights" in options else "y"
    assert main(["curve", "zero.csv", "--x", "x", "--y", y, *options]) == 2
    output = capsys.readouterr()
    assert wrong in output.err
    assert output.err.count("\n") == 1
    assert files(folder) == ["bumps.csv", "zero.csv"]


@pytest.mark.parametrize(
    ("header", "options", "chosen"),
    [
        ("x,y", [], "x = x, y = y"),
        ("when,y", [], "x = when, y = y"),
        ("when,name,y", [], "x = when, y = y"),
        ("when,x,y", ["--y", "y"], "x = when"),
        ("x,name,y", ["--x", "x"], "y = y"),
        ("x,name,y", ["--y", "y"], "x = x"),
        ("x,y,w", ["--weights", "w"], "x = x, y = y"),
        ("x,y,z", [], None),
        ("when,day,y", [], None),
        ("name,y", [], None),
        ("when,x,y", [], None),
    ],
)
def test_columns_are_chosen_where_there_is_one_choice(folder, capsys, header, options, chosen):
    cells = {"when": "2019-01-0{}", "day": "2019-02-0{}", "name": "n{}"}
    rows = [",".join(cells.get(name, "{}").format(number) for name in header.split(",")) for number in range(1, 7)]
    (folder / "c.csv").write_text("\n".join([header, *rows]))
    code = main(["curve", "c.csv", *options, "--bandwidth", "1"])
    output = capsys.readouterr()
    if chosen is None:
        assert code == 2
        assert f"c.csv: say which columns: --x COL [COL …] --y COL (columns: {header.replace(',', ', ')})" in output.err
    else:
        assert code == 0
        assert f"chosen            {chosen}: there is no other choice" in output.out


def test_ambiguous_dates_can_be_decided(folder, capsys):
    (folder / "d.csv").write_text("t,y\n" + "\n".join(f"0{day}/04/2019,{day}" for day in range(1, 8)))
    for options, said in (
        ([], "dates (month first, or day first: --day-first decides), 2019-01-04 … 2019-07-04"),
        (["--day-first"], "dates (day first), 2019-04-01 … 2019-04-07"),
        (["--month-first"], "dates (month first), 2019-01-04 … 2019-07-04"),
    ):
        assert main(["curve", "d.csv", "--bandwidth", "12h", *options]) == 0
        assert said in capsys.readouterr().out


def test_text_among_x_is_a_category(folder, capsys):
    random = numpy.random.default_rng(3)
    lines = [f"{x},{'ab'[number % 2]},{x + 5 * (number % 2)}" for number, x in enumerate(random.uniform(0, 5, 61))]
    (folder / "c.csv").write_text("x,kind,y\n" + "\n".join(lines))
    assert main(["curve", "c.csv", "--x", "x", "kind", "--y", "y", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["bandwidth"]["kind"] < 0.05
    assert report["window"]["interval"]["kind"] is None
    assert report["loo_r2"] > 0.9


def test_a_last_day_of_9999_is_drawn(folder):
    (folder / "contracts.csv").write_text("until,y\n2020-01-01,1\n2020-06-01,2\n2021-01-01,1.5\n9999-12-31,3\n")
    assert main(["curve", "contracts.csv"]) == 0
    assert (folder / "contracts-curve.png").exists()


def test_an_error_of_a_group_names_it(folder, capsys):
    rows = [f"{x},{x % 7},{'few' if x < 3 else 'many'}" for x in range(20)]
    (folder / "data.csv").write_text("x,y,g\n" + "\n".join(rows))
    assert main(["curve", "data.csv", "--by", "g", "--block", "2"]) == 2
    assert "block: expected less than n_samples - 1 = 2, got 2 (of g 'few', 3 rows)" in capsys.readouterr().err
