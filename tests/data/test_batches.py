"""Batches: every example once, little padding, an order that a seed decides."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.batches import Batches
from regard.data.grammar import corpus
from regard.data.words import split

LENGTHS = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=97)


@given(LENGTHS, st.integers(1, 400), st.integers(0, 5), st.integers(0, 5))
def test_an_epoch_has_every_example_once_within_the_budget(lengths, budget, seed, epoch):
    batches = Batches(lengths, budget, seed).epoch(epoch)
    assert batches == Batches(lengths, budget, seed).epoch(epoch)
    assert sorted(row for rows in batches for row in rows) == list(range(len(lengths)))
    for rows in batches:
        cells = len(rows) * sum(max(lengths[row][side] for row in rows) for side in range(2))
        assert len(rows) == 1 or cells <= budget


def test_epochs_and_seeds_differ():
    batches = Batches([5] * 101, 50, 0)
    assert batches.epoch(0) != batches.epoch(1) != Batches([5] * 101, 50, 1).epoch(1)


def test_little_is_padding():
    pairs = corpus(count=3_001).train
    lengths = [(len(split(pair.source)) + 1, len(split(pair.target)) + 1) for pair in pairs]
    assert Batches(lengths, 2_048, 0).padding() < 0.1
    assert Batches(lengths, 10**9, 0).padding() > 0.4  # one batch, padded to its longest pair


def test_one_length_or_several_but_at_least_one_example():
    assert Batches([3, 1, 2], 4, 0).epoch(0) == Batches([(3,), (1,), (2,)], 4, 0).epoch(0)
    with pytest.raises(ValueError, match="at least one example"):
        Batches([], 4, 0)
