"""Batches: every example once, little padding, an order that a seed decides."""

from itertools import islice

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.batches import Batches, Position, permuted
from regard.data.grammar import corpus
from regard.data.words import split

LENGTHS = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=97)


@given(LENGTHS, st.integers(1, 400), st.integers(0, 5), st.integers(0, 5))
def test_an_epoch_has_every_example_once_within_the_budget(lengths, budget, seed, epoch):
    batches = list(Batches(lengths, budget, seed).epoch(epoch))
    assert batches == list(Batches(lengths, budget, seed).epoch(epoch))
    assert sorted(row for rows in batches for row in rows) == list(range(len(lengths)))
    for rows in batches:
        cells = len(rows) * sum(max(lengths[row][side] for row in rows) for side in range(2))
        assert len(rows) == 1 or cells <= budget


def test_epochs_and_seeds_differ():
    batches = Batches([5] * 101, 50, 0)
    orders = [list(order) for order in (batches.epoch(0), batches.epoch(1), Batches([5] * 101, 50, 1).epoch(1))]
    assert orders[0] != orders[1] != orders[2]


@given(LENGTHS, st.integers(1, 400), st.integers(1, 31), st.integers(0, 40))
def test_batches_go_on_from_any_position(lengths, budget, window, number):
    """Also in the middle of a window, and over the end of an epoch."""
    batches = Batches(lengths, budget, 3, window)
    all_of_them = list(islice(batches.following(Position()), number + 23))
    position = all_of_them[number][1]
    assert list(islice(batches.following(position), 22)) == all_of_them[number + 1 :]


@given(st.integers(1, 700), st.integers(0, 2**70))
def test_a_permutation_has_every_number_once(count, key):
    assert sorted(permuted(numpy.arange(count), count, key).tolist()) == list(range(count))


def test_permutations_look_random():
    """Every number is at every place about equally often, and neighbours are no neighbours any more."""
    count, keys = 7, 4_001
    orders = numpy.stack([permuted(numpy.arange(count), count, key) for key in range(keys)])
    for number in range(count):
        assert numpy.bincount(numpy.nonzero(orders == number)[1]).min() > 0.85 * keys / count
    steps = numpy.abs(numpy.diff(permuted(numpy.arange(10_007), 10_007, 5)))
    assert abs(steps.mean() - 10_007 / 3) < 150


def test_a_large_corpus_costs_no_memory():
    """One length for all of four billion examples."""
    batches = Batches(numpy.broadcast_to(numpy.int64(128), 1 << 32), 1_024, 0)
    rows, position = next(batches.following(Position(2, 60_000, 3)))
    assert (len(rows), position) == (8, Position(2, 60_000, 4))


def test_little_is_padding():
    pairs = corpus(count=3_001).train
    lengths = [(len(split(pair.source)) + 1, len(split(pair.target)) + 1) for pair in pairs]
    assert Batches(lengths, 2_048, 0).padding() < 0.1
    assert Batches(lengths, 10**9, 0).padding() > 0.4  # one batch, padded to its longest pair


def test_one_length_or_several_but_at_least_one_example():
    assert list(Batches([3, 1, 2], 4, 0).epoch(0)) == list(Batches([(3,), (1,), (2,)], 4, 0).epoch(0))
    with pytest.raises(ValueError, match="at least one example"):
        Batches([], 4, 0)
