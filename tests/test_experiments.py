"""Every experiment runs, at a tiny size; the page of results is made of what was measured."""

import csv
import shutil
import sys

import numpy
import pytest

from experiments import EXPERIMENTS
from experiments.__main__ import PAGE, load, page, read, trial_folder
from experiments.trial import spread, steps_within, table, train
from tests.training import tiny

# One trial of each kind; a trial that starts from another one's model comes after it.
TRIALS = {
    "grammar": ["none, seed 0"],
    "processes": ["2 processes, 1 thread each (DDP)"],
    "reviews": ["words", "reader", "blank", "reader, 50 labels, seed 0", "blank, 50 labels, seed 0"],
    "pictures": [
        *("vit, 10 %", "resnet, 10 %", "vit pretrained"),
        *("vit, 1 % of five classes", "vit, 1 % of five classes, after the other five"),
    ],
    "catalogues": ["RNN, additive attention", "JoeyNMT 2.3.0, RNN, additive attention"],
}

# Instead of `python -m joeynmt`: writes the log of a training at 60 updates a second, and perfect translations.
JOEYNMT = """#!{python}
import pathlib, shutil, sys, time, yaml
mode, config = sys.argv[3], yaml.safe_load(open(sys.argv[4]))
folder = pathlib.Path(config["model_dir"])
if mode == "train":
    folder.mkdir(parents=True)
    lines = ["2026-01-01 00:00:00,000 - INFO - joeynmt.model - Total params: 1,234"]
    for step in range(60, config["training"]["updates"] + 1, config["training"]["logging_freq"]):
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(step // 60))
        lines.append(f"{{at}},000 - INFO - joeynmt.training - Epoch   1, Step: {{step:8d}}, Batch Loss: 1.0")
    (folder / "train.log").write_text("\\n".join(lines))
else:
    shutil.copy(config["data"]["test"] + ".fr", sys.argv[6] + ".test")
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache with small data sets under the names of the real ones, and a stand-in for JoeyNMT."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = tmp_path / "regard"
    (cache / "catalogues-fr").mkdir(parents=True)
    shutil.copy(tiny.make("translate", tmp_path), cache / "catalogues-fr" / "pairs.tsv")
    (cache / "cifar10").mkdir()
    numbers = numpy.random.default_rng(3)
    for name in ("train", "test"):
        images = numbers.integers(0, 255, (150, 8, 8, 3), dtype=numpy.uint8)
        names = numpy.array([f"class {number}" for number in range(10)])
        numpy.savez(cache / "cifar10" / f"{name}.npz", images=images, labels=numpy.arange(150) % 10, names=names)
    (cache / "movie-reviews").mkdir()
    with (cache / "movie-reviews" / "reviews.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label", "source"])
        for number in range(400):
            words = " ".join(numbers.choice(tiny.WORDS, 30))
            writer.writerow([f"{words}.", number % 2, "imdb" if number % 4 < 2 else "rotten_tomatoes"])
    joeynmt = cache / "experiments" / "joeynmt"
    (joeynmt / "bin").mkdir(parents=True)
    (joeynmt / "bin" / "python").write_text(JOEYNMT.format(python=sys.executable))
    (joeynmt / "bin" / "python").chmod(0o755)
    (joeynmt / "installed").touch()
    return cache


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_runs(name, cache):
    experiment, done = load(name), {}
    trials = {trial.name: trial for trial in experiment.trials}
    assert len(trials) == len(experiment.trials), "two trials have the same name"
    assert set(read().get(name, {})) <= set(trials)
    for trial in TRIALS[name]:
        folder = trial_folder(name, trial)
        folder.parent.mkdir(parents=True, exist_ok=True)
        done[trial] = trials[trial].work(folder, True)
    text = experiment.render(done)
    assert "| --- |" in text
    assert text.count("\n| ") >= 2, "the table has no row"


def test_the_page_is_what_was_measured():
    assert PAGE.read_text(encoding="utf-8") == page(read()), "run `python -m experiments --page`"


def test_a_trial_trains_by_command_and_is_done_once(tmp_path):
    data = str(tiny.make("text", tmp_path))
    results = train(tmp_path / "run", "text", data, **tiny.options("text"))
    assert results["steps"] == 12
    assert results["command"].startswith(f"regard train text {tmp_path.name}/texts.csv --size 12")
    again = train(tmp_path / "run", "text", data, **tiny.options("text"))  # nothing is trained twice
    assert again["seconds"] == results["seconds"]


def test_a_pace_becomes_steps(tmp_path):
    (tmp_path / "pace.json").write_text("0.5")
    assert steps_within(2, tmp_path, "text", "none.csv") == 240


def test_tables_and_spreads():
    assert table(["a", "b"], [[1, 2]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
    assert spread([1.0, 2.0, 6.0]) == "3.0 (1.0–6.0)"
    assert spread([0.12345], ".3f") == "0.123"
