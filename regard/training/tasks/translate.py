"""Translation: source and target sentences; BLEU, perplexity, and the alignment error rate if gold links are known."""

from __future__ import annotations

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
from regard.data.split import PARTS, RowSource, Survey, row_blocks, survey
from regard.data.tokens import BOS, EOS, PAD, UNK, trained_tokenizer
from regard.models.seq2seq import Seq2Seq
from regard.models.texts import padded, plain
from regard.models.transformer import Transformer
from regard.models.translator import Translator, align
from regard.training.defaults import complete
from regard.training.metrics import alignment_error_rate, translation_metrics
from regard.training.options import TranslateOptions
from regard.training.processes import World
from regard.training.task import IGNORE_INDEX, Batch, Sample, Task, TaskError, Tokenizers, fingerprint, perplexity
from regard.training.tasks import examples
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
    options: TranslateOptions
    goal: ClassVar[str] = "bleu"

    def batch(self, rows: Sequence[int], share: slice, generator: torch.Generator) -> Batch:
        return _collate(self.model, self.train.take(rows[share]))

    def logits(self, model: Any, batch: Batch) -> Tensor:
        logits: Tensor = model(*batch.inputs)
        return logits

    def evaluate(self, model: Any, part: Literal["validation", "test"], world: World) -> dict[str, Any]:
        if part == "test":
            return _evaluate_pairs(model, self.test.texts(), self.options.beam_size, world)
        epoch = list(Batches(self.validation.lengths, self.options.batch, 0).epoch(0))
        batches = (_collate(model, self.validation.take(rows)) for rows in world.share(epoch))
        metrics = {"perplexity": perplexity(model, batches, self.logits, world)[0]}
        pairs = self.validation.texts(self.options.evaluate_pairs or None)
        return {**metrics, **_evaluate_pairs(model, pairs, 1, world)}

    def samples(self, model: Any) -> list[Sample]:
        pairs = self.validation.texts(SAMPLES)
        outputs = translate_all(model, [pair.source for pair in pairs])
        return [Sample(pair.source, pair.target, output) for pair, output in zip(pairs, outputs, strict=True)]


def translate_all(model: Translator, texts: Sequence[str], **options: Any) -> list[str]:
    """The translations of many texts, those of similar length at once."""
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    outputs = [""] * len(texts)
    for start in range(0, len(order), BATCH):
        indices = order[start : start + BATCH]
        with examples.cuts_expected():
            translations = model.translate([texts[index] for index in indices], **options)
        for index, text in zip(indices, translations, strict=True):
            outputs[index] = text
    return outputs


def _evaluate_pairs(model: Translator, pairs: Sequence[Pair], beam_size: int, world: World) -> dict[str, Any]:
    """BLEU and chrF; and the alignment error rate, if the pairs have gold links and the model has attention.

    Every process translates and aligns a share of the pairs.
    """
    share, gold = world.share(pairs), [pair.alignment for pair in pairs if pair.alignment is not None]
    outputs = world.collect(translate_all(model, [pair.source for pair in share], beam_size=beam_size))
    metrics = translation_metrics([(outputs, [pair.target for pair in pairs])])
    if len(gold) == len(pairs) and getattr(model, "score", True) is not None:
        blocks = (share[start : start + BATCH] for start in range(0, len(share), BATCH))
        links = [
            alignment.links
            for block in blocks
            for alignment in align(model, [pair.source for pair in block], [pair.target for pair in block])
        ]
        metrics["alignment_error_rate"] = alignment_error_rate(world.collect(links), gold)
    return metrics


def evaluate(model: Translator, source: Path, target: Path | None, beam_size: int, on_error: str) -> dict[str, Any]:
    """BLEU and chrF on the pairs of a file, or of two, of any size."""
    rows = pairs_in_files(source, target)
    return translation_metrics(
        (translate_all(model, [pair.source for pair in pairs], beam_size=beam_size), [pair.target for pair in pairs])
        for pairs in row_blocks(examples.usable_rows(rows, on_error), rows.texts)
    )


def prepare(options: TranslateOptions, tokenizers: Tokenizers, model: Translator | None = None) -> TranslateTask:
    """Read the pairs, train the tokenizers, build the model, store the pairs as tokens."""
    start, rows = time.monotonic(), survey(_source(options), options.on_error, HELD_OUT)
    counts = rows.counts
    options = complete(options, examples=counts[0], text_bytes=rows.text_bytes)
    model = model or _build_model(options, rows, tokenizers)
    pair = plain(model.need_tokenizer()), plain(model.need_target_tokenizer())
    store = store_pairs(rows, *pair, options.max_length)
    parts = {part: StoredPairs(store, part) for part in PARTS}
    limit = options.max_length
    for part in PARTS[:2]:  # of the test, long pairs are translated too
        if not len(parts[part]):
            raise TaskError(f"max_length: no pair of the {part} part has at most {limit} tokens; allow more")
    batches, too_long = Batches(parts["train"].lengths, options.batch, options.seed), parts["train"].too_long
    notes = [
        f"{counts[0]:,} pairs to train on, {counts[1]:,} for validation, {counts[2]:,} for the test",
        f"{batches.padding():.1%} of the batches is padding",
    ]
    if too_long:
        notes.append(f"{too_long:,} pairs with more than {options.max_length} tokens are left out")
    return TranslateTask(
        model=model,
        batches=batches,
        fingerprint=fingerprint(store.key),
        notes=[*notes, *examples.preparation_notes(rows, store, time.monotonic() - start)],
        options=options,
        **parts,
    )


def _source(options: TranslateOptions) -> RowSource[Pair]:
    if options.data is None:
        if options.target is not None:
            raise TaskError("target: expected the source's file before it")
        return pairs_in_memory("the grammar", corpus(options.language))
    return pairs_in_files(Path(options.data), None if options.target is None else Path(options.target))


def _build_model(options: TranslateOptions, rows: Survey[Pair], tokenizers: Tokenizers) -> Translator:
    if options.init_from is not None:
        return load_pretrained(options, Translator)
    source, target = tokenizers.source, tokenizers.target
    if source is None:
        source, target = _train_tokenizers(options, rows)
    vocab_sizes = source.get_vocab_size(), (target or source).get_vocab_size()
    torch.manual_seed(options.seed)
    model = new_model(options, vocab_sizes, share_embeddings=target is None)
    model.tokenizer, model.target_tokenizer = source, target
    return model


def new_model(options: TranslateOptions, vocab_sizes: tuple[int, int], *, share_embeddings: bool) -> Translator:
    """The model that complete options describe, untrained."""
    settings: dict[str, Any] = {"share_embeddings": share_embeddings, "bos": BOS, "eos": EOS}
    settings |= {"forbidden": [PAD, BOS, UNK], **options.pick("size", "layers", "dropout")}
    if options.model == "rnn":
        settings |= options.pick("hidden_size", "cell", "attention", "input_feeding")
        return Seq2Seq(*vocab_sizes, **settings)
    max_positions = max(256, options.max_length + 2)
    return Transformer(*vocab_sizes, heads=options.heads, max_positions=max_positions, pre_norm=True, **settings)


def _train_tokenizers(options: TranslateOptions, rows: Survey[Pair]) -> tuple[Tokenizer, Tokenizer | None]:
    """One for both languages if tokens are parts of words, one for each if they are words or characters."""

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
