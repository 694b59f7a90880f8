"""What happens to a run from outside: killed, stopped, a full disk, no permission, damaged files. Nothing is lost."""

import json
import multiprocessing
import os
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
from regard import files
from regard.errors import RegardError
from regard.training.checkpoints import CheckpointError
from regard.training.folder import read_log
from regard.training.loop import Diverged
from tests.training import tiny

TASK = "translate"
faults = pytest.mark.faults


@pytest.fixture(scope="module")
def untouched(tmp_path_factory):
    """The data, and the folder of a run that nothing happened to."""
    home = tmp_path_factory.mktemp("untouched")
    data = tiny.make(TASK, home)
    assert tiny.call(tiny.command(TASK, data, home / "run")) == 0
    return data, home / "run"


def resumed(arguments, out):
    """The same command, with --resume if there is a run."""
    return [*arguments, "--resume"] if (out / "training.yaml").exists() else arguments


def run_to_the_end(arguments, out, expected):
    assert tiny.call(resumed(arguments, out)) == 0
    assert tiny.outcome(out) == tiny.outcome(expected)


def start(arguments):
    """A run in a process of its own, when it is about to begin with its first step."""
    child = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, cwd=tiny.ROOT)
    for line in child.stderr:
        if "parameters" in line:
            break
    return child


def wait_for(pattern, out):
    deadline = time.monotonic() + 60
    while not any(out.glob(pattern)):
        assert time.monotonic() < deadline, f"{pattern} never came"
        time.sleep(0.01)


def check_killed(untouched, out, operations):
    """Killed at each of these file operations, one after the other, and then left alone."""
    data, expected = untouched
    arguments, kills = tiny.command(TASK, data, out), 0
    script = Path(__file__).with_name("killed.py")
    for number in operations:
        words = resumed(arguments, out)[3:]  # without `python -m regard`
        child = tiny.run([sys.executable, str(script), str(number), str(out), *words])
        assert child.returncode in (0, -signal.SIGKILL), child.stderr
        kills += child.returncode != 0
    assert kills, "no kill came: the test shows nothing"
    run_to_the_end(arguments, out, expected)


def test_a_run_killed_inside_its_saves_ends_like_one_that_was_not(untouched, tmp_path):
    """And after the next start there is no file that a run without kills does not have."""
    out, expected = tmp_path / "run", untouched[1]
    check_killed(untouched, out, [12, 27, 35])
    names = [{str(path.relative_to(home)) for path in home.rglob("*")} for home in (out, expected)]
    assert names[0] == names[1]


@faults
@pytest.mark.parametrize("seed", range(12))
def test_runs_killed_again_and_again(untouched, tmp_path, seed):
    generator = random.Random(seed)
    check_killed(untouched, tmp_path / "run", [generator.randint(3, 60) for _ in range(4)])


def check_killed_after(untouched, out, delay):
    data, expected = untouched
    arguments = tiny.command(TASK, data, out)
    child = subprocess.Popen(arguments, stderr=subprocess.DEVNULL, cwd=tiny.ROOT)
    wait_for("log.jsonl", out)
    time.sleep(delay)
    child.kill()
    child.wait()
    run_to_the_end(arguments, out, expected)


def test_a_run_killed_at_some_instant_ends_like_one_that_was_not(untouched, tmp_path):
    check_killed_after(untouched, tmp_path / "run", 0.3)


@faults
@pytest.mark.parametrize("seed", range(24))
def test_runs_killed_at_any_instant(untouched, tmp_path, seed):
    check_killed_after(untouched, tmp_path / "run", random.Random(seed).uniform(0, 1.5))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=faults)])
def test_a_signal_saves_and_the_run_goes_on_later(untouched, tmp_path, number, code):
    data, _ = untouched
    out = tmp_path / "run"
    arguments = tiny.command(TASK, data, out, steps=5_000, evaluate_every=10_000, save_every=10_000)
    child = start(arguments)
    time.sleep(1)
    child.send_signal(number)
    _, message = child.communicate(timeout=60)
    assert child.returncode == code
    assert "everything is saved: go on with --resume" in message
    (saved,) = (out / "checkpoints").glob("step-*")
    step = int(saved.name.rpartition("-")[2])
    assert tiny.call([*arguments[:6], "--out", str(out), "--resume", "--steps", str(step + 2)]) == 0
    assert list(tiny.losses(out)) == list(range(1, step + 3))


@pytest.mark.skipif(sys.platform == "win32", reason="has no such terminals")
def test_a_run_whose_terminal_is_closed_saves(untouched, tmp_path):
    """Though what it has to say of the evaluation after that step goes nowhere."""
    data, _ = untouched
    arguments = tiny.command(TASK, data, tmp_path / "run", steps=5_000, evaluate_every=1, save_every=10_000)
    ours, theirs = os.openpty()
    child = subprocess.Popen(arguments, stderr=theirs, stdout=subprocess.DEVNULL, cwd=tiny.ROOT)
    os.close(theirs)
    text = b""
    while b"parameters" not in text:
        text += os.read(ours, 4_096)
    child.send_signal(signal.SIGSTOP)
    os.close(ours)
    child.send_signal(signal.SIGHUP)
    child.send_signal(signal.SIGCONT)
    assert child.wait(timeout=60) == 128 + signal.SIGHUP
    assert len(list(tmp_path.glob("run/checkpoints/step-*"))) == 1


def test_an_error_leaves_no_process_that_prepares_batches(untouched, tmp_path):
    """Though its traceback is kept, as Python keeps that of an error that ends it: it would wait for them forever."""
    given = tiny.options(TASK, workers=1, learning_rate=1e38, warmup=0)
    with pytest.raises(Diverged) as caught:
        regard.train(TASK, untouched[0], out=tmp_path / "run", **given)
    assert caught.tb is not None
    assert multiprocessing.active_children() == []


def test_a_second_trainer_in_the_same_folder_is_refused_while_the_first_one_lives(untouched, tmp_path, capsys):
    data, _ = untouched
    out = tmp_path / "run"
    arguments = tiny.command(TASK, data, out, steps=5_000)
    child = start(arguments)
    try:
        wait_for("checkpoints/step-*", out)  # it could be resumed
        code, message = tiny.call([*arguments, "--resume"]), capsys.readouterr().err
        assert (code, message.count("\n")) == (2, 1), message
        assert "another process is training there" in message
        assert child.poll() is None
    finally:
        child.kill()  # its .lock file stays, and locks nothing
        child.communicate()
    assert tiny.call([*arguments[:6], "--out", str(out), "--resume", "--minutes", "1e-6"]) == 0


@pytest.mark.parametrize("what", ["checkpoint", pytest.param("model", marks=faults)])
def test_a_full_disk_is_one_line_and_costs_nothing(untouched, tmp_path, what):
    data, expected = untouched
    out = tmp_path / "run"
    arguments = tiny.command(TASK, data, out)
    large = {"checkpoint": "checkpoints/*/*", "model": "model.safetensors"}[what]
    size = max(path.stat().st_size for path in expected.glob(large))

    def limit_file_size():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2))

    assert tiny.call(tiny.command(TASK, data, out, steps=3)) == 0
    files = [*out.glob("checkpoints/step-*/*")]
    if what == "model":
        files += [out / "model.safetensors", out / "manifest.json"]
    contents = {path: path.read_bytes() for path in files}
    full = tiny.run([*arguments, "--resume"], preexec_fn=limit_file_size)
    assert full.returncode == 1
    assert "Traceback" not in full.stderr
    assert full.stderr.splitlines()[-1].startswith("regard: ")
    assert {path: path.read_bytes() for path in files} == contents
    names = sorted(path.name for path in (out / "checkpoints").iterdir())
    assert names == ["best", "step-00000003"]  # nothing half-written
    assert tiny.call([*arguments, "--resume"]) == 0
    assert tiny.losses(out) == tiny.losses(expected)


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="needs a folder that nobody can write to, as Linux has")
def test_a_folder_that_cannot_be_written_is_one_line(untouched, capsys):
    data, _ = untouched
    code, message = tiny.call(tiny.command(TASK, data, "/sys/regard-run")), capsys.readouterr().err  # not even by root
    assert (code, message.count("\n")) == (1, 1), message
    assert "/sys/regard-run" in message


def test_an_out_that_is_a_file_is_one_line(untouched, tmp_path, capsys):
    data, _ = untouched
    (tmp_path / "run").write_text("a file")
    code, message = tiny.call(tiny.command(TASK, data, tmp_path / "run")), capsys.readouterr().err
    assert (code, message) == (2, f"regard: {tmp_path / 'run'}: is a file, expected a folder: choose another --out\n")


@pytest.mark.parametrize("damage", ["cut", "changed", "gone", "state", "manifest"])
def test_a_damaged_checkpoint_is_skipped(untouched, tmp_path, capsys, damage):
    """The one before it is taken, a line says which steps that costs, and the run ends as if nothing had happened."""
    data, expected = untouched
    out = tmp_path / "run"
    shutil.copytree(expected, out)
    newest = max(out.glob("checkpoints/step-*"))
    (tensors,) = newest.glob("*.safetensors")
    damaged = {"state": newest / "state.json", "manifest": newest / "manifest.json"}.get(damage, tensors)
    if damage == "cut":
        tensors.write_bytes(tensors.read_bytes()[:-7])
    elif damage == "changed":
        content = bytearray(tensors.read_bytes())
        content[-11] ^= 4
        tensors.write_bytes(content)
    elif damage == "gone":
        tensors.unlink()
    elif damage == "state":
        damaged.write_text("{}")
    else:
        damaged.write_text("no JSON")
    again = regard.train(TASK, data, out=out, resume=True, quiet=False)
    lines = [line for line in capsys.readouterr().err.splitlines() if "damaged" in line]
    assert len(lines) == 1, lines
    skipped = "a damaged checkpoint is skipped, the run goes on from step 9 instead of 12"
    assert lines[0].startswith(f"{skipped}: {damaged}: ")
    assert again.results["steps"] == 12
    assert tiny.outcome(out) == tiny.outcome(expected)


FILES = ["model.safetensors", "tokenizer.json", "target_tokenizer.json", "config.json", "manifest.json", "log.jsonl"]


COPIES = ["checkpoints/best/model.safetensors", "checkpoints/best/config.json"]
HOW = ["gone", "cut", "noise"]
DAMAGES = [
    *(([name], HOW[number % 3]) for number, name in enumerate(FILES)),
    *(pytest.param(FILES, how, marks=[] if how == "noise" else faults) for how in HOW),
    *(([name], how) for name, how in zip(COPIES, HOW, strict=False)),
]


@pytest.mark.parametrize(("names", "how"), DAMAGES, ids=lambda value: value if isinstance(value, str) else value[-1])
def test_damaged_files_are_restored_or_named_and_the_run_goes_on(untouched, tmp_path, capsys, names, how):
    """Between two steps as after the end. What the log had is lost; everything else comes back, bit for bit."""
    data, expected = untouched
    out = tmp_path / "run"
    for ended in (True, False):
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(expected, out)
        if not ended:
            shutil.rmtree(max(out.glob("checkpoints/step-*")))
        for name in names:
            damage(out / name, how)
        regard.train(TASK, data, out=out, resume=True, quiet=False)
        message = capsys.readouterr().err
        assert message.count("restored from its copy") == (not {"log.jsonl", *COPIES}.issuperset(names)), message
        if how != "cut":  # half of the lines may be all that the newest checkpoint needs
            assert message.count("are missing there; the run goes on") == ("log.jsonl" in names), message
        losses, evaluations, weights = tiny.outcome(out)
        if "log.jsonl" not in names:
            assert (losses, evaluations) == tiny.outcome(expected)[:2]
        assert weights == tiny.outcome(expected)[2]
        assert tiny.digest(out / COPIES[0]) == weights[-1]
        regard.load(out / "checkpoints" / "best")


def damage(path, how):
    """A file that is not there any more, ends too early, or is something else."""
    content = path.read_bytes()
    path.unlink()
    if how != "gone":
        path.write_bytes(content[: len(content) // 2] if how == "cut" else random.Random(3).randbytes(len(content)))


def test_a_best_model_that_is_lost_with_its_copy_costs_one_evaluation(untouched, tmp_path, capsys):
    data, expected = untouched
    out = tmp_path / "run"
    shutil.copytree(expected, out)
    for folder in (out, out / "checkpoints" / "best"):
        damage(folder / "model.safetensors", "noise")
    regard.train(TASK, data, out=out, resume=True, quiet=False)
    assert "the best model so far is lost" in capsys.readouterr().err
    assert isinstance(regard.load(out).translate("ant bee"), str)


def test_a_copy_beside_the_checkpoints_is_left_alone(untouched, tmp_path, capsys):
    """What is not named like a checkpoint is neither read, nor reported as damaged, nor removed."""
    data, expected = untouched
    out = tmp_path / "run"
    shutil.copytree(expected, out)
    newest = max(out.glob("checkpoints/step-*"))
    copy = newest.with_name(newest.name + "-copy")
    newest.rename(copy)
    (copy / "state.json").write_text("{}")
    regard.train(TASK, data, out=out, resume=True, quiet=False)
    message = capsys.readouterr().err
    assert ("resumed after step 9" in message, "damaged" in message) == (True, False), message
    assert copy.is_dir()
    shutil.rmtree(copy)
    assert tiny.outcome(out) == tiny.outcome(expected)


def test_when_every_checkpoint_is_damaged_the_message_names_their_folder(untouched, tmp_path):
    """The best model stays usable, and without the folder the run starts again and ends the same."""
    data, expected = untouched
    out = tmp_path / "run"
    shutil.copytree(expected, out)
    for state in out.glob("checkpoints/*/state.json"):
        state.write_text("{}")
    with pytest.raises(CheckpointError, match="every checkpoint is damaged") as caught:
        regard.train(TASK, data, out=out, resume=True)
    assert f"remove the folder {out / 'checkpoints'}," in str(caught.value)
    regard.load(out)
    shutil.rmtree(out / "checkpoints")
    regard.train(TASK, data, out=out, resume=True)
    assert tiny.outcome(out) == tiny.outcome(expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [("step", None), ("step", "12"), ("step", -1), ("step", 1e300), ("tokens", "many"), ("best", []), ("finished", 1)],
)
def test_a_state_that_makes_no_sense_is_one_line(untouched, tmp_path, name, value):
    """Though its digest is right: the one before is taken, or the line says what to remove."""
    data, expected = untouched
    out = tmp_path / "run"
    shutil.copytree(expected, out)
    newest = max(out.glob("checkpoints/step-*"))
    state, manifest = (json.loads((newest / file).read_text()) for file in ("state.json", "manifest.json"))
    (newest / "state.json").write_text(json.dumps(state | {name: value}))
    manifest["sha256"]["state.json"] = files.digest(newest / "state.json")
    (newest / "manifest.json").write_text(json.dumps(manifest))
    if name == "step":
        assert regard.train(TASK, data, out=out, resume=True).results["steps"] == 12
        return
    with pytest.raises(RegardError, match=rf"state\.json: {name}: expected .* remove") as caught:
        regard.train(TASK, data, out=out, resume=True)
    assert "\n" not in str(caught.value)
    shutil.rmtree(newest)
    assert regard.train(TASK, data, out=out, resume=True).results["steps"] == 12


LINES = ["[]", "3", '"loss"', '{"step": true}', '{"step": 1e9}', '{"step": -3, "loss": []}', "[" * 5_000, "1" * 5_000]
LINES += ['{"step": "3", "loss": 1.0}', '{"loss": NaN}', "\ud800", f'{{"step": {"9" * 400}}}']


def test_lines_of_a_log_that_make_no_sense_are_left_out(untouched, tmp_path):
    _, expected = untouched
    whole = (expected / "log.jsonl").read_text(encoding="utf-8").splitlines()
    mixed = [line for pair in zip(LINES, whole, strict=False) for line in pair] + whole[len(LINES) :]
    content = "\n".join([*mixed, '{"step": 12, "lo']).encode(errors="surrogatepass")
    (tmp_path / "log.jsonl").write_bytes(content + b"\xff")
    assert read_log(tmp_path) == read_log(expected)
    (tmp_path / "log.jsonl").unlink()
    os.mkfifo(tmp_path / "log.jsonl")
    assert read_log(tmp_path) == []
