"""Translations out of gettext catalogues (.mo), in which programs and games keep every text in every language."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from regard.data.archives import FetchError, members
from regard.data.sets.sentences import pairs_of_sentences, write_pairs

__all__ = ["read_catalogue", "unpack"]

MOST = 20  # words of a sentence
ORDERS = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}  # of the bytes in a number, by the file's first four
HEADER = 20  # bytes
CHARSET = re.compile(rb"charset=([\w-]+)")


def unpack(archives: Sequence[Path], place: Path, *, locale: str) -> None:
    """pairs.tsv, from English to the language of `locale`, such as "fr" or "zh_CN"."""
    count = write_pairs(_pairs(archives, locale), place / "pairs.tsv")
    if not count:
        raise FetchError(f"{archives[0].name} and the other archives hold no translation into {locale}")


def _pairs(archives: Sequence[Path], locale: str) -> Iterator[tuple[str, str]]:
    ending = f"/{locale}/LC_MESSAGES/"
    for archive in archives:
        for name, content in members(archive, lambda name: ending in f"/{name}" and name.endswith(".mo")):
            try:
                entries = list(read_catalogue(content))
            except (ValueError, LookupError) as error:  # LookupError: a charset that Python does not know
                raise FetchError(f"{archive}: {name}: {error}") from error
            for source, target in entries:
                yield from pairs_of_sentences(source, target, MOST)


def read_catalogue(content: bytes) -> Iterator[tuple[str, str]]:
    """The texts of a .mo file and their translations, singular and plural apart, without the notes for translators."""
    order = ORDERS.get(content[:4])
    if order is None or len(content) < HEADER:
        raise ValueError("expected a gettext catalogue, got something else")
    count, sources, targets = struct.unpack_from(f"{order}3I", content, 8)
    if max(sources, targets) + 8 * count > len(content):
        raise ValueError(f"the catalogue claims {count} texts, and ends before them")
    charset = "utf-8"
    for number in range(count):
        source, target = (_text(content, order, start + 8 * number) for start in (sources, targets))
        if source:
            forms = _forms(target.decode(charset))
            yield from zip(_forms(_without_context(source.decode(charset))), (forms[0], forms[-1]), strict=False)
        elif found := CHARSET.search(target):  # the text of the empty one, which comes first, is about the catalogue
            charset = found[1].decode()


def _text(content: bytes, order: str, position: int) -> bytes:
    length, start = struct.unpack_from(f"{order}2I", content, position)
    if start + length > len(content):
        raise ValueError("a text of the catalogue lies behind its end")
    return content[start : start + length]


def _without_context(text: str) -> str:
    """gettext's own note for translators ends in EOT, Wesnoth's in ^."""
    return text.rpartition("\x04")[2].rpartition("^")[2]


def _forms(text: str) -> list[str]:
    """For one, and for many: English has these two, other languages one to six."""
    return text.split("\0")
