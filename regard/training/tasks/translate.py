"""Translation: source and target sentences; BLEU, perplexity, and the alignment error rate if gold links are known."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from regard.data.batches import Batches
from regard.data.grammar import corpus
from regard.data.pairs import EncodedPair, Pair, StoredPairs, pairs_in_files, pairs_in_memory, store_pairs
from regard.data.store import Store
from regard.data.survey import RowSource, Survey, row_blocks, survey
from regard.data.tokens import BOS, EOS, PAD, UNK, trained_tokenizer
from regard.models.alignment import align
from regard.models.seq2seq import Seq2Seq
from regard.models.texts import padded, plain
from regard.models.transformer import Transformer
from regard.models.translator import Translator
from regard.training.defaults import complete
from regard.training.metrics import TranslationScores, alignment_error_rate
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
from regard.training.tasks.row_notes import cuts_expected, preparation_notes, usable_rows
from regard.training.transfer import load_pretrained

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SAMPLES = 3
BATCH = 64  # sentences that are translated or aligned at once
HELD_OUT = 3_000  # pairs for validation, and for the test, at most, about: an evaluation should not take long


@dataclass(frozen=True, kw_only=True)
class TranslateTask(Task):
    """Pairs as ids for the loss, and as texts for BLEU."""

    model: Translator
    train: StoredPairs
    validation: StoredPairs
    test: StoredPairs
    options: TranslateOptions
    goal: ClassVar[Goal] = Goal("bleu", higher_is_better=True)

    def batch(self, rows: Sequence[int], share: slice, generator: torch.Generator) -> Batch:
        return _collate(self.model, self.train.take(rows[share]))

    def loss(self, model: Any, batch: Batch) -> Tensor:
        return cross_entropy(model(*batch.inputs), batch.targets, self.options.label_smoothing)

    def evaluate(self, model: Any, part: Literal["validation", "test"], world: World) -> dict[str, Any]:
        if part == "test":
            return evaluate(model, self.test.texts(), self.options.beam_size, world)
        pairs = self.validation.texts(self.options.evaluate_pairs or None)
        return {"perplexity": self._perplexity(model, world), **evaluate(model, pairs, 1, world)}

    def samples(self, model: Any) -> list[Sample]:
        pairs = self.validation.texts(SAMPLES)
        outputs = translate_all(model, [pair.source for pair in pairs])
        return [Sample(pair.source, pair.target, output) for pair, output in zip(pairs, outputs, strict=True)]

    def _perplexity(self, model: Any, world: World) -> float:
        epoch = list(Batches(self.validation.lengths, self.options.batch, 0).epoch(0))
        batches = (_collate(model, self.validation.take(rows)) for rows in world.share(epoch))
        total, count = total_loss(model, batches, lambda batch: model(*batch.inputs), world)
        return math.exp(min(total / count, 700))


def translate_all(model: Translator, texts: Sequence[str], **options: Any) -> list[str]:
    """The translations of many texts, those of similar length at once."""
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    outputs = [""] * len(texts)
    for start in range(0, len(order), BATCH):
        indices = order[start : start + BATCH]
        with cuts_expected():
            translations = model.translate([texts[index] for index in indices], **options)
        for index, text in zip(indices, translations, strict=True):
            outputs[index] = text
    return outputs


def evaluate(model: Translator, pairs: Sequence[Pair], beam_size: int, world: World) -> dict[str, Any]:
    """BLEU and chrF; and the alignment error rate, if the pairs have gold links and the model has attention.

    Every process translates and aligns a share of the pairs.
    """
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    scores = TranslationScores()
    scores.add(world.collect(translate_all(model, world.share(sources), beam_size=beam_size)), targets)
    gold = [pair.alignment for pair in pairs if pair.alignment is not None]
    if len(gold) < len(pairs) or getattr(model, "score", True) is None:
        return scores.metrics()
    links = world.collect(_links(model, world.share(sources), world.share(targets)))
    return {**scores.metrics(), "alignment_error_rate": alignment_error_rate(links, gold)}


def _links(model: Translator, sources: Sequence[str], targets: Sequence[str]) -> list[frozenset[tuple[int, int]]]:
    """The links between the words of each source and target, by the attention."""
    return [
        alignment.links
        for start in range(0, len(sources), BATCH)
        for alignment in align(model, sources[start : start + BATCH], targets[start : start + BATCH])
    ]


def evaluate_files(
    model: Translator, source: Path, target: Path | None, beam_size: int, on_error: str
) -> dict[str, Any]:
    """BLEU and chrF on the pairs of a file, or of two, of any size."""
    rows, scores = pairs_in_files(source, target), TranslationScores()
    for pairs in row_blocks(usable_rows(rows, on_error), rows.texts):
        outputs = translate_all(model, [pair.source for pair in pairs], beam_size=beam_size)
        scores.add(outputs, [pair.target for pair in pairs])
    return scores.metrics()


def evaluate_test_part(model: Translator, options: TranslateOptions, beam_size: int) -> dict[str, Any]:
    """The metrics on the part of its data that a model has not seen."""
    return evaluate(model, StoredPairs(_store(model, _survey(options), options), "test").texts(), beam_size, World())


def prepare(options: TranslateOptions, tokenizers: Tokenizers) -> TranslateTask:
    """Read the pairs, train the tokenizers, build the model, store the pairs as tokens."""
    start, rows = time.monotonic(), _survey(options)
    options = complete(options, examples=rows.counts[0], text_bytes=rows.text_bytes)
    model = _build_model(options, rows, tokenizers)
    store = _store(model, rows, options)
    train, validation, test = (StoredPairs(store, part) for part in ("train", "validation", "test"))
    if not len(train) or not len(validation):
        raise TaskError(f"max_length: every pair has more than {options.max_length} tokens; allow more")
    batches = Batches(train.lengths, options.batch, options.seed)
    counts = rows.counts
    notes = [
        f"{counts[0]:,} pairs to train on, {counts[1]:,} for validation, {counts[2]:,} for the test",
        f"{batches.padding():.1%} of the batches is padding",
    ]
    if train.too_long:
        notes.append(f"{train.too_long:,} pairs with more than {options.max_length} tokens are left out")
    return TranslateTask(
        model=model,
        batches=batches,
        fingerprint=fingerprint(store.key),
        notes=[*notes, *preparation_notes(rows, store, time.monotonic() - start)],
        train=train,
        validation=validation,
        test=test,
        options=options,
    )


def _survey(options: TranslateOptions) -> Survey[Pair]:
    return survey(_source(options), options.on_error, HELD_OUT)


def _source(options: TranslateOptions) -> RowSource[Pair]:
    if options.data is None:
        if options.target is not None:
            raise TaskError("target: expected the source's file before it")
        return pairs_in_memory("the grammar", corpus(options.language))
    return pairs_in_files(Path(options.data), None if options.target is None else Path(options.target))


def _store(model: Translator, rows: Survey[Pair], options: TranslateOptions) -> Store:
    tokenizers = plain(model.need_tokenizer()), plain(model.need_target_tokenizer())
    return store_pairs(rows, *tokenizers, options.max_length)


def _build_model(options: TranslateOptions, rows: Survey[Pair], tokenizers: Tokenizers) -> Translator:
    if options.init_from is not None:
        return load_pretrained(options, Translator)
    source, target = _tokenizers(options, rows, tokenizers)
    vocab_sizes = source.get_vocab_size(), (target or source).get_vocab_size()
    torch.manual_seed(options.seed)
    model = new_model(options, vocab_sizes, share_embeddings=target is None)
    model.tokenizer, model.target_tokenizer = source, target
    return model


def new_model(options: TranslateOptions, vocab_sizes: tuple[int, int], *, share_embeddings: bool) -> Translator:
    """The model that complete options describe, untrained."""
    marks: dict[str, Any] = {"bos": BOS, "eos": EOS, "forbidden": [PAD, BOS, UNK]}
    if options.model == "rnn":
        return Seq2Seq(
            *vocab_sizes,
            options.size,
            options.hidden_size,
            layers=options.layers,
            cell=options.cell,
            attention=options.attention,
            dropout=options.dropout,
            share_embeddings=share_embeddings,
            input_feeding=options.input_feeding,
            **marks,
        )
    return Transformer(
        *vocab_sizes,
        options.size,
        options.layers,
        options.heads,
        max_positions=max(256, options.max_length + 2),
        pre_norm=True,
        dropout=options.dropout,
        share_embeddings=share_embeddings,
        **marks,
    )


def _tokenizers(
    options: TranslateOptions, rows: Survey[Pair], tokenizers: Tokenizers
) -> tuple[Tokenizer, Tokenizer | None]:
    """One for both languages if tokens are parts of words, one for each if they are words or characters."""
    if tokenizers.source is not None:
        return tokenizers.source, tokenizers.target

    def train(side: str, sides: slice, **more: Any) -> Tokenizer:
        key = {**rows.key, "side": side}
        return trained_tokenizer(key, partial(rows.sample, sides), options.tokenizer, options.vocab_size, **more)

    if options.tokenizer == "bpe" and not options.lowercase:
        return train("both", slice(2)), None
    return train("source", slice(1), lowercase=options.lowercase), train("target", slice(1, 2))


def _collate(model: Translator, pairs: Sequence[EncodedPair]) -> Batch:
    """Source (batch, n) and target (batch, m) after bos; what is predicted is the target with eos after it."""
    bos, eos, targets = model.config["bos"], model.config["eos"], [pair.target.tolist() for pair in pairs]
    source, source_lengths = padded([pair.source.tolist() for pair in pairs])
    target, target_lengths = padded([[bos, *ids] for ids in targets])
    expected, _ = padded([[*ids, eos] for ids in targets])
    expected[torch.arange(expected.shape[1]) >= torch.tensor(target_lengths)[:, None]] = IGNORE_INDEX
    sizes = [n + m for n, m in zip(source_lengths, target_lengths, strict=True)]
    return Batch((source, target, source_lengths), expected, sizes)
