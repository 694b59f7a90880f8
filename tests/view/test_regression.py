"""The display of a kernel regression: what it computed, and that every kind of it can be drawn."""

import io

import numpy
import pandas
import pytest
from IPython.core.formatters import HTMLFormatter
from matplotlib import image
from matplotlib.figure import Figure
from sklearn.pipeline import make_pipeline

from regard import KernelRegressor
from regard.view.regression import CELLS, KINDS, KernelRegressionDisplay


def data(features=1, n=149):
    random = numpy.random.default_rng(0)
    X = random.uniform(0, 5, (n, features))
    return X, 2 * numpy.sin(X[:, 0]) + random.normal(0, 0.3, n)


@pytest.fixture(scope="module")
def display():
    X, y = data()
    before, after = (KernelRegressor(bandwidth=width).fit(X, y) for width in (1.0, 0.2))
    return KernelRegressionDisplay.from_estimator(after, X, y, before=before, truth=lambda x: 2 * numpy.sin(x))


def test_it_holds_what_the_estimator_says(display):
    X, y = data()
    model = KernelRegressor(bandwidth=0.2).fit(X, y)
    numpy.testing.assert_allclose(display.curve.predicted, model.predict(display.curve.x[:, None]))
    numpy.testing.assert_allclose(display.curve.effective, model.window(display.curve.x[:, None]).effective)
    numpy.testing.assert_allclose(display.curve.weights.sum(1), 1)
    assert display.curve.weights.shape == (CELLS, CELLS)
    assert (numpy.diff(display.curve.edges) > 0).all()
    # Learning narrows the window.
    assert (display.curve.high - display.curve.low).mean() < (display.before.high - display.before.low).mean()


@pytest.mark.parametrize("kind", KINDS)
def test_axes_have_names_and_a_legend(display, kind):
    axes = Figure().subplots()
    assert display.plot(kind, ax=axes) is display
    assert display.ax_ is axes
    assert "x" in axes.get_xlabel()
    assert axes.get_ylabel()
    texts = [] if kind == "weights" else [text.get_text() for text in axes.get_legend().get_texts()]
    assert kind == "weights" or any("before" in text for text in texts)


@pytest.mark.parametrize(
    ("kind", "ending"), [*((kind, "png") for kind in KINDS), ("curve", "svg"), ("weights", "pdf"), ("window", "html")]
)
def test_the_same_picture_is_the_same_file(display, tmp_path, kind, ending):
    path = tmp_path / f"a.{ending}"
    first, second = (display.save(path, kind).read_bytes() for _ in range(2))
    assert len(first) > 3000
    assert first == second
    assert list(tmp_path.iterdir()) == [path]


def test_the_picture_shows_something(display, tmp_path):
    pixels = image.imread(io.BytesIO(display.save(tmp_path / "a.png", "curve").read_bytes()))
    red = (pixels[..., 0] > 0.7) & (pixels[..., 1] < 0.4) & (pixels[..., 2] < 0.4)
    assert 0.002 < red.mean() < 0.2  # the curve


def test_in_a_notebook_as_a_table_and_in_a_terminal(display, capsys):
    assert HTMLFormatter()(display).startswith("<picture>")
    frame = display.to_frame()
    assert list(frame.columns) == ["x", "predicted", "effective", "low", "high", "truth"]
    display.print()
    assert len(capsys.readouterr().out.splitlines()) == 12


def test_several_features_by_name_and_by_number():
    X, y = data(features=2)
    table = pandas.DataFrame({"age": X[:, 0], "height": X[:, 1]})
    model = KernelRegressor(bandwidth=0.7).fit(table, y)
    by_name = KernelRegressionDisplay.from_estimator(model, table, pandas.Series(y, name="income"), feature="height")
    by_number = KernelRegressionDisplay.from_estimator(model, table, y, feature=1)
    numpy.testing.assert_array_equal(by_name.curve.predicted, by_number.curve.predicted)
    assert (by_name.ax_.get_xlabel(), by_name.ax_.get_ylabel()) == ("height", "income")


def test_samples_at_one_place_can_be_drawn(tmp_path):
    X = numpy.repeat([[1.0], [2.0]], 40, axis=0)
    model = KernelRegressor(bandwidth=0.5).fit(X, X[:, 0])
    KernelRegressionDisplay.from_estimator(model, X, X[:, 0], kind="weights").save(tmp_path / "a.png")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"feature": 3}, "feature: expected a number from 0 to 0, got 3"),
        ({"feature": "age"}, "feature: expected a number, as the estimator knows no names, got 'age'"),
        ({"kind": "pie"}, "kind: expected one of curve, window, weights, got 'pie'"),
        ({"y": numpy.zeros(3)}, r"y: expected one number per row of X, \(149,\), got shape \(3,\)"),
        ({"X": numpy.zeros(3)}, r"X: expected rows of features"),
    ],
)
def test_wrong_calls_are_refused_by_name(change, message):
    X, y = data()
    model = KernelRegressor(bandwidth=0.2).fit(X, y)
    with pytest.raises(ValueError, match=message):
        KernelRegressionDisplay.from_estimator(model, **({"X": X, "y": y} | change))


def test_the_error_for_a_pipeline_says_what_to_do():
    X, y = data()
    pipeline = make_pipeline(KernelRegressor(bandwidth=0.2)).fit(X, y)
    with pytest.raises(TypeError, match="expected a fitted KernelRegressor, got Pipeline; pass the last step"):
        KernelRegressionDisplay.from_estimator(pipeline, X, y)


def test_samples_that_are_not_drawn_are_counted():
    X, y = data(n=2503)
    model = KernelRegressor(bandwidth=0.2).fit(X, y)
    display = KernelRegressionDisplay.from_estimator(model, X, y)
    assert display.ax_.get_legend().get_texts()[0].get_text() == "2000 of 2503 samples"
