"""What a model of regard's looks at while it reads a text, or reads it and writes its translation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from regard.models.encoder import Encoder
from regard.models.language_model import LanguageModel
from regard.models.model import Model, evaluation
from regard.models.texts import encode, plain
from regard.models.translator import Translator
from regard.view.attention import AttentionDisplay
from regard.view.capture import capture

__all__ = ["LONGEST", "read"]

LONGEST = 100_000  # characters; what is longer is not tokenized only to be cut


def read(model: Model, text: str, target: str | None = None, **chosen: Any) -> AttentionDisplay:
    """The looks of a language model, an encoder or a translator at a text, of which it reads as much as it can.

    A translator looks while it writes `target`, by default its own translation. chosen: layers, heads and queries, as
    for `capture`.
    """
    if not text.strip():
        raise ValueError("text: expected some words, got none")
    if len(text) > LONGEST:
        raise ValueError(f"text: expected at most {LONGEST:,} characters, got {len(text):,}")
    if isinstance(model, Translator):
        return _translated(model, text, model.translate(text) if target is None else target, chosen)
    if not isinstance(model, Encoder | LanguageModel):
        raise ValueError(f"a {type(model).__name__} reads no text")
    tokenizer = model.need_tokenizer()
    (ids,) = encode(tokenizer, [text], model.config["max_positions"])
    with torch.inference_mode(), evaluation(model), capture(model, **chosen) as seen:
        model(torch.tensor([ids], device=next(model.parameters()).device))
    return AttentionDisplay(seen, _names(tokenizer, ids), title=_short(text))


def _translated(model: Translator, text: str, target: str, chosen: dict[str, Any]) -> AttentionDisplay:
    reader, writer = model.need_tokenizer(), model.need_target_tokenizer()
    most = model.config.get("max_positions")
    (source,) = encode(reader, [text], most)
    written = plain(writer).encode(target, add_special_tokens=False).ids[: None if most is None else most - 1]
    device = next(model.parameters()).device
    ids = (torch.tensor([own], device=device) for own in (source, [model.config["bos"], *written]))
    with torch.inference_mode(), evaluation(model), capture(model, **chosen) as seen:
        model(*ids)
    # The row of a word is the look with which it was written, so it stands one place before the word is read.
    rows = [*_names(writer, written), "(end)"]
    return AttentionDisplay(seen, rows, _names(reader, source), title=f"{_short(text)} → {_short(target)}")


def _names(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """Tokens as a reader knows them; a part of a letter as the tokenizer has it."""
    found = [tokenizer.decode([number], skip_special_tokens=False) for number in ids]
    return [
        tokenizer.id_to_token(number) or "" if "\ufffd" in text or not text else text
        for number, text in zip(ids, found, strict=True)
    ]


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:59] + "…"
