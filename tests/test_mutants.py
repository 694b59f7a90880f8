"""Mutants: small faults are made where they should be, and one that a test can notice is noticed."""

import json
import time

import pytest

from experiments.mutants.__main__ import PAGE, VERDICTS, page
from experiments.mutants.forks import in_fork
from experiments.mutants.mutations import mutants, sample
from experiments.mutants.tracing import traced
from experiments.mutants.trying import attempt, attempt_by, copy

CODE = b'''"""Not 1 + 1."""
LIMIT = 3


@decorate(5)
def total(values: "tuple[1]", start=0):
    """1 < 2"""
    if not values or min(values) < start:
        raise ValueError("less than " + "7")
    print("\xc3\xa4", f"{1 + 1}"); log(values)
    return values[start:len(values)] - 1
'''


def test_every_kind_of_fault_and_nothing_else():
    changes = {mutant.change: mutant for mutant in mutants("regard/toy/sums.py", CODE)}
    assert set(changes) == {
        "3 → 4", "0 → 1", "1 → 2",
        "not values → (values)",
        "not values or min(values) < start → (not values and min(values) < start)",
        "min(values) < start → (min(values) <= start)",
        "min → max",
        'print("ä", f"{1 + 1}") → pass', "log(values) → pass",
        "return values[start:len(values)] - 1 → return None",
        "values[start:len(values)] - 1 → (values[start:len(values)] + 1)",
        "start → (start + 1)", "len(values) → (len(values) + 1)",
    }  # fmt: skip
    for mutant in changes.values():
        compile(mutant.apply(CODE), mutant.file, "exec")
    assert b"max(values) < start" in changes["min → max"].apply(CODE)
    assert (changes["3 → 4"].function, changes["0 → 1"].function) == ("", "total")
    assert changes["0 → 1"].lines == (7, 11)  # a default acts wherever the function does
    assert changes["min → max"].lines == (8, 8)


@pytest.fixture
def toy(tmp_path):
    """A package with three functions, of which the tests run two and look at what one of them returns."""
    root = tmp_path / "root"
    (root / "regard" / "toy").mkdir(parents=True)
    (root / "tests" / "toy").mkdir(parents=True)
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '--import-mode=importlib'\n")
    (root / "regard" / "__init__.py").touch()
    (root / "regard" / "toy" / "__init__.py").touch()
    (root / "regard" / "toy" / "sums.py").write_text(
        "def add(a, b):\n    return a + b\n\n\n"
        "def loop(n):\n    while n > 0:\n        n -= 1\n    return n\n\n\n"
        "def forgotten(a, b):\n    return a * b\n"
    )
    (root / "tests" / "toy" / "test_sums.py").write_text(
        "import pytest\n\nfrom regard.toy.sums import add, loop\n\n\ndef test_add():\n    assert add(3, 4) == 7\n\n\n"
        "def test_loop():\n    loop(5)\n\n\n"
        "@pytest.mark.parametrize('n', [1, 2])\ndef test_broken(n):\n    loop(n)\n    assert n == 1\n"
    )
    base = tmp_path / "work" / "base"
    copy(root, base)
    return base


def test_a_fault_that_a_test_notices_is_killed_and_another_one_survives(toy, monkeypatch):
    chosen = list(mutants("regard/toy/sums.py", (toy / "regard/toy/sums.py").read_bytes()))
    tests = {"tests/toy/test_sums.py": traced(toy, "tests/toy/test_sums.py", chosen)}
    by_change = {(mutant.function, mutant.change): mutant for mutant in chosen}
    before = (toy / "regard/toy/sums.py").read_bytes()
    killed = attempt(toy, by_change["add", "return a + b → return None"], tests)
    assert (killed["verdict"], killed["by"], killed["error"]) == (
        "killed",
        "tests/toy/test_sums.py::test_add",
        "assert",
    )
    monkeypatch.setattr("experiments.mutants.trying.PATIENCE", 2)
    hangs = attempt(toy, by_change["loop", "n -= 1 → n += 1"], tests)
    assert (hangs["verdict"], hangs["by"]) == ("killed", "time")
    monkeypatch.undo()
    unnoticed = attempt(toy, by_change["loop", "return n → return None"], tests)
    # By the two tests that run the line, and pass without a fault.
    assert (unnoticed["verdict"], unnoticed["tests"]) == ("survived", 2)
    assert attempt(toy, by_change["forgotten", "return a * b → return None"], tests)["verdict"] == "survived"
    assert (toy / "regard/toy/sums.py").read_bytes() == before


def test_a_named_test_that_fails_without_a_fault_as_well_kills_nothing(toy):
    chosen = {
        mutant.change: mutant for mutant in mutants("regard/toy/sums.py", (toy / "regard/toy/sums.py").read_bytes())
    }
    mutant, file = chosen["a + b → (a - b)"], "tests/toy/test_sums.py"
    assert attempt_by(toy, mutant, [f"{file}::test_broken"])["verdict"] == "survived"
    assert attempt_by(toy, mutant, [f"{file}::test_loop"])["verdict"] == "survived"
    assert attempt_by(toy, mutant, [f"{file}::test_broken", f"{file}::test_add"])["by"] == f"{file}::test_add"


def test_a_fork_may_wait_longer_than_it_may_compute(tmp_path):
    def work_without_end():
        while True:
            pass

    assert in_fork(tmp_path, lambda: time.sleep(1.5) or "done", 1) == "done"
    assert in_fork(tmp_path, work_without_end, 1) == "time"


def test_a_sample_has_one_mutant_of_a_line_and_stays_where_it_is(toy):
    first = sample(toy, "toy", 4)
    assert len({mutant.line for mutant in first}) == 4
    path = toy / "regard/toy/sums.py"
    path.write_text("# moved\n" + path.read_text())
    assert [mutant.key for mutant in sample(toy, "toy", 4)] == [mutant.key for mutant in first]


def test_the_page_is_made_of_the_verdicts():
    assert PAGE.read_text(encoding="utf-8") == page(json.loads(VERDICTS.read_text(encoding="utf-8")))
