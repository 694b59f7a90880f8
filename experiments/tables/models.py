"""The smoothers: each learns from some rows and answers for others, and chooses its smoothness by itself."""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy
import pandas
from numpy.typing import NDArray
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, SplineTransformer, StandardScaler

from experiments.tables import np_of_r
from regard import KernelRegressor

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of changes to come in its random numbers
    from statsmodels.nonparametric.kernel_regression import KernelReg
    from statsmodels.nonparametric.smoothers_lowess import lowess as statsmodels_lowess

Array = NDArray[numpy.float64]
Frame = pandas.DataFrame

LEVEL = 0.95
NEIGHBOURS = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89)
SHARES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 2 / 3)  # of the samples, that a window of lowess has
KNOTS, KNOTS_OF_A_CURVE = (5, 10, 20, 40), (5, 10, 20, 40, 80, 160, 320)


class Answer(NamedTuple):
    """Predictions (n,), the seconds of fitting and predicting, and the ends of intervals where there are any.

    Seconds are those of the processor: each has one thread, and other work on the machine does not count.
    """

    predictions: Array
    seconds: float
    interval: tuple[Array, Array] | None = None  # where a new value lies
    band: tuple[Array, Array] | None = None  # where the curve lies


@dataclass(frozen=True)
class Model:
    """How to learn from rows and y, and answer for other rows; for which tables, and whether it is installed."""

    answer: Callable[[Frame, Array, Frame], Answer]
    suits: Callable[[Frame], bool] = lambda frame: True
    available: Callable[[], bool] = lambda: True
    limited: bool = True  # in time


def regard(X: Frame, y: Array, queries: Frame, *, degree: int) -> Answer:
    """The defaults, but for the degree."""
    start = time.process_time()
    model = KernelRegressor(degree=degree).fit(X, y)
    predictions = model.predict(queries)
    seconds = time.process_time() - start
    return Answer(predictions, seconds, model.interval(queries, LEVEL, "prediction"), model.interval(queries, LEVEL))


def timed(predict: Callable[[Frame, Array, Frame], Array]) -> Callable[[Frame, Array, Frame], Answer]:
    """A model of a function that learns and predicts."""

    def answer(X: Frame, y: Array, queries: Frame) -> Answer:
        start = time.process_time()
        predictions = predict(X, y, queries)
        return Answer(predictions, time.process_time() - start)

    return answer


def numbers(frame: Frame) -> Frame:
    """Dates as days, for models that know none."""
    first, day = pandas.Timestamp(0), pandas.Timedelta(1, "D")
    return frame.assign(**{name: (frame[name] - first) / day for name in frame.select_dtypes("datetime")})


def codes(frame: Frame) -> Array:
    """Categories as the numbers of them, dates as days."""
    categories = {name: frame[name].cat.codes for name in frame.select_dtypes("category")}
    return numbers(frame).assign(**categories).to_numpy(dtype=numpy.float64)


def kernel_reg(X: Frame, y: Array, queries: Frame) -> Array:
    """A local line of statsmodels with its cross-validated bandwidths."""
    kinds = "".join("u" if dtype == "category" else "c" for dtype in X.dtypes)
    predictions: Array = KernelReg(y, codes(X), kinds, reg_type="ll", bw="cv_ls").fit(codes(queries))[0]
    return predictions


def r_np(X: Frame, y: Array, queries: Frame) -> Answer:
    """A local line of R's np with its cross-validated bandwidths; the time is R's."""
    return Answer(*np_of_r.predict(numbers(X), y, numbers(queries)))


def lowess(x: Array, y: Array, queries: Array, share: float) -> Array:
    """Cleveland's, with its usual three robust iterations."""
    predictions: Array = statsmodels_lowess(y, x, frac=share, xvals=queries)
    return predictions


def fast_lowess(x: Array, y: Array, queries: Array, share: float) -> Array:
    """The same in Rust."""
    from fastlowess import Lowess

    predictions: Array = Lowess(fraction=share, retain_model=True, parallel=False).fit(x, y).predict(queries).y
    return predictions


def by_folds(
    smooth: Callable[[Array, Array, Array, float], Array], shares: Sequence[float] = SHARES
) -> Callable[[Frame, Array, Frame], Array]:
    """A smoother of one feature whose share of samples has the least error over five folds."""

    def error(x: Array, y: Array, share: float) -> float:
        folds = KFold(5, shuffle=True, random_state=0).split(x)
        errors = [smooth(x[some], y[some], x[others], share) - y[others] for some, others in folds]
        mean = float(numpy.square(numpy.concatenate(errors)).mean())
        return mean if numpy.isfinite(mean) else numpy.inf  # NaN where a window held too few samples

    def predict(X: Frame, y: Array, queries: Frame) -> Array:
        x = numbers(X).to_numpy()[:, 0]
        enough = [share for share in shares if share * len(x) >= 5]
        share = min(enough, key=lambda share: error(x, y, share))
        return smooth(x, y, numbers(queries).to_numpy()[:, 0], share)

    return predict


def neighbours(X: Frame, y: Array, queries: Frame) -> Array:
    """The mean of the k nearest, features being scaled by their spreads."""
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_include="category")),
        remainder=StandardScaler(),
    )
    few = [k for k in NEIGHBOURS if k < 0.7 * len(X)]  # a fold learns from four fifths
    search = GridSearchCV(make_pipeline(columns, KNeighborsRegressor()), {"kneighborsregressor__n_neighbors": few})
    predictions: Array = search.fit(numbers(X), y).predict(numbers(queries))
    return predictions


def additive(X: Frame, y: Array, queries: Frame) -> Array:
    """A generalized additive model: a penalized spline of each feature, and a constant for each category."""
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_include="category")),
        remainder=SplineTransformer(knots="quantile"),
    )
    model = make_pipeline(columns, RidgeCV(numpy.logspace(-4, 4, 17)))
    knots = KNOTS_OF_A_CURVE if X.shape[1] == 1 else KNOTS
    search = GridSearchCV(model, {"columntransformer__remainder__n_knots": knots})
    predictions: Array = search.fit(numbers(X), y).predict(numbers(queries))
    return predictions


def boosting(X: Frame, y: Array, queries: Frame) -> Array:
    """Trees, as scikit-learn sets them up."""
    model = HistGradientBoostingRegressor(categorical_features="from_dtype", random_state=0)
    predictions: Array = model.fit(numbers(X), y).predict(numbers(queries))
    return predictions


def one_feature(frame: Frame) -> bool:
    return frame.shape[1] == 1


def fast_lowess_is_here() -> bool:
    return importlib.util.find_spec("fastlowess") is not None


MODELS = {
    "regard, degree 0": Model(partial(regard, degree=0), limited=False),
    "regard, degree 1": Model(partial(regard, degree=1), limited=False),
    "np": Model(r_np, available=np_of_r.is_here),
    "statsmodels": Model(timed(kernel_reg)),
    "lowess": Model(timed(by_folds(lowess)), one_feature),
    "fastlowess": Model(timed(by_folds(fast_lowess)), one_feature, fast_lowess_is_here),
    "KNN": Model(timed(neighbours)),
    "GAM": Model(timed(additive)),
    "boosting": Model(timed(boosting)),
}
