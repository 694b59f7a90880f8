"""Streams that several read hold no more than what lies between the first and the last reader."""

import weakref

import pytest

from regard.data.streams import fork, map_in_threads


class Item:
    pass


def test_forks_read_the_same_items_in_any_turn():
    first, second, third = fork(range(7), 3)
    assert [next(first) for _ in range(5)] == [0, 1, 2, 3, 4]
    assert list(second) == list(range(7))
    assert list(first) == [5, 6]
    assert list(third) == list(range(7))


@pytest.mark.parametrize("ahead", [0, 3])
def test_an_item_that_all_have_taken_is_let_go(ahead):
    living = weakref.WeakSet()

    def items():
        for _ in range(101):
            item = Item()
            living.add(item)
            yield item
            del item

    first, second = fork(items(), 2)
    for _ in range(ahead):
        next(first)
    most = 0
    for _ in zip(first, second, strict=False):
        most = max(most, len(living))
    assert most <= ahead + 2


def test_results_come_in_order_and_errors_where_they_are_asked_for():
    assert list(map_in_threads(lambda number: number * number, range(50))) == [number * number for number in range(50)]
    results = map_in_threads(lambda number: 1 // number, [1, 0])
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)
