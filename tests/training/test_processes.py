"""Several processes: real ones, started by torchrun, that talk through gloo."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.training import tiny

TASK = "translate"
LONG = pytest.mark.faults  # one of each kind is enough for every day
SAME = {"dropout": 0.0, "steps": 200, "evaluate_every": 100, "save_every": 50, "learning_rate": 1e-3}

STEADY = {**SAME, "schedule": "constant", "steps": 60, "evaluate_every": 30, "save_every": 30}


def torchrun(count, arguments, *more):
    """The same command with several processes."""
    assert arguments[:3] == [sys.executable, "-m", "regard"]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    return [*launcher, *more, "-m", "regard", *arguments[3:]]


def losses(folder):
    return {step: float.fromhex(loss) for step, loss in tiny.losses(folder).items()}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A run of one process."""
    home = tmp_path_factory.mktemp("alone")
    data = tiny.make(TASK, home)
    done = tiny.run(tiny.command(TASK, data, home / "run", **SAME))
    assert done.returncode == 0, done.stderr
    return data, losses(home / "run")


@pytest.fixture(scope="module", params=["copies", "parts"])
def together(request, alone, tmp_path_factory):
    """The same run with two processes, which have copies of the model, or parts of it."""
    out = tmp_path_factory.mktemp(request.param) / "run"
    given = {**SAME, "shard": request.param == "parts"}
    done = tiny.run(torchrun(2, tiny.command(TASK, alone[0], out, "--json", **given)))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 200  # told once, not by each
    return out, given


@pytest.fixture(scope="module")
def steady(tmp_path_factory):
    """The same with a learning rate that does not depend on how many steps are to come."""
    home = tmp_path_factory.mktemp("steady")
    data = tiny.make(TASK, home)
    done = tiny.run(tiny.command(TASK, data, home / "run", **STEADY))
    assert done.returncode == 0, done.stderr
    return data, losses(home / "run")


@pytest.mark.parametrize("task", ["language", pytest.param("images", marks=LONG)])
def test_what_is_random_about_batches_does_not_depend_on_the_processes(task, tmp_path):
    data = tiny.make(task, tmp_path)
    given = {**STEADY, "steps": 20, "evaluate_every": 20}
    if task == "language":
        given["model"] = "masked"
    found = []
    for name, count in (("alone", 1), ("both", 2)):
        arguments = tiny.command(task, data, tmp_path / name, **given)
        done = tiny.run(arguments if count == 1 else torchrun(count, arguments))
        assert done.returncode == 0, done.stderr
        found.append(losses(tmp_path / name))
    assert max(abs(found[0][step] - found[1][step]) for step in found[0]) < 1e-5


def test_two_processes_learn_what_one_learns(alone, together):
    expected, found = alone[1], losses(together[0])
    assert found.keys() == expected.keys() == set(range(1, 201))
    assert max(abs(found[step] - expected[step]) for step in expected) < 1e-5


@pytest.mark.parametrize(
    ("before", "after"),
    [((2, False), (1, False)), ((1, False), (2, True)), pytest.param((2, True), (1, False), marks=LONG)],
)
def test_a_run_goes_on_with_another_number_of_processes(steady, tmp_path, before, after):
    data, expected = steady
    out = tmp_path / "run"
    first = tiny.command(TASK, data, out, **{**STEADY, "steps": 30, "shard": before[1]})
    later = [*first[:5], "--out", str(out), "--resume", "--steps", "60", "--shard" if after[1] else "--no-shard"]
    for (count, _), arguments in ((before, first), (after, later)):
        done = tiny.run(arguments if count == 1 else torchrun(count, arguments))
        assert done.returncode == 0, done.stderr
    found = losses(out)
    assert max(abs(found[step] - expected[step]) for step in expected) < 1e-5


@pytest.mark.parametrize("together", ["copies", pytest.param("parts", marks=LONG)], indirect=True)
def test_the_death_of_a_process_changes_no_bit(alone, together, tmp_path):
    """torchrun starts the processes again, and they go on from the last checkpoint by themselves."""
    expected, given = together
    out = tmp_path / "run"
    arguments = torchrun(2, tiny.command(TASK, alone[0], out, **given), "--max-restarts", "2")
    child = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, cwd=tiny.ROOT)
    victim = _worker_after_a_checkpoint(child.pid, out)
    os.kill(victim, signal.SIGKILL)
    _, told = child.communicate(timeout=240)
    assert child.returncode == 0, told
    assert tiny.outcome(out) == tiny.outcome(expected)


def _worker_after_a_checkpoint(launcher, out):
    """The number of a worker process, once there is something to go on from."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if any(out.glob("checkpoints/step-*")):
            listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(launcher)], capture_output=True, text=True)
            return int(listed.stdout.split()[-1])
        time.sleep(0.02)
    raise AssertionError("no checkpoint came")
