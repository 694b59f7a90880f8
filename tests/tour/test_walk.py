"""Several sections at once, and what is kept of them."""

import json
from pathlib import Path

import pytest

import regard
from regard.tour import cache as kept
from regard.tour import walk
from regard.tour.section import Outcome
from tests.tour import dying


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setattr(kept, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache" / "tour"


@pytest.fixture
def at_home(monkeypatch):
    """In this process, which is faster."""
    monkeypatch.setattr(walk, "_side_by_side", lambda sections, full: map(walk.visit, sections))


def together(sections, **options):
    found = walk.walk_together(sections, **{"full": False, "again": False, **options})
    return {result.section.number: result for result in found}


def test_side_by_side_is_one_by_one(tmp_path):
    needed = tmp_path / "needed"
    chain = [dying.section(3), dying.section(5, needs=[needed]), dying.section(7, needs=[needed])]
    found = together(chain)
    for section in chain:
        alone = walk.visit(section)
        own = found[section.number]
        assert (own.outcome, own.numbers, own.pictures) == (alone.outcome, alone.numbers, alone.pictures)
    assert needed.read_text() == "made\n"  # once, for both of them


def test_what_is_kept_is_not_made_again(monkeypatch, cache, at_home):
    first = together([dying.section(3)])[3]
    monkeypatch.setattr(
        walk, "_side_by_side", lambda sections, full: pytest.fail("made again") if sections else iter(())
    )
    second = together([dying.section(3)])[3]
    assert (second.numbers, second.pictures, second.seconds) == (first.numbers, first.pictures, first.seconds)
    assert second.numbers.parts == (2, 3)


@pytest.mark.parametrize(
    "change", ["another code", "spoilt", "a picture is missing", "of other numbers", "full", "again"]
)
def test_what_may_have_changed_is_made_again(monkeypatch, cache, at_home, change):
    together([dying.section(3)])
    (folder,) = cache.glob("claim-03.*")
    if change == "another code":
        monkeypatch.setattr(kept, "code", lambda: "another")
    if change == "spoilt":
        (folder / "numbers.json").write_text("{")
    if change == "a picture is missing":
        (folder / "zh-dark.png").unlink()
    if change == "of other numbers":
        (folder / "numbers.json").write_text(json.dumps({"numbers": {"width": 3}, "seconds": 1}))
    made = []
    monkeypatch.setattr(walk, "_side_by_side", lambda sections, full: made.extend(sections) or iter(()))
    together([dying.section(3)], full=change == "full", again=change == "again")
    assert len(made) == 1


def test_a_model_is_made_once_and_whole(cache):
    def make():
        made.append(1)
        return model

    made, model = [], regard.Encoder(11, size=4, heads=2, layers=1)
    first = kept.model("reader", make, 3)
    assert kept.model("reader", make, 3) == first
    assert made == [1]
    assert regard.load(first).parameter_count == model.parameter_count
    assert kept.model("reader", make, 5) != first
    assert not first.exists()
    assert len(list(cache.iterdir())) == 1


def test_a_model_that_is_cut_off_leaves_nothing(cache, monkeypatch):
    def cut(self, folder):
        Path(folder).mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr(regard.Encoder, "save", cut)
    with pytest.raises(KeyboardInterrupt):
        kept.model("reader", lambda: regard.Encoder(11, size=4, heads=2, layers=1))
    assert list(cache.iterdir()) == []


def test_older_ones_are_removed(monkeypatch, cache, at_home):
    together([dying.section(3)])
    monkeypatch.setattr(kept, "code", lambda: "another")
    together([dying.section(3)])
    assert len(list(cache.glob("claim-03.*"))) == 1


def test_a_cache_that_cannot_be_written_is_no_reason_to_stop(cache, at_home):
    cache.parent.touch()
    assert together([dying.section(3)])[3].outcome is Outcome.HELD


def test_a_process_that_dies_is_a_failure():
    found = together([dying.section(3, dying.die)])
    assert found[3].outcome is Outcome.FAILED
    assert "died" in found[3].error


def test_a_process_that_dies_does_not_take_the_others_along(tmp_path):
    needed = tmp_path / "needed"
    found = together([dying.section(3, needs=[needed]), dying.section(5, dying.die), dying.section(7)])
    assert {number: result.outcome for number, result in found.items()} == {
        3: Outcome.HELD,
        5: Outcome.FAILED,
        7: Outcome.HELD,
    }


def test_failures_are_not_kept(cache):
    together([dying.section(3, dying.die)])
    assert list(cache.glob("claim-03.*")) == []
