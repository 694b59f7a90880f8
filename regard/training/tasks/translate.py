"""Translation: source and target sentences; BLEU, perplexity, and the alignment error rate if gold links are known."""

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
from regard.models.seq2seq import Seq2Seq
from regard.models.texts import padded, plain
from regard.models.transformer import Transformer
from regard.models.translator import Translator
from regard.training.defaults import complete
from regard.training.metrics import alignment_error_rate, bleu, chrf
from regard.training.options import TranslateOptions
from regard.training.processes import World
from regard.training.task import (
    IGNORE_INDEX,
    Batch,
    Goal,
    Sample,
    Task,
    TaskError,
    Tokenizers,
    cross_entropy,
    fingerprint,
    total_loss,
)
from regard.training.transfer import load_pretrained

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SAMPLES = 3
BATCH = 64  # sentences that are translated or aligned at once


@dataclass(frozen=True)
class EncodedPair:
    """The ids of a pair."""

    source: list[int]
    target: list[int]  # without bos and eos

    @property
    def lengths(self) -> tuple[int, int]:
        """Of the source, and of the target with one of bos and eos."""
        return len(self.source), len(self.target) + 1


@dataclass(frozen=True, kw_only=True)
class TranslateTask(Task):
    """Sentences as ids for the loss, and as texts for BLEU."""

    model: Translator
    train: list[EncodedPair]
    parts: Parts[Pair]
    validation: list[EncodedPair]
    options: TranslateOptions
    goal: ClassVar[Goal] = Goal("bleu", higher_is_better=True)

    def batch(self, rows: Sequence[int], share: slice, generator: torch.Generator) -> Batch:
        return _collate(self.model, [self.train[row] for row in rows[share]])

    def loss(self, model: Any, batch: Batch) -> Tensor:
        return cross_entropy(model(*batch.inputs), batch.targets, self.options.label_smoothing)

    def evaluate(self, model: Any, part: Literal["validation", "test"], world: World) -> dict[str, Any]:
        if part == "test":
            return evaluate(model, self.parts.test, beam_size=self.options.beam_size)
        pairs = self.parts.validation[: self.options.evaluate_pairs or None]
        return {"perplexity": self._perplexity(model, world), **evaluate(model, pairs, beam_size=1)}

    def samples(self, model: Any) -> list[Sample]:
        pairs = self.parts.validation[:SAMPLES]
        outputs = translate_all(model, [pair.source for pair in pairs])
        return [Sample(pair.source, pair.target, output) for pair, output in zip(pairs, outputs, strict=True)]

    def _perplexity(self, model: Any, world: World) -> float:
        epoch = Batches([pair.lengths for pair in self.validation], self.options.batch, 0).epoch(0)
        batches = (_collate(model, [self.validation[row] for row in rows]) for rows in epoch)
        total, count = total_loss(model, batches, lambda batch: model(*batch.inputs), world)
        return math.exp(min(total / count, 700))


def translate_all(model: Translator, texts: Sequence[str], **options: Any) -> list[str]:
    """The translations of many texts, those of similar length at once."""
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    outputs = [""] * len(texts)
    for start in range(0, len(order), BATCH):
        indices = order[start : start + BATCH]
        translations = model.translate([texts[index] for index in indices], **options)
        for index, text in zip(indices, translations, strict=True):
            outputs[index] = text
    return outputs


def evaluate(model: Translator, pairs: Sequence[Pair], beam_size: int) -> dict[str, Any]:
    """BLEU and chrF; and the alignment error rate, if the pairs have gold links and the model has attention."""
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    outputs = translate_all(model, sources, beam_size=beam_size)
    score = bleu(outputs, targets)
    metrics: dict[str, Any] = {"bleu": score.score, "chrf": chrf(outputs, targets), "signature": score.signature}
    if all(pair.alignment is not None for pair in pairs) and getattr(model, "score", True) is not None:
        links = [
            alignment.links
            for start in range(0, len(pairs), BATCH)
            for alignment in align(model, sources[start : start + BATCH], targets[start : start + BATCH])
        ]
        metrics["alignment_error_rate"] = alignment_error_rate(links, [pair.alignment or frozenset() for pair in pairs])
    return metrics


def prepare(options: TranslateOptions, tokenizers: Tokenizers) -> TranslateTask:
    """Read the pairs, train the tokenizers, build the model."""
    parts = _read(options)
    text_bytes = sum(len((pair.source + pair.target).encode(errors="surrogatepass")) for pair in parts.train)
    options = complete(options, examples=len(parts.train), text_bytes=text_bytes)
    model = _build_model(options, parts.train, tokenizers)
    train, too_long = _encode(model, parts.train, options)
    validation, _ = _encode(model, parts.validation, options)
    if not train or not validation:
        raise TaskError(f"max_length: every pair has more than {options.max_length} tokens; allow more")
    batches = Batches([pair.lengths for pair in train], options.batch, options.seed)
    notes = [
        f"{len(parts.train):,} pairs to train on, {len(parts.validation):,} for validation, "
        f"{len(parts.test):,} for the test",
        f"{batches.padding():.1%} of the batches is padding",
    ]
    if too_long:
        notes.append(f"{too_long:,} pairs with more than {options.max_length} tokens are left out")
    return TranslateTask(
        model=model,
        batches=batches,
        fingerprint=fingerprint(str([(pair.source, pair.target) for pair in train])),
        notes=notes,
        train=train,
        parts=parts,
        validation=validation,
        options=options,
    )


def _read(options: TranslateOptions) -> Parts[Pair]:
    if options.data is None:
        if options.target is not None:
            raise TaskError("target: expected the source's file before it")
        return corpus(options.language)
    target = None if options.target is None else Path(options.target)
    return split(read_pairs(Path(options.data), target), lambda pair: pair.source)


def _build_model(options: TranslateOptions, pairs: list[Pair], tokenizers: Tokenizers) -> Translator:
    if options.init_from is not None:
        return load_pretrained(options, Translator)
    source, target = _tokenizers(options, pairs, tokenizers)
    vocab_sizes = source.get_vocab_size(), (target or source).get_vocab_size()
    torch.manual_seed(options.seed)
    marks: dict[str, Any] = {"bos": BOS, "eos": EOS, "forbidden": [PAD, BOS, UNK]}
    model: Translator
    if options.model == "rnn":
        model = Seq2Seq(
            *vocab_sizes,
            options.size,
            options.hidden_size,
            layers=options.layers,
            cell=options.cell,
            attention=options.attention,
            dropout=options.dropout,
            share_embeddings=target is None,
            tie_embeddings=True,
            input_feeding=True,
            **marks,
        )
    else:
        model = Transformer(
            *vocab_sizes,
            options.size,
            options.layers,
            options.heads,
            max_positions=max(256, options.max_length + 2),
            pre_norm=True,
            dropout=options.dropout,
            share_embeddings=target is None,
            **marks,
        )
    model.tokenizer, model.target_tokenizer = source, target
    return model


def _tokenizers(
    options: TranslateOptions, pairs: list[Pair], tokenizers: Tokenizers
) -> tuple[Tokenizer, Tokenizer | None]:
    """One for both languages if tokens are parts of words, one for each if they are words or characters."""
    if tokenizers.source is not None:
        return tokenizers.source, tokenizers.target
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    kind, vocab_size = options.tokenizer, options.vocab_size
    if kind == "bpe" and not options.lowercase:
        return train_tokenizer([*sources, *targets], kind, vocab_size), None
    source = train_tokenizer(sources, kind, vocab_size, lowercase=options.lowercase)
    return source, train_tokenizer(targets, kind, vocab_size)


def _encode(model: Translator, pairs: Sequence[Pair], options: TranslateOptions) -> tuple[list[EncodedPair], int]:
    """Pairs as ids, without those that are too long, and how many these are."""
    sources = plain(model.need_tokenizer()).encode_batch([pair.source for pair in pairs])
    targets = plain(model.need_target_tokenizer()).encode_batch(
        [pair.target for pair in pairs], add_special_tokens=False
    )
    encoded = [EncodedPair(source.ids, target.ids) for source, target in zip(sources, targets, strict=True)]
    limit = options.max_length
    fitting = [pair for pair in encoded if 0 < len(pair.source) <= limit and 0 < len(pair.target) < limit]
    return fitting, len(encoded) - len(fitting)


def _collate(model: Translator, pairs: Sequence[EncodedPair]) -> Batch:
    """Source (batch, n) and target (batch, m) after bos; what is predicted is the target with eos after it."""
    bos, eos = model.config["bos"], model.config["eos"]
    source, source_lengths = padded([pair.source for pair in pairs])
    target, target_lengths = padded([[bos, *pair.target] for pair in pairs])
    expected = torch.full_like(target, IGNORE_INDEX)
    for row, pair in zip(expected, pairs, strict=True):
        row[: len(pair.target) + 1] = torch.tensor([*pair.target, eos])
    sizes = [n + m for n, m in zip(source_lengths, target_lengths, strict=True)]
    return Batch((source, target, source_lengths), expected, sizes)
