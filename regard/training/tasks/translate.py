"""Translation: source and target sentences; BLEU and perplexity, and the alignment error rate where gold is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from regard.data.batches import Batches
from regard.data.grammar import corpus
from regard.data.pairs import Pair, read_pairs
from regard.data.split import Parts, split
from regard.data.tokens import BOS, EOS, PAD, UNK, train_tokenizer
from regard.models.alignment import align
from regard.models.model import evaluation
from regard.models.seq2seq import Seq2Seq
from regard.models.texts import padded, plain
from regard.models.transformer import Transformer
from regard.models.translator import Translator
from regard.training.metrics import alignment_error_rate, bleu
from regard.training.options import Translate
from regard.training.task import (
    IGNORE_INDEX,
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
from regard.training.transfer import begun_from

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SHOWN = 3
TOGETHER = 64  # sentences that are translated at once


@dataclass(frozen=True)
class Ids:
    """A pair as ids."""

    source: list[int]
    target: list[int]  # without marks


@dataclass(frozen=True, kw_only=True)
class TranslateTask(Task):
    """Sentences as ids for training, as texts for evaluation."""

    model: Translator
    train: list[Ids]
    parts: Parts[Pair]
    validation: list[Ids]
    options: Translate
    goal: ClassVar[Goal] = Goal("bleu", higher=True)

    def batch(self, rows: Sequence[int], chance: torch.Generator) -> Batch:
        return _batch(self.model, [self.train[row] for row in rows])

    def loss(self, model: Any, batch: Batch) -> Tensor:
        return cross_entropy(model(*batch.inputs), batch.targets, self.options.smoothing)

    def evaluate(self, model: Any, part: Literal["validation", "test"]) -> dict[str, Any]:
        pairs = self.parts.validation if part == "validation" else self.parts.test
        metrics: dict[str, Any] = {}
        if part == "validation":
            metrics["perplexity"] = self._perplexity(model)
            pairs = pairs[: self.options.evaluate_pairs or None]
        return metrics | measured(model, pairs)

    def samples(self, model: Any) -> list[Sample]:
        pairs = self.parts.validation[:SHOWN]
        found = translated(model, [pair.source for pair in pairs])
        return [Sample(pair.source, pair.target, own) for pair, own in zip(pairs, found, strict=True)]

    def _perplexity(self, model: Any) -> float:
        total, count = 0.0, 0
        lengths = [(len(own.source), len(own.target) + 1) for own in self.validation]
        with torch.no_grad(), evaluation(model):
            for rows in Batches(lengths, self.options.batch, 0).epoch(0):
                batch = _batch(model, [self.validation[row] for row in rows]).to(next(model.parameters()).device)
                total += float(cross_entropy(model(*batch.inputs), batch.targets))
                count += batch.count
        return math.exp(min(total / count, 700))


def translated(model: Translator, texts: Sequence[str], **options: Any) -> list[str]:
    """Translations, those of about equal length at once."""
    order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    found = [""] * len(texts)
    for start in range(0, len(order), TOGETHER):
        chosen = order[start : start + TOGETHER]
        for number, text in zip(chosen, model.translate([texts[number] for number in chosen], **options), strict=True):
            found[number] = text
    return found


def measured(model: Translator, pairs: Sequence[Pair], **options: Any) -> dict[str, Any]:
    """BLEU, and where the pairs know which words belong together the alignment error rate."""
    found = translated(model, [pair.source for pair in pairs], **options)
    score = bleu(found, [pair.target for pair in pairs])
    metrics: dict[str, Any] = {"bleu": score.score, "signature": score.signature}
    if all(pair.alignment is not None for pair in pairs) and getattr(model, "score", True) is not None:
        links = [
            own.links
            for start in range(0, len(pairs), TOGETHER)
            for own in align(
                model,
                [pair.source for pair in pairs[start : start + TOGETHER]],
                [pair.target for pair in pairs[start : start + TOGETHER]],
            )
        ]
        metrics["alignment_error_rate"] = alignment_error_rate(links, [pair.alignment or frozenset() for pair in pairs])
    return metrics


def prepare(options: Translate, kept: Tokenizers | None) -> TranslateTask:
    """Read the pairs, train the tokenizers, build the model."""
    parts = _parts(options)
    with built():
        model = _model(options, parts.train, kept)
    train, left_out = _encoded(model, parts.train, options)
    validation, _ = _encoded(model, parts.validation, options)
    if not train or not validation:
        raise TaskError(f"max_length: every pair has more than {options.max_length} tokens; allow more")
    lengths = [(len(own.source), len(own.target) + 1) for own in train]
    batches = Batches(lengths, options.batch, options.seed)
    notes = [f"{len(parts.train):,} pairs to learn, {len(parts.validation):,} and {len(parts.test):,} set aside"]
    notes.append(f"{batches.padding():.1%} of the batches is padding")
    if left_out:
        notes.append(f"{left_out:,} pairs with more than {options.max_length} tokens are left out")
    return TranslateTask(
        model=model,
        batches=batches,
        fingerprint=fingerprint(str([(own.source, own.target) for own in train])),
        notes=notes,
        train=train,
        parts=parts,
        validation=validation,
        options=options,
    )


def _parts(options: Translate) -> Parts[Pair]:
    if options.data is None:
        if options.target is not None:
            raise TaskError("target: expected the source's file before it")
        return corpus(options.language)
    target = None if options.target is None else Path(options.target)
    return split(read_pairs(Path(options.data), target), lambda pair: pair.source)


def _model(options: Translate, pairs: list[Pair], kept: Tokenizers | None) -> Translator:
    if options.init_from is not None:
        return begun_from(options, Translator)
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    tokenizer, target_tokenizer = _tokenizers(options, sources, targets, kept)
    read, written = tokenizer.get_vocab_size(), (target_tokenizer or tokenizer).get_vocab_size()
    torch.manual_seed(options.seed)
    marks: dict[str, Any] = {"bos": BOS, "eos": EOS, "forbidden": [PAD, BOS, UNK]}
    model: Translator
    if options.model == "rnn":
        model = Seq2Seq(
            read,
            written,
            options.size,
            options.hidden,
            layers=options.layers,
            cell=options.cell,
            attention=options.attention,
            dropout=options.dropout,
            **marks,
        )
    else:
        model = Transformer(
            read,
            written,
            options.size,
            options.layers,
            options.heads,
            max_positions=max(256, options.max_length + 2),
            pre_norm=True,
            dropout=options.dropout,
            share_embeddings=target_tokenizer is None,
            **marks,
        )
    model.tokenizer, model.target_tokenizer = tokenizer, target_tokenizer
    return model


def _tokenizers(
    options: Translate, sources: list[str], targets: list[str], kept: Tokenizers | None
) -> tuple[Tokenizer, Tokenizer | None]:
    """One for both languages where tokens are parts of words, one for each where they are words or characters."""
    if kept is not None and kept.source is not None:
        return kept.source, kept.target
    kind, most = options.tokenizer, options.vocab_size
    if kind == "bpe" and not options.lowercase:
        return train_tokenizer([*sources, *targets], kind, most), None
    source = train_tokenizer(sources, kind, most, lowercase=options.lowercase)
    return source, train_tokenizer(targets, kind, most)


def _encoded(model: Translator, pairs: Sequence[Pair], options: Translate) -> tuple[list[Ids], int]:
    """Pairs as ids, and how many were too long."""
    read, write = plain(model.need_tokenizer()), plain(model.need_target_tokenizer())
    sources = read.encode_batch([pair.source for pair in pairs])
    targets = write.encode_batch([pair.target for pair in pairs], add_special_tokens=False)
    ids = [Ids(source.ids, target.ids) for source, target in zip(sources, targets, strict=True)]
    kept = [
        own for own in ids if 0 < len(own.source) <= options.max_length and 0 < len(own.target) < options.max_length
    ]
    return kept, len(ids) - len(kept)


def _batch(model: Translator, pairs: Sequence[Ids]) -> Batch:
    begin, end = model.config["bos"], model.config["eos"]
    source, lengths = padded([pair.source for pair in pairs])
    target, counts = padded([[begin, *pair.target] for pair in pairs])
    expected = torch.full_like(target, IGNORE_INDEX)
    for row, pair in zip(expected, pairs, strict=True):
        row[: len(pair.target) + 1] = torch.tensor([*pair.target, end])
    return Batch((source, target, lengths), expected, [sum(both) for both in zip(lengths, counts, strict=True)])
