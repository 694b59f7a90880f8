"""Language: text; the next word, or words behind masks. Perplexity, and bits per byte, which no tokenizer changes."""

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
from regard.models.model import Model, evaluation
from regard.models.texts import plain
from regard.training.options import Language
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

PIECE = 2_000  # characters that are trained on, or set aside, together
MASKED = 0.15  # of the words; of those 8 in 10 become the mask, 1 in 10 another word, 1 in 10 stay (BERT)
SHOWN = 2
TOKENS = 4_096  # that are evaluated at once
WIDEST = 1_024  # tokens that are seen at once, of a model that could see more
PROMPT = 16  # tokens


@dataclass(frozen=True)
class Tile:
    """A part of a document; `last` if it is the last one."""

    text: str
    last: bool


@dataclass(frozen=True, kw_only=True)
class LanguageTask(Task):
    """Text as one long row of ids, cut into rows of the model's context."""

    train: Tensor  # (tokens,)
    validation: Tensor
    test: Tensor
    sizes: dict[str, int]  # bytes of the parts
    parts: Parts[Tile]
    options: Language
    goal: ClassVar[Goal] = Goal("perplexity", higher=False)

    @property
    def context(self) -> int:
        return min(self.options.context, int(self.model.config["max_positions"]))

    def batch(self, rows: Sequence[int], chance: torch.Generator) -> Batch:
        # Each batch shifts its rows a little, so that rows do not always begin at the same words.
        shift = int(torch.randint(self.context, (), generator=chance))
        return _cut(self.model, self.train, rows, self.context, chance, shift=shift)

    def loss(self, model: Any, batch: Batch) -> Tensor:
        return cross_entropy(_logits(model, batch), batch.targets, self.options.smoothing)

    def evaluate(self, model: Any, part: Literal["validation", "test"]) -> dict[str, Any]:
        ids = self.validation if part == "validation" else self.test
        return _measured(model, ids, self.context, self.sizes[part])

    def samples(self, model: Any) -> list[Sample]:
        if not isinstance(model, LanguageModel):
            return []
        tokenizer, count = model.need_tokenizer(), min(PROMPT, self.context // 2)
        found = []
        for piece in self.parts.validation[:SHOWN]:
            ids = tokenizer.encode(piece.text, add_special_tokens=False).ids
            prompt, rest = (tokenizer.decode(own) for own in (ids[:count], ids[count : 2 * count]))
            if prompt:
                found.append(Sample(prompt, rest, model.generate(prompt, max_new_tokens=count)))
        return found


def measured(model: Encoder | LanguageModel, documents: Sequence[str]) -> dict[str, Any]:
    """Perplexity, and bits per byte where the next word is guessed, of texts."""
    pieces = [piece for document in documents for piece in _pieces(document)]
    ids = _row(model, pieces)
    if len(ids) < 2:
        raise TaskError("too little text to evaluate on: expected two tokens or more")
    return _measured(
        model, ids, min(WIDEST, int(model.config["max_positions"])), sum(len(own.encode()) for own in documents)
    )


def _measured(model: Any, ids: Tensor, width: int, size: int) -> dict[str, Any]:
    """Of a text with these ids and this many bytes; the model sees `width` tokens at once."""
    chance = torch.Generator().manual_seed(0)  # the same words are masked each time
    total, count = 0.0, 0
    rows = range(math.ceil((len(ids) - 1) / width))
    together = max(1, TOKENS // width)
    device = next(model.parameters()).device
    with torch.no_grad(), evaluation(model):
        for start in range(0, len(rows), together):
            batch = _cut(model, ids, rows[start : start + together], width, chance, once=True).to(device)
            total += float(cross_entropy(_logits(model, batch), batch.targets))
            count += batch.count
    metrics = {"perplexity": math.exp(min(total / count, 700))}
    if isinstance(model, LanguageModel):
        metrics["bits_per_byte"] = total / math.log(2) / size
    return metrics


def _logits(model: Any, batch: Batch) -> Tensor:
    logits: Tensor = model.mlm_logits(*batch.inputs) if hasattr(model, "guess") else model(*batch.inputs)
    return logits


def _cut(
    model: Model,
    ids: Tensor,
    rows: Sequence[int],
    width: int,
    chance: torch.Generator,
    *,
    shift: int = 0,
    once: bool = False,
) -> Batch:
    """Rows of ids from their places, each with the ids after it as targets, or with masks.

    The last row begins earlier, to be as long as the others; `once`: it does not count again what they counted.
    """
    last = max(len(ids) - width - 1, 0)
    starts = torch.tensor([min(row * width + shift, last) for row in rows])
    places = starts[:, None] + torch.arange(min(width, len(ids) - 1))
    if isinstance(model, LanguageModel):
        inputs, targets = ids[places], ids[places + 1]
    else:
        inputs, targets = _masked(ids[places], model.config["vocab_size"], _mask_of(model), chance)
    if once:
        targets = targets.masked_fill(places < torch.tensor(rows)[:, None] * width, IGNORE_INDEX)
    return Batch((inputs,), targets, [places.shape[1]] * len(places))


def _mask_of(model: Model) -> int:
    """The id of the mask: ours, or BERT's."""
    for name in (SPECIAL_TOKENS[MASK], "[MASK]"):
        found = model.need_tokenizer().token_to_id(name)
        if found is not None:
            return int(found)
    raise TaskError("the tokenizer has no mask, so no words can be hidden")


def _masked(ids: Tensor, vocab_size: int, mask: int, chance: torch.Generator) -> tuple[Tensor, Tensor]:
    """Ids with some of them hidden, and what was there."""
    dice = torch.rand(ids.shape, generator=chance)
    chosen = dice < MASKED
    chosen[:, 0] |= ~chosen.any(1)  # one in each row at least
    others = torch.randint(len(SPECIAL_TOKENS), vocab_size, ids.shape, generator=chance)
    kind = torch.rand(ids.shape, generator=chance)
    hidden = torch.where(kind < 0.8, torch.full_like(ids, mask), torch.where(kind < 0.9, others, ids))
    return torch.where(chosen, hidden, ids), torch.where(chosen, ids, torch.full_like(ids, IGNORE_INDEX))


def prepare(options: Language, kept: Tokenizers | None) -> LanguageTask:
    """Read the texts, train the tokenizer, build the model."""
    documents = topics() if options.data is None else read_documents(Path(options.data))
    pieces = [piece for document in documents for piece in _pieces(document)]
    parts = split(pieces, lambda piece: piece.text)
    with built():
        model = _model(options, [piece.text for piece in parts.train], kept)
    train, validation, test = (_row(model, own) for own in (parts.train, parts.validation, parts.test))
    if min(len(train), len(validation), len(test)) < 2:
        raise TaskError(f"{options.data}: too little text to train on, expected some thousand characters")
    width = min(options.context, int(model.config["max_positions"]))
    rows = max(1, (len(train) - 1) // width)
    sizes = {
        name: sum(len(piece.text.encode()) for piece in own)
        for name, own in (("validation", parts.validation), ("test", parts.test))
    }
    return LanguageTask(
        model=model,
        batches=Batches([width] * rows, max(options.batch, width), options.seed),
        fingerprint=fingerprint(train, validation),
        notes=[f"{len(train):,} tokens to learn, {len(validation):,} and {len(test):,} set aside"],
        train=train,
        validation=validation,
        test=test,
        sizes=sizes,
        parts=parts,
        options=options,
    )


def _pieces(document: str) -> Iterator[Tile]:
    """A document in pieces of whole lines, each with about PIECE characters."""
    waiting = ""
    for line in document.splitlines(keepends=True):
        if len(waiting) >= PIECE:
            yield Tile(waiting, last=False)
            waiting = ""
        waiting += line
    if waiting:
        yield Tile(waiting, last=True)


def _row(model: Model, pieces: Sequence[Tile]) -> Tensor:
    """All pieces end to end, with a mark where a document ends, if the model has one."""
    tokenizer, end = plain(model.need_tokenizer()), model.config.get("eos")
    encoded = tokenizer.encode_batch([piece.text for piece in pieces], add_special_tokens=False)
    ids: list[int] = []
    for piece, own in zip(pieces, encoded, strict=True):
        ids += own.ids
        if piece.last and end is not None:
            ids.append(end)
    return torch.tensor(ids, dtype=torch.long)


def _model(options: Language, pieces: list[str], kept: Tokenizers | None) -> Model:
    if options.init_from is not None:
        if options.model == "causal":
            return begun_from(options, LanguageModel)
        return begun_from(options, Encoder, mlm_head=True)
    tokenizer = None if kept is None else kept.source
    if tokenizer is None:
        tokenizer = train_tokenizer(pieces, options.tokenizer, options.vocab_size, append_eos=False, sentences=False)
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
