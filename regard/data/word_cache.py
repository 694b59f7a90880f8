"""Ids of words that were met before: most words of a text were, and looking them up is many times faster than encoding.

Byte pairs are merged within pretokens, which the tokenizer cuts out of the text from left to right. A space that is not
followed by white space always begins a pretoken, and no pretoken before it depends on what follows. So

    encode("the cat sat") = encode("the") + encode(" cat") + encode(" sat")

and each of these is encoded once. `is_separable` says for which tokenizers this holds.
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

WORDS = 1 << 18  # that are remembered; then all are forgotten
LONG = 40  # characters: longer words seldom come again
SPACE = re.compile(r" (?=\S)")


class WordCache(dict[str, bytes]):
    """From a word, without the space before it, to the bytes of its ids.

    tokenizer: one that `is_separable`.
    """

    def __init__(self, tokenizer: Tokenizer, dtype: type[numpy.unsignedinteger[Any]]) -> None:
        super().__init__()
        self.tokenizer, self.dtype = tokenizer, dtype
        tokens = [re.escape(token.content) for token in tokenizer.get_added_tokens_decoder().values()]
        self.added_tokens = re.compile("|".join(tokens) or "(?!)")

    def encode(self, text: str) -> NDArray[Any]:
        """The ids of a text, without special tokens around it."""
        if self.added_tokens.search(text):  # what is before such a token is cut as if the text ended there
            return numpy.frombuffer(self._ids(text), self.dtype)
        first, *words = SPACE.split(text)
        return numpy.frombuffer(self._ids(first) + b"".join(map(self.__getitem__, words)), self.dtype)

    def __missing__(self, word: str) -> bytes:
        ids = self._ids(" " + word)
        if len(word) <= LONG:
            if len(self) >= WORDS:
                self.clear()
            self[word] = ids
        return ids

    def _ids(self, text: str) -> bytes:
        (encoding,) = self.tokenizer.encode_batch_fast([text], add_special_tokens=False)
        return numpy.array(encoding.ids, dtype=self.dtype).tobytes()


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
