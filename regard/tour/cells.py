"""Running the cells of the course: the plain code of a section after that of the sections it builds on.

Cells share their variables, as in a notebook. A cell with other values, an exercise's or a reader's, is the same code
with one line changed.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch

from regard.tour.section import Choice, Control, Exercise, Section, Slider, Text, Words

PRELUDE = """import math

import torch
from torch import nn
from torch.nn import functional as F"""


class CellError(ValueError):
    """A value that a control does not take."""


@cache
def _course() -> dict[int, Section]:
    from regard.tour.sections import load

    return {section.number: section for section in load()}


def with_earlier(sections: Iterable[Section]) -> list[Section]:
    """These sections, each behind those whose plain cells it builds on."""
    in_order: dict[int, Section] = {}
    for section in sections:
        in_order |= {other.number: other for other in [*before(section), section]}
    return list(in_order.values())


def before(section: Section) -> list[Section]:
    """The sections whose plain cells this one builds on, in the order in which they have to run."""
    return with_earlier(_course()[number] for number in section.uses)


def run_plain(section: Section, source: str | None = None) -> dict[str, Any]:
    """The variables after the section's plain cell, or after `source` in its place. Random numbers begin anew."""
    variables: dict[str, Any] = {"__name__": "course"}
    _run(PRELUDE, variables, "first cell")
    for earlier in before(section):
        _run(earlier.plain, variables, f"claim {earlier.number}")
    _run(section.plain if source is None else source, variables, f"claim {section.number}")
    return variables


def run_short(section: Section, variables: dict[str, Any]) -> None:
    """The same with regard, which compares itself with the plain cell; its variables are added."""
    _run(section.short, variables, f"claim {section.number}, regard")


def _run(source: str, variables: dict[str, Any], name: str) -> None:
    torch.manual_seed(0)
    source, file = source.strip() + "\n", f"<{name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)  # for tracebacks
    exec(compile(source, file, "exec"), variables)


def changed(source: str, change: tuple[str, str]) -> str:
    """The cell with one line changed; ValueError where it has not exactly one such line."""
    old, new = change
    pattern = re.compile(rf"^(\s*){re.escape(old)}(?=\s*(#.*)?$)", re.MULTILINE)
    if len(pattern.findall(source)) != 1:
        raise ValueError(f"expected one line {old!r} in the cell, got {len(pattern.findall(source))}")
    return pattern.sub(lambda match: match.group(1) + new, source)


def answer(exercise: Exercise, section: Section, variables: Mapping[str, Any]) -> Text:
    """What comes out of the changed cell, in the words of the exercise. variables: of the cell as it stands."""
    now = SimpleNamespace(**run_plain(section, changed(section.plain, exercise.change)))
    was = SimpleNamespace(**variables)
    return Text(*(text.format(was=was, now=now) for text in exercise.answer))


def controlled(section: Section, values: Mapping[str, Any]) -> str:
    """The plain cell with a reader's values, by the names of the variables; CellError for what a control refuses."""
    source = section.plain
    controls = {control.line.split("=")[0].strip(): control for control in section.controls}
    for name, value in values.items():
        if name not in controls:
            raise CellError(f"{name}: expected one of {', '.join(controls) or 'no controls'}")
        source = changed(source, (controls[name].line, f"{name} = {_literal(name, controls[name], value)}"))
    return source


def _literal(name: str, control: Control, value: Any) -> str:
    match control.values:
        case Choice(values):
            if value not in values or isinstance(value, bool):
                raise CellError(f"{name}: expected one of {', '.join(map(str, values))}, got {value!r}")
            return repr(values[values.index(value)])  # JSON may write 8 as 8.0, which is no size
        case Slider(low, high, _, _, whole):
            if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
                raise CellError(f"{name}: expected a number from {low:g} to {high:g}, got {value!r}")
            return repr(round(value) if whole else float(value))
        case Words(longest):
            if not isinstance(value, str) or not 0 < len(value) <= longest:
                raise CellError(f"{name}: expected a text of at most {longest} letters")
            return repr(value)
