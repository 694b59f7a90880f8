"""Translation and classification from files of any size: as from a list of all rows, bad rows and memory included."""

import json
import math
import random
import re
import shutil
import subprocess
import sys

import numpy
import pytest
import sacrebleu
import torch

import regard
from regard.data import tokens
from regard.data.labelled import read_labelled
from regard.data.pairs import read_pairs
from regard.data.split import split
from regard.data.tables import TableError
from regard.data.texts import RowsError
from regard.models.texts import encode, padded
from regard.training.folder import RunError, read_options
from regard.training.metrics import bleu, translation_metrics
from regard.training.options import resolve
from regard.training.processes import World
from regard.training.report import shorten
from regard.training.run import evaluate
from regard.training.task import IGNORE_INDEX, TaskError
from regard.training.tasks import prepare, translate
from regard.training.tasks.translate import translate_all
from tests.training import tiny

BAD = {
    "translate": [b"no translation\t\n", b"one column\n", b"\xff\tx\n", b"a\tb\tc\n", b"x\0\ty\n"],
    "text": [b"x\n", b",early\n", b'"open,late\n', b"\xff,early\n", b"a,b,c\n"],
}


def spoilt(task, folder):
    """Data with a bad row after every thirtieth line."""
    path = tiny.make(task, folder)
    lines = path.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(BAD[task]):
        lines.insert(31 * (number + 1), line)
    path.write_bytes(b"".join(lines))
    return path


def trained(task, data, out):
    return regard.train(task, data, out=out, **tiny.options(task, steps=2))


@pytest.mark.parametrize("task", BAD)
def test_bad_rows_stop_a_run_before_it_begins_and_are_all_named(task, tmp_path):
    with pytest.raises(RowsError, match=r"^5 of ") as caught:
        trained(task, spoilt(task, tmp_path), tmp_path / "run")
    lines = str(caught.value).splitlines()
    assert [int(line.split(": line ")[1].split(":")[0]) for line in lines[1:-1]] == [32, 63, 94, 125, 156]
    assert lines[-1] == "fix them or pass --on-error skip"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("task", BAD)
def test_a_run_without_its_bad_rows_is_the_run_of_the_good_ones(task, tmp_path):
    good, bad = tiny.make(task, tmp_path / "good"), spoilt(task, tmp_path / "bad")
    given = tiny.options(task, steps=4)
    regard.train(task, good, out=tmp_path / "one", **given)
    regard.train(task, bad, out=tmp_path / "two", **given, on_error="skip")
    assert tiny.losses(tmp_path / "one") == tiny.losses(tmp_path / "two")
    notes = prepare(task, resolve(task, {**given, "data": str(bad), "on_error": "skip"})).notes
    (first,) = [number for number, note in enumerate(notes) if note.endswith("s are left out:")]
    assert notes[first].startswith("5 ")
    assert len(notes) == first + 6


@pytest.mark.parametrize("task", BAD)
def test_the_command_line_prints_a_line_for_each_bad_row(task, tmp_path, capsys):
    data = spoilt(task, tmp_path)
    assert tiny.call(tiny.command(task, data, tmp_path / "run")) == 2
    assert len(capsys.readouterr().err.splitlines()) == 7
    assert tiny.call(tiny.command(task, data, tmp_path / "run", on_error="skip", steps=2)) == 0
    assert "5 " in next(line for line in capsys.readouterr().err.splitlines() if line.endswith("are left out:"))


def test_batches_of_pairs_are_those_of_the_list_of_pairs(tmp_path):
    data = tiny.make("translate", tmp_path)
    task = prepare("translate", resolve("translate", {**tiny.options("translate"), "data": str(data)}))
    pairs = split(read_pairs(data), lambda pair: pair.source).train
    tokenizers = task.model.need_tokenizer(), task.model.need_target_tokenizer()
    for rows in list(task.batches.epoch(0))[:5]:
        sources = [tokenizers[0].encode(pairs[row].source).ids for row in rows]
        targets = [tokenizers[1].encode(pairs[row].target, add_special_tokens=False).ids for row in rows]
        batch = task.batch(rows, slice(None), torch.Generator())
        bos, eos = task.model.config["bos"], task.model.config["eos"]
        assert torch.equal(batch.inputs[0], padded(sources)[0])
        assert torch.equal(batch.inputs[1], padded([[bos, *ids] for ids in targets])[0])
        assert batch.inputs[2] == [len(ids) for ids in sources]
        longest = max(map(len, targets)) + 1
        expected = [[*ids, eos] + [IGNORE_INDEX] * (longest - len(ids) - 1) for ids in targets]
        assert batch.targets.tolist() == expected
        half = task.batch(rows, slice(1, None, 2), torch.Generator())
        assert half.inputs[2] == batch.inputs[2][1::2]


def test_batches_of_texts_are_those_of_the_list_of_texts(tmp_path):
    data = tiny.make("text", tmp_path)
    task = prepare("text", resolve("text", {**tiny.options("text"), "data": str(data)}))
    examples = split(read_labelled(data), lambda example: example.text).train
    for rows in list(task.batches.epoch(0))[:5]:
        batch = task.batch(rows, slice(None), torch.Generator())
        ids, lengths = padded(encode(task.model.need_tokenizer(), [examples[row].text for row in rows], 11))
        assert torch.equal(batch.inputs[0], ids)
        assert batch.inputs[1] == batch.sizes == lengths
        assert [task.model.labels[number] for number in batch.targets] == [examples[row].label for row in rows]


def test_every_text_is_translated_once(monkeypatch):
    monkeypatch.setattr(translate, "BATCH", 3)
    batches = []

    class Upper:
        def translate(self, texts):
            batches.append(texts)
            return [text.upper() for text in texts]

    texts = ["aaaa", "b", "cc", "ddddd", "e", "ffffff", "ggg"]
    assert translate_all(Upper(), texts) == [text.upper() for text in texts]
    assert batches == [["b", "e", "cc"], ["ggg", "aaaa", "ddddd"], ["ffffff"]]


def test_pairs_are_evaluated_as_their_list_would_be(tmp_path):
    data = tiny.make("translate", tmp_path)
    model = trained("translate", data, tmp_path / "run").model
    parts = split(read_pairs(data), lambda pair: pair.source)
    options = tiny.options("translate", steps=2)
    task = prepare("translate", resolve("translate", {**options, "data": str(data)}))
    for name, pairs, beam_size in (("validation", parts.validation[:7], 1), ("test", parts.test, 5)):
        outputs = translate_all(model, [pair.source for pair in pairs], beam_size=beam_size)
        targets = [pair.target for pair in pairs]
        metrics = task.evaluate(model, name, World())
        assert metrics["bleu"] == pytest.approx(bleu(outputs, targets).score)
        assert metrics["chrf"] == pytest.approx(sacrebleu.corpus_chrf(outputs, [targets]).score)
        assert metrics["signature"] == bleu(outputs, targets).signature
    assert evaluate(tmp_path / "run") == metrics
    data.rename(tmp_path / "elsewhere.tsv")
    with pytest.raises(TaskError, match=r"run: was trained on .*pairs.tsv, which is not there: say which data"):
        evaluate(tmp_path / "run")


def test_texts_are_evaluated_from_ids_as_from_texts(tmp_path):
    data = tiny.make("text", tmp_path)
    model = trained("text", data, tmp_path / "run").model
    task = prepare("text", resolve("text", {**tiny.options("text"), "data": str(data)}))
    for name in ("validation", "test"):
        examples = getattr(split(read_labelled(data), lambda example: example.text), name)
        path = tmp_path / f"{name}.csv"
        path.write_text("text,label\n" + "".join(f"{example.text},{example.label}\n" for example in examples))
        metrics, from_texts = task.evaluate(model, name, World()), evaluate(tmp_path / "run", path)
        assert metrics.pop("loss") == pytest.approx(from_texts.pop("loss"), rel=1e-5)
        assert metrics == from_texts
        right = model.classify([example.text for example in examples])
        hits = sum(label == example.label for label, example in zip(right, examples, strict=True))
        assert metrics["accuracy"] == hits / len(examples)


@pytest.mark.parametrize("task", BAD)
def test_other_files_are_evaluated_in_blocks_as_at_once(task, tmp_path, monkeypatch):
    data = tiny.make(task, tmp_path / "data")
    trained(task, data, tmp_path / "run")
    at_once = evaluate(tmp_path / "run", data)
    monkeypatch.setattr(tokens, "BLOCK", 997)
    in_blocks = evaluate(tmp_path / "run", data)
    for name in ("loss", "bleu", "chrf"):
        assert in_blocks.pop(name, 0) == pytest.approx(at_once.pop(name, 0), rel=1e-5)
    assert in_blocks == at_once
    bad = spoilt(task, tmp_path / "bad")
    with pytest.raises(RowsError, match="5 of"):
        evaluate(tmp_path / "run", bad)
    skipping = evaluate(tmp_path / "run", bad, on_error="skip")
    assert skipping.items() >= in_blocks.items()


def test_scores_of_blocks_are_those_of_all_translations():
    generator = random.Random(3)
    for words in (["the", "a", "cat", "dog", "is", "on", "mat", "."], list("一二三四五六七。")):
        references = [" ".join(generator.choices(words, k=generator.randint(1, 13))) for _ in range(61)]
        outputs = [" ".join(word for word in text.split() if generator.random() < 0.9) for text in references]
        blocks = [slice(start, start + 17) for start in range(0, 61, 17)]
        metrics, expected = (
            translation_metrics((outputs[rows], references[rows]) for rows in blocks),
            bleu(outputs, references),
        )
        assert metrics["bleu"] == pytest.approx(expected.score)
        assert metrics["chrf"] == pytest.approx(sacrebleu.corpus_chrf(outputs, [references]).score)
        assert metrics["signature"] == expected.signature
        assert math.isfinite(expected.score)


EVALUATE = """
import json, pathlib, sys
from regard.models.folders import load
from regard.training.folder import read_options
from regard.training.processes import join
from regard.training.tasks import prepare
import torch
torch.set_num_threads(1)
with join("cpu", shard=False) as world:
    folder = pathlib.Path(sys.argv[1])
    task = prepare(*read_options(folder))
    metrics = [task.evaluate(load(folder), part, world) for part in ("validation", "test")]
    if world.is_first:
        print(json.dumps([world.size, metrics]))
"""


@pytest.mark.parametrize("task", ["translate", pytest.param("text", marks=pytest.mark.faults)])
def test_two_processes_evaluate_what_one_does(task, tmp_path):
    data = tiny.make(task, tmp_path)
    regard.train(task, data, out=tmp_path / "run", **tiny.options(task, steps=60, learning_rate=1e-2))
    script = tmp_path / "evaluate.py"
    script.write_text(EVALUATE)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = tiny.run([*launcher, str(script), str(tmp_path / "run")])
    assert done.returncode == 0, done.stderr
    size, together = json.loads(done.stdout)
    assert size == 2
    evaluated, model = prepare(*read_options(tmp_path / "run")), regard.load(tmp_path / "run")
    for part, actual in zip(("validation", "test"), together, strict=True):
        expected = evaluated.evaluate(model, part, World())
        for name in ("perplexity", "loss"):
            assert actual.pop(name, 0) == pytest.approx(expected.pop(name, 0), rel=1e-9)
        assert actual == expected


def test_a_file_that_has_grown_is_pointed_to_init_from(tmp_path):
    for task in BAD:
        data = tiny.make(task, tmp_path / task)
        out = tmp_path / f"{task}-run"
        trained(task, data, out)
        lines = data.read_text().splitlines(keepends=True)
        data.write_text("".join([*lines, lines[-1].replace("ant", "bee").replace("ANT", "BEE")]))
        command = f"regard train {task} {data} --init-from {out} --out NEW"
        with pytest.raises(RunError, match=f"not those that this run started with; to go on with new data: {command}"):
            regard.train(task, data, out=out, resume=True, steps=4)
        regard.train(task, data, out=tmp_path / f"{task}-new", init_from=str(out), steps=2, batch=99)


@pytest.mark.parametrize("task", tiny.MAKERS)
def test_data_that_changed_after_the_training_are_not_its_test(task, tmp_path):
    """Another file would be split in another way, and the model would be tested with what it was trained on."""
    data, out = tiny.make(task, tmp_path / task), tmp_path / "run"
    regard.train(task, data, out=out, **tiny.options(task, steps=1))
    expected = evaluate(out)
    shutil.rmtree(out / "checkpoints")
    assert evaluate(out) == expected
    if task == "images":
        arrays = numpy.load(data)
        numpy.savez(data, **{**arrays, "images": arrays["images"][:, ::-1]})
    else:
        data.write_text(data.read_text().replace("ant bee", "bee ant"))
    with pytest.raises(ValueError, match=f"{out}: {data}: changed since this model was trained on it"):
        evaluate(out)


def test_classes_are_listed_with_their_counts_and_many_are_cut_short(tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text("text,label\n" + "".join(f"text {number},{number % 23:02}\n" for number in range(2_300)))
    notes = prepare("text", resolve("text", {**tiny.options("text"), "data": str(path)})).notes
    (line,) = [note for note in notes if note.startswith("to train on: ")]
    assert line.count(" · ") == 19
    assert line.endswith(" and 3 more")


def test_long_names_of_classes_stay_in_their_line(tmp_path):
    path = tmp_path / "texts.csv"
    rows = "".join(f'text {number},"{("short", f"long{chr(10)}" * 40)[number % 2]}"\n' for number in range(90))
    path.write_text("text,label\n" + rows)
    notes = prepare("text", resolve("text", {**tiny.options("text"), "data": str(path)})).notes
    (line,) = [note for note in notes if note.startswith("to train on: ")]
    assert re.fullmatch(r"to train on: (long ){7}long…: \d+ · short: \d+", line)


@pytest.mark.parametrize("count", [1, 10, 11, 12, 40])
def test_a_line_has_no_more_characters_than_it_may(count):
    assert shorten("x" * count, 11) == ("x" * count if count <= 11 else "x" * 10 + "…")


def test_a_part_whose_pairs_are_all_too_long_is_named(tmp_path):
    words = [f"{first} {second}" for first in tiny.WORDS for second in tiny.WORDS]
    held_out = split(words, str).validation
    pairs = {word: "long " * 99 if word in held_out else "short" for word in words}
    (tmp_path / "pairs.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs.items()))
    given = {**tiny.options("translate"), "data": str(tmp_path / "pairs.tsv")}
    with pytest.raises(TaskError, match="no pair of the validation part has at most 64 tokens; allow more"):
        prepare("translate", resolve("translate", given))


def test_texts_that_are_cut_are_counted(tmp_path):
    path = tmp_path / "texts.csv"
    rows = [f"{'word ' * (30 if number % 5 else 3)}{number},{number % 2}\n" for number in range(90)]
    path.write_text("text,label\n" + "".join(rows))
    for max_length, is_cut in ((11, True), (60, False)):
        given = {**tiny.options("text", max_length=max_length), "data": str(path)}
        task = prepare("text", resolve("text", given))
        long = sum(len(ids) == 11 for ids in task.train.ids(range(len(task.train))))
        note = f"{long} of them have 11 tokens or more and are cut there: see --max-length"
        assert (note in task.notes) == is_cut == any("are cut" in note for note in task.notes)


def test_a_table_in_another_encoding_trains_with_a_note(tmp_path):
    rows = [f"{'très' if number % 2 else 'peu'} bien {number};{number % 2}\r\n" for number in range(199)]
    path = tmp_path / "texts.csv"
    path.write_bytes(("text;label\r\n" + "".join(rows)).encode("cp1252"))
    task = prepare("text", resolve("text", {**tiny.options("text"), "data": str(path)}))
    assert f"{path}: is not UTF-8 and was read as Windows-1252" in task.notes
    assert any("très" in text for text in task.validation.texts(range(len(task.validation))))


def test_one_class_and_a_class_without_training_text_are_errors(tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text("text,label\n" + "".join(f"text {number},same\n" for number in range(31)))
    with pytest.raises(ValueError, match="expected two classes or more, all 31 rows are 'same'"):
        prepare("text", resolve("text", {**tiny.options("text"), "data": str(path)}))
    held_out = split([f"text {number}" for number in range(200)], str).test[0]
    path.write_text(
        "text,label\n" + "".join(f"text {n},{'odd' if f'text {n}' == held_out else n % 2}\n" for n in range(200))
    )
    with pytest.raises(ValueError, match="class 'odd' has too few examples: none is left to train on"):
        prepare("text", resolve("text", {**tiny.options("text"), "data": str(path)}))
    path.write_text("text,label,text\na,b,c\n")
    with pytest.raises(TableError, match="columns 1, 3 are all called 'text'"):
        prepare("text", resolve("text", {**tiny.options("text"), "data": str(path)}))


PREPARE = """
import sys
from regard.data import tokens
from regard.training.options import resolve
from regard.training.tasks import prepare
tokens.BLOCK, tokens.SAMPLE = 1 << 15, 500_000
# Sizes would follow from the data.
sizes = {"size": 16, **({"hidden_size": 16} if sys.argv[1] == "translate" else {})}
prepare(sys.argv[1], resolve(sys.argv[1], {"data": sys.argv[2], "tokenizer": "word", "vocab_size": 500, **sizes}))
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
@pytest.mark.parametrize("task", ["translate", pytest.param("text", marks=pytest.mark.faults)])
def test_memory_does_not_grow_with_the_file(task, tmp_path):
    def kilobytes(count):
        generator = random.Random(7)
        words = [f"word{number}" for number in range(300)]
        rows = (" ".join(generator.choices(words, k=20)) for _ in range(count))
        separator, header = ("\t", "") if task == "translate" else (",", "text,label\n")
        path = tmp_path / f"{count}.{'tsv' if task == 'translate' else 'csv'}"
        with path.open("w") as file:
            file.write(header)
            file.writelines(f"{row} {number}{separator}{row[:5]}\n" for number, row in enumerate(rows))
        run = subprocess.run(
            [sys.executable, "-c", PREPARE, task, str(path)], capture_output=True, text=True, check=True, cwd=tiny.ROOT
        )
        return int(run.stdout)

    # Fifty thousand rows of 150 bytes more: as Python's texts and lists of ids they would take 30 MB.
    assert kilobytes(60_000) < kilobytes(10_000) + 12_000


@pytest.mark.parametrize("task", tiny.MAKERS)
def test_data_that_are_not_kept_are_a_note(task, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    data, note = tiny.make(task, tmp_path), "the prepared data are not kept: set XDG_CACHE_HOME or REGARD_PREPARED"
    for place, is_kept in (("kept", True), ("file/prepared", False)):
        monkeypatch.setenv("REGARD_PREPARED", str(tmp_path / place))
        notes = prepare(task, resolve(task, {**tiny.options(task), "data": str(data)})).notes
        assert any(note in line for line in notes) != is_kept


@pytest.mark.parametrize("task", BAD)
def test_a_run_is_resumed_after_the_cache_was_emptied(task, tmp_path, monkeypatch):
    data = tiny.make(task, tmp_path)
    regard.train(task, data, out=tmp_path / "whole", **tiny.options(task, schedule="constant"))
    regard.train(task, data, out=tmp_path / "run", **tiny.options(task, schedule="constant", steps=6))
    monkeypatch.setenv("REGARD_PREPARED", str(tmp_path / "empty"))
    regard.train(task, data, out=tmp_path / "run", resume=True, steps=12)
    assert tiny.losses(tmp_path / "run") == tiny.losses(tmp_path / "whole")
