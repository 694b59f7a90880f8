"""The attention of one of regard's models to a text, or to a text and its translation."""

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
    """The attention of a language model, an encoder or a translator in reading a text, cut at the model's limit.

    target: what a translator writes meanwhile, by default its translation
    chosen: layers, heads and queries, as for `capture`
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
    limit = model.config.get("max_positions")
    (source,) = encode(reader, [text], limit)
    written = plain(writer).encode(target, add_special_tokens=False).ids[: None if limit is None else limit - 1]
    device = next(model.parameters()).device
    inputs = (torch.tensor([ids], device=device) for ids in (source, [model.config["bos"], *written]))
    with torch.inference_mode(), evaluation(model), capture(model, **chosen) as seen:
        model(*inputs)
    # A token is predicted one position before it is read, so the row there is named after it.
    queries = [*_names(writer, written), "(end)"]
    return AttentionDisplay(seen, queries, _names(reader, source), title=f"{_short(text)} → {_short(target)}")


def _names(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """The texts of tokens; of a part of a letter, which has none, the tokenizer's name for it."""
    texts = [tokenizer.decode([number], skip_special_tokens=False) for number in ids]
    return [
        tokenizer.id_to_token(number) or "" if "\ufffd" in text or not text else text
        for number, text in zip(ids, texts, strict=True)
    ]


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:59] + "…"
