"""Tokenizers, trained on the texts at hand: whole words, characters, or byte pairs (BPE).

The marks have the same ids in each: 0 padding, 1 begin, 2 end, 3 unknown, 4 mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from regard.data.words import PATTERN

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["BEGIN", "END", "MARKS", "MASK", "PADDING", "UNKNOWN", "train_tokenizer"]

MARKS = ("<padding>", "<begin>", "<end>", "<unknown>", "<mask>")
PADDING, BEGIN, END, UNKNOWN, MASK = range(len(MARKS))
BYTES = 256


def train_tokenizer(
    texts: Sequence[str],
    kind: str = "bpe",
    vocab_size: int = 8_000,
    *,
    lowercase: bool = False,
    ended: bool = True,
    sentences: bool = True,
) -> Tokenizer:
    """A tokenizer for these texts.

    `ended`: the end mark follows every text that is encoded; `sentences`: texts are sentences of their own, so that
    the first word is like any other, and not parts of a longer text.
    """
    from tokenizers import Tokenizer, normalizers, processors

    if kind not in _KINDS:
        raise ValueError(f"kind: expected one of {', '.join(_KINDS)}, got {kind!r}")
    model, before, after, trainer = _KINDS[kind](vocab_size, sentences)
    tokenizer = Tokenizer(model)
    steps = [normalizers.NFC(), *([normalizers.Lowercase()] if lowercase else [])]
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer, tokenizer.decoder = before, after
    tokenizer.train_from_iterator(texts, trainer)
    if ended:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"$A {MARKS[END]}", special_tokens=[(MARKS[END], END)]
        )
    return tokenizer


Parts = tuple[Any, Any, Any, Any]  # model, what cuts texts, what joins tokens, trainer


def _words(vocab_size: int, sentences: bool) -> Parts:
    from tokenizers import Regex, decoders, models, pre_tokenizers, trainers

    # A space belongs to the word behind it, so that tokens put together again are the text.
    scheme = "always" if sentences else "never"
    cuts = Regex("|".join(f"▁?(?:{part})" for part in PATTERN.split("|")).replace(r"[^\w\s]", r"[^\w\s▁]") + "|▁")
    before = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False),
            pre_tokenizers.Split(cuts, "isolated"),
        ]
    )
    trainer = trainers.WordLevelTrainer(vocab_size=vocab_size, special_tokens=list(MARKS), show_progress=False)
    model = models.WordLevel(unk_token=MARKS[UNKNOWN])
    return model, before, decoders.Metaspace(prepend_scheme=scheme), trainer


def _characters(vocab_size: int, sentences: bool) -> Parts:
    from tokenizers import Regex, decoders, models, pre_tokenizers, trainers

    trainer = trainers.WordLevelTrainer(vocab_size=vocab_size, special_tokens=list(MARKS), show_progress=False)
    before = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    return models.WordLevel(unk_token=MARKS[UNKNOWN]), before, decoders.Fuse(), trainer


def _byte_pairs(vocab_size: int, sentences: bool) -> Parts:
    from tokenizers import decoders, models, pre_tokenizers, trainers

    if vocab_size < BYTES + len(MARKS):
        raise ValueError(
            f"vocab_size: expected {BYTES + len(MARKS)} or more for bpe, every byte and every mark being a token, "
            f"got {vocab_size}"
        )
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(MARKS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    after = [decoders.ByteLevel(), *([decoders.Strip(" ", 1, 0)] if sentences else [])]
    before = pre_tokenizers.ByteLevel(add_prefix_space=sentences)
    return models.BPE(), before, decoders.Sequence(after), trainer


_KINDS = {"bpe": _byte_pairs, "character": _characters, "word": _words}
