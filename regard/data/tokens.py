"""Tokenizers, trained on the texts at hand: whole words, characters, or byte pairs (BPE).

The special tokens have the same ids in each: 0 padding, 1 beginning, 2 end, 3 unknown, 4 mask.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from regard.data.words import PATTERN

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["BOS", "EOS", "MASK", "PAD", "SPECIAL_TOKENS", "UNK", "train_tokenizer"]

SPECIAL_TOKENS = ("<padding>", "<begin>", "<end>", "<unknown>", "<mask>")
PAD, BOS, EOS, UNK, MASK = range(len(SPECIAL_TOKENS))
BYTES = 256


def train_tokenizer(
    texts: Iterable[str],
    kind: str = "bpe",
    vocab_size: int = 8_000,
    *,
    lowercase: bool = False,
    append_eos: bool = True,
    sentences: bool = True,
) -> Tokenizer:
    """A tokenizer trained on texts.

    kind: bpe, character or word
    vocab_size: tokens at most, special ones included
    lowercase: capitals are read as small letters
    append_eos: the end token follows every text that is encoded
    sentences: each text stands for itself, so that its first word is a token like any other word; otherwise texts are
        pieces of longer ones
    """
    from tokenizers import normalizers, processors

    if kind not in _KINDS:
        raise ValueError(f"kind: expected one of {', '.join(_KINDS)}, got {kind!r}")
    tokenizer, trainer = _KINDS[kind](vocab_size, sentences)
    steps = [normalizers.NFC(), *([normalizers.Lowercase()] if lowercase else [])]
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.train_from_iterator(texts, trainer)
    if append_eos:
        eos = SPECIAL_TOKENS[EOS]
        tokenizer.post_processor = processors.TemplateProcessing(single=f"$A {eos}", special_tokens=[(eos, EOS)])
    return tokenizer


def _word_level(vocab_size: int) -> tuple[Tokenizer, Any]:
    from tokenizers import Tokenizer, models, trainers

    trainer = trainers.WordLevelTrainer(vocab_size=vocab_size, special_tokens=list(SPECIAL_TOKENS), show_progress=False)
    return Tokenizer(models.WordLevel(unk_token=SPECIAL_TOKENS[UNK])), trainer


def _words(vocab_size: int, sentences: bool) -> tuple[Tokenizer, Any]:
    from tokenizers import Regex, decoders, pre_tokenizers

    tokenizer, trainer = _word_level(vocab_size)
    # A space belongs to the word behind it, so that the tokens joined are the text again.
    scheme = "always" if sentences else "never"
    cuts = Regex("|".join(f"▁?(?:{part})" for part in PATTERN.split("|")).replace(r"[^\w\s]", r"[^\w\s▁]") + "|▁")
    spaces = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([spaces, pre_tokenizers.Split(cuts, "isolated")])
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    return tokenizer, trainer


def _characters(vocab_size: int, sentences: bool) -> tuple[Tokenizer, Any]:
    from tokenizers import Regex, decoders, pre_tokenizers

    tokenizer, trainer = _word_level(vocab_size)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return tokenizer, trainer


def _byte_pairs(vocab_size: int, sentences: bool) -> tuple[Tokenizer, Any]:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    least = BYTES + len(SPECIAL_TOKENS)
    if vocab_size < least:
        raise ValueError(
            f"vocab_size: expected {least} or more for bpe, every byte and every special token being a token, "
            f"got {vocab_size}"
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=sentences)
    steps = [decoders.ByteLevel(), *([decoders.Strip(" ", 1, 0)] if sentences else [])]
    tokenizer.decoder = decoders.Sequence(steps)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    return tokenizer, trainer


_KINDS = {"bpe": _byte_pairs, "character": _characters, "word": _words}
