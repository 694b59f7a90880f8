"""Time and memory, as the tour and the benchmarks measure them."""

import gc
import time

import pytest

from benchmarks.measure import peak_memory_alone
from regard.measure import median_seconds, peak_memory, quick_collections


def allocate():
    """100 megabytes that are written to: more than the C library keeps, so that the system has to give them."""
    return bytearray(b"x") * 100_000_000


def prepare():
    held = allocate()
    return lambda: (held, allocate())


def test_times_are_medians_of_rounds_after_a_first_call():
    calls = []
    pauses = iter([0.5, 0.01, 0.01, 0.3])
    (median,) = median_seconds(lambda: (calls.append("slow"), time.sleep(next(pauses))), rounds=3)
    assert len(calls) == 4
    assert 0.01 <= median < 0.2
    calls.clear()
    median_seconds(lambda: calls.append(1), lambda: calls.append(2), rounds=2)
    assert calls == [1, 2] * 3  # in turn


def test_memory_is_what_the_work_takes_beyond_what_was_held():
    assert peak_memory(lambda: None) < 10
    assert peak_memory(allocate) == pytest.approx(100, abs=10)
    assert peak_memory_alone(prepare) == pytest.approx(100, abs=10)


def test_work_that_fails_says_so():
    with pytest.raises(ZeroDivisionError):
        peak_memory(lambda: 1 / 0)


def test_what_was_frozen_before_a_block_stays_frozen_and_nothing_else():
    gc.unfreeze()
    try:
        with quick_collections():
            assert gc.get_freeze_count() > 100_000  # of torch alone
        assert gc.get_freeze_count() == 0
    finally:
        gc.freeze()
    with quick_collections():
        pass
    assert gc.get_freeze_count() > 100_000
