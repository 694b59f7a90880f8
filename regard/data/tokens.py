"""Tokens: tokenizers trained on the texts at hand, and the ids of more text than fits in memory.

A tokenizer knows whole words, characters, or byte pairs (BPE). The special tokens have the same ids in each: 0 padding,
1 beginning, 2 end, 3 unknown, 4 mask.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy
from filelock import FileLock
from numpy.typing import NDArray

from regard.data.store import prepared_folder
from regard.data.streams import map_in_threads, thread_count
from regard.data.words import PATTERN
from regard.files import write

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Ids = NDArray[Any]
SPECIAL_TOKENS = ("<padding>", "<begin>", "<end>", "<unknown>", "<mask>")
PAD, BOS, EOS, UNK, MASK = range(len(SPECIAL_TOKENS))
KINDS = ("bpe", "character", "word")
LEAST_BPE = 256 + len(SPECIAL_TOKENS)  # every byte is a token
BLOCK = 1 << 19  # characters: as many texts as make a block; the tokens of a block take fifty times its bytes
SAMPLE = 24_000_000  # characters at most that a tokenizer is trained on
FORMAT = 1
WORDS = 1 << 18  # of one generation of a WordCache: 45 MB
LONG = 40  # characters: longer words seldom come again
SPACE, LINE_END = re.compile(r" (?=\S)"), re.compile(r"(?<=\S)\n(?=\S)")
# The time that it takes to train byte pairs grows with the square of the longest word: three megabytes of base64 in one
# cell would take an hour. And a token that is a page long is refused where a tokenizer is read. So words, and white
# space, are cut where they are longer than this.
RUN = 300  # characters
LONG_RUNS = re.compile(rf"(\S{{{RUN}}}|\s{{{RUN}}})")
CUTS = "|".join(f"▁?(?:{part})" for part in PATTERN.split("|")).replace(r"[^\w\s]", r"[^\w\s▁]") + "|▁"  # words
CHARACTER = r"[\s\S]"
# GPT-2's pattern, for ASCII: contractions, letters, digits, other signs, white space.
PRETOKENS = re.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\t-\r A-Za-z0-9]+|[\t-\r ]+(?![^\t-\r ])|[\t-\r ]+"
)

# ------------------------------------------------------------------------------------------------------------ training


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

    if kind not in KINDS:
        raise ValueError(f"kind: expected one of {', '.join(KINDS)}, got {kind!r}")
    tokenizer, trainer = _untrained(kind, vocab_size, sentences)
    steps = [normalizers.NFC(), *([normalizers.Lowercase()] if lowercase else [])]
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.train_from_iterator(_cut_runs(texts), trainer)
    if append_eos:
        eos = SPECIAL_TOKENS[EOS]
        tokenizer.post_processor = processors.TemplateProcessing(single=f"$A {eos}", special_tokens=[(eos, EOS)])
    return tokenizer


def _cut_runs(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        words = [len(word) for word in text.split()]
        spaces = len(text) - sum(words)
        yield from LONG_RUNS.split(text) if max(spaces, *words, 0) > RUN else [text]


def _untrained(kind: str, vocab_size: int, sentences: bool) -> tuple[Tokenizer, Any]:
    """A tokenizer of this kind, and its trainer."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    options: dict[str, Any] = {"special_tokens": list(SPECIAL_TOKENS), "show_progress": False}
    if kind == "bpe":
        if vocab_size < LEAST_BPE:
            expected = f"{LEAST_BPE} or more for bpe, every byte and every special token being a token"
            raise ValueError(f"vocab_size: expected {expected}, got {vocab_size}")
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=sentences)
        strip = [decoders.Strip(" ", 1, 0)] if sentences else []
        tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), *strip])
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        return tokenizer, trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, **options)
    if vocab_size <= len(SPECIAL_TOKENS):
        expected = f"{len(SPECIAL_TOKENS) + 1} or more, {len(SPECIAL_TOKENS)} of them being special tokens"
        raise ValueError(f"vocab_size: expected {expected}, got {vocab_size}")
    tokenizer = Tokenizer(models.WordLevel(unk_token=SPECIAL_TOKENS[UNK]))
    if kind == "word":
        # A space belongs to the word behind it, so that the tokens joined are the text again.
        scheme = "always" if sentences else "never"
        spaces = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([spaces, pre_tokenizers.Split(Regex(CUTS), "isolated")])
        tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(CHARACTER), "isolated")
        tokenizer.decoder = decoders.Fuse()
    return tokenizer, trainers.WordLevelTrainer(vocab_size=vocab_size, **options)


def trained_tokenizer(
    key: Mapping[str, Any], sample: Callable[[], Iterable[str]], kind: str, vocab_size: int, **options: Any
) -> Tokenizer:
    """A tokenizer trained on a sample of texts, of which it reads SAMPLE characters at most; a later call finds it.

    key: what the sample depends on, such as the content digest of the files.
    kind, vocab_size, options: see `train_tokenizer`.
    """
    from tokenizers import Tokenizer

    everything = {"format": FORMAT, "key": key, "kind": kind, "vocab_size": vocab_size, "sample": SAMPLE, **options}
    name = hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()[:32]
    path = prepared_folder() / f"tokenizer-{name}.json"
    with FileLock(path.with_name(f".{name}.lock")):
        with suppress(Exception):  # tokenizers has no narrower one: the file is not there, or damaged
            return Tokenizer.from_file(str(path))
        work = map_in_threads(lambda texts: train_tokenizer(texts, kind, vocab_size, **options), [_limited(sample())])
        write(path, next(work).to_str())  # Ctrl-C interrupts the waiting
        return Tokenizer.from_file(str(path))


def tokenizer_digest(tokenizer: Tokenizer) -> str:
    """What a tokenizer is, as a SHA-256: the tokens of a text depend on nothing else."""
    return hashlib.sha256(tokenizer.to_str().encode()).hexdigest()


def _limited(texts: Iterable[str]) -> Iterator[str]:
    """The first texts, up to SAMPLE characters."""
    size = 0
    for text in texts:
        if size and size + len(text) > SAMPLE:
            return
        size += len(text)
        yield text


# ------------------------------------------------------------------------------------------------------------ encoding


def ids_dtype(vocab_size: int) -> type[numpy.unsignedinteger[Any]]:
    """The type of ids: 16 bits where they suffice."""
    return numpy.uint16 if vocab_size < 1 << 16 else numpy.uint32


def encode_blocks(
    tokenizer: Tokenizer, blocks: Iterable[Sequence[str]], *, add_special_tokens: bool = False
) -> Iterator[list[Ids]]:
    """The ids of each text of each block, in order; a few blocks are in memory at a time."""
    dtype = ids_dtype(tokenizer.get_vocab_size())
    # Words are looked up by one thread at a time, in a fifth of the time that it takes to encode them.
    if thread_count() < 5 and not add_special_tokens and is_separable(tokenizer):
        cache = WordCache(tokenizer, dtype)
        return map_in_threads(lambda texts: [cache.encode(text) for text in texts], blocks)

    def encode(texts: Sequence[str]) -> list[Ids]:
        encodings = tokenizer.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)
        return [numpy.array(encoding.ids, dtype=dtype) for encoding in encodings]

    return map_in_threads(encode, blocks)


class WordCache(dict[str, bytes]):
    """Encodes texts as its tokenizer does, without special tokens around them: from words to the bytes of their ids.

    Most words of a text were met before, and looking them up is many times faster than encoding. When there are WORDS
    of them they become the older generation: what is met again is taken from it, the rest is forgotten with it.

    Byte pairs are merged within pretokens, which the tokenizer cuts out of the text from left to right. Each is encoded
    once. In lines of ASCII they are found by the tokenizer's own pattern. What is a letter beyond ASCII differs between
    libraries; but everywhere a space that is not followed by white space begins a pretoken, a line end with no white
    space beside it is one, and no pretoken before them depends on what follows. So other lines are cut there and
    nowhere else.

    tokenizer: one that `is_separable`.
    """

    def __init__(self, tokenizer: Tokenizer, dtype: type[numpy.unsignedinteger[Any]]) -> None:
        super().__init__()
        self.tokenizer, self.dtype = tokenizer, dtype
        self.older: dict[str, bytes] = {}
        tokens = [re.escape(token.content) for token in tokenizer.get_added_tokens_decoder().values()]
        self.added_tokens = re.compile("|".join(tokens) or "(?!)")

    def encode(self, text: str) -> Ids:
        """The ids of a text."""
        if self.added_tokens.search(text):  # what is before such a token is cut as if the text ended there
            ids = self[text]
        elif text.isascii():
            ids = self._line(text)
        else:
            ids = self["\n"].join(map(self._line, LINE_END.split(text)))
        return numpy.frombuffer(ids, self.dtype)

    def _line(self, text: str) -> bytes:
        if text.isascii():
            words = PRETOKENS.findall(text)
        else:
            first, *others = SPACE.split(text)
            words = [first, *(f" {word}" for word in others)]
        return b"".join(map(self.__getitem__, words))

    def __missing__(self, word: str) -> bytes:
        ids = self.older.get(word)
        if ids is None:
            (encoding,) = self.tokenizer.encode_batch_fast([word], add_special_tokens=False)
            ids = numpy.array(encoding.ids, dtype=self.dtype).tobytes()
        if len(word) <= LONG:
            if len(self) >= WORDS:
                self.older = dict(self)
                self.clear()
            self[word] = ids
        return ids


def is_separable(tokenizer: Tokenizer) -> bool:
    """Whether a text can be encoded word by word: byte pairs as GPT-2 has them, of text as it is or composed (NFC)."""
    parts = json.loads(tokenizer.to_str())
    normalizer, pre_tokenizer, model = parts["normalizer"], parts["pre_tokenizer"], parts["model"]
    steps = [] if normalizer is None else normalizer.get("normalizers", [normalizer])
    return (
        all(step["type"] == "NFC" for step in steps)
        and pre_tokenizer is not None
        and pre_tokenizer["type"] == "ByteLevel"
        and pre_tokenizer["use_regex"]
        and not pre_tokenizer["add_prefix_space"]
        and model["type"] == "BPE"
        and not model["dropout"]
        and not (steps and any(token["normalized"] for token in parts["added_tokens"]))  # found in other text than ours
    )
