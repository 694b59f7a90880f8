"""Several sections at once, and what is cached of them."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import regard
from regard.tour import cache as tour_cache
from regard.tour import cells, sections
from regard.tour.cache import model_folder
from regard.tour.runner import run_section, run_sections
from regard.tour.section import Outcome
from tests.tour import small


def results_of(sections, **options):
    """By their numbers; in this process, unless the options say otherwise, which is faster."""
    return {result.section.number: result for result in run_sections(sections, **{"processes": 0, **options})}


def test_in_processes_is_one_by_one(tmp_path):
    needed = tmp_path / "needed"
    sections = [small.section(3), small.section(5, needs=[needed]), small.section(7, needs=[needed])]
    results = results_of(sections, processes=2)
    for section in sections:
        alone, result = run_section(section), results[section.number]
        for name in ("outcome", "numbers", "pictures", "answers"):
            assert getattr(result, name) == getattr(alone, name)
    assert needed.read_text() == "made\n"  # once, for both of them


def test_a_process_that_dies_does_not_take_the_others_along(tmp_path, cache):
    sections = [small.section(3, needs=[tmp_path / "needed"]), small.section(5, small.die), small.section(7)]
    results = results_of(sections, processes=2)
    outcomes = {number: result.outcome for number, result in results.items()}
    assert outcomes == {3: Outcome.HELD, 5: Outcome.FAILED, 7: Outcome.HELD}
    assert "died" in results[5].error
    assert {folder.name.split(".")[0] for folder in cache.iterdir()} == {"claim-03", "claim-07"}  # no failures


def test_a_tour_that_is_killed_leaves_no_process(tmp_path):
    """Not even by kill −9, after which nothing of it can run."""
    code = "from tests.tour import small; from regard.tour.runner import run_sections\n"
    code += "if __name__ == '__main__': list(run_sections([small.section(3, small.sleep)], processes=1))"
    (tmp_path / "tour.py").write_text(code)
    sleeper = tmp_path / "pid"
    home = str(Path(__file__).resolve().parents[2])
    env = {**os.environ, "SLEEPER": str(sleeper), "PYTHONPATH": home}
    with subprocess.Popen([sys.executable, str(tmp_path / "tour.py")], env=env) as tour:
        until(lambda: sleeper.exists() and sleeper.read_text())
        tour.kill()
    worker = int(sleeper.read_text())
    until(lambda: not is_running(worker))


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_numbers_without_a_meaning_are_a_failure():
    result = run_section(small.section(3, small.misnamed))
    assert result.outcome is Outcome.FAILED
    assert result.error == "TypeError: Numbers: expected size, parts, as in `meanings`, got width"


def test_full_is_another_run():
    section = small.section(3, full=small.tiny)
    assert results_of([section], full=True)[3].numbers.size == 1e-9
    assert results_of([section])[3].numbers.size == 0.5
    assert results_of([small.section(5)], full=True)[5].numbers.size == 0.5  # one that has no other


def test_what_is_cached_is_not_computed_again():
    first = results_of([small.section(3)])[3]
    second = results_of([small.section(3, small.fail)])[3]
    assert second.cached
    assert not first.cached
    assert [second.numbers, second.pictures, second.answers] == [first.numbers, first.pictures, first.answers]


@pytest.mark.parametrize("change", ["code", "spoilt", "no pictures", "other numbers", "full", "no_cache"])
def test_what_may_have_changed_is_computed_again(monkeypatch, cache, change):
    results_of([small.section(3)])
    (folder,) = cache.glob("claim-03.*")
    if change == "code":
        monkeypatch.setattr(tour_cache, "code_digest", lambda: "another")
    record = json.loads((folder / "result.json").read_text())
    if change == "spoilt":
        (folder / "result.json").write_text("{")
    if change == "no pictures":
        del record["pictures"]
        (folder / "result.json").write_text(json.dumps(record))
    if change == "other numbers":
        (folder / "result.json").write_text(json.dumps(record | {"numbers": {"width": 3}}))
    options = {change: True} if change in ("full", "no_cache") else {}
    result = results_of([small.section(3, small.tiny)], **options)[3]
    assert (result.cached, result.numbers.size) == (False, 1e-9)
    assert len(list(cache.glob("claim-03.*"))) == 1  # older ones are removed
    assert results_of([small.section(3)], full=change == "full")[3].numbers == result.numbers


@pytest.mark.parametrize(
    ("file", "matters"),
    [
        ("claim_38_head_size_and_number_of_heads.py", True),
        ("claim_38_head_size_and_number_of_heads.md", True),
        ("claim_25_several_heads.py", True),  # whose layers it trains
        ("claim_24_masked_attention_never_sees_the_future.py", False),
    ],
)
def test_a_result_depends_on_the_files_of_its_section(monkeypatch, file, matters):
    section = next(section for section in sections.load() if section.number == 38)
    folder, read_bytes = tour_cache._result_folder(section, full=False), Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read_bytes(path) + (b"#" if path.name == file else b""))
    assert (tour_cache._result_folder(section, full=False) != folder) is matters


def test_a_result_depends_on_the_cells_before_its_own(monkeypatch):
    section, earlier = small.section(5, uses=(3,)), small.section(3)
    monkeypatch.setattr(cells, "_course", lambda: {3: earlier})
    folder = tour_cache._result_folder(section, full=False)
    monkeypatch.setattr(cells, "_course", lambda: {3: small.section(3, plain="width = 7.0")})
    assert tour_cache._result_folder(section, full=False) != folder


def test_a_cache_that_cannot_be_written_is_no_reason_to_stop(cache):
    cache.parent.parent.mkdir()
    cache.parent.touch()
    assert results_of([small.section(3)])[3].outcome is Outcome.HELD
    made = [model_folder("encoder", lambda: regard.Encoder(11, size=4, heads=2, layers=1)) for _ in range(2)]
    assert made[0] == made[1]
    assert isinstance(regard.load(made[0]), regard.Encoder)


def test_a_model_is_made_once_and_whole(cache):
    def make():
        made.append(1)
        return model

    made, model = [], regard.Encoder(11, size=4, heads=2, layers=1)
    first = model_folder("encoder", make, 3)
    assert model_folder("encoder", make, 3) == first
    assert made == [1]
    assert regard.load(first).parameter_count == model.parameter_count
    assert model_folder("encoder", make, 5) != first
    assert not first.exists()
    assert len(list(cache.iterdir())) == 1


def test_a_model_that_is_cut_off_leaves_nothing(cache):
    class Interrupted(regard.Encoder):
        def save(self, folder):
            (folder / "config.json").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model_folder("encoder", lambda: Interrupted(11, size=4, heads=2, layers=1))
    assert list(cache.iterdir()) == []
