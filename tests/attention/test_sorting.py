"""Sorting numbers by where they lie, against numpy's stable sort."""

import numpy
import pytest

from regard.attention import sorting
from regard.attention.sorting import sort_numbers

COUNT = 50_021
SHAPES = {
    "even": lambda random: random.random(COUNT),
    "bell": lambda random: random.normal(size=COUNT),
    "heavy tails": lambda random: random.standard_cauchy(COUNT),
    "one far away": lambda random: numpy.append(random.random(COUNT - 1), 1e300),
    "few places": lambda random: random.integers(0, 13, COUNT).astype(float),
    "half at one place": lambda random: numpy.where(random.random(COUNT) < 0.5, 0, 1e-12 * random.random(COUNT)),
    "denormal": lambda random: 5e-324 * random.integers(0, 9, COUNT),
    "signed zeros": lambda random: numpy.where(random.random(COUNT) < 0.5, 0.0, -0.0),
    "clusters": lambda random: random.integers(0, 7, COUNT) + 1e-9 * random.random(COUNT),
    "whole range": lambda random: numpy.append(random.normal(size=COUNT - 2), [1.7e308, -1.7e308]),
    "infinite": lambda random: numpy.append(random.normal(size=COUNT - 2), [numpy.inf, -numpy.inf]),
    "sorted": lambda random: numpy.arange(COUNT, dtype=float),
    "reversed": lambda random: numpy.arange(COUNT, dtype=float)[::-1],
    "few": lambda random: random.normal(size=97),
    "one": lambda random: random.normal(size=1),
    "none": lambda random: random.normal(size=0),
}


@pytest.mark.filterwarnings("ignore:overflow")  # of the range that no float64 can hold
@pytest.mark.parametrize("shape", SHAPES)
def test_numbers_are_sorted_and_equal_ones_stay_in_order(shape):
    x = SHAPES[shape](numpy.random.default_rng(0))
    values, order = sort_numbers(x)
    truth = numpy.argsort(x, kind="stable")
    assert numpy.array_equal(order, truth)
    assert numpy.array_equal(values, x[truth])


def test_without_loops_numbers_are_sorted_too(monkeypatch):
    monkeypatch.setattr(sorting, "load_kernels", lambda name: None)
    x = numpy.random.default_rng(1).normal(size=COUNT)
    assert numpy.array_equal(sort_numbers(x)[0], numpy.sort(x))
