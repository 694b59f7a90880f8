"""The part of a content depends on nothing but the content."""

import hashlib
import random

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.split import PARTS, Parts, SplitError, Splitter, content_hash, divide, part, split
from regard.data.store import Column

CONTENTS = st.lists(st.integers(0, 40).map(str), max_size=60)
SHARES = st.sampled_from([0.0, 0.01, 0.05, 0.2, 0.49])


def part_of(parts: Parts) -> dict[str, str]:
    """The part of each content; fails if one is in two parts."""
    pairs = {(item, name) for name in ("train", "validation", "test") for item in getattr(parts, name)}
    assert len(pairs) == len(dict(pairs))
    return dict(pairs)


@given(CONTENTS, SHARES, SHARES, st.randoms())
def test_equal_contents_stay_together_whatever_the_order(items, validation, test, generator):
    wanted = {"train"} | ({"validation"} if validation else set()) | ({"test"} if test else set())
    if len(set(items)) < len(wanted):
        with pytest.raises(SplitError, match="different contents at least"):
            split(items, str, validation, test)
        return
    parts = split(items, str, validation, test)
    assert sorted([*parts.train, *parts.validation, *parts.test]) == sorted(items)
    names = part_of(parts)
    assert set(names.values()) == wanted
    assert part_of(split(generator.sample(items, len(items)), str, validation, test)) == names
    assert part_of(split(dict.fromkeys(items), str, validation, test)) == names
    # Only as many contents move as parts would be empty.
    unmoved = {item: part(item, validation, test) for item in items}
    moved = [names[item] for item in names if names[item] != unmoved[item]]
    assert sorted(moved) == sorted(wanted - set(unmoved.values()))


@given(st.sets(st.text(), min_size=3, max_size=11))
def test_what_moves_has_the_smallest_hash(items):
    parts = split(items, str, validation=1e-9, test=1e-9)
    by_hash = sorted(items, key=lambda item: hashlib.sha256(item.encode()).digest())
    assert (parts.validation, parts.test, set(parts.train)) == (by_hash[:1], by_hash[1:2], set(by_hash[2:]))


@given(st.lists(st.text(min_size=1), min_size=5))
def test_each_part_keeps_the_given_order(items):
    pairs = list(enumerate(items))
    parts = split(pairs, lambda pair: pair[1], validation=0.0, test=0.0)
    assert parts == Parts(pairs, [], [])
    if len(set(items)) > 2:
        parts = split(pairs, lambda pair: pair[1], 0.3, 0.3)
        assert all(items == sorted(items) for items in (parts.train, parts.validation, parts.test))


@given(st.text(alphabet=st.characters(categories=("Ll", "Cs")), min_size=1))  # half characters too
def test_a_text_and_its_bytes_are_in_the_same_part(text):
    assert part(text, 0.3, 0.3) == part(text.encode(errors="surrogatepass"), 0.3, 0.3)


@pytest.mark.parametrize(("validation", "test"), [(0.05, 0.05), (0.2, 0.01), (0.0, 0.3), (0.1, 0.0)])
def test_the_shares_are_about_right(validation, test):
    count = 20_011
    parts = split(range(count), str, validation, test)
    for items, share in zip((parts.validation, parts.test), (validation, test), strict=True):
        assert abs(len(items) / count - share) <= 5 * (share * (1 - share) / count) ** 0.5  # five standard deviations


def test_the_test_part_stays_when_validation_or_the_data_grow():
    items = [str(random.Random(number).random()) for number in range(997)]
    assert set(split(items[:499], str).test) <= set(split(items, str).test)
    assert split(items, str, 0.2).test == split(items, str, 0.01).test
    assert split(items, str).test == [item for item in items if part(item) == "test"]


def test_too_few_contents_are_refused_however_often_they_occur():
    with pytest.raises(SplitError, match="train and validation and test need 3 different contents at least, got 2"):
        split(["a", "b"] * 101, str)


@pytest.mark.parametrize("shares", [(-0.1, 0.1), (0.1, -0.1), (0.5, 0.5), (1.0, 0.0), (float("nan"), 0.1)])
def test_invalid_shares(shares):
    for call in (lambda: part("x", *shares), lambda: split("xyz", str, *shares)):
        with pytest.raises(SplitError, match="expected shares of 0 or more"):
            call()


def column_of(contents, folder):
    """The hashes of contents as a column of a store."""
    hashes = numpy.array([content_hash(content) for content in contents], numpy.uint64)
    hashes.tofile(folder / "hashes")
    return Column(folder / "hashes", numpy.uint64, len(hashes)), hashes


def capped(column, most):
    """A division in which validation and test have about `most` rows, and no more than a twentieth."""
    share = min(0.05, most / len(column))
    return divide(column, share, share)


@given(CONTENTS, SHARES, SHARES)
def test_a_division_of_hashes_is_the_split_of_the_contents(tmp_path_factory, items, validation, test):
    column, hashes = column_of(items, tmp_path_factory.mktemp("column"))
    try:
        expected = split(items, str, validation, test)
    except SplitError:
        with pytest.raises(SplitError, match="different contents at least"):
            divide(column, validation, test)
        return
    names = part_of(expected)
    indices = divide(column, validation, test).parts(hashes)
    assert [PARTS[index] for index in indices] == [names[item] for item in items]


@pytest.mark.parametrize("count", [5_003, 60_013])
def test_a_division_of_many_contents_is_that_of_each_by_itself_and_capped(tmp_path, count):
    items = [f"text {number}" for number in range(count)]
    column, hashes = column_of(items, tmp_path)
    indices = capped(column, 1_009).parts(hashes)
    share = min(0.05, 1_009 / count)
    assert [PARTS[index] for index in indices] == [part(item, share, share) for item in items]
    assert abs((indices == 2).sum() - share * count) < 100


@pytest.mark.parametrize("most", [7, 101, 10_000])
def test_what_is_in_the_training_part_stays_there_when_the_data_grow(tmp_path, most):
    items = [f"text {number}" for number in range(30_011)]
    before = set()
    for count in (307, 1_009, 4_099, 10_007, 30_011):
        column, hashes = column_of(items[:count], tmp_path)
        train = set(hashes[capped(column, most).parts(hashes) == 0].tolist())
        assert before <= train
        before = train


def test_many_copies_of_few_contents_leave_no_part_empty(tmp_path):
    """6,007 contents in two million rows, of which validation and test should have about five."""
    _, contents = column_of([f"text {number}" for number in range(6_007)], tmp_path)
    hashes = numpy.repeat(contents, 333)
    hashes.tofile(tmp_path / "hashes")
    indices = capped(Column(tmp_path / "hashes", numpy.uint64, len(hashes)), 5).parts(contents)
    assert [int((indices == number).sum()) for number in (1, 2)] == [1, 1]


@given(CONTENTS, SHARES, SHARES)
def test_a_splitter_splits_as_split_does(items, validation, test):
    splitter = Splitter(validation, test)
    for item in items:
        assert splitter.add(item) == part(item, validation, test)
    try:
        names = part_of(split(items, str, validation, test))
    except SplitError as error:
        with pytest.raises(SplitError, match=str(error)):
            splitter.division()
        return
    division = splitter.division()
    assert {item: division.part(content_hash(item)) for item in items} == names


def test_a_splitter_holds_few_contents_and_moves_the_same():
    items = [str(number) for number in range(3_001)]
    for share in (0.0001, 0.002, 0.05):
        splitter = Splitter(share, share)
        for item in items:
            splitter.add(item)
        division = splitter.division()
        assert {item: division.part(content_hash(item)) for item in items} == part_of(split(items, str, share, share))
