"""Small data of every kind, options that learn them in seconds, and runs to compare."""

import hashlib
import random
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from safetensors.torch import load_file

from regard.cli import main
from regard.data.split import balanced_rows, content_hash
from regard.training.folder import read_log
from regard.training.options import TASKS

ROOT = Path(__file__).resolve().parents[2]
WORDS = ["ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen", "jay", "kid"]

# Options that fit each kind of data: a model of a few thousand numbers, a dozen steps.
SHAPES = {
    "translate": {"size": 8, "hidden_size": 12, "tokenizer": "word", "batch": 130, "evaluate_pairs": 7},
    "language": {"size": 12, "layers": 2, "heads": 3, "context": 17, "tokenizer": "character", "batch": 170},
    "text": {"size": 12, "layers": 1, "heads": 3, "tokenizer": "word", "max_length": 11, "batch": 110},
    "images": {"size": 12, "layers": 1, "heads": 3, "patch_size": 2, "batch": 13, "flip": True},
}
PACE = {"steps": 12, "evaluate_every": 5, "save_every": 3, "warmup": 3, "dropout": 0.1}


def options(task, **more):
    """The shape and the pace, without options that do not apply to the chosen kind of model."""
    fields = TASKS[task].__dataclass_fields__
    kind = more.get("model") or getattr(TASKS[task], "model", None)
    fitting = {name: value for name, value in SHAPES[task].items() if fields[name].metadata["only"] in (None, kind)}
    return {**fitting, **PACE, **more}


def make(task, folder):
    """Write data for a task; the path to give."""
    folder.mkdir(parents=True, exist_ok=True)
    return MAKERS[task](folder, random.Random(5))


def pairs(folder, generator):
    lines = set()
    while len(lines) < 211:
        words = [generator.choice(WORDS) for _ in range(generator.randint(2, 7))]
        lines.add(" ".join(words) + "\t" + " ".join(word.upper() for word in reversed(words)))
    path = folder / "pairs.tsv"
    path.write_text("\n".join(sorted(lines)) + "\n", encoding="utf-8")
    return path


def prose(folder, generator):
    path = folder / "prose.txt"
    lines = [" ".join(generator.choice(WORDS) for _ in range(7)) + ".\n" for _ in range(1_501)]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def labelled(folder, generator):
    path = folder / "texts.csv"
    rows = []
    for number in range(199):
        label = ("early", "late")[number % 2]
        words = WORDS[:5] if label == "early" else WORDS[5:]
        rows.append(f"{' '.join(generator.choice(words) for _ in range(generator.randint(2, 9)))} {number},{label}\n")
    path.write_text("text,label\n" + "".join(rows), encoding="utf-8")
    return path


def pictures(folder, generator):
    path = folder / "pictures.npz"
    numbers = numpy.random.default_rng(5)
    labels = numpy.arange(163) % 3
    images = numbers.integers(0, 90, (163, 8, 8), dtype=numpy.uint8)
    for image, label in zip(images, labels, strict=True):
        image[2 * label : 2 * label + 3] += 150  # a bright bar whose height is the class
    numpy.savez(path, images=images, labels=labels, names=numpy.array(["high", "middle", "low"]))
    return path


MAKERS = {"translate": pairs, "language": prose, "text": labelled, "images": pictures}


def balanced_subset(examples, count):
    """The examples of a training part that `regard train text --examples COUNT` learns from."""
    _, labels = numpy.unique([example.label for example in examples], return_inverse=True)
    hashes = numpy.array([content_hash(example.text) for example in examples], numpy.uint64)
    return [examples[row] for row in balanced_rows(labels, hashes, count)]


def losses(folder):
    """The loss of each step, in every bit."""
    return {record["step"]: record["loss"].hex() for record in read_log(folder) if "loss" in record}


def outcome(folder):
    """Everything that has to be the same: losses, metrics, the best model's weights, the newest checkpoint's."""
    evaluations = [(record["step"], record["validation"]) for record in read_log(folder) if "validation" in record]
    newest = max((folder / "checkpoints").glob("step-*"))
    weights = [digest(path) for path in (*newest.glob("*.safetensors"), folder / "model.safetensors")]
    return losses(folder), evaluations, weights


def digest(path):
    """Of every number in a file; the header may list them in any order."""
    tensors, total = load_file(path), hashlib.sha256()
    for name in sorted(tensors):
        total.update(name.encode() + tensors[name].numpy().tobytes())
    return total.hexdigest()


def flags(given):
    """Options as the command line wants them."""
    words = []
    for name, value in given.items():
        flag = "--" + name.replace("_", "-")
        words += [flag] if value is True else [flag.replace("--", "--no-", 1)] if value is False else [flag, str(value)]
    return words


def command(task, data, out, *more, **given):
    """`regard train` as a command for a process of its own."""
    words = flags(options(task, threads=1, **given))
    return [sys.executable, "-m", "regard", "train", task, str(data), "--out", str(out), *words, *more]


def call(arguments):
    """The same command in this process, which starts faster; its exit code. Memory is not kept: other tests measure."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.training.processes.keep_memory", lambda: False)
        return main(arguments[3:])  # without `python -m regard`


def run(arguments, **more):
    return subprocess.run(arguments, capture_output=True, text=True, timeout=150, cwd=ROOT, **more)
