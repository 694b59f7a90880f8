"""Every row of the benchmarks runs, at a tiny size."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks import __main__, measure
from benchmarks.measure import load_rows
from tests.browsing import chromium

ROWS = load_rows()
SLOW = {"seeing/memory"}  # four processes that import transformers; additive/memory is measured alike
IN_A_BROWSER = {"seeing/page-opened", "seeing/hover", "seeing/slider"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.faults) if name in SLOW else name for name in ROWS]
)
def test_every_row_runs(name, monkeypatch):
    if name in IN_A_BROWSER and chromium() is None and not os.environ.get("CI"):
        pytest.skip("no Chromium here: install Debian's package chromium")
    monkeypatch.setattr(measure, "RUNS", 2)  # the second, for work that uses itself up
    row = ROWS[name]
    # In a thread without a browser: Playwright refuses to start a second one where that of other tests runs.
    with ThreadPoolExecutor(1) as thread:
        figures = thread.submit(row.measure, True).result()
    sides = {"ours"} | ({"peer"} if row.against else set()) | ({"best"} if row.bound else set())
    assert figures.keys() - {"case"} == sides
    assert len({len(figures[side]) for side in sides}) == 1
    assert all(__main__.line(row, {**figures})[number] for number in (0, 3, 4, 6, 7, 8))
