"""Predict what was held out of eight real tables, and write docs/tables.md: python -m experiments.tables."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import signal
import statistics
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy
import pandas
from numpy.typing import NDArray
from sklearn.metrics import r2_score
from sklearn.model_selection import ShuffleSplit
from threadpoolctl import threadpool_limits

from benchmarks.measure import duration, one_thread
from benchmarks.measured import processor
from experiments.tables import pages
from experiments.tables.data import TABLES
from experiments.tables.models import MODELS, Answer, Model
from regard import files

Array = NDArray[numpy.float64]
Figures = dict[str, Any]

MEASURED = Path(__file__).with_name("measured.json")
SPLITS, LIMIT = 5, 20.0  # seconds of the processor that a peer has for a split
PACKAGES = ("regard", "scikit-learn", "statsmodels", "fastlowess", "numpy", "numba")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when all of it was measured."""
    parser = argparse.ArgumentParser(prog="python -m experiments.tables", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(TABLES)}; default: all")
    parser.add_argument(
        "--models", nargs="+", choices=MODELS, default=[*MODELS], metavar="MODEL",
        help=f"of {', '.join(map(repr, MODELS))}; default: all. What the others did is kept",
    )  # fmt: skip
    parser.add_argument("--page", action="store_true", help="only write the pages again")
    options = parser.parse_args(arguments)
    for name in options.names:
        if name not in TABLES:
            parser.error(f"{name}: expected some of {', '.join(TABLES)}")
    if not options.page:
        for name in options.names or TABLES:
            save(name, run(name, options.models))
    measured = read()
    for page in pages.PAGES:
        files.write(page, pages.with_tables(page, measured))
        print(f"wrote docs/{page.name}")
    return 0


def run(name: str, models: Sequence[str]) -> Figures:
    """What these models, where they suit a table, do on it, shown as it comes; and what others have done."""
    source, (X, y) = TABLES[name], TABLES[name].load()
    before = read()["tables"].get(name, {}).get("models", {})
    outcomes: Figures = {}
    for title, model in MODELS.items():
        if title not in models and title in before:
            outcomes[title] = before[title]
        elif model.suits(X):
            # One thread each: beside other work, two that wait for each other take many times as long.
            with one_thread(), threadpool_limits(1):
                outcomes[title] = measure(model, X, y)
            print(f"{name}, {title}: {shown(outcomes[title])}", flush=True)
    return {"source": source.source, "y": source.y, "features": kinds(X), "rows": len(X), "models": outcomes}


def shown(outcome: Figures) -> str:
    """One line for the terminal."""
    if "absent" in outcome:
        return str(outcome["absent"])
    return f"R² {statistics.mean(outcome['r2']):.3f}, {duration(outcome['seconds'])}"


def kinds(X: pandas.DataFrame) -> dict[str, str]:
    """What each feature is."""
    words = {"M": "date", "O": "category"}
    return {str(name): words.get(dtype.kind, "number") for name, dtype in X.dtypes.items()}


def measure(model: Model, X: pandas.DataFrame, y: Array, splits: int = SPLITS, limit: float = LIMIT) -> Figures:
    """R², time and, where there are intervals, how many values are inside and how wide the curve's band is.

    The splits, four fifths to learn from and a fifth to predict, are the same for all models. The time is the median.
    """
    if not model.available():
        return {"absent": "not there"}
    outcomes: list[Figures] = []
    seconds = []
    for some, others in ShuffleSplit(splits, test_size=0.2, random_state=0).split(X):
        try:
            with at_most(limit if model.limited else 0.0):
                answer = model.answer(X.iloc[some], y[some], X.iloc[others])
        except TimeoutError:
            return {"absent": "slow"}
        outcomes.append(judged(answer, y[others], float(y.std())))
        seconds.append(answer.seconds)
    figures = {key: [round(outcome[key], 5) for outcome in outcomes] for key in outcomes[0]}
    return {**figures, "seconds": float(f"{statistics.median(seconds):.3g}")}


def judged(answer: Answer, y: Array, spread: float) -> Figures:
    """The figures of one split."""
    figures = {"r2": float(r2_score(y, answer.predictions))}
    if answer.interval is not None:
        low, high = answer.interval
        figures["inside"] = float(((low <= y) & (y <= high)).mean())
    if answer.band is not None:
        low, high = answer.band
        figures["band"] = float((high - low).mean() / spread)
    return figures


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Without warnings, and with a TimeoutError after so many seconds of the processor; 0: without a limit.

    What waits for another process is stopped as well, after ten times as long.
    """

    def stop(*_: object) -> None:
        raise TimeoutError

    timers = {signal.SIGPROF: (signal.ITIMER_PROF, seconds), signal.SIGALRM: (signal.ITIMER_REAL, 10 * seconds)}
    before = {number: signal.signal(number, stop) for number in timers}
    for timer, limit in timers.values():
        signal.setitimer(timer, limit)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for number, (timer, _) in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


def read() -> Figures:
    """What was measured."""
    content: Figures = json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.exists() else {"tables": {}}
    return content


def save(name: str, figures: Figures) -> None:
    """Put the figures of a table beside the others, in the order of the tables."""
    tables = {**read()["tables"], name: figures}
    measured = {
        "machine": f"{processor()}, {platform.system()}",
        "versions": f"Python {platform.python_version()}, {versions()}",
        "limit": LIMIT,
        "splits": SPLITS,
        "tables": {known: tables[known] for known in TABLES if known in tables},
    }
    files.write(MEASURED, json.dumps(measured, indent=1, ensure_ascii=False) + "\n")


def versions() -> str:
    """Of what was measured."""
    packages = [package for name in PACKAGES for package in [*importlib.metadata.distributions(name=name)][:1]]
    return ", ".join(f"{package.name} {package.version}" for package in packages)


if __name__ == "__main__":
    sys.exit(main())
