"""Language: predict the next token of texts, or masked tokens. Perplexity, and bits per byte (for any tokenizer)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from regard.data.batches import Batches
from regard.data.split import Parts, split
from regard.data.texts import read_documents
from regard.data.tokens import EOS, MASK, SPECIAL_TOKENS, train_tokenizer
from regard.data.topics import topics
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

PASSAGE = 2_000  # characters that go to the same part, for training, validation or the test
MASKED = 0.15  # of the tokens; of those 8 in 10 become the mask, 1 in 10 another token, 1 in 10 stay (BERT)
SAMPLES = 2
BATCH = 4_096  # tokens that are evaluated at once
MAX_CONTEXT = 1_024  # tokens that a model sees at once in an evaluation on other data, if it could see more
PROMPT = 16  # tokens


@dataclass(frozen=True)
class Passage:
    """Some lines of a document; `last` if the document ends with them."""

    text: str
    last: bool


@dataclass(frozen=True, kw_only=True)
class LanguageTask(Task):
    """Each part as one long sequence of ids, cut into rows of the model's context."""

    train: Tensor  # (tokens,)
    validation: Tensor
    test: Tensor
    sizes: dict[str, int]  # bytes of the parts
    parts: Parts[Passage]
    options: LanguageOptions
    goal: ClassVar[Goal] = Goal("perplexity", higher_is_better=False)

    @property
    def context(self) -> int:
        """Tokens of a row."""
        return min(self.options.context, int(self.model.config["max_positions"]))

    def batch(self, rows: Sequence[int], share: slice, generator: torch.Generator) -> Batch:
        # Each batch shifts its rows a little, so that rows do not always begin with the same words.
        shift = int(torch.randint(self.context, (), generator=generator))
        return _cut(self.model, self.train, rows[share], self.context, generator, shift=shift)

    def loss(self, model: Any, batch: Batch) -> Tensor:
        return cross_entropy(_logits(model, batch), batch.targets, self.options.label_smoothing)

    def evaluate(self, model: Any, part: Literal["validation", "test"], world: World) -> dict[str, Any]:
        ids = self.validation if part == "validation" else self.test
        return _evaluate_ids(model, ids, self.context, self.sizes[part], world)

    def samples(self, model: Any) -> list[Sample]:
        if not isinstance(model, LanguageModel):
            return []
        tokenizer, count = model.need_tokenizer(), min(PROMPT, self.context // 2)
        samples = []
        for passage in self.parts.validation[:SAMPLES]:
            ids = tokenizer.encode(passage.text, add_special_tokens=False).ids
            prompt, rest = tokenizer.decode(ids[:count]), tokenizer.decode(ids[count : 2 * count])
            if prompt:
                samples.append(Sample(prompt, rest, model.generate(prompt, max_new_tokens=count)))
        return samples


def evaluate(model: Encoder | LanguageModel, documents: Sequence[str]) -> dict[str, Any]:
    """Perplexity of texts, and bits per byte if the model predicts the next token."""
    ids = _encode(model, [passage for document in documents for passage in _passages(document)])
    if len(ids) < 2:
        raise TaskError("too little text to evaluate on: expected two tokens or more")
    size = sum(len(document.encode()) for document in documents)
    return _evaluate_ids(model, ids, min(MAX_CONTEXT, int(model.config["max_positions"])), size, World())


def _evaluate_ids(model: Any, ids: Tensor, context: int, size: int, world: World) -> dict[str, Any]:
    """The metrics of a text with these ids and this many bytes."""
    generator = torch.Generator().manual_seed(0)  # the same tokens are masked every time
    rows = range(math.ceil((len(ids) - 1) / context))
    batch_size = max(1, BATCH // context)
    batches = (
        _cut(model, ids, rows[start : start + batch_size], context, generator, count_once=True)
        for start in range(0, len(rows), batch_size)
    )
    total, count = total_loss(model, batches, lambda batch: _logits(model, batch), world)
    metrics = {"perplexity": math.exp(min(total / count, 700))}
    if isinstance(model, LanguageModel):
        metrics["bits_per_byte"] = total / math.log(2) / size
    return metrics


def _logits(model: Any, batch: Batch) -> Tensor:
    forward: Any = model.mlm_logits if isinstance(model, Encoder) else model
    logits: Tensor = forward(*batch.inputs)
    return logits


def _cut(
    model: Model,
    ids: Tensor,
    rows: Sequence[int],
    context: int,
    generator: torch.Generator,
    *,
    shift: int = 0,
    count_once: bool = False,
) -> Batch:
    """Rows of `context` ids, with the next ids as targets or with masks; row r starts at r · context + shift.

    The last row starts earlier, to be as long as the others; count_once=True: its targets that another row has do not
    count.
    """
    last = max(len(ids) - context - 1, 0)
    starts = torch.tensor([min(row * context + shift, last) for row in rows])
    indices = starts[:, None] + torch.arange(min(context, len(ids) - 1))  # (rows, context)
    if isinstance(model, LanguageModel):
        inputs, targets = ids[indices], ids[indices + 1]
    else:
        inputs, targets = _mask(ids[indices], model.config["vocab_size"], _mask_id(model), generator)
    if count_once:
        targets = targets.masked_fill(indices < torch.tensor(rows)[:, None] * context, IGNORE_INDEX)
    return Batch((inputs,), targets, [indices.shape[1]] * len(indices))


def _mask_id(model: Model) -> int:
    """The id of the mask: ours, or BERT's."""
    for name in (SPECIAL_TOKENS[MASK], "[MASK]"):
        number = model.need_tokenizer().token_to_id(name)
        if number is not None:
            return int(number)
    raise TaskError("the tokenizer has no mask token, so no tokens can be masked")


def _mask(ids: Tensor, vocab_size: int, mask: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Ids (rows, n) with some of them masked, and the targets: what was there."""
    chosen = torch.rand(ids.shape, generator=generator) < MASKED
    chosen[:, 0] |= ~chosen.any(1)  # at least one in each row
    random_ids = torch.randint(len(SPECIAL_TOKENS), vocab_size, ids.shape, generator=generator)
    replacement = torch.rand(ids.shape, generator=generator)
    masked = torch.where(replacement < 0.8, torch.full_like(ids, mask), torch.where(replacement < 0.9, random_ids, ids))
    return torch.where(chosen, masked, ids), torch.where(chosen, ids, torch.full_like(ids, IGNORE_INDEX))


def prepare(options: LanguageOptions, tokenizers: Tokenizers) -> LanguageTask:
    """Read the texts, train the tokenizer, build the model."""
    documents = topics() if options.data is None else read_documents(Path(options.data))
    passages = [passage for document in documents for passage in _passages(document)]
    parts = split(passages, lambda passage: passage.text)
    options = complete(options, examples=len(parts.train), text_bytes=_bytes(parts.train))
    model = _build_model(options, [passage.text for passage in parts.train], tokenizers)
    train, validation, test = (_encode(model, part) for part in (parts.train, parts.validation, parts.test))
    if min(len(train), len(validation), len(test)) < 2:
        raise TaskError(f"{options.data}: too little text to train on, expected a few thousand characters")
    context = min(options.context, int(model.config["max_positions"]))
    rows = max(1, (len(train) - 1) // context)
    return LanguageTask(
        model=model,
        batches=Batches([context] * rows, max(options.batch, context), options.seed),
        fingerprint=fingerprint(train, validation),
        notes=[f"{len(train):,} tokens to train on, {len(validation):,} for validation, {len(test):,} for the test"],
        train=train,
        validation=validation,
        test=test,
        sizes={"validation": _bytes(parts.validation), "test": _bytes(parts.test)},
        parts=parts,
        options=options,
    )


def _bytes(passages: Sequence[Passage]) -> int:
    return sum(len(passage.text.encode()) for passage in passages)


def _passages(document: str) -> Iterator[Passage]:
    """A document in passages of whole lines, each with about PASSAGE characters."""
    text = ""
    for line in document.splitlines(keepends=True):
        if len(text) >= PASSAGE:
            yield Passage(text, last=False)
            text = ""
        text += line
    if text:
        yield Passage(text, last=True)


def _encode(model: Model, passages: Sequence[Passage]) -> Tensor:
    """The ids of all passages end to end, with `eos` after each document if the model has it."""
    tokenizer, eos = plain(model.need_tokenizer()), model.config.get("eos")
    encodings = tokenizer.encode_batch([passage.text for passage in passages], add_special_tokens=False)
    ids: list[int] = []
    for passage, encoding in zip(passages, encodings, strict=True):
        ids += encoding.ids
        if passage.last and eos is not None:
            ids.append(eos)
    return torch.tensor(ids, dtype=torch.long)


def _build_model(options: LanguageOptions, texts: list[str], tokenizers: Tokenizers) -> Model:
    if options.init_from is not None:
        if options.model == "causal":
            return load_pretrained(options, LanguageModel)
        return load_pretrained(options, Encoder, mlm_head=True)
    tokenizer = tokenizers.source
    if tokenizer is None:
        tokenizer = train_tokenizer(texts, options.tokenizer, options.vocab_size, append_eos=False, sentences=False)
    torch.manual_seed(options.seed)
    vocab_size = tokenizer.get_vocab_size()
    shape: dict[str, Any] = {
        "max_positions": options.context,
        "positions": options.positions,
        "dropout": options.dropout,
    }
    model: Model
    if options.model == "causal":
        model = LanguageModel(vocab_size, options.size, options.layers, options.heads, eos=EOS, **shape)
    else:
        model = Encoder(vocab_size, options.size, options.layers, options.heads, mlm_head=True, pre_norm=True, **shape)
    model.tokenizer = tokenizer
    return model
