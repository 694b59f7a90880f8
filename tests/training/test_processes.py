"""Several processes: real ones, started by torchrun, with gloo."""

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
SAME = {"dropout": 0.0, "steps": 120, "evaluate_every": 60, "save_every": 30, "learning_rate": 1e-3}
STEADY = {**SAME, "schedule": "constant", "steps": 60, "evaluate_every": 30, "save_every": 30}


def torchrun(count, arguments, *more):
    """The same command with several processes."""
    assert arguments[:3] == [sys.executable, "-m", "regard"]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    return [*launcher, *more, "-m", "regard", *arguments[3:]]


def run(count, arguments):
    """With one process in this one, which starts faster."""
    if count == 1:
        assert tiny.call(arguments) == 0
        return ""
    done = tiny.run(torchrun(count, arguments))
    assert done.returncode == 0, done.stderr
    return done.stdout


def losses(folder):
    return {step: float.fromhex(loss) for step, loss in tiny.losses(folder).items()}


def difference(expected, actual):
    """The largest difference between the losses of two runs."""
    return max(abs(actual[step] - expected[step]) for step in expected)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A run of one process."""
    home = tmp_path_factory.mktemp("alone")
    data = tiny.make(TASK, home)
    run(1, tiny.command(TASK, data, home / "run", **SAME))
    return data, losses(home / "run")


@pytest.fixture(scope="module", params=["DDP", pytest.param("FSDP2", marks=LONG)])
def together(request, alone, tmp_path_factory):
    """The same run with two processes, which have copies of the model, or shards of it."""
    out = tmp_path_factory.mktemp(request.param) / "run"
    given = {**SAME, "shard": request.param == "FSDP2"}
    printed = run(2, tiny.command(TASK, alone[0], out, "--json", **given))
    assert json.loads(printed)["steps"] == SAME["steps"]  # printed once, not by each process
    return out, given


@pytest.fixture(scope="module")
def steady(tmp_path_factory):
    """A run of one process whose learning rate does not depend on the number of steps."""
    home = tmp_path_factory.mktemp("steady")
    data = tiny.make(TASK, home)
    run(1, tiny.command(TASK, data, home / "run", **STEADY))
    return data, losses(home / "run")


@pytest.mark.parametrize("task", ["language", pytest.param("images", marks=LONG)])
def test_the_randomness_of_batches_does_not_depend_on_the_processes(task, tmp_path):
    data = tiny.make(task, tmp_path)
    given = {**STEADY, "steps": 20, "evaluate_every": 20}
    if task == "language":
        given |= {"model": "masked", "batch": 12_000}  # three passes of one process, or two of each of two
    runs = []
    for name, count in (("alone", 1), ("both", 2)):
        run(count, tiny.command(task, data, tmp_path / name, **given))
        runs.append(losses(tmp_path / name))
    assert difference(*runs) < 1e-5


def test_two_processes_learn_what_one_learns(alone, together):
    expected, actual = alone[1], losses(together[0])
    assert actual.keys() == expected.keys() == set(range(1, SAME["steps"] + 1))
    assert difference(expected, actual) < 1e-5


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((2, True), (1, False)),  # shards of the model, then the whole
        pytest.param((1, False), (2, True), marks=LONG),
        pytest.param((2, False), (1, False), marks=LONG),
    ],
)
def test_a_run_is_resumed_with_another_number_of_processes(steady, tmp_path, before, after):
    data, expected = steady
    out = tmp_path / "run"
    first = tiny.command(TASK, data, out, **{**STEADY, "steps": 30, "shard": before[1]})
    later = [*first[:5], "--out", str(out), "--resume", "--steps", "60", "--shard" if after[1] else "--no-shard"]
    for (count, _), arguments in ((before, first), (after, later)):
        run(count, arguments)
    assert difference(expected, losses(out)) < 1e-5


@pytest.mark.parametrize("together", ["DDP", pytest.param("FSDP2", marks=LONG)], indirect=True)
def test_the_death_of_a_process_changes_no_bit(alone, together, tmp_path):
    """torchrun starts the processes again, and they go on from the last checkpoint by themselves."""
    expected, given = together
    out = tmp_path / "run"
    arguments = torchrun(2, tiny.command(TASK, alone[0], out, **given), "--max-restarts", "2")
    child = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, cwd=tiny.ROOT)
    victim = _worker_after_a_checkpoint(child.pid, out)
    os.kill(victim, signal.SIGKILL)
    _, errors = child.communicate(timeout=240)
    assert child.returncode == 0, errors
    assert tiny.outcome(out) == tiny.outcome(expected)


def _worker_after_a_checkpoint(launcher, out):
    """The id of a worker process, once there is a checkpoint."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if any(out.glob("checkpoints/step-*")):
            listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(launcher)], capture_output=True, text=True)
            return int(listed.stdout.split()[-1])
        time.sleep(0.02)
    raise AssertionError("no checkpoint came")
