"""Every experiment runs, at a tiny size; the page of results is made of what was measured."""

import csv
import shutil
import sys

import numpy
import pytest
import torch

from experiments import EXPERIMENTS
from experiments.__main__ import PAGE, load, page, read
from experiments.ibm2 import DiagonalModel, grow_diagonal
from experiments.joeynmt_buckets import buckets
from experiments.nanogpt import GPT, Settings, evaluate
from experiments.trial import spread, table, train, trial_folder
from experiments.verdicts import PAGE as VERDICTS
from experiments.verdicts import differences, published, verdicts
from experiments.verdicts import page as verdicts_page
from regard import Encoder
from regard.data.fetching import SETS
from regard.data.grammar import corpus
from regard.data.tokens import train_tokenizer
from regard.data.words import split
from regard.training.metrics import alignment_error_rate
from tests.training import tiny

# One trial of each kind; a trial that starts from another one's model comes after it.
TRIALS = {
    "grammar": ["none, seed 0"],
    "alignments": ["IBM 2, both directions, of all pairs", "RNN, seed 0", "Transformer, seed 0"],
    "processes": ["2 processes, 1 thread each (DDP)"],
    "reviews": [
        "TF-IDF",
        "pretrained",
        "scratch",
        *(f"{start}, 50 labels, seed 0" for start in ("pretrained", "scratch", "MiniLM")),
    ],
    "pictures": ["vit, 10 %, seed 0", "resnet, 10 %, seed 0"],
    "language": [
        *("Python's manual: nanoGPT's settings in plain torch, seed 0", "Python's manual: no other options, seed 0"),
        "tiny Shakespeare: characters, nanoGPT's shape, seed 0",
    ],
    "few_pairs": ["seed 0"],
    "catalogues": ["RNN, additive attention", "JoeyNMT 2.3.0, the same time", "JoeyNMT 2.3.0, as many updates"],
}

# Instead of JoeyNMT's Python: writes the log of a training at 60 updates a second, and perfect translations.
JOEYNMT = """#!{python}
import pathlib, shutil, sys, time, yaml
mode, config = sys.argv[3], yaml.safe_load(open(sys.argv[4]))
folder = pathlib.Path(config["model_dir"])
if mode == "train":
    folder.mkdir(parents=True)
    lines = ["2026-01-01 00:00:00,000 - INFO - joeynmt.model - Total params: 1,234"]
    checkpoint = config["training"].get("load_model")
    start = int(pathlib.Path(checkpoint).read_text()) if checkpoint else 0
    for step in range(start + 60, config["training"]["updates"] + 1, config["training"]["logging_freq"]):
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(step // 60))
        lines.append(f"{{at}},000 - INFO - joeynmt.training - Epoch   1, Step: {{step:8d}}, Batch Loss: 1.0")
    (folder / "train.log").write_text("\\n".join(lines))
    (folder / "latest.ckpt").write_text(str(config["training"]["updates"]))
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
            words = " ".join(numbers.choice(tiny.WORDS, 10))
            writer.writerow([f"{words}.", number % 2, "imdb" if number % 4 < 2 else "rotten_tomatoes"])
    (cache / "bible-alignments").mkdir()
    verses = corpus("fr", 2_000).test
    (cache / "bible-alignments" / "pairs.tsv").write_text("".join(f"{p.source}\t{p.target}\n" for p in verses))
    links = [" ".join(f"{source}-{target}" for source, target in pair.alignment) for pair in verses]
    (cache / "bible-alignments" / "alignments.txt").write_text("".join(f"{line}\n" for line in links))
    (cache / "shakespeare").mkdir()
    (cache / "shakespeare" / "input.txt").write_text("\n".join(pair.source for pair in verses))
    encoder = Encoder(300, 12, 1, 3, pooler=True)
    encoder.tokenizer = train_tokenizer([pair.source for pair in verses], "bpe", 300)
    encoder.save(cache / "MiniLM")
    (cache / "MiniLM" / "1_Pooling").mkdir()
    for name in SETS["MiniLM"].files:
        (cache / "MiniLM" / name).touch()
    joeynmt = cache / "experiments" / "joeynmt"
    (joeynmt / "bin").mkdir(parents=True)
    (joeynmt / "bin" / "python").write_text(JOEYNMT.format(python=sys.executable))
    (joeynmt / "bin" / "python").chmod(0o755)
    (joeynmt / "installed").touch()
    return cache


# torchrun is tested in tests/training/test_processes.py every day.
SLOW = pytest.param("processes", marks=pytest.mark.faults)


@pytest.mark.parametrize("name", [SLOW if name == "processes" else name for name in EXPERIMENTS])
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


@pytest.fixture(scope="module")
def sentences():
    """Words of both languages, and which belong together."""
    pairs = corpus("fr", 4_000)
    return [
        (
            [split(pair.source) for pair in part],
            [split(pair.target) for pair in part],
            [pair.alignment for pair in part],
        )
        for part in (pairs.train, pairs.test)
    ]


def test_ibm2_links_the_words_of_the_grammar(sentences):
    (sources, targets, _), (test_sources, test_targets, gold) = sentences
    forward, backward = DiagonalModel(sources, targets), DiagonalModel(targets, sources)
    test = list(zip(test_sources, test_targets, strict=True))
    links = [forward.links(source, target) for source, target in test]
    reverse = [frozenset((s, t) for t, s in backward.links(target, source)) for source, target in test]
    both = [grow_diagonal(*directions) for directions in zip(links, reverse, strict=True)]
    rates = [alignment_error_rate(predicted, gold) for predicted in (links, reverse, both)]
    assert rates[2] < min(rates) + 1e-9 < 0.1
    assert forward.links(["never", "seen"], ["jamais", "vu"]) is not None


def test_ibm2_becomes_likelier_with_each_iteration(sentences):
    sources, targets, _ = sentences[1]
    likelihoods = DiagonalModel(sources, targets, iterations=7, prior=0).likelihoods
    assert likelihoods == sorted(likelihoods)
    assert likelihoods[-1] > likelihoods[0] + 100


def test_ibm2_finds_what_a_word_means_wherever_it_stands():
    numbers = numpy.random.default_rng(7)
    sources = [numbers.permutation(list("abcdef"))[:3].tolist() for _ in range(60)]
    targets = [numbers.permutation([word.upper() for word in words]).tolist() for words in sources]
    model = DiagonalModel(sources, targets)
    assert model.links(["b", "c", "a"], ["A", "B", "C"]) == {(2, 0), (0, 1), (1, 2)}


def test_links_of_both_directions_grow_together():
    forward, backward = frozenset({(0, 0), (1, 1), (2, 1), (5, 6)}), frozenset({(0, 0), (1, 1), (1, 2), (4, 4)})
    # (2, 1) and (1, 2) are beside (1, 1), and link a word each that has none; the others link two words that have none.
    assert grow_diagonal(forward, backward) == forward | backward
    assert grow_diagonal(frozenset({(0, 0), (0, 2)}), frozenset({(0, 0)})) == {(0, 0)}


def test_buckets_hold_all_pairs_within_the_budget():
    numbers = numpy.random.default_rng(5)
    lengths = [(int(a), int(b)) for a, b in numbers.integers(1, 30, (211, 2))]
    batches = buckets(lengths, 190)
    assert sorted(place for rows in batches for place in rows) == list(range(211))
    for rows in batches:
        cells = len(rows) * sum(max(lengths[row][side] for row in rows) for side in (0, 1))
        assert len(rows) == 1 or cells <= 190
    assert len(batches) < 211


@torch.no_grad()
def test_the_peer_of_language_models_evaluates_every_character():
    model = GPT(11, Settings(layers=1, heads=2, size=8, context=7, batch=3))
    ids = torch.arange(7 * 5 + 3) % 11
    losses = []
    for place in range(1, len(ids)):
        start = (place - 1) // 7 * 7  # windows do not see what is before them
        losses.append(torch.nn.functional.cross_entropy(model(ids[None, start:place])[0, -1:], ids[place : place + 1]))
    assert evaluate(model, ids, 7) == pytest.approx(float(torch.stack(losses).mean()), rel=1e-5)


def test_tables_and_spreads():
    assert table(["a", "b"], [[1, 2]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
    assert spread([1.0, 2.0, 6.0]) == "3.0 (1.0–6.0)"
    assert spread([0.12345], ".3f") == "0.123"


TOUR = {
    "claims": [
        {"number": 17, "title": "One | two", "verdict": "held", "criteria": [{"met": True, "sentence": "3 > 2 | 1"}]},
        {"number": 5, "title": "Five", "verdict": "partly", "criteria": [{"met": False, "sentence": "1 > 2"}]},
    ],
    "versions": {"regard": "0.1.0"},
}


def test_a_page_of_verdicts_says_what_the_tour_said():
    content = verdicts_page(TOUR)
    assert published(content) == verdicts(TOUR) == {5: "partly", 17: "held"}
    assert "**not met:** 1 > 2" in content


def test_other_verdicts_missing_ones_and_new_ones_are_told_apart():
    lines = differences({1: "held", 2: "partly", 3: "held"}, {1: "did not hold", 2: "partly", 4: "held"})
    assert lines == [
        "claim 1: published: held; now: did not hold",
        "claim 3: published: held; now: nothing",
        "claim 4: published: nothing; now: held",
    ]


def test_every_claim_has_a_published_verdict():
    from regard.tour.sections import load as sections

    assert published(VERDICTS.read_text(encoding="utf-8")).keys() == {section.number for section in sections()}
