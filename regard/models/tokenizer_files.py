"""tokenizer.json, whoever wrote it.

The library tokenizers can be ended, or made to compute forever, by what such a file says: patterns that backtrack,
tables that point outside themselves, replacements that multiply a text. So a file may have the parts that are known
here, within bounds; and one with patterns or tables is tried first, by a process of its own (`tokenizer_trial`).
"""

import base64
import binascii
import hashlib
import math
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.tokens import CHARACTER, CUTS
from regard.files import ContentError, parse_json, read_file
from regard.models import tokenizer_trial
from regard.models.tensors import LARGEST_TEXT, FolderError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PATIENCE = 60.0  # seconds for a trial
MAX_PARTS, MAX_TEXT, MAX_NUMBER = 64, 4_000, 1 << 20
MAX_WORD = 1_000  # characters
MAX_PIECE = 500  # characters of a token of Unigram, which looks up every beginning of a text in it
MAX_REPLACEMENT = 128  # bytes, characters or parts of what is put into a text
PLAIN = (CUTS, CHARACTER, ".")  # patterns of regard's own tokenizers
PARTS = {  # of a file, with the list in which a Sequence holds more, and the types that are known
    "normalizer": (
        "normalizers",
        "BertNormalizer ByteLevel Lowercase NFC NFD NFKC NFKD Nmt Precompiled Prepend Replace Strip StripAccents",
    ),
    "pre_tokenizer": (
        "pretokenizers",
        "BertPreTokenizer ByteLevel CharDelimiterSplit Digits FixedLength Metaspace Punctuation Split UnicodeScripts "
        "Whitespace WhitespaceSplit",
    ),
    "post_processor": ("processors", "BertProcessing ByteLevel RobertaProcessing TemplateProcessing"),
    "decoder": ("decoders", "BPEDecoder ByteFallback ByteLevel CTC Fuse Metaspace Replace Strip WordPiece"),
    "model": ("", "BPE Unigram WordLevel WordPiece"),
}
# Expressions that match no empty text: signs and classes one after the other, none of which may be left out.
NOT_EMPTY = re.compile(r"(?:\\[dDwWsSrnt]|\[[^\[\]]+\]|\{[1-9],?\}|\+|[^\\\[\]{}*?|()^$+])+")
_tried: set[str] = set()  # SHA-256 of files


def read_tokenizer(path: Path) -> "Tokenizer":
    """The tokenizer in a file; FolderError where it cannot be used."""
    from tokenizers import Tokenizer

    try:
        content = read_file(path, LARGEST_TEXT)
        check_tokenizer(content)
        with panics_raised():
            tokenizer: Tokenizer = Tokenizer.from_str(content.decode())
    except OSError as error:
        raise FolderError(f"{path}: {error.strerror or error}") from error
    except Exception as error:  # tokenizers raises nothing more particular
        raise FolderError(f"{path}: not a readable tokenizer: {' '.join(str(error).split())}") from error
    return tokenizer


@contextmanager
def panics_raised() -> Iterator[None]:
    """Within this block errors of the library are ValueErrors: a panic, which `except Exception` would not catch, and
    its others, which are of no kind but Exception."""
    try:
        yield
    except BaseException as error:
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"tokenizer: failed: {' '.join(str(error).split())}") from error


def check_tokenizer(content: bytes) -> None:
    """ContentError where a tokenizer.json has unknown parts, breaks a bound, or fails when it is tried."""
    whole = parse_json(content)
    if not isinstance(whole, dict) or not isinstance(whole.get("model"), dict):
        raise ContentError("expected a JSON object with a model")
    parts = list(_parts(whole))
    _check_tokens(whole)
    _check_lengths([whole.get("padding"), whole.get("truncation"), *parts])
    growth = math.prod(map(_growth, parts))
    if growth > tokenizer_trial.GROWTH:
        raise ContentError(f"its replacements could make a text {growth:,} times as long")
    if not all(map(_is_plain, parts)):
        _try(content)


def _parts(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What a tokenizer is made of, one after the other; all of known types."""
    count = 0
    for name, (several, known) in PARTS.items():
        waiting = [whole.get(name)]
        while waiting:
            part = waiting.pop()
            if part is None:
                continue
            count += 1
            if count > MAX_PARTS:
                raise ContentError(f"expected at most {MAX_PARTS} parts, got more")
            kind = part.get("type", "BPE" if name == "model" else None) if isinstance(part, dict) else None
            if several and kind == "Sequence" and isinstance(part.get(several), list):
                waiting += part[several]
            elif kind in known.split():
                yield part
            else:
                raise ContentError(f"{name}: expected one of {', '.join(known.split())}, got {kind!r}")


def _check_tokens(whole: dict[str, Any]) -> None:
    """ContentError for tokens, and words to be cut into them, that are longer than any tokenizer has."""
    model, added = whole["model"], whole.get("added_tokens") or []
    tokens = [token[0] if isinstance(token, list) and token else token for token in model.get("vocab") or ()]
    tokens += [token.get("content") for token in added if isinstance(token, dict)]
    longest = max((len(token) for token in tokens if isinstance(token, str)), default=0)
    limit = MAX_PIECE if isinstance(model.get("vocab"), list) else MAX_TEXT
    if longest > limit:
        raise ContentError(f"expected tokens of at most {limit:,} characters, got {longest:,}")
    word = model.get("max_input_chars_per_word", 0)
    if not isinstance(word, int) or word > MAX_WORD:  # of which each is cut in the time of its square
        raise ContentError(f"max_input_chars_per_word: expected at most {MAX_WORD}, got {word!r}")


def _check_lengths(parts: list[Any]) -> None:
    """ContentError for texts, lists and numbers beyond what a part of a tokenizer has."""
    waiting = parts
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            large = {
                name: part[name] for name in ("vocab", "merges", "precompiled_charsmap", "pattern") if name in part
            }
            _check_charsmap(large.get("precompiled_charsmap"))
            if len(pattern := str(large.get("pattern"))) > MAX_TEXT:
                raise ContentError(f"expected patterns of at most {MAX_TEXT:,} characters, got {len(pattern):,}")
            part = [*part, *(value for name, value in part.items() if name not in large)]
        # What is put in front of every word, or stands for a list of ids in another list, multiplies.
        if isinstance(part, str | list) and len(part) > MAX_REPLACEMENT:
            raise ContentError(f"expected texts and lists of at most {MAX_REPLACEMENT} parts, got {len(part):,}")
        if isinstance(part, int) and part > MAX_NUMBER:
            raise ContentError(f"expected numbers of at most {MAX_NUMBER:,}, got {part:,}")
        waiting = [*waiting, *part] if isinstance(part, list) else waiting


def _check_charsmap(text: Any) -> None:
    """A table from characters to others: the size of an index, the index, and texts that end in a zero."""
    if text is None:
        return
    try:
        table = base64.b64decode(text, validate=True)
        (size,) = struct.unpack_from("<I", table)
    except (TypeError, binascii.Error, struct.error) as error:
        raise ContentError(f"precompiled_charsmap: expected a table in base64: {error}") from error
    longest = max(map(len, table[4 + size :].split(b"\0")))
    if 4 + size > len(table) or longest > MAX_REPLACEMENT:
        raise ContentError(f"precompiled_charsmap: expected replacements of at most {MAX_REPLACEMENT} bytes")


def _growth(part: dict[str, Any]) -> int:
    """How many times as long a part could make a text."""
    if part.get("type") == "TemplateProcessing":
        single = part.get("single")
        return sum("Sequence" in piece for piece in single) if isinstance(single, list) else 1
    if part.get("type") == "Prepend":  # to a text, and so to each part of it between two added tokens
        return 1 + len(str(part.get("prepend")))
    pattern, replacement = part.get("pattern"), part.get("content")
    if not isinstance(pattern, dict) or not isinstance(replacement, str):
        return 1
    literal, expression = str(pattern.get("String", "")), str(pattern.get("Regex", ""))
    if literal or NOT_EMPTY.fullmatch(expression):
        return max(1, -(-len(replacement) // max(len(literal), 1)))
    return 1 + len(replacement)  # between any two characters


def _is_plain(part: dict[str, Any]) -> bool:
    """Whether nothing can go wrong with a part: it has no table, no pattern but regard's own, and counts nothing."""
    pattern = part.get("pattern")
    expression = pattern.get("Regex") if isinstance(pattern, dict) else None
    if expression is None:
        return part.get("type") not in ("Precompiled", "FixedLength") and pattern != {"String": ""}
    return isinstance(expression, str) and expression in PLAIN


def _try(content: bytes) -> None:
    """ContentError unless a process of its own has read a file, and has encoded and decoded texts with it."""
    digest = hashlib.sha256(content).hexdigest()
    if digest in _tried:
        return
    # -P: without it the child would import from the folder of its script first. One thread: others reserve memory.
    command = [sys.executable, "-P", tokenizer_trial.__file__]
    environment = {**os.environ, "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    try:
        trial = subprocess.run(command, input=content, env=environment, capture_output=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired as error:
        raise ContentError(f"it was tried, and took more than {PATIENCE:g} s") from error
    if trial.returncode:
        lines = trial.stderr.decode(errors="replace").split("\n")
        reason = next((line for line in reversed(lines) if line.strip()), f"it ended with {trial.returncode}")
        raise ContentError(f"it was tried, and failed: {reason[:MAX_TEXT]}")
    _tried.add(digest)
