"""Language models on text of any size: rows and metrics are those of the simple way, and memory does not grow."""

import math
import random
import signal
import subprocess
import sys
import time

import pytest
import torch

import regard
from regard.data.batches import Batches
from regard.training import tasks
from regard.training.options import resolve
from regard.training.processes import World
from regard.training.run import evaluate
from regard.training.task import IGNORE_INDEX, TaskError
from regard.training.tasks import language
from tests.training import tiny

CONTEXT = tiny.SHAPES["language"]["context"]


@pytest.fixture(autouse=True)
def prepared(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_PREPARED", str(tmp_path / "prepared"))
    return tmp_path / "prepared"


def prepare(data, **more):
    return tasks.prepare("language", resolve("language", {**tiny.options("language", **more), "data": str(data)}))


def part(task, name):
    return torch.from_numpy(getattr(task, name).between(0, 1 << 60).astype("int64"))


def test_the_rows_of_a_batch_are_windows_of_the_ids(tmp_path):
    task = prepare(tiny.make("language", tmp_path))
    ids = part(task, "train")
    count = (len(ids) - 1) // CONTEXT
    assert task.batches.lengths.take([0, count - 1]).tolist() == [CONTEXT, CONTEXT]
    assert len(task.batches.lengths) == count
    rows = [0, 5, count - 1]
    batch = task.batch(rows, slice(None), torch.Generator().manual_seed(1))
    shift = int(torch.randint(CONTEXT, (), generator=torch.Generator().manual_seed(1)))
    assert shift
    for row, inputs, targets in zip(rows, batch.inputs[0], batch.targets, strict=True):
        start = min(row * CONTEXT + shift, len(ids) - CONTEXT - 1)
        assert inputs.tolist() == ids[start : start + CONTEXT].tolist()
        assert targets.tolist() == ids[start + 1 : start + CONTEXT + 1].tolist()
    assert batch.sizes == [CONTEXT] * 3


@pytest.mark.parametrize("model", ["causal", "masked"])
def test_a_share_of_a_batch_is_a_share_of_its_rows_and_masks(model, tmp_path):
    task = prepare(tiny.make("language", tmp_path), model=model)
    rows = [3, 1, 4, 15, 9]
    whole = task.batch(rows, slice(None), torch.Generator().manual_seed(2))
    for share in (slice(0, None, 2), slice(1, None, 2), slice(0, 1)):
        batch = task.batch(rows, share, torch.Generator().manual_seed(2))
        assert torch.equal(batch.inputs[0], whole.inputs[0][share])
        assert torch.equal(batch.targets, whole.targets[share])
    if model == "masked":
        chosen = whole.targets != IGNORE_INDEX
        assert chosen.any(1).all()
        assert 0.02 < chosen.float().mean() < 0.4
        assert torch.equal(whole.inputs[0][~chosen], windows(task, rows, whole)[~chosen])
        assert torch.equal(whole.targets[chosen], windows(task, rows, whole)[chosen])


def windows(task, rows, batch):
    """What the rows of a batch are without masks."""
    shift = int(torch.randint(CONTEXT, (), generator=torch.Generator().manual_seed(2)))
    ids = part(task, "train")
    return torch.stack([ids[row * CONTEXT + shift :][: batch.inputs[0].shape[1]] for row in rows])


@pytest.mark.parametrize("batch", [3 * CONTEXT, language.BATCH])
def test_metrics_are_means_over_every_token_once(batch, tmp_path, monkeypatch):
    monkeypatch.setattr(language, "BATCH", batch)
    path = tiny.make("language", tmp_path)
    task = prepare(path)
    model, ids = task.model.eval(), part(task, "validation")
    loss = 0.0
    with torch.no_grad():
        for start in range(0, len(ids) - 1, CONTEXT):
            first = min(start, len(ids) - CONTEXT - 1)
            logits = model(ids[None, first : first + CONTEXT])[0].log_softmax(-1)
            targets = ids[first + 1 : first + CONTEXT + 1]
            loss -= float(logits.gather(1, targets[:, None])[start - first :].sum())
    metrics = task.evaluate(model, "validation", World())
    assert metrics["perplexity"] == pytest.approx(math.exp(loss / (len(ids) - 1)), rel=1e-5)
    size = task.store.facts["bytes"]["validation"]
    assert metrics["bits_per_byte"] == pytest.approx(loss / math.log(2) / size, rel=1e-5)


def test_samples_go_on_from_the_first_tokens_of_texts(tmp_path):
    task = prepare(tiny.make("language", tmp_path))
    tokenizer, count = task.model.need_tokenizer(), min(language.PROMPT, CONTEXT // 2)
    samples = task.samples(task.model)
    assert len(samples) == len(task.store.facts["samples"]) > 0
    for sample, text in zip(samples, task.store.facts["samples"], strict=True):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        parts = ids[:count], ids[count : 2 * count]
        assert [sample.input, sample.expected] == [tokenizer.decode(part) for part in parts]


@pytest.mark.parametrize("model", ["causal", "masked"])
def test_processes_share_an_evaluation(model, tmp_path, monkeypatch):
    task = prepare(tiny.make("language", tmp_path), model=model)
    monkeypatch.setattr(language, "BATCH", 3 * CONTEXT)
    alone = task.evaluate(task.model, "test", World())
    totals = []
    monkeypatch.setattr(World, "all_reduce", lambda self, *numbers: totals.append(numbers) or list(numbers))
    for rank in range(3):
        task.evaluate(task.model, "test", World(rank, 3))
    loss, count = (sum(column) for column in zip(*totals, strict=True))
    assert math.exp(loss / count) == pytest.approx(alone["perplexity"], rel=1e-6)


def test_the_test_part_and_other_files_are_evaluated_from_stores(tmp_path, prepared):
    data, out = tiny.make("language", tmp_path), tmp_path / "run"
    trained = regard.train("language", data, out=out, **tiny.options("language"))
    stores = {path.name for path in prepared.iterdir() if path.is_dir()}
    assert evaluate(out) == pytest.approx(trained.results["test"])
    assert {path.name for path in prepared.iterdir() if path.is_dir()} == stores
    metrics = evaluate(out, data)
    assert metrics["perplexity"] == pytest.approx(trained.results["test"]["perplexity"], rel=0.2)
    ids = regard.load(out).need_tokenizer().encode(data.read_text(), add_special_tokens=False).ids
    assert metrics["bits_per_byte"] == pytest.approx(
        math.log2(metrics["perplexity"]) * len(ids) / data.stat().st_size, rel=1e-3
    )
    assert "unknown_tokens" not in metrics
    data.write_text(data.read_text() + "ßß")
    assert evaluate(out, data)["unknown_tokens"] == pytest.approx(2 / len(ids), rel=1e-3)


def test_an_evaluation_leaves_out_lines_that_are_no_text(tmp_path):
    data, out = tiny.make("language", tmp_path), tmp_path / "run"
    regard.train("language", data, out=out, **tiny.options("language", steps=2))
    expected = evaluate(out, data)
    with data.open("ab") as file:
        file.write(b"\xff\n")
    with pytest.raises(ValueError, match="line 1502: not UTF-8"):
        evaluate(out, data)
    assert evaluate(out, data, on_error="skip") == pytest.approx(expected)


def test_a_resumed_run_finds_its_store_and_rebuilds_it_where_it_is_gone(tmp_path, prepared):
    data, out = tiny.make("language", tmp_path), tmp_path / "run"
    given = tiny.options("language", steps=4, save_every=2)
    regard.train("language", data, out=out, **given)
    moved = data.rename(tmp_path / "moved.txt")
    before = sorted(path.name for path in prepared.iterdir() if path.is_dir())
    assert len(before) == 1
    regard.train("language", moved, out=out, resume=True, steps=6)
    assert sorted(path.name for path in prepared.iterdir() if path.is_dir()) == before
    for path in sorted(prepared.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    regard.train("language", moved, out=out, resume=True, steps=8)
    assert sorted(path.name for path in prepared.iterdir() if path.is_dir()) == before


def test_lines_that_are_no_text_stop_a_run_or_are_left_out(tmp_path):
    data = tiny.make("language", tmp_path)
    with data.open("ab") as file:
        file.write(b"\xff\n\0\nfine\n")
    with pytest.raises(ValueError, match=r"2 of 1,504 lines cannot be used:\n.*line 1502: not UTF-8"):
        prepare(data)
    notes = prepare(data, on_error="skip").notes
    assert any("2 lines are left out" in note for note in notes)
    assert any("line 1503: holds a NUL" in note for note in notes)


def test_a_text_that_is_too_short_is_named(tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("ant bee cat. " * 100)
    message = f"{path}: expected three different chunks .* got 1 in 1,300 characters"
    with pytest.raises(TaskError, match=message):
        prepare(path)
    data, note = (
        tiny.make("language", tmp_path),
        "the context of 60,000 tokens is longer: later positions are not trained",
    )
    for context in (17, 60_000):
        assert (note in prepare(data, context=context).notes) == (context == 60_000)


def test_files_that_are_no_text_are_left_out_with_a_note(tmp_path):
    tiny.make("language", tmp_path / "texts")
    notes = []
    for numbers in ([0], range(1, 12)):
        for number in numbers:
            (tmp_path / "texts" / f"{number:02}.png").write_bytes(b"\x89PNG\0")
        notes.append(prepare(tmp_path / "texts").notes[-1])
    assert notes[0] == "1 file that is no text is left out: '00.png'"
    assert notes[1].startswith("12 files that are no text are left out: '00.png', '01.png'")
    assert notes[1].endswith("'09.png' …")


def test_the_order_of_rows_takes_no_memory():
    batches = Batches(language.numpy.broadcast_to(CONTEXT, 10**12), 170, 0)
    assert len(next(iter(batches.epoch(0)))) == 10


PEAK = """
import sys
from regard.data import tokens
from regard.training import tasks
from regard.training.run import evaluate
from regard.training.options import resolve
tokens.SAMPLE = 300_000
given = dict(data=sys.argv[1], size=12, layers=1, heads=3, context=17, vocab_size=400, batch=170)
task = tasks.prepare("language", resolve("language", given))
import itertools, torch
for rows in itertools.islice(task.batches.epoch(0), 50):
    task.batch(rows, slice(None), torch.Generator())
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak is read from /proc")
@pytest.mark.parametrize("form", ["one line", pytest.param("lines", marks=pytest.mark.faults)])
def test_memory_does_not_grow_with_the_text(tmp_path, form):
    generator = random.Random(0)
    line = " ".join(generator.choices(tiny.WORDS, k=20)) + ("\n" if form == "lines" else " ")
    peaks = []
    for count in (80_000, 240_000):  # 7 and 20 MB
        path = tmp_path / f"{count}.txt"
        path.write_text("".join(f"{number % 997} {line}" for number in range(count)))
        done = subprocess.run(
            [sys.executable, "-c", PEAK, str(path)], capture_output=True, text=True, cwd=tiny.ROOT, check=True
        )
        peaks.append(int(done.stdout) / 1_000)
    assert path.stat().st_size > 19e6
    assert peaks[1] - peaks[0] < 8  # MB; the text has grown by 13


def test_ctrl_c_while_data_are_prepared_ends_at_once_and_leaves_nothing(tmp_path, prepared):
    path = tmp_path / "large.txt"
    path.write_text("".join(f"{number} {' '.join(tiny.WORDS)}\n" for number in range(100_000)))
    command = [sys.executable, "-m", "regard", "train", "language", str(path), "--out", str(tmp_path / "run")]
    command += ["--tokenizer", "character"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tiny.ROOT)
    deadline = time.monotonic() + 100
    while not list(prepared.glob(".????????-*/train.values")):  # it is being written
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "stopped before the first step" in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "run").exists()
    assert not [found for found in prepared.iterdir() if found.is_dir()]
