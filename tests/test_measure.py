"""Time and memory, as the tour and the benchmarks measure them."""

import gc
import time

import pytest

from benchmarks.measure import peak_memory_alone
from regard.measure import least_seconds, peak_memory, quick_collections


def allocate():
    """100 megabytes that are written to: more than the C library keeps, so that the system has to give them."""
    return bytearray(b"x") * 100_000_000


def prepare():
    held = allocate()
    return lambda: (held, allocate())


def busy(seconds):
    """Compute for so long; what else the machine does meanwhile does not count."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_times_are_the_least_of_rounds_after_a_first_call():
    lengths = iter([0.01, 0.3, 0.1, 0.3])  # the first call is not measured
    (least,) = least_seconds(lambda: busy(next(lengths)), rounds=3)
    assert 0.1 <= least < 0.2
    assert next(lengths, None) is None
    calls = []
    least_seconds(lambda: calls.append(1), lambda: calls.append(2), rounds=2)
    assert calls == [1, 2] * 3  # in turn


def test_times_do_not_have_what_others_take():
    slow, fast = least_seconds(lambda: busy(0.05), lambda: time.sleep(0.1), rounds=1)
    assert fast < slow


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
