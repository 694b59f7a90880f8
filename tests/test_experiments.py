"""The page of results is made of what was measured, and every trial can be named."""

import pytest

from experiments import EXPERIMENTS
from experiments.__main__ import PAGE, load, page, read
from experiments.trial import spread, steps_within, table, train
from tests.training import tiny


def test_the_page_is_what_was_measured():
    assert PAGE.read_text(encoding="utf-8") == page(read()), "run `python -m experiments --page`"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_trials_have_names_of_their_own(name):
    own = load(name)
    names = [trial.name for trial in own.trials]
    assert len(set(names)) == len(names) > 0
    assert set(read().get(name, {})) <= set(names)


def test_a_trial_trains_by_command_and_knows_it(tmp_path):
    data = str(tiny.make("text", tmp_path))
    found = train(tmp_path / "run", "text", data, **tiny.options("text"))
    assert found["steps"] == 12
    assert found["command"].startswith(f"regard train text {tmp_path.name}/texts.csv --size 12")
    again = train(tmp_path / "run", "text", data, **tiny.options("text"))  # it is done: nothing is trained twice
    assert again["seconds"] == found["seconds"]


def test_a_pace_becomes_steps(tmp_path):
    (tmp_path / "pace.json").write_text("0.5")
    assert steps_within(2, tmp_path, "text", "none.csv") == 240


def test_tables_and_spreads():
    assert table(["a", "b"], [[1, 2]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
    assert spread([1.0, 2.0, 6.0]) == "3.0 (1.0–6.0)"
    assert spread([0.12345], ".3f") == "0.123"
