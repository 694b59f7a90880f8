"""Language: predict the next token of texts, or masked tokens. Perplexity, and bits per byte (for any tokenizer)."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy
import torch
from torch import Tensor

from regard.data.batches import Batches
from regard.data.corpus import corpus_of, open_corpus, topics
from regard.data.split import PARTS
from regard.data.store import Column, Store
from regard.data.texts import NAMED, Skipped
from regard.data.tokens import EOS, MASK, SPECIAL_TOKENS, trained_tokenizer
from regard.models.encoder import Encoder
from regard.models.language_model import LanguageModel
from regard.models.model import Model
from regard.models.texts import plain
from regard.training.defaults import complete
from regard.training.options import LanguageOptions
from regard.training.processes import World
from regard.training.task import IGNORE_INDEX, Batch, Sample, Task, TaskError, Tokenizers, fingerprint, perplexity
from regard.training.tasks.examples import storage_notes
from regard.training.transfer import load_pretrained

MASKED = 0.15  # of the tokens; of those 8 in 10 become the mask, 1 in 10 another token, 1 in 10 stay (BERT)
BATCH = 4_096  # tokens that are evaluated at once
MAX_CONTEXT = 1_024  # tokens that a model sees at once in an evaluation on other data, if it could see more
PROMPT = 16  # tokens


@dataclass(frozen=True, kw_only=True)
class LanguageTask(Task):
    """Each part as one long sequence of ids, (tokens,), cut into rows of the model's context."""

    store: Store
    context: int  # tokens of a row
    options: LanguageOptions
    goal: ClassVar[str] = "perplexity"
    higher_is_better: ClassVar[bool] = False

    def batch(self, rows: Sequence[int], share: slice, generator: torch.Generator) -> Batch:
        # Each batch shifts its rows a little, so that rows do not always begin with the same words.
        shift = int(torch.randint(self.context, (), generator=generator))
        return _cut(self.model, self.train, rows, self.context, generator, share=share, shift=shift)

    @staticmethod
    def logits(model: Any, batch: Batch) -> Tensor:
        forward: Any = model.mlm_logits if isinstance(model, Encoder) else model
        logits: Tensor = forward(*batch.inputs)
        return logits

    def evaluate(self, model: Any, part: Literal["validation", "test"], world: World) -> dict[str, Any]:
        return _evaluate_ids(model, getattr(self, part), self.context, self.store.facts["bytes"][part], world)

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


def evaluate(model: Encoder | LanguageModel, path: Path, on_error: str = "stop") -> dict[str, Any]:
    """Perplexity of a text file or a folder of them, and bits per byte if the model predicts the next token."""
    store = open_corpus(path, on_error).all_tokens(plain(model.need_tokenizer()), model.config.get("eos"))
    ids = store.column("all")
    if len(ids) < 2:
        raise TaskError(f"{path}: too little text to evaluate on: expected two tokens or more")
    context = min(MAX_CONTEXT, int(model.config["max_positions"]))
    return _evaluate_ids(model, ids, context, store.facts["bytes"]["all"], World())


def _evaluate_ids(model: Any, ids: Column, context: int, size: int, world: World) -> dict[str, Any]:
    """The metrics of a text with these ids and this many bytes."""
    rows = range(math.ceil((len(ids) - 1) / context))
    batch_size = max(1, BATCH // context)

    def batch(start: int) -> Batch:
        generator = torch.Generator().manual_seed(start)  # the same tokens are masked every time, in whichever process
        return _cut(model, ids, rows[start : start + batch_size], context, generator, count_once=True)

    batches = map(batch, world.share(range(0, len(rows), batch_size)))
    mean, total = perplexity(model, batches, LanguageTask.logits, world)
    metrics = {"perplexity": mean}
    if isinstance(model, LanguageModel):
        metrics["bits_per_byte"] = total / math.log(2) / size
    if share := _unknown_share(model, ids):
        metrics["unknown_tokens"] = share
    return metrics


def _unknown_share(model: Any, ids: Column) -> float:
    """How many of the tokens stand for words that the tokenizer does not know: they make the other metrics too low."""
    tokenizer = model.need_tokenizer()
    unknown = tokenizer.token_to_id(getattr(tokenizer.model, "unk_token", None) or "")
    return 0.0 if unknown is None else sum(int((block == unknown).sum()) for block in ids.blocks()) / len(ids)


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
        inputs, targets = _mask(model, inputs, len(rows), share, generator)
    if count_once:
        places = torch.from_numpy(starts)[:, None] + torch.arange(length)  # (rows, length)
        targets = targets.masked_fill(places < torch.from_numpy(chosen)[:, None] * context, IGNORE_INDEX)
    return Batch((inputs,), targets, [length] * len(chosen))


def _mask(model: Model, ids: Tensor, count: int, share: slice, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The ids of a share of a batch of `count` rows, with some of them masked; and the targets: what was there.

    What is masked, and by what, is drawn for all rows, each (count, n).
    """
    tokenizer, shape = model.need_tokenizer(), (count, ids.shape[1])
    marks = (SPECIAL_TOKENS[MASK], "[MASK]")  # ours, or BERT's
    mask = next((number for mark in marks if (number := tokenizer.token_to_id(mark)) is not None), None)
    if mask is None:
        raise TaskError("the tokenizer has no mask token, so no tokens can be masked")
    chosen = torch.rand(shape, generator=generator) < MASKED
    chosen[:, 0] |= ~chosen.any(1)  # at least one in each row
    others = torch.randint(len(SPECIAL_TOKENS), int(model.config["vocab_size"]), shape, generator=generator)[share]
    replacement, chosen = torch.rand(shape, generator=generator)[share], chosen[share]
    replaced = torch.where(replacement < 0.8, mask, torch.where(replacement < 0.9, others, ids))
    return torch.where(chosen, replaced, ids), torch.where(chosen, ids, IGNORE_INDEX)


def prepare(options: LanguageOptions, tokenizers: Tokenizers, model: Model | None = None) -> LanguageTask:
    """Train the tokenizer, store the tokens of the texts, build the model."""
    start, data = time.monotonic(), options.data
    corpus = corpus_of(topics(), "Python's manual") if data is None else open_corpus(Path(data), options.on_error)
    options = complete(options, text_bytes=corpus.size)
    if options.init_from is not None and model is None:
        if options.model == "causal":
            model = load_pretrained(options, LanguageModel)
        else:
            model = load_pretrained(options, Encoder, mlm_head=True)
    if model is not None:
        store = corpus.tokens(plain(model.need_tokenizer()), model.config.get("eos"))
    else:
        key = {"content": corpus.digest, "on_error": options.on_error}
        tokenizer = tokenizers.source or trained_tokenizer(
            key, corpus.sample, options.tokenizer, options.vocab_size, append_eos=False, sentences=False
        )
        store = corpus.tokens(plain(tokenizer), EOS if options.model == "causal" else None)
        torch.manual_seed(options.seed)
        model = new_model(options, tokenizer.get_vocab_size())
        model.tokenizer = tokenizer
    parts = {part: store.column(part) for part in PARTS}
    train, validation, test = map(len, parts.values())
    if min(train, validation, test) < 2:
        raise TaskError(f"{data}: too little text to train on, expected a few thousand characters")
    context = min(options.context, int(model.config["max_positions"]))
    rows = max(1, (train - 1) // context)
    notes = [f"{train:,} tokens to train on, {validation:,} for validation, {test:,} for the test"]
    if train <= context:
        notes.append(f"the context of {context:,} tokens is longer: later positions are not trained")
    return LanguageTask(
        model=model,
        batches=Batches(numpy.broadcast_to(context, rows), max(options.batch, context), options.seed),
        fingerprint=fingerprint(store.key, str(context)),
        notes=[
            *notes,
            *storage_notes(store, time.monotonic() - start),
            *Skipped(unit="line", facts=store.facts["skipped"]).notes(),
            *_others(corpus.others),
        ],
        store=store,
        context=context,
        options=options,
        **parts,
    )


def _others(files: Sequence[Path]) -> list[str]:
    some = ", ".join(repr(file.name) for file in files[:NAMED])
    amount = "1 file that is no text is" if len(files) == 1 else f"{len(files):,} files that are no text are"
    return [f"{amount} left out: {some}{' …' if len(files) > NAMED else ''}"] if files else []


def new_model(options: LanguageOptions, vocab_size: int) -> Model:
    """The model that complete options describe, untrained."""
    shape = {"max_positions": options.context, **options.pick("size", "layers", "heads", "positions", "dropout")}
    if options.model == "causal":
        return LanguageModel(vocab_size, eos=EOS, **shape)
    return Encoder(vocab_size, mlm_head=True, pre_norm=True, **shape)
