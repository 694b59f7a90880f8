"""Rows that cannot be used: counted, the first ten named, and an error or a note at the end of the pass."""

import json

import pytest

from regard.data.texts import RowsError, Skipped


def collected(count, policy="stop", unit="row"):
    skipped = Skipped(policy, unit)
    for row in range(1, count + 1):
        skipped.add("a.tsv", row, f"reason {row}")
    return skipped


def test_no_bad_row_is_no_error_and_no_note():
    for policy in ("stop", "skip"):
        skipped = Skipped(policy)
        skipped.check(0)
        assert skipped.notes() == []


def test_a_single_row_is_named_in_one_line():
    with pytest.raises(RowsError, match=r"^a.tsv: line 1: reason 1; fix it or pass --on-error skip$"):
        collected(1).check(7)


@pytest.mark.parametrize("count", [2, 10, 11, 1_307])
def test_all_are_counted_and_ten_are_named(count):
    with pytest.raises(RowsError) as caught:
        collected(count, unit="pair").check(5)
    first, *named, last = str(caught.value).splitlines()
    assert first == f"{count:,} of {count + 5:,} pairs cannot be used:"
    assert named[:10] == [f"  a.tsv: line {row}: reason {row}" for row in range(1, min(count, 10) + 1)]
    assert named[10:] == ([f"  and {count - 10:,} more"] if count > 10 else [])
    assert last == "fix them or pass --on-error skip"
    skipped = collected(count, "skip", "pair")
    skipped.check(5)
    assert skipped.notes() == [f"{count:,} pairs are left out:", *named]


@pytest.mark.parametrize("policy", ["stop", "skip"])
@pytest.mark.parametrize(("count", "message"), [(1, "there is no other row"), (3, "none of the 3 rows can be used")])
def test_nothing_usable_is_an_error_under_both_policies(policy, count, message):
    with pytest.raises(RowsError, match=message):
        collected(count, policy).check(0)


def test_a_store_remembers_them():
    again = Skipped("skip", facts=json.loads(json.dumps(collected(13).facts())))
    assert again.notes() == collected(13, "skip").notes()


def test_a_place_may_be_a_file_or_something_in_it_and_a_reason_stays_on_its_line():
    skipped = Skipped("skip", "image")
    skipped.add("a.png", None, "is\ntruncated")
    skipped.add("b.npz", "image 3", "is black")
    assert skipped.notes()[1:] == ["  a.png: is truncated", "  b.npz: image 3: is black"]


def test_another_policy_is_refused():
    with pytest.raises(ValueError, match="policy: expected stop or skip, got 'ignore'"):
        Skipped("ignore")
