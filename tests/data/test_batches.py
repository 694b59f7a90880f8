"""Batches: every example once, little padding, an order that a seed decides."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from regard.data.batches import Batches
from regard.data.grammar import corpus
from regard.data.words import split

lengths = some.lists(some.tuples(some.integers(1, 60), some.integers(1, 60)), min_size=1, max_size=97)


@given(lengths, some.integers(1, 400), some.integers(0, 5), some.integers(0, 5))
def test_an_epoch_has_every_example_once_within_the_budget(own, budget, seed, epoch):
    batches = Batches(own, budget, seed).epoch(epoch)
    assert sorted(row for rows in batches for row in rows) == list(range(len(own)))
    for rows in batches:
        cells = len(rows) * sum(max(own[row][side] for row in rows) for side in range(2))
        assert len(rows) == 1 or cells <= budget


@given(lengths, some.integers(1, 400), some.integers(0, 5))
def test_an_epoch_is_a_function_of_seed_and_number(own, budget, seed):
    assert Batches(own, budget, seed).epoch(3) == Batches(own, budget, seed).epoch(3)


def test_epochs_and_seeds_differ():
    batches = Batches([5] * 101, 50, 0)
    assert batches.epoch(0) != batches.epoch(1) != Batches([5] * 101, 50, 1).epoch(1)


def test_little_is_padding():
    pairs = corpus(count=3_001).train
    own = [(len(split(pair.source)) + 1, len(split(pair.target)) + 1) for pair in pairs]
    assert Batches(own, 2_048, 0).padding() < 0.1
    everything = Batches(own, 10**9, 0)  # one batch: as long as its longest
    assert everything.padding() > 0.4


def test_one_length_or_several_are_the_same():
    assert Batches([3, 1, 2], 4, 0).epoch(0) == Batches([(3,), (1,), (2,)], 4, 0).epoch(0)


def test_no_examples_are_no_batches():
    with pytest.raises(ValueError, match="at least one example"):
        Batches([], 4, 0)
