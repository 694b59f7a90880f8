"""Every section: its verdict today, and that its verdict could have been another."""

import inspect
import re
from dataclasses import dataclass, fields, replace

import pytest

from regard.tour import sections, walk
from regard.tour.section import Criterion, Numbers, Outcome, Text, points, show, verdict

SECTIONS = {section.number: section for section in sections.load()}

# Numbers that must make the claim fall, and numbers that must leave it standing in part. A new section adds a row.
BROKEN = {
    1: {"pooled_moved": 1e-3},
    2: {"variance": 1e-3},
    3: {"kernel_error": 2.0},
    4: {"roughness": 0.6},
    5: {"attend": 1e-11},
    6: {"smallest": -1e-3},
    7: {"near": 0.5},
    8: {"interval_after": 3.0},
    9: {"ratio": 4.0},
    10: {"worst": 0.4},
    11: {"loop": 1e-11},
    12: {"beyond": 1e-30},
    13: {"output_shape": (2, 4)},
    14: {"off_size": 0.06},
    15: {"left": 0.3},
    16: {"additive_time": 0.9},
    17: {"worst": -1.5},
    18: {"apart": 0.2},
    19: {"weight": 0.05},
    20: {"cosine": 10.0},
    21: {"moved": 1e-3},
    22: {"together": 1e-3},
    23: {"without": 1e-3},
    24: {"past_changed": 3},
    25: {"gain": -0.1},
    26: {"far": 0.5},
    27: {"others_cut": 5},
    28: {"layer": 1e-3},
    29: {"gap": -0.021},
    30: {"gap": 0.021},
    31: {"first": 12},
}
WEAKENED = {
    1: {"attention_moved": 0.0},
    2: {"error": 0.1},
    3: {"wins": 4},
    4: {"distance": 0.06},
    5: {"softmax": 1e-11},
    6: {"out_of_reach": 1.0},
    7: {"own": 0.9},
    8: {"new_after": 0.8},
    9: {"vector_error": 0.35},
    10: {"apart": 1.6},
    11: {"attend": 1e-11},
    12: {"in_empty": 0.125},
    13: {"uneven": 0.01},
    14: {"off_one": 0.06},
    15: {"kept": 0.5},
    16: {"textbook_time": 0.8},
    17: {"kept_without": 2.5},
    18: {"error": 0.9},
    19: {"right": 1},
    20: {"worst": 15.0},
    21: {"recurrent_moved": 0.0},
    22: {"value_moved": 0.25},
    23: {"placed": 0.01},
    24: {"model_changed": 2},
    25: {"alike": 0.9},
    26: {"kept_growth": 1.5},
    27: {"others": 0.5},
    28: {"alone": 0},
    29: {"least": -0.013},
    30: {"gap_pretrained": -0.03},
    31: {"by_words": 24},
}
# Sections that train for long are rehearsed here, which proves nothing: numbers with which their claims stand.
STANDING = {
    17: {"worst": 30.0, "gap": 40.0, "kept_without": 0.3, "kept_attention": 0.9},
    18: {"apart": 0.7, "error": 0.2, "straight": 0.5},
    19: {"weight": 0.8, "others": 0.1, "right": 3, "seeds": 3},
    20: {"cosine": 70.0, "without": 20.0, "worst": 60.0, "best_without": 25.0},
    25: {"gain": 2.0, "noise": 0.1, "alike": 0.2, "placed": 3.0},
    26: {
        "far": 1.0,
        "recurrent": (1.0, 1.0),
        "convolution": (1.0, 0.12),
        "milliseconds": (10.0, 1.0, 2.0),
        "kept_growth": 4.0,
        "fused_growth": 4.0,
    },
    29: {"gap": 0.1, "least": 0.05},
    30: {"gap": -0.2, "gap_all": 0.05, "gap_pretrained": 0.02},
}
TIMED = (16, 26)  # whose numbers are times, which are never the same twice


@pytest.fixture
def result(finished, number):
    (found,) = (result for result in finished.results if result.section.number == number)
    return found


every_section = pytest.mark.parametrize("number", SECTIONS)


@every_section
def test_it_runs(result):
    assert result.error == ""


@pytest.mark.parametrize("number", [number for number in SECTIONS if number not in STANDING])
def test_the_claim_holds_today(result):
    assert result.outcome is Outcome.HELD, [criterion.sentence.en for criterion in result.criteria]


@every_section
def test_the_verdict_follows_the_numbers(result, number):
    standing = replace(result.numbers, **STANDING.get(number, {}))
    assert verdict(result.section.judge(standing)) is Outcome.HELD
    for changes, outcome in ((BROKEN[number], Outcome.DID_NOT_HOLD), (WEAKENED[number], Outcome.PARTLY)):
        criteria = result.section.judge(replace(standing, **changes))
        assert verdict(criteria) is outcome
        reasons = [criterion.sentence for criterion in criteria if not criterion.met]
        (changed,) = (value for name, value in changes.items())
        shown = (show(changed), *((f"{changed:.1%}", points(changed)) if isinstance(changed, float) else ()))
        for reason in reasons:
            assert any(form and form in reason.en and form in reason.zh for form in shown)


@every_section
def test_numbers_that_are_nan_prove_nothing(result):
    unknown = {name: float("nan") for name, _, value in result.numbers.labelled() if isinstance(value, float)}
    assert verdict(result.section.judge(replace(result.numbers, **unknown))) is not Outcome.HELD


@every_section
def test_it_says_everything_in_both_languages(result):
    section = result.section
    texts = [section.title, section.claim, section.idea, section.caption]
    texts += [label for _, label, _ in result.numbers.labelled()]
    texts += [criterion.sentence for criterion in result.criteria]
    for text in texts:
        assert text.en.strip() == text.en != ""
        assert text.zh.strip() == text.zh != ""
        assert not re.search(r"[\u4e00-\u9fff]", text.en)
        assert re.search(r"[\u4e00-\u9fff]", text.zh), text.zh
    for text in texts[1:4]:
        assert text.en.endswith(".")
        assert text.zh.endswith("。")


@every_section
def test_its_code_fits_the_page(number):
    assert max(map(len, inspect.getsource(SECTIONS[number].run).splitlines())) <= 90


@every_section
def test_its_deciding_number_is_one_of_its_numbers(result):
    assert result.section.deciding in [field.name for field in fields(result.numbers)]


def test_files_and_claims_have_the_same_numbers():
    numbers = [int(section.run.__module__.rpartition(".")[2].split("_")[1]) for section in sections.load()]
    assert numbers == [section.number for section in sections.load()] == sorted(set(numbers))
    assert set(BROKEN) == set(WEAKENED) == set(numbers)


def test_the_numbers_do_not_depend_on_what_ran_before(finished, monkeypatch):
    monkeypatch.setattr(walk, "png", lambda drawing, theme: b"")
    before = {result.section.number: result.numbers for result in finished.results}
    short = [section for section in reversed(sections.load()) if section.number not in (*STANDING, *TIMED)]
    assert all(result.numbers == before[result.section.number] for result in walk.walk(short))


def test_a_verdict_needs_the_first_criterion_most():
    yes, no = Criterion(True, Text("", "")), Criterion(False, Text("", ""))
    assert verdict([yes]) is verdict([yes, yes]) is Outcome.HELD
    assert verdict([yes, no]) is verdict([yes, no, yes]) is Outcome.PARTLY
    assert verdict([no]) is verdict([no, yes]) is Outcome.DID_NOT_HOLD


def test_a_number_without_a_meaning_is_refused():
    @dataclass(frozen=True)
    class Bare(Numbers):
        bare: float

    with pytest.raises(TypeError, match=r"Bare\.bare: expected Annotated\[…, Text\(en, zh\)\]"):
        list(Bare(1.0).labelled())


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
