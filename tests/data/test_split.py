"""Which side a content is on depends on nothing but the content."""

import hashlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.split import Parts, SplitError, part, split

NAMES = ("train", "validation", "test")
CONTENTS = st.lists(st.integers(0, 40).map(str), max_size=60)
SHARES = st.sampled_from([0.0, 0.01, 0.05, 0.2, 0.49])


def sides(parts: Parts) -> dict[str, set[str]]:
    return {name: set(getattr(parts, name)) for name in NAMES}


def enough(items, validation, test):
    return len(set(items)) >= 1 + (validation > 0) + (test > 0)


@given(CONTENTS, SHARES, SHARES, st.randoms())
def test_all_is_kept_once_equal_contents_together_whatever_the_order(items, validation, test, chance):
    if not enough(items, validation, test):
        with pytest.raises(SplitError, match="different contents at least"):
            split(items, str, validation, test)
        return
    parts = split(items, str, validation, test)
    found = sides(parts)
    assert sorted([*parts.train, *parts.validation, *parts.test]) == sorted(items)
    assert sum(map(len, found.values())) == len(set(items))  # no content on two sides
    shuffled = chance.sample(items, len(items))
    assert sides(split(shuffled, str, validation, test)) == found
    assert sides(split(dict.fromkeys(items), str, validation, test)) == found


@given(CONTENTS, SHARES, SHARES)
def test_every_part_that_is_wanted_has_something_and_no_other(items, validation, test):
    if enough(items, validation, test):
        parts = split(items, str, validation, test)
        assert [bool(own) for own in (parts.train, parts.validation, parts.test)] == [True, validation > 0, test > 0]


@given(CONTENTS, SHARES, SHARES)
def test_only_as_many_contents_move_as_parts_would_be_empty(items, validation, test):
    if not enough(items, validation, test):
        return
    given_places = {item: part(item, validation, test) for item in items}
    empty = {"train", *(["validation"] * (validation > 0)), *(["test"] * (test > 0))} - set(given_places.values())
    found = {item: name for name, own in sides(split(items, str, validation, test)).items() for item in own}
    moved = [item for item in found if found[item] != given_places[item]]
    assert sorted(found[item] for item in moved) == sorted(empty)


@given(st.sets(st.text(), min_size=3, max_size=11))
def test_what_moves_has_the_smallest_hash(items):
    parts = split(items, str, validation=1e-9, test=1e-9)
    by_hash = sorted(items, key=lambda item: hashlib.sha256(item.encode()).digest())
    assert (parts.validation, parts.test, set(parts.train)) == (by_hash[:1], by_hash[1:2], set(by_hash[2:]))


@given(st.lists(st.text(min_size=1), min_size=5))
def test_the_given_order_is_kept(items):
    pairs = list(enumerate(items))
    parts = split(pairs, lambda pair: pair[1], validation=0.0, test=0.0)
    assert parts == Parts(pairs, [], [])
    if len(set(items)) > 2:
        parts = split(pairs, lambda pair: pair[1], 0.3, 0.3)
        assert all(own == sorted(own) for own in (parts.train, parts.validation, parts.test))


@given(st.text(alphabet=st.characters(categories=("Ll", "Cs")), min_size=1))  # half characters too
def test_a_text_is_where_its_bytes_are(text):
    assert part(text, 0.3, 0.3) == part(text.encode(errors="surrogatepass"), 0.3, 0.3)


@pytest.mark.parametrize(("validation", "test"), [(0.05, 0.05), (0.2, 0.01), (0.0, 0.3), (0.1, 0.0)])
def test_the_shares_are_about_right(validation, test):
    count = 20_011
    parts = split(range(count), str, validation, test)
    for own, share in zip((parts.validation, parts.test), (validation, test), strict=True):
        assert abs(len(own) / count - share) <= 5 * (share * (1 - share) / count) ** 0.5  # five standard deviations


def test_what_is_tested_on_stays_when_more_is_watched_or_added():
    items = [str(random.Random(number).random()) for number in range(997)]
    few = split(items[:499], str)
    assert set(few.test) <= set(split(items, str).test)
    assert split(items, str, 0.2).test == split(items, str, 0.01).test
    assert split(items, str).test == [item for item in items if part(item) == "test"]


def test_too_few_contents_are_refused_however_often_they_stand_there():
    with pytest.raises(SplitError, match="train and validation and test need 3 different contents at least, got 2"):
        split(["a", "b"] * 101, str)


@pytest.mark.parametrize("shares", [(-0.1, 0.1), (0.1, -0.1), (0.5, 0.5), (1.0, 0.0), (float("nan"), 0.1)])
def test_shares_that_are_none(shares):
    with pytest.raises(SplitError, match="expected shares of 0 or more"):
        part("x", *shares)
    with pytest.raises(SplitError, match="expected shares of 0 or more"):
        split("xyz", str, *shares)
