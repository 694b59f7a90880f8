"""Runs that are refused before they begin, and what is left behind then: nothing."""

import os
import signal
import subprocess
import sys

import pytest

import regard
from regard.training.folder import RunError, lock
from regard.training.options import OptionError
from regard.training.processes import Signals, Stopped
from regard.training.task import TaskError
from regard.training.tasks.text import TextTask
from tests.training import tiny


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"resume": True}, "no run to resume"),
        ({"stps": 3}, "did you mean steps"),
        ({"steps": 0}, "more than 0"),
        ({"steps": 1.5}, "a whole number"),
        ({"freeze": 7}, "freeze: expected a text, got 7"),
        ({"dropout": 1.0}, "below 1"),
        ({"init_from": ""}, "init_from: expected a name, got an empty one"),
        ({"seed": 2**63}, "seed: expected 9,223,372,036,854,775,807 at most, got 9,223,372,036,854,775,808"),
        ({"threads": 100_000}, "threads: expected 1,024 at most, got 100,000"),
        ({"schedule": "staircase"}, "one of constant, cosine"),
        ({"freeze": "blocks.7"}, "no layer is called"),
        ({"heads": 5}, "divisor"),
        ({"device": "gpu"}, "device"),
        ({"text": "caf\udce9"}, r"text: expected a name in UTF-8, got 'caf\\udce9': rename it"),
        ({"task": "translate", "model": "transformer", "hidden_size": 8}, "hidden_size: applies to model rnn only"),
        ({"task": "images", "depths": "1,1"}, "depths: applies to model resnet only"),
        ({"task": "translate", "language": "zh"}, "language: applies to the embedded grammar only"),
    ],
)
def test_wrong_options_are_named(given, message, tmp_path):
    task = given.pop("task", "text")
    data = tiny.make(task, tmp_path)
    with pytest.raises((OptionError, RunError, TaskError), match=message):
        regard.train(task, data, out=tmp_path / "run", **{**tiny.options(task), **given})


def test_a_name_that_is_empty_is_not_the_working_folder(tmp_path, monkeypatch):
    data = tiny.make("text", tmp_path)
    monkeypatch.chdir(tmp_path)
    for given in ({"data": data, "out": ""}, {"data": "", "out": "run"}):
        with pytest.raises(OptionError, match=r"(out|data): expected a name, got an empty one"):
            regard.train("text", **given)
    assert [path.name for path in tmp_path.iterdir()] == [data.name]


def test_a_run_that_cannot_start_leaves_nothing_behind(tmp_path):
    with pytest.raises((OSError, ValueError)):
        regard.train("translate", tmp_path / "nowhere.tsv", out=tmp_path / "deep" / "run")
    assert not (tmp_path / "deep" / "run").exists()


def test_a_model_that_somebody_saved_is_not_replaced_by_a_run(tmp_path):
    regard.Encoder(31, 8, 1, 2).save(tmp_path / "mine")
    before = (tmp_path / "mine" / "model.safetensors").read_bytes()
    with pytest.raises(RunError, match="mine: holds a model already: choose another --out"):
        regard.train("text", tiny.make("text", tmp_path), out=tmp_path / "mine", **tiny.options("text"))
    assert (tmp_path / "mine" / "model.safetensors").read_bytes() == before


def test_checkpoints_of_a_run_whose_options_are_gone_are_not_taken_for_those_of_another(tmp_path):
    data, out, given = tiny.make("text", tmp_path), tmp_path / "run", tiny.options("text")
    regard.train("text", data, out=out, **given)
    (out / "training.yaml").rename(tmp_path / "training.yaml")
    with pytest.raises(RunError, match=r"run: holds checkpoints, and no training\.yaml.* choose another --out"):
        regard.train("text", data, out=out, **given, learning_rate=0.1)
    (tmp_path / "training.yaml").rename(out / "training.yaml")
    assert regard.train("text", data, out=out, resume=True).results["steps"] == given["steps"]


@pytest.mark.skipif(sys.platform == "win32", reason="names are text there")
def test_a_folder_whose_name_is_no_text_is_refused_before_the_run(tmp_path):
    with pytest.raises(RunError, match=r"m\\udce9': expected a name in UTF-8: choose another --out"):
        regard.train("text", tiny.make("text", tmp_path), out=tmp_path / os.fsdecode(b"m\xe9"))


def test_who_stops_a_run_in_a_terminal_is_told_what_it_waits_for(monkeypatch, capfd):
    with Signals() as signals:
        signal.raise_signal(signal.SIGINT)
        assert capfd.readouterr().err == ""  # no terminal
        signals.caught = 0
        monkeypatch.setattr("os.isatty", lambda handle: handle == 2)
        signal.raise_signal(signal.SIGINT)
        assert "stopping after this step, or this evaluation" in capfd.readouterr().err
        with pytest.raises(Stopped, match="stopped at once"):
            signal.raise_signal(signal.SIGINT)


def test_the_test_at_the_end_is_stopped_at_once_and_done_by_resuming(tmp_path, monkeypatch):
    evaluate = TextTask.evaluate

    def stopped(task, model, part, world):
        if part == "test":
            signal.raise_signal(signal.SIGTERM)
        return evaluate(task, model, part, world)

    data, out = tiny.make("text", tmp_path), tmp_path / "run"
    monkeypatch.setattr(TextTask, "evaluate", stopped)
    with pytest.raises(Stopped, match=r"before the test of .* go on with --resume"):
        regard.train("text", data, out=out, **tiny.options("text", steps=2))
    monkeypatch.undo()
    assert not (out / "results.json").exists()
    assert regard.train("text", data, out=out, resume=True).results["steps"] == 2


def test_a_second_trainer_leaves_the_lock_of_the_first_one_alone(tmp_path):
    """Also if the first one has only just begun, and has nothing but its lock in the folder."""
    with lock(tmp_path / "run"):
        for _ in range(2):
            with pytest.raises(RunError, match="another process"), lock(tmp_path / "run"):
                pytest.fail("two at once")
        assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]
    assert not (tmp_path / "run").exists()


def test_training_is_imported_where_there_is_no_fcntl():
    """As on Windows."""
    script = "import sys, warnings; sys.modules['fcntl'] = None; import regard.training.run"
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, cwd=tiny.ROOT)


def test_a_run_is_not_started_over_another_nor_changed_on_the_way(tmp_path):
    data = tiny.make("text", tmp_path)
    regard.train("text", data, out=tmp_path / "run", **tiny.options("text"))
    with pytest.raises(RunError, match="--resume"):
        regard.train("text", data, out=tmp_path / "run", **tiny.options("text"))
    with pytest.raises(OptionError, match="size: this run has 12"):
        regard.train("text", data, out=tmp_path / "run", resume=True, size=13)
    with pytest.raises(RunError, match="of `text`"):
        regard.train("images", out=tmp_path / "run", resume=True)
    data.write_text(data.read_text().replace("ant", "bee"))
    with pytest.raises(RunError, match="not those that this run started with"):
        regard.train("text", data, out=tmp_path / "run", resume=True)
    path = tmp_path / "run" / "training.yaml"
    path.write_text(path.read_text().replace("vocab_size", "vocabulary"))
    with pytest.raises(RunError, match="'vocabulary' is not of this version of regard; train in a new folder"):
        regard.train("text", data, out=tmp_path / "run", resume=True)
