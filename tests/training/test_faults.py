"""What happens to a run from outside: killed, stopped, no room, no right, spoilt files. Nothing is lost."""

import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import regard
from tests.training import tiny

TASK = "translate"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that was never touched."""
    home = tmp_path_factory.mktemp("whole")
    data = tiny.make(TASK, home)
    done = tiny.run(tiny.command(TASK, data, home / "run"))
    assert done.returncode == 0, done.stderr
    return data, home / "run"


def killed(arguments, folder, touch):
    """Run until the touch-th file operation in the folder; whether it was killed there."""
    script = Path(__file__).with_name("killed.py")
    child = tiny.run([sys.executable, str(script), str(touch), str(folder), *arguments[3:]])
    assert child.returncode in (0, -signal.SIGKILL), child.stderr
    return child.returncode != 0


def check_killed(whole, out, touches):
    """Killed at each of these touches, one after the other, and then left alone."""
    data, expected = whole
    arguments, cut = tiny.command(TASK, data, out), 0
    for touch in touches:
        resume = ["--resume"] if (out / "training.yaml").exists() else []
        cut += killed([*arguments, *resume], out, touch)
    assert cut, "no kill came: the test shows nothing"
    done = tiny.run([*arguments, *(["--resume"] if (out / "training.yaml").exists() else [])])
    assert done.returncode == 0, done.stderr
    assert tiny.outcome(out) == tiny.outcome(expected)


def test_a_run_killed_inside_its_saves_ends_like_one_that_was_not(whole, tmp_path):
    check_killed(whole, tmp_path / "run", [19, 31, 23])


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(12))
def test_runs_killed_again_and_again(whole, tmp_path, seed):
    chance = random.Random(seed)
    check_killed(whole, tmp_path / "run", [chance.randint(3, 60) for _ in range(4)])


def killed_in_time(whole, out, delay):
    data, expected = whole
    arguments = tiny.command(TASK, data, out)
    child = subprocess.Popen(arguments, stderr=subprocess.DEVNULL, cwd=tiny.ROOT)
    deadline = time.monotonic() + 60
    while not (out / "log.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(delay)
    child.kill()
    child.wait()
    done = tiny.run([*arguments, "--resume"])
    assert done.returncode == 0, done.stderr
    assert tiny.outcome(out) == tiny.outcome(expected)


def test_a_run_killed_at_some_instant_ends_like_one_that_was_not(whole, tmp_path):
    killed_in_time(whole, tmp_path / "run", 0.3)


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(24))
def test_runs_killed_at_any_instant(whole, tmp_path, seed):
    killed_in_time(whole, tmp_path / "run", random.Random(seed).uniform(0, 1.5))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_the_run_goes_on_later(whole, tmp_path, number, code):
    data, _ = whole
    arguments = tiny.command(TASK, data, tmp_path / "run", steps=5_000, evaluate_every=10_000, save_every=10_000)
    child = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, cwd=tiny.ROOT)
    for line in child.stderr:
        if "parameters" in line:
            break
    time.sleep(1)
    child.send_signal(number)
    _, told = child.communicate(timeout=60)
    assert child.returncode == code
    assert "everything is saved: go on with --resume" in told
    (saved,) = (tmp_path / "run" / "checkpoints").glob("step-*")
    step = int(saved.name.rpartition("-")[2])
    done = tiny.run([*arguments[:6], "--out", str(tmp_path / "run"), "--resume", "--steps", str(step + 2)])
    assert (done.returncode, list(tiny.losses(tmp_path / "run"))) == (0, list(range(1, step + 3))), done.stderr


def test_a_second_trainer_in_the_same_folder_is_refused(whole, tmp_path):
    data, _ = whole
    arguments = tiny.command(TASK, data, tmp_path / "run", steps=5_000)
    child = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, cwd=tiny.ROOT)
    try:
        for line in child.stderr:
            if "parameters" in line:
                break
        second = tiny.run([*arguments, "--resume"])
        assert (second.returncode, second.stderr.count("\n")) == (2, 1)
        assert "somebody is training there already" in second.stderr
        assert child.poll() is None
    finally:
        child.kill()
        child.communicate()


@pytest.mark.parametrize("what", ["checkpoint", pytest.param("model", marks=pytest.mark.faults)])
def test_no_room_on_the_disk_is_one_line_and_costs_nothing(whole, tmp_path, what):
    data, expected = whole
    out = tmp_path / "run"
    arguments = tiny.command(TASK, data, out)
    large = {"checkpoint": "checkpoints/*/*", "model": "model.safetensors"}[what]
    size = max(path.stat().st_size for path in expected.glob(large))

    def little_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2))

    first = tiny.run(tiny.command(TASK, data, out, steps=3))
    assert first.returncode == 0, first.stderr
    files = [*out.glob("checkpoints/*/*"), out / "model.safetensors", out / "manifest.json"]
    kept = {path: path.read_bytes() for path in files}
    full = tiny.run([*arguments, "--resume"], preexec_fn=little_room)
    assert full.returncode == 1
    assert "Traceback" not in full.stderr
    assert full.stderr.splitlines()[-1].startswith("regard: ")
    assert {path: path.read_bytes() for path in files} == kept
    done = tiny.run([*arguments, "--resume"])
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="needs a folder that nobody can write to, as Linux has")
def test_a_folder_that_cannot_be_written_is_one_line(whole):
    data, _ = whole
    done = tiny.run(tiny.command(TASK, data, "/sys/regard-run"))  # not even by root
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "/sys/regard-run" in done.stderr


def test_an_out_that_is_a_file_is_one_line(whole, tmp_path):
    data, _ = whole
    (tmp_path / "run").write_text("a file")
    done = tiny.run(tiny.command(TASK, data, tmp_path / "run"))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr


@pytest.mark.parametrize("spoil", ["cut", "changed", "gone", "state", "manifest"])
def test_a_spoilt_checkpoint_is_passed_over(whole, tmp_path, spoil):
    """The one before it is taken, and the run ends as if nothing had been."""
    data, expected = whole
    out = tmp_path / "run"
    shutil.copytree(expected, out)
    newest = max(out.glob("checkpoints/step-*"))
    (tensors,) = newest.glob("*.safetensors")
    if spoil == "cut":
        tensors.write_bytes(tensors.read_bytes()[:-7])
    elif spoil == "changed":
        content = bytearray(tensors.read_bytes())
        content[-11] ^= 4
        tensors.write_bytes(content)
    elif spoil == "gone":
        tensors.unlink()
    elif spoil == "state":
        (newest / "state.json").write_text("{}")
    else:
        (newest / "manifest.json").write_text("no JSON")
    again = regard.train(TASK, data, out=out, resume=True)
    assert again.results["steps"] == 12
    assert tiny.outcome(out) == tiny.outcome(expected)
