"""Every section: it runs, says everything in both languages, and its verdict follows its numbers.

That a claim can fail through the same code is shown in test_failing_*.py.
"""

import re

import pytest
import torch
from latex2mathml.converter import convert

from regard.tour import sections
from regard.tour.runner import run_section
from regard.tour.section import Criterion, Numbers, Outcome, Text, show, verdict
from regard.tour.sections import CHAPTERS

SECTIONS = {section.number: section for section in sections.load()}

TIMED = (16, 26)  # whose numbers are times, which are never the same twice


@pytest.fixture
def result(finished, number):
    return next(result for result in finished.results if result.section.number == number)


def changed(numbers, changes):
    return Numbers(**(vars(numbers) | changes))


every_section = pytest.mark.parametrize("number", SECTIONS)


@every_section
def test_it_runs(result):
    assert result.error == ""
    assert result.outcome is not Outcome.FAILED
    assert result.pictures
    assert len(result.answers) == len(result.section.exercises) >= 2


@every_section
def test_numbers_that_are_nan_prove_nothing(result):
    unknown = {name: float("nan") for name, _, value in result.labelled() if isinstance(value, float)}
    if unknown:
        assert verdict(list(result.section.judge(changed(result.numbers, unknown)))) is not Outcome.HELD


@every_section
def test_it_says_everything_in_both_languages(result):
    section = result.section
    captions = [picture.caption for picture in result.pictures]
    texts = [section.title, section.claim, section.idea, *captions, *section.meanings.values(), *result.answers]
    texts += [criterion.sentence for criterion in result.criteria]
    texts += [exercise.question for exercise in section.exercises]
    texts += [control.name for control in section.controls]
    for text in texts:
        assert text.en.strip() == text.en != ""
        assert text.zh.strip() == text.zh != ""
        assert not re.search(r"[\u4e00-\u9fff]", text.en)
        assert re.search(r"[\u4e00-\u9fff]", text.zh) or text in result.answers, text.zh
    for text in [section.claim, section.idea, *captions]:
        assert text.en.endswith(".")
        assert text.zh.endswith("。")


@every_section
def test_its_deciding_number_is_one_of_its_numbers(number):
    assert SECTIONS[number].deciding in SECTIONS[number].meanings


@every_section
def test_its_formula_is_typeset(number):
    assert "<math" in convert(SECTIONS[number].formula)


def test_there_are_forty_and_their_files_have_their_numbers():
    loaded = sections.load()
    assert sorted(section.number for section in loaded) == list(range(1, 41))
    assert [section.number for section in loaded] == [number for chapter in CHAPTERS.values() for number in chapter]
    for section in loaded:
        assert int(section.judge.__module__.rpartition(".")[2].split("_")[1]) == section.number
        assert section.notes or section.number == 40


def test_cells_build_on_earlier_ones_only():
    order = [section.number for section in sections.load()]
    for section in sections.load():
        assert all(order.index(number) < order.index(section.number) for number in section.uses), section.number


def test_the_numbers_do_not_depend_on_what_ran_before(finished):
    before = {result.section.number: result.numbers for result in finished.results}
    short = [section for section in reversed(sections.load()) if not (section.rehearsal or section.number in TIMED)]
    for section in short[::3]:
        assert run_section(section).numbers == before[section.number]


def test_a_verdict_needs_the_first_measured_criterion_most():
    nothing = Text("", "")
    yes, no = Criterion(True, nothing), Criterion(False, nothing)
    same, other = Criterion(True, nothing, "definition"), Criterion(False, nothing, "definition")
    needed, needless = Criterion(True, nothing, "correction"), Criterion(False, nothing, "correction")
    open_part = Criterion(False, nothing, "untestable")
    assert verdict([yes]) is verdict([yes, yes]) is verdict([same, yes]) is verdict([yes, needless]) is Outcome.HELD
    assert verdict([yes, no]) is verdict([same, yes, no]) is verdict([yes, open_part]) is Outcome.PARTLY
    assert verdict([no]) is verdict([no, yes]) is verdict([other, yes]) is verdict([other]) is Outcome.DID_NOT_HOLD
    assert verdict([same]) is verdict([same, same]) is Outcome.BY_DEFINITION
    assert verdict([yes, needed]) is verdict([same, needed]) is verdict([needed]) is Outcome.IMPRECISE
    assert verdict([no, needed]) is Outcome.DID_NOT_HOLD
    assert verdict([open_part]) is Outcome.NOT_TESTABLE


def test_numbers_of_tensors_and_sentences_with_them():
    numbers = Numbers(error=torch.tensor(0.25), counts=torch.tensor([2, 70]), ratio=4.44e-16, sizes=[4, 16])
    assert vars(numbers) == {"error": 0.25, "counts": (2, 70), "ratio": 4.44e-16, "sizes": (4, 16)}
    sentence = numbers.criterion(True, Text("{error:.1%} of {counts[-1]}, {ratio}", "{sizes}")).sentence
    assert sentence == ("25.0% of 70, 4.4·10⁻¹⁶", "(4, 16)")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0, "0"),
        (0.0, "0"),
        (-0.0, "0"),
        (7, "7"),
        (-7, "−7"),
        (1024, "1024"),
        (0.30249, "0.302"),
        (-0.5, "−0.5"),
        (1023.6, "1024"),
        (4.44e-16, "4.4·10⁻¹⁶"),
        (-1.5e7, "−1.5·10⁷"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        ((2, 1, 20), "(2, 1, 20)"),
        ((0.5, 1e-9), "(0.5, 1.0·10⁻⁹)"),
    ],
)
def test_numbers_are_written_as_people_write_them(value, written):
    assert show(value) == written
