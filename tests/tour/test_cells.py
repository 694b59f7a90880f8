"""Cells: what they build on, what an exercise or a reader changes, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.tour import cells, sections
from regard.tour.section import Exercise, Text
from tests.tour import small


def test_cells_share_their_variables_and_begin_with_the_same_random_numbers(monkeypatch):
    first = small.section(3, plain="a = torch.rand(1)", show=None)
    second = small.section(5, plain="b = torch.rand(1) + 0 * a", show=None, uses=(3,))
    third = small.section(7, plain="c = b - a", show=None, uses=(5, 3))
    monkeypatch.setattr(cells, "_course", lambda: {section.number: section for section in (first, second, third)})
    assert [section.number for section in cells.before(third)] == [3, 5]
    assert cells.run_plain(third)["c"] == 0
    with pytest.raises(NameError, match="name 'b' is not defined"):
        cells.run_plain(small.section(11, plain="d = b", uses=(3,)))


def test_a_short_cell_that_differs_is_an_error():
    section = small.section(3, short="torch.testing.assert_close(total, torch.tensor(7.0))")
    with pytest.raises(AssertionError):
        cells.run_short(section, cells.run_plain(section))


def test_one_line_is_changed():
    assert cells.changed("a = 1  # one\nb = a\n", ("a = 1", "a = 2")) == "a = 2  # one\nb = a\n"
    assert cells.changed("for x in y:\n    a = 1\n", ("a = 1", "a = 2")) == "for x in y:\n    a = 2\n"
    for source in ("a = 1\na = 1", "b = 1", "a = 12"):
        with pytest.raises(ValueError, match="expected one line 'a = 1' in the cell"):
            cells.changed(source, ("a = 1", "a = 2"))


def test_an_answer_compares_before_and_after():
    section = small.section(3)
    exercise = Exercise(
        ("count = 3", "count = 5"), Text("?", "？"), Text("{was.total:.0f} {now.total:.0f}", "{now.count}")
    )
    assert cells.answer(exercise, section, cells.run_plain(section)) == Text("3 5", "5")


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"width": 2}, "width = 2.0"),
        ({"count": 4.0}, "count = 4"),
        ({"kind": "square"}, "kind = 'square'"),
        ({"sentence": 'it\'s "so"\n'}, "sentence = 'it\\'s \"so\"\\n'"),
    ],
)
def test_a_readers_values(values, line):
    assert line in cells.controlled(small.section(3), values).splitlines()[0:6] or line in cells.controlled(
        small.section(3), values
    )


@pytest.mark.parametrize(
    "values",
    [
        {"width": 11},
        {"width": float("nan")},
        {"width": "1"},
        {"width": True},
        {"count": 0},
        {"kind": "oval"},
        {"kind": ["round"]},
        {"sentence": ""},
        {"sentence": "x" * 21},
        {"sentence": 3},
        {"total": 3},
        {"import os": 1},
    ],
    ids=str,
)
def test_other_values_are_refused(values):
    with pytest.raises(cells.CellError):
        cells.controlled(small.section(3), values)


@given(st.text(min_size=1, max_size=20))
def test_a_text_is_a_text_whatever_stands_in_it(text):
    """It cannot become code."""
    variables = cells.run_plain(small.section(3), cells.controlled(small.section(3), {"sentence": text}))
    assert variables["sentence"] == text


@pytest.mark.parametrize("section", sections.load(), ids=lambda section: section.number)
def test_controls_of_the_tour_draw_for_other_values(section):
    """The ends of every slider, every choice; whole numbers also as 8.0, which JSON takes for the same."""
    for control in section.controls:
        name = control.line.split("=")[0].strip()
        values = getattr(control.values, "values", None) or [
            getattr(control.values, end) for end in ("low", "high") if hasattr(control.values, end)
        ]
        for value in [*values, *(float(value) for value in values if type(value) is int)] or ["the cat sat"]:
            variables = cells.run_plain(section, cells.controlled(section, {name: value}))
            assert "<svg" in section.show(cells.SimpleNamespace(**variables)).svg("en")
