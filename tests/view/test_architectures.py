"""The campaign of experiments/architectures: a share of its rows, and that it finds the faults that it is there for."""

import re
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn
from torch.nn import functional

import regard
from experiments.architectures import __main__ as command
from experiments.architectures.campaign import Layer, Outcome, Subject, watch

FAST = {row.name: row for row in command.ROWS if row.fast}


@pytest.mark.parametrize("name", FAST)
def test_capture_is_right_or_says_that_it_is_not(name):
    outcome = command.examine(FAST[name])
    assert (outcome.result, outcome.faults) == (FAST[name].expected, [])


def test_the_table_is_what_was_measured():
    page = command.PAGE.read_text(encoding="utf-8")
    assert page == command.with_table(page, command.read()), "run `python -m experiments.architectures --page`"
    names = [row.name for row in command.ROWS]
    assert len(set(names)) == len(names), "two rows have the same name"
    assert set(command.read()) == set(names), "run `make architectures`"


def test_results_are_as_expected():
    measured = command.read()
    assert {row.name: row.expected for row in command.ROWS} == {name: measured[name]["result"] for name in measured}


# --------------------------------------------------------------------------------------- faults that have to be found


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 5)

    def forward(self, rows):
        return functional.scaled_dot_product_attention(self.linear(rows), rows, rows)


MODEL, ROWS = Attends(), torch.randn(2, 3, 7, 5, generator=torch.Generator().manual_seed(1))
WEIGHTS = (MODEL.linear(ROWS) @ ROWS.mT * 5**-0.5).softmax(-1).detach()


@dataclass(frozen=True)
class Map:
    name: str
    weights: torch.Tensor
    heads: tuple = (0, 1, 2)
    queries: tuple = tuple(range(7))
    call: int = 0


class Seen(list):
    def __init__(self, maps=(), unrecognised=()):
        super().__init__(maps)
        self.unrecognised = unrecognised


ONE = (Layer("", WEIGHTS),)


def outcome_of(monkeypatch, seen, during=lambda: None, layers=ONE):
    """What the campaign says of a capture that sees this."""

    @contextmanager
    def capture(model):
        if seen.unrecognised:
            warnings.warn("unrecognised", stacklevel=1)
        during()
        yield seen

    monkeypatch.setattr(regard, "capture", capture)
    return watch(Subject(MODEL, lambda: MODEL(ROWS), layers, gradients=False))


RIGHT = Map("Attends", WEIGHTS)


def test_what_is_right_or_reported(monkeypatch):
    assert outcome_of(monkeypatch, Seen([RIGHT])).result == "right"
    assert outcome_of(monkeypatch, Seen([], [RIGHT])).result == "reported"
    assert outcome_of(monkeypatch, Seen(), layers=()).result == "not attention"
    both = [Layer("one", WEIGHTS), Layer("two", WEIGHTS.flip(-1))]
    seen = Seen([replace(RIGHT, name="one")], [replace(RIGHT, name="two")])
    assert outcome_of(monkeypatch, seen, layers=both).result == "right + reported"


@pytest.mark.parametrize(
    ("seen", "fault"),
    [
        (Seen(), "absent: Attends"),
        (Seen([replace(RIGHT, weights=WEIGHTS + 2e-5)]), r"wrong: Attends, \(2, 3, 7, 7\), differs by 2.0e-05"),
        (Seen([replace(RIGHT, weights=WEIGHTS.flatten(0, 1)[:, None])]), "wrong: .* is unlike the oracle's"),
        (Seen([RIGHT, replace(RIGHT, weights=WEIGHTS.flip(0))]), "wrong: .* differs by"),
        (Seen([replace(RIGHT, call=1)]), r"wrong: calls are numbered \[1\]"),
        (Seen([replace(RIGHT, queries=(0,))]), "wrong: Attends has .* queries"),
    ],
)
def test_what_is_wrong_or_absent(monkeypatch, seen, fault):
    (text,) = outcome_of(monkeypatch, seen).faults
    assert re.match(fault, text), text


def test_a_report_without_a_warning_is_wrong(monkeypatch):
    monkeypatch.setattr(warnings, "warn", lambda *given, **options: None)
    outcome = outcome_of(monkeypatch, Seen([], [RIGHT]))
    assert outcome.faults == ["wrong: what is unrecognised came without a warning"]


def test_a_report_where_nothing_attends_is_wrong(monkeypatch):
    outcome = outcome_of(monkeypatch, Seen([], [RIGHT]), layers=())
    assert outcome.faults == ["wrong: Attends was reported, and does not attend"]


def test_what_is_changed(monkeypatch):
    original = torch.softmax
    changed = outcome_of(monkeypatch, Seen([RIGHT]), lambda: monkeypatch.setattr(torch, "softmax", lambda *given: None))
    monkeypatch.setattr(torch, "softmax", original)
    assert [fault.split(":")[0] for fault in changed.faults] == ["changed", "changed"], "during and after"
    assert all("torch.softmax" in fault for fault in changed.faults)
    weight = MODEL.linear.weight.clone()
    changed = outcome_of(monkeypatch, Seen([RIGHT]), lambda: MODEL.linear.weight.data.mul_(1 + 1e-6))
    MODEL.linear.weight.data = weight
    assert changed.result == "changed"


def test_gradients_that_are_changed(monkeypatch):
    @contextmanager
    def capture(model):
        hook = model.linear.weight.register_hook(lambda gradient: gradient * (1 + 1e-6))
        yield Seen([RIGHT])
        hook.remove()

    monkeypatch.setattr(regard, "capture", capture)
    (fault,) = watch(Subject(MODEL, lambda: MODEL(ROWS), ONE)).faults
    assert fault.startswith("changed: the output under capture")


def test_what_fails(monkeypatch):
    def fail():
        raise RuntimeError("no\nmore")

    assert outcome_of(monkeypatch, Seen([RIGHT]), fail).faults == ["failed: RuntimeError: no"]


def test_the_worst_fault_is_the_result():
    assert Outcome(2, 2, 0, 0.0, ["absent: one", "changed: two"]).result == "changed"
