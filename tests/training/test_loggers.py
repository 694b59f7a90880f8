"""Loggers receive the numbers of every step and every evaluation."""

import sys
import types

import pytest

import regard
from regard.progress import ProgressBar
from regard.training.folder import Log, RunError, read_log
from regard.training.report import Report
from tests.training import tiny


class Recorder(types.ModuleType):
    """Stands for wandb, which is large: it has what regard calls, with the parameters that regard uses."""

    def __init__(self):
        super().__init__("wandb")
        self.started, self.logged, self.finished = [], [], 0

    def init(self, *, project, dir, name, config, mode, settings):
        self.started.append((project, mode, config["steps"]))
        return self

    def Settings(self, *, silent, console):
        return silent, console

    def log(self, numbers, *, step):
        self.logged.append((step, numbers))

    def finish(self):
        self.finished += 1


def test_weights_and_biases_get_every_number_offline(tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    recorder = Recorder()
    monkeypatch.setitem(sys.modules, "wandb", recorder)
    data = tiny.make("text", tmp_path)
    regard.train("text", data, out=tmp_path / "run", **tiny.options("text", wandb="trials"))
    assert (recorder.started, recorder.finished) == ([("trials", "offline", 12)], 1)
    records = [record for record in read_log(tmp_path / "run") if "loss" in record]
    steps = [(step, numbers["loss"]) for step, numbers in recorder.logged if "norm" in numbers]
    assert steps == [(record["step"], record["loss"]) for record in records]
    assert [step for step, numbers in recorder.logged if "accuracy" in numbers] == [5, 10, 12]


def test_a_logger_that_is_not_installed_is_one_line_and_no_folder(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    data = tiny.make("text", tmp_path)
    with pytest.raises(RunError, match="pip install wandb"):
        regard.train("text", data, out=tmp_path / "run", **tiny.options("text", wandb="trials"))
    assert not (tmp_path / "run").exists()


def test_steps_without_a_line_are_counted(tmp_path):
    with Log(tmp_path, 0) as log:
        for step in (1, 2, 4, 5):
            log.add(step, loss=1.0)
        log.add(4, validation={"perplexity": 2.0})
    assert [Log(tmp_path, step).missing for step in (5, 4, 2)] == [1, 1, 0]
    assert [record["step"] for record in read_log(tmp_path)] == [1, 2]  # what came later is dropped


def test_the_bar_shows_a_share_only_where_the_number_of_steps_is_known(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = {}
    for steps in (None, 12):
        with ProgressBar() as bar:
            Report("tokens", bar).step(3, steps, loss=1.5, speed=70.0)
        shown[steps] = capsys.readouterr().err
    assert all("70 tokens/s" in text for text in shown.values())
    assert "%" not in shown[None]
    assert "25%" in shown[12]
