"""The display of a kernel regression: what it computed, and that every kind of it can be drawn."""

import io

import numpy
import pandas
import polars
import pytest
from IPython.core.formatters import HTMLFormatter
from matplotlib import image
from matplotlib.dates import ConciseDateFormatter
from matplotlib.figure import Figure
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures, StandardScaler

from regard import KernelRegressor
from regard.view.regression import KINDS, Group, KernelRegressionDisplay, Scales
from regard.view.regression_curve import CELLS, Chain, Inputs, width_text


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
    for held, said in zip(display.curve.window, model.window(display.curve.x[:, None]), strict=True):
        numpy.testing.assert_allclose(held, said)
    for held, said in zip(display.curve.band, model.interval(display.curve.x[:, None], 0.95), strict=True):
        numpy.testing.assert_allclose(held, said)
    weights, edges = display.curve.heat_map
    numpy.testing.assert_allclose(weights.sum(1), 1)
    assert weights.shape == (CELLS, CELLS)
    assert (numpy.diff(edges) > 0).all()
    # Learning narrows the window.
    (_, low, high), (_, low_before, high_before) = display.curve.window, display.before.window
    assert (high - low).mean() < (high_before - low_before).mean()


@pytest.mark.parametrize("kind", KINDS)
def test_axes_have_names_and_a_legend(display, kind):
    axes = Figure().subplots()
    assert display.plot(kind, ax=axes) is display
    assert display.ax_ is axes
    assert "x" in axes.get_xlabel()
    assert axes.get_ylabel()
    texts = [] if kind == "weights" else [text.get_text() for text in axes.get_legend().get_texts()]
    assert kind == "weights" or any("before" in text for text in texts)


def test_rows_of_weights_are_around_their_queries(display):
    display.plot("weights")
    edges = display.ax_.collections[0].get_coordinates()[:, 0, 1]
    middles = (edges[1:] + edges[:-1]) / 2
    assert (middles[0], middles[-1]) == pytest.approx((display.curve.x[0], display.curve.x[-1]))


def test_the_figure_of_a_part_is_the_whole(display):
    figure = Figure()
    assert display.plot(ax=figure.subfigures(1, 2)[1].subplots()).figure_ is figure


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
    assert list(frame.columns) == ["x", "predicted", "band_low", "band_high", "effective", "low", "high", "truth"]
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


def test_what_is_no_kernel_regression_is_refused():
    X, y = data()
    for wrong, name in (
        (LinearRegression().fit(X, y), "LinearRegression"),
        (make_pipeline(LinearRegression()), "Linear"),
    ):
        with pytest.raises(TypeError, match=f"expected a fitted KernelRegressor, a pipeline .*, got {name}"):
            KernelRegressionDisplay.from_estimator(wrong, X, y)
    for unfitted in (KernelRegressor(), make_pipeline(KernelRegressor()), GridSearchCV(KernelRegressor(), {})):
        with pytest.raises(NotFittedError):
            KernelRegressionDisplay.from_estimator(unfitted, X, y)


def test_samples_that_are_not_drawn_are_counted():
    X, y = data(n=2503)
    model = KernelRegressor(bandwidth=0.2).fit(X, y)
    display = KernelRegressionDisplay.from_estimator(model, X, y)
    assert display.ax_.get_legend().get_texts()[0].get_text() == "2000 of 2503 samples"


def texts_of_legend(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_the_band_is_drawn_unless_it_is_not_wanted():
    X, y = data()
    model = KernelRegressor(bandwidth=0.3).fit(X, y)
    ninety = KernelRegressionDisplay.from_estimator(model, X, y, level=0.9, rug=True)
    assert "90 % band" in texts_of_legend(ninety.ax_)
    low, high = model.interval(ninety.curve.x[:, None], 0.9)
    (band,) = [each for each in ninety.ax_.collections if each.get_label() == "90 % band"]
    edge = band.get_paths()[0].vertices
    assert numpy.isclose(edge[:, 1].max(), high.max())
    assert numpy.isclose(edge[:, 1].min(), low.min())
    rug = ninety.ax_.lines[-1]
    numpy.testing.assert_array_equal(rug.get_xdata(), X[:, 0])
    none = KernelRegressionDisplay.from_estimator(model, X, y, level=None)
    assert none.curve.band is None
    assert len(none.ax_.collections) == 0
    assert "band_low" not in none.to_frame()


def test_pipelines_and_searches_are_drawn_in_the_units_of_X():
    X, y = data(features=2)
    X = X * [100, 3] + [7, -5]
    scaled = StandardScaler().fit(X)
    plain = KernelRegressor(bandwidth=[100 / 4, 3 / 2], degree=1).fit(X, y)
    inner = KernelRegressor(bandwidth=(plain.bandwidth / scaled.scale_).tolist(), degree=1)
    pipeline = make_pipeline(StandardScaler(), inner).fit(X, y)
    search = GridSearchCV(make_pipeline(StandardScaler(), inner), {"kernelregressor__degree": [1]}, cv=2).fit(X, y)
    expected = KernelRegressionDisplay.from_estimator(plain, X, y, feature=0)
    for estimator in (pipeline, search):
        display = KernelRegressionDisplay.from_estimator(estimator, X, y, feature=0)
        numpy.testing.assert_allclose(display.curve.x, expected.curve.x)
        numpy.testing.assert_allclose(display.curve.predicted, expected.curve.predicted, rtol=1e-8)
        numpy.testing.assert_allclose(display.curve.band, expected.curve.band, rtol=1e-6)
        numpy.testing.assert_allclose(display.curve.bandwidth, 25)
        for ours, theirs in zip(display.curve.window, expected.curve.window, strict=True):
            numpy.testing.assert_allclose(ours, theirs, rtol=1e-8)
        for ours, theirs in zip(display.curve.heat_map, expected.curve.heat_map, strict=True):
            numpy.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9)


def test_a_pipeline_that_bends_x():
    X, y = data()
    X = numpy.exp(X)
    pipeline = make_pipeline(FunctionTransformer(numpy.log), KernelRegressor(bandwidth=0.3)).fit(X, y)
    display = KernelRegressionDisplay.from_estimator(pipeline, X, y)
    numpy.testing.assert_allclose(display.curve.predicted, pipeline.predict(display.curve.x[:, None]))
    _, low, high = display.curve.window
    _, inner_low, inner_high = pipeline[-1].window(numpy.log(display.curve.x[:, None]))
    numpy.testing.assert_allclose(numpy.log(low), inner_low, atol=0.05)  # between points of the curve it is straight
    numpy.testing.assert_allclose(numpy.log(high), inner_high, atol=0.05)
    assert numpy.isnan(display.curve.bandwidth)
    assert "curve" in texts_of_legend(display.ax_)


def test_a_pipeline_that_mixes_features_has_a_curve_alone():
    X, y = data(features=2)
    pipeline = make_pipeline(PolynomialFeatures(2, include_bias=False), KernelRegressor(bandwidth=2.0)).fit(X, y)
    display = KernelRegressionDisplay.from_estimator(pipeline, X, y, feature=1)
    place = 50
    moved = X.copy()
    moved[:, 1] = display.curve.x[place]
    assert numpy.isclose(display.curve.predicted[place], pipeline.predict(moved).mean())
    assert display.curve.band is None
    with pytest.raises(ValueError, match=r'kind: expected "curve", because the pipeline mixes features'):
        display.plot("window")


def test_several_features_are_averaged_over_the_samples():
    X, y = data(features=2, n=97)
    model = KernelRegressor(bandwidth=[0.5, 1.0]).fit(X, y + X[:, 1] ** 2)
    display = KernelRegressionDisplay.from_estimator(model, X, y, feature=1)
    for place in (0, 31, 100):
        moved = X.copy()
        moved[:, 1] = display.curve.x[place]
        assert numpy.isclose(display.curve.predicted[place], model.predict(moved).mean())
    assert any("averaged over the other features" in text for text in texts_of_legend(display.ax_))


@pytest.mark.parametrize("kind", ["frame", "array", "polars"])
def test_dates_have_a_time_axis(kind, tmp_path):
    X, y = data()
    days = 17000 + numpy.round(X * 500)
    times = (days * 86400).astype("datetime64[s]")
    frame = pandas.DataFrame({"day": times[:, 0]})
    given = {"frame": frame, "array": times, "polars": polars.from_pandas(frame)}[kind]
    model = KernelRegressor(bandwidth=100.0).fit(given, y)
    display = KernelRegressionDisplay.from_estimator(model, given, y)
    as_numbers = KernelRegressor(bandwidth=100.0).fit(days, y)
    numpy.testing.assert_allclose(display.curve.predicted, as_numbers.predict(display.curve.x[:, None]), rtol=1e-9)
    assert isinstance(display.ax_.xaxis.get_major_formatter(), ConciseDateFormatter)
    assert any("bandwidth 100 days" in text for text in texts_of_legend(display.ax_))
    first = display.to_frame().iloc[0, 0]
    assert first == pandas.Timestamp(times.min())
    for kind_of_picture in KINDS:
        display.save(tmp_path / f"{kind_of_picture}.png", kind_of_picture)


def test_categories_have_their_names(tmp_path):
    X, y = data(features=2)
    frame = pandas.DataFrame({"x": X[:, 0], "shop": numpy.array(["b", "a", "c"])[numpy.arange(len(X)) % 3]})
    model = KernelRegressor(bandwidth=[0.5, 0.1]).fit(frame, y)
    display = KernelRegressionDisplay.from_estimator(model, frame, y, feature="shop")
    assert [label.get_text() for label in display.ax_.get_xticklabels()] == ["a", "b", "c"]
    assert display.to_frame()["shop"].tolist() == ["a", "b", "c"]
    for place, shop in enumerate("abc"):
        assert numpy.isclose(display.curve.predicted[place], model.predict(frame.assign(shop=shop)).mean())
    alone = KernelRegressor(bandwidth=[0.1, 0.1][:1]).fit(frame[["shop"]], y)
    only = KernelRegressionDisplay.from_estimator(alone, frame[["shop"]], y)
    shops = pandas.DataFrame({"shop": ["a", "b", "c"]})
    numpy.testing.assert_allclose(only.curve.predicted, alone.predict(shops))
    numpy.testing.assert_allclose(only.curve.band, alone.interval(shops))
    only.save(tmp_path / "shops.svg")


def test_groups_have_a_curve_each(tmp_path):
    X, y = data(n=211)
    labels = numpy.array(["small", "large", "large"])[numpy.arange(len(X)) % 3]
    model = KernelRegressor("epanechnikov", "loo", degree=1).fit(X, y)
    display = KernelRegressionDisplay.from_estimator(model, X, y + (labels == "small"), groups=labels)
    assert [group.label for group in display.groups] == ["large", "small"]
    for group in display.groups:
        of_group = labels == group.label
        own = clone(model).fit(X[of_group], (y + (labels == "small"))[of_group])
        numpy.testing.assert_allclose(group.curve.predicted, own.predict(group.curve.x[:, None]))
        assert group.samples == of_group.sum()
    assert texts_of_legend(display.ax_) == ["large (140)", "small (71)", "95 % bands"]
    frame = display.to_frame()
    assert list(frame["group"].unique()) == ["large", "small"]
    display.save(tmp_path / "groups.html")
    with pytest.raises(ValueError, match='kind: expected "curve", because there are groups'):
        display.plot("weights")
    with pytest.raises(ValueError, match="groups: expected a label per row of X, 211, got 3"):
        KernelRegressionDisplay.from_estimator(model, X, y, groups=["a", "b", "c"])


def test_categories_have_the_same_places_in_all_groups():
    """Also where a group has not all of them."""
    frame = pandas.DataFrame({"fruit": ["apple", "fig", "pear", "fig", "pear"] * 7})
    y, labels = frame["fruit"].map({"apple": 1.0, "fig": 2.0, "pear": 3.0}), ["all"] * 3 + ["some"] * 2
    model = KernelRegressor(bandwidth=0.01).fit(frame, y)
    display = KernelRegressionDisplay.from_estimator(model, frame, y, groups=labels * 7, level=None)
    some = display.to_frame().query("group == 'some'")
    assert list(some["fruit"]) == ["fig", "pear"]
    numpy.testing.assert_allclose(some["predicted"], [2, 3], atol=0.01)
    (drawn,) = (group for group in display.groups if group.label == "some")
    assert list(drawn.curve.x) == [1, 2]
    numpy.testing.assert_array_equal(numpy.round(drawn.x), drawn.y - 1)


def test_on_logarithmic_scales_samples_and_curve_have_the_units_of_the_table():
    logs, log_y = data()
    model = KernelRegressor(bandwidth=0.3).fit(logs, log_y)
    scales = Scales(log_x=True, log_y=True)
    group = Group.along(scales, 0, "", Chain(model), Inputs.of(logs), log_y, level=0.9)
    numpy.testing.assert_allclose(group.x, 10 ** logs[:, 0])
    numpy.testing.assert_allclose(group.y, numpy.exp(log_y))
    at = numpy.log10(group.curve.x)[:, None]
    numpy.testing.assert_allclose(group.curve.predicted, numpy.exp(model.predict(at)))
    numpy.testing.assert_allclose(group.curve.band, numpy.exp(model.interval(at, 0.9)))


def test_of_many_groups_the_largest_are_drawn():
    X, y = data(n=307)
    labels = [f"g{int(number**0.5)}" for number in range(len(X))]  # 2 k + 1 rows of gk, and 18 of g17
    model = KernelRegressor(bandwidth=1.0).fit(X, y)
    display = KernelRegressionDisplay.from_estimator(model, X, y, groups=labels, level=None)
    assert len(display.groups) == 12
    assert display.groups[0].label == "g16"
    assert {group.label for group in display.groups} == {f"g{number}" for number in range(6, 18)}
    assert texts_of_legend(display.ax_)[-1] == "+ 6 groups"
    looks = {(line.get_color(), str(line.get_linestyle()), line.get_marker()) for line in display.ax_.lines[2::3]}
    assert len(looks) == 12


@pytest.mark.parametrize(
    ("width", "scale", "text"),
    [
        (0.25, "", "0.25"),
        (0.25, "log", "0.25 powers of ten"),
        (30, "dates", "30 days"),
        (0.25, "dates", "6 hours"),
        (0.01, "dates", "14.4 minutes"),
        (0.0005, "dates", "0.72 minutes"),
        (91_520.3, "dates", "91,520 days"),
        (6_534.7, "", "6,535"),
        (numpy.inf, "", "∞"),
        (0.39, "categories", "λ 0.39 (0: categories apart; 1 − 1/n: all n as one)"),
    ],
)
def test_widths_are_in_units_that_suit_them(width, scale, text):
    assert width_text(width, scale) == text
