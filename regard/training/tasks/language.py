"""Language: predict the next token of texts, or masked tokens. Perplexity, and bits per byte (for any tokenizer)."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy
import torch
from torch import Tensor

from regard.data.batches import Batches
from regard.data.corpus import Corpus, corpus_of, open_corpus, topics
from regard.data.fetching import megabytes
from regard.data.store import Column, Store
from regard.data.texts import Skipped
from regard.data.tokens import EOS, MASK, SPECIAL_TOKENS, trained_tokenizer
from regard.models.encoder import Encoder
from regard.models.language_model import LanguageModel
from regard.models.model import Model
from regard.models.texts import plain
from regard.training.defaults import complete
from regard.training.options import LanguageOptions
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

MASKED = 0.15  # of the tokens; of those 8 in 10 become the mask, 1 in 10 another token, 1 in 10 stay (BERT)
BATCH = 4_096  # tokens that are evaluated at once
MAX_CONTEXT = 1_024  # tokens that a model sees at once in an evaluation on other data, if it could see more
PROMPT = 16  # tokens
BYTES_PER_TOKEN = 4  # about as many
LONG = 2.0  # seconds: of a preparation that took longer the user is told

Part = Literal["train", "validation", "test"]


@dataclass(frozen=True, kw_only=True)
class LanguageTask(Task):
    """Each part as one long sequence of ids, cut into rows of the model's context."""

    store: Store
    options: LanguageOptions
    goal: ClassVar[Goal] = Goal("perplexity", higher_is_better=False)

    @property
    def context(self) -> int:
        """Tokens of a row."""
        return _context(self.model, self.options)

    def batch(self, rows: Sequence[int], share: slice, generator: torch.Generator) -> Batch:
        # Each batch shifts its rows a little, so that rows do not always begin with the same words.
        shift = int(torch.randint(self.context, (), generator=generator))
        return _cut(self.model, self.ids("train"), rows, self.context, generator, share=share, shift=shift)

    def loss(self, model: Any, batch: Batch) -> Tensor:
        return cross_entropy(_logits(model, batch), batch.targets, self.options.label_smoothing)

    def evaluate(self, model: Any, part: Literal["validation", "test"], world: World) -> dict[str, Any]:
        return _evaluate_ids(model, self.ids(part), self.context, self.store.facts["bytes"][part], world)

    def samples(self, model: Any) -> list[Sample]:
        if not isinstance(model, LanguageModel):
            return []
        tokenizer, count = model.need_tokenizer(), min(PROMPT, self.context // 2)
        samples = []
        for text in self.store.facts["samples"]:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            prompt, rest = tokenizer.decode(ids[:count]), tokenizer.decode(ids[count : 2 * count])
            if prompt:
                samples.append(Sample(prompt, rest, model.generate(prompt, max_new_tokens=count)))
        return samples

    def ids(self, part: Part) -> Column:
        """The ids of a part, (tokens,)."""
        return self.store.column(part)


def evaluate(model: Encoder | LanguageModel, path: Path, on_error: str = "stop") -> dict[str, Any]:
    """Perplexity of a text file or a folder of them, and bits per byte if the model predicts the next token."""
    store = open_corpus(path, on_error).all_tokens(plain(model.need_tokenizer()), model.config.get("eos"))
    ids = store.column("all")
    if len(ids) < 2:
        raise TaskError(f"{path}: too little text to evaluate on: expected two tokens or more")
    context = min(MAX_CONTEXT, int(model.config["max_positions"]))
    return _evaluate_ids(model, ids, context, store.facts["bytes"]["all"], World())


def evaluate_test_part(model: Encoder | LanguageModel, options: LanguageOptions) -> dict[str, Any]:
    """The same of the part of its data that a model has not seen."""
    store = _open(options).tokens(plain(model.need_tokenizer()), model.config.get("eos"))
    size = store.facts["bytes"]["test"]
    return _evaluate_ids(model, store.column("test"), _context(model, options), size, World())


def _evaluate_ids(model: Any, ids: Column, context: int, size: int, world: World) -> dict[str, Any]:
    """The metrics of a text with these ids and this many bytes."""
    rows = range(math.ceil((len(ids) - 1) / context))
    batch_size = max(1, BATCH // context)
    batches = (
        # The same tokens are masked every time, in whichever process.
        _cut(model, ids, rows[start : start + batch_size], context, _generator(start), count_once=True)
        for start in world.share(range(0, len(rows), batch_size))
    )
    total, count = total_loss(model, batches, lambda batch: _logits(model, batch), world)
    metrics = {"perplexity": math.exp(min(total / count, 700))}
    if isinstance(model, LanguageModel):
        metrics["bits_per_byte"] = total / math.log(2) / size
    return metrics


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _logits(model: Any, batch: Batch) -> Tensor:
    forward: Any = model.mlm_logits if isinstance(model, Encoder) else model
    logits: Tensor = forward(*batch.inputs)
    return logits


def _context(model: Model, options: LanguageOptions) -> int:
    return min(options.context, int(model.config["max_positions"]))


def _cut(
    model: Model,
    ids: Column,
    rows: Sequence[int],
    context: int,
    generator: torch.Generator,
    *,
    share: slice = slice(None),
    shift: int = 0,
    count_once: bool = False,
) -> Batch:
    """Rows of `context` ids, with the next ids as targets or with masks; row r starts at r · context + shift.

    The last row starts earlier, to be as long as the others; count_once=True: its targets that another row has do not
    count.
    """
    chosen, length = numpy.asarray(rows[share]), min(context, len(ids) - 1)
    starts = numpy.minimum(chosen * context + shift, max(len(ids) - context - 1, 0))
    windows = torch.from_numpy(ids.windows(starts, length + 1).astype(numpy.int64))  # (rows, length + 1)
    inputs, targets = windows[:, :-1], windows[:, 1:]
    if not isinstance(model, LanguageModel):
        masks = _Masks.drawn(len(rows), length, int(model.config["vocab_size"]), generator)
        inputs, targets = masks.applied(inputs, share, _mask_id(model))
    if count_once:
        places = torch.from_numpy(starts)[:, None] + torch.arange(length)  # (rows, length)
        targets = targets.masked_fill(places < torch.from_numpy(chosen)[:, None] * context, IGNORE_INDEX)
    return Batch((inputs,), targets, [length] * len(chosen))


def _mask_id(model: Model) -> int:
    """The id of the mask: ours, or BERT's."""
    for name in (SPECIAL_TOKENS[MASK], "[MASK]"):
        number = model.need_tokenizer().token_to_id(name)
        if number is not None:
            return int(number)
    raise TaskError("the tokenizer has no mask token, so no tokens can be masked")


@dataclass(frozen=True)
class _Masks:
    """What is masked in the rows of a whole batch, and by what: each (rows, n)."""

    chosen: Tensor
    random_ids: Tensor
    replacement: Tensor

    @classmethod
    def drawn(cls, rows: int, length: int, vocab_size: int, generator: torch.Generator) -> _Masks:
        """Random masks."""
        shape = (rows, length)
        chosen = torch.rand(shape, generator=generator) < MASKED
        chosen[:, 0] |= ~chosen.any(1)  # at least one in each row
        random_ids = torch.randint(len(SPECIAL_TOKENS), vocab_size, shape, generator=generator)
        return cls(chosen, random_ids, torch.rand(shape, generator=generator))

    def applied(self, ids: Tensor, share: slice, mask: int) -> tuple[Tensor, Tensor]:
        """Ids, of a share of the rows, with some of them masked; and the targets: what was there."""
        chosen, random_ids, replacement = self.chosen[share], self.random_ids[share], self.replacement[share]
        others = torch.where(replacement < 0.9, random_ids, ids)
        masked = torch.where(replacement < 0.8, torch.full_like(ids, mask), others)
        return torch.where(chosen, masked, ids), torch.where(chosen, ids, torch.full_like(ids, IGNORE_INDEX))


def prepare(options: LanguageOptions, tokenizers: Tokenizers) -> LanguageTask:
    """Train the tokenizer, store the tokens of the texts, build the model."""
    start, corpus = time.monotonic(), _open(options)
    options = complete(options, text_bytes=corpus.size)
    if options.init_from is not None:  # its tokenizer decides how many tokens there are
        options = _completed(options, corpus.size // BYTES_PER_TOKEN)
        model = _load_model(options)
        store = corpus.tokens(plain(model.need_tokenizer()), model.config.get("eos"))
    else:
        tokenizer = tokenizers.source or _train_tokenizer(options, corpus)
        store = corpus.tokens(plain(tokenizer), EOS if options.model == "causal" else None)
        options = _completed(options, len(store.column("train")))
        model = _build_model(options, tokenizer)
    counts = {part: len(store.column(part)) for part in ("train", "validation", "test")}
    if min(counts.values()) < 2:
        raise TaskError(f"{options.data}: too little text to train on, expected a few thousand characters")
    context = _context(model, options)
    rows = max(1, (counts["train"] - 1) // context)
    return LanguageTask(
        model=model,
        batches=Batches(numpy.broadcast_to(context, rows), max(options.batch, context), options.seed),
        fingerprint=fingerprint(store.key, str(context)),
        notes=_notes(store, counts, time.monotonic() - start),
        store=store,
        options=options,
    )


def _open(options: LanguageOptions) -> Corpus:
    if options.data is None:
        return corpus_of(topics(), "Python's manual")
    return open_corpus(Path(options.data), options.on_error)


def _completed(options: LanguageOptions, tokens: int) -> LanguageOptions:
    options = complete(options, tokens=tokens)
    return complete(options, tokens=tokens, examples=max(1, tokens // options.context))


def _notes(store: Store, counts: dict[str, int], seconds: float) -> list[str]:
    train, validation, test = counts.values()
    notes = [f"{train:,} tokens to train on, {validation:,} for validation, {test:,} for the test"]
    if seconds > LONG:
        notes.append(f"prepared in {seconds:,.0f} s; kept in {store.folder} ({megabytes(store.size)})")
    return notes + Skipped(unit="line", facts=store.facts["skipped"]).notes()


def _train_tokenizer(options: LanguageOptions, corpus: Corpus) -> Tokenizer:
    key = {"content": corpus.digest, "on_error": options.on_error}
    kind, vocab_size = options.tokenizer, options.vocab_size
    return trained_tokenizer(key, corpus.sample, kind, vocab_size, append_eos=False, sentences=False)


def _load_model(options: LanguageOptions) -> Model:
    if options.model == "causal":
        return load_pretrained(options, LanguageModel)
    return load_pretrained(options, Encoder, mlm_head=True)


def _build_model(options: LanguageOptions, tokenizer: Tokenizer) -> Model:
    torch.manual_seed(options.seed)
    model = new_model(options, tokenizer.get_vocab_size())
    model.tokenizer = tokenizer
    return model


def new_model(options: LanguageOptions, vocab_size: int) -> Model:
    """The model that complete options describe, untrained."""
    shape: dict[str, Any] = {
        "max_positions": options.context,
        "positions": options.positions,
        "dropout": options.dropout,
    }
    if options.model == "causal":
        return LanguageModel(vocab_size, options.size, options.layers, options.heads, eos=EOS, **shape)
    return Encoder(vocab_size, options.size, options.layers, options.heads, mlm_head=True, pre_norm=True, **shape)
