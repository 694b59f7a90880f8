"""Ids of words that were met before: most words of a text were, and looking them up is many times faster than encoding.

Byte pairs are merged within pretokens, which the tokenizer cuts out of the text from left to right. Each is encoded
once. In lines of ASCII they are found by the tokenizer's own pattern. What is a letter beyond ASCII differs between
libraries; but everywhere a space that is not followed by white space begins a pretoken, a line end with no white space
beside it is one, and no pretoken before them depends on what follows. So other lines are cut there and nowhere else.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["WordCache", "is_separable"]

WORDS = 1 << 18  # of one generation: 45 MB
LONG = 40  # characters: longer words seldom come again
SPACE, LINE_END = re.compile(r" (?=\S)"), re.compile(r"(?<=\S)\n(?=\S)")
# GPT-2's pattern, for ASCII: contractions, letters, digits, other signs, white space.
PRETOKENS = re.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\t-\r A-Za-z0-9]+|[\t-\r ]+(?![^\t-\r ])|[\t-\r ]+"
)


class WordCache(dict[str, bytes]):
    """Encodes texts as its tokenizer does, without special tokens around them: from words to the bytes of their ids.

    When there are WORDS of them they become the older generation: what is met again is taken from it, the rest is
    forgotten with it.

    tokenizer: one that `is_separable`.
    """

    def __init__(self, tokenizer: Tokenizer, dtype: type[numpy.unsignedinteger[Any]]) -> None:
        super().__init__()
        self.tokenizer, self.dtype = tokenizer, dtype
        self.older: dict[str, bytes] = {}
        tokens = [re.escape(token.content) for token in tokenizer.get_added_tokens_decoder().values()]
        self.added_tokens = re.compile("|".join(tokens) or "(?!)")

    def encode(self, text: str) -> NDArray[Any]:
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
