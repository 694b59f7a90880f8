"""The learning rate, and the plan of a run of some minutes."""

import math
from itertools import pairwise

import pytest

from regard.training.options import resolve
from regard.training.schedule import Plan, learning_rate, read_plan

LAST = {"constant": 0.3, "cosine": 0.0, "linear": 0.0, "inverse-root": 0.3 * math.sqrt(7 / 101)}


@pytest.mark.parametrize("schedule", LAST)
def test_the_learning_rate_grows_and_falls(schedule):
    options = resolve("text", {"schedule": schedule, "learning_rate": 0.3, "warmup": 7, "steps": 101})
    rates = [learning_rate(step, options, Plan(None, [(0, 101)])) for step in range(1, 102)]
    assert rates[:7] == sorted(rates[:7])
    assert max(rates) == pytest.approx(0.3)
    assert rates[6:] == sorted(rates[6:], reverse=True)
    assert rates[-1] == pytest.approx(LAST[schedule], abs=1e-12)


@pytest.mark.parametrize("pace", [0.02, 0.5, 3.0])
@pytest.mark.parametrize("change", [1.0, 0.4, 2.3])
def test_a_run_of_some_minutes_ends_annealed_and_in_time(pace, change):
    """Also if its steps become faster or slower after a third: the rate never jumps, and ends near 0."""
    options = resolve("text", {"minutes": 7.0, "learning_rate": 1.0, "warmup": 5})
    plan, step, seconds, rates = Plan(7.0), 0, 0.0, []
    while plan.steps is None or step < plan.steps:
        step += 1
        rates.append(learning_rate(step, options, plan))
        seconds += pace * (change if seconds > 140 else 1.0)
        if plan.is_due(step):
            plan.revise(step, seconds, None)
    assert seconds == pytest.approx(420, rel=0.06)
    assert rates[-1] < 0.03
    assert max(abs(later - rate) for rate, later in pairwise(rates[5:])) < 12 / len(rates)


@pytest.mark.parametrize("pace", [7.0, 20.0, 50.0])
@pytest.mark.parametrize("first", [1.0, 3.0])
def test_a_run_of_few_slow_steps_reaches_its_rate_and_ends_annealed_and_in_time(pace, first):
    """With a warm-up that is longer than the run, and a first step that takes longer than the others."""
    options = resolve("text", {"minutes": 7.0, "learning_rate": 1.0, "warmup": 100})
    plan, step, seconds, rates = Plan(7.0), 0, 0.0, []
    while plan.steps is None or step < plan.steps:
        step += 1
        rates.append(learning_rate(step, options, plan))
        seconds += pace * (1 if step > 1 else first)
        if plan.is_due(step, early=seconds > 0.2 * 420):
            plan.revise(step, seconds, None)
        again = Plan(7.0, plan.revisions)
        assert [learning_rate(number, options, again) for number in range(1, step + 1)] == rates  # as a resumed run has
    assert abs(seconds - 420) <= 2 * pace
    assert max(rates) >= 0.5
    assert rates[-1] < 0.05


def test_a_plan_is_kept_for_a_run_that_resumes(tmp_path):
    options = resolve("text", {"minutes": 3.0})
    plan = read_plan(tmp_path, options, 0)
    assert (plan.steps, plan.is_due(20), plan.is_due(19)) == (None, True, False)
    plan.revise(20, 10.0, None)
    plan.write(tmp_path)
    again = read_plan(tmp_path, options, 11)
    assert (again, again.steps, again.is_due(20)) == (plan, 360, False)  # what was decided after step 20 stays
    longer = read_plan(tmp_path, resolve("text", {"minutes": 6.0}), 190)
    assert (longer.minutes, longer.revisions, longer.is_due(191)) == (6.0, [(20, 360)], True)
    (tmp_path / "plan.json").write_text("damaged")
    assert read_plan(tmp_path, options, 30).steps is None


def test_a_plan_never_has_more_steps_than_were_asked_for():
    plan = Plan(60.0)
    plan.revise(20, 1.0, 333)
    assert plan.steps == 333
