"""Verses of the New Testament in Greek and English, with the words that people have linked by hand.

The texts are the SBL Greek New Testament, without punctuation, and the Berean Standard Bible; the links are those of
Clear Bible, "MACULA Greek Linguistic Datasets, available at https://github.com/Clear-Bible/macula-greek/". Of 7,943
verses 7,904 become pairs, with 190,083 links; 39 are in one language only, or are linked with another verse.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

from regard.data.packages import read_member
from regard.data.pairs import Pair, read_pairs
from regard.data.texts import TextError, read_lines
from regard.data.words import spans

__all__ = ["read_aligned_pairs", "read_verses", "unpack_verses"]

GREEK, ENGLISH = "data/sources/SBLGNT.tsv", "data/eng/targets/BSB/nt_BSB.tsv"
LINKS = "data/eng/alignments/BSB/SBLGNT-BSB-manual.json"
Place = tuple[int, int]  # where a token begins and ends in its verse, in characters
VERSE = slice(1, 9)  # of the id of a Greek word: n40001001002 is the second one of 40001001


def unpack_verses(archives: Sequence[Path], folder: Path) -> None:
    """pairs.tsv, from Greek, and alignments.txt: a line for each pair, with a link as 0-2, the words of both sides."""
    pairs, _ = read_verses(*archives)
    links = (" ".join(f"{source}-{target}" for source, target in sorted(pair.alignment or ())) for pair in pairs)
    for name, lines in (("pairs.tsv", (f"{p.source}\t{p.target}" for p in pairs)), ("alignments.txt", links)):
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def read_verses(archive: Path) -> tuple[list[Pair], int]:
    """The verses of the package bible-alignments whose words and links can be matched, and how many cannot."""
    texts: tuple[dict[str, str], dict[str, str]] = {}, {}  # the verses by their names, in both languages
    places: dict[str, tuple[str, Place]] = {}  # of the tokens of both languages: verse and place
    for row in _rows(archive, GREEK):
        places[row["id"]] = _append(texts[0], row["id"][VERSE], row["text"], " ")
    for row in _rows(archive, ENGLISH):
        places[row["id"]] = _append(texts[1], row["source_verse"], row["text"], " " * (not row["skip_space_after"]))
    linked: dict[str, list[tuple[Place, Place]]] = {}
    unmatched: set[str] = texts[0].keys() ^ texts[1].keys()
    for record in json.loads(read_member(archive, LINKS))["records"]:
        tokens = record["source"], record["target"]
        verses = {places[token][0] if token in places else "" for side in tokens for token in side}
        if len(verses) > 1:  # "" is the verse of a token that is in neither text
            unmatched |= verses - {""}
        for verse in verses - {""}:
            left, right = ([places[token][1] for token in side if token in places] for side in tokens)
            linked.setdefault(verse, []).extend(product(left, right))
    unmatched |= (texts[0].keys() | texts[1].keys()) - linked.keys()
    pairs = [
        Pair(source.strip(), texts[1][verse].strip(), _by_words(source, texts[1][verse], linked[verse]))
        for verse, source in texts[0].items()
        if verse not in unmatched
    ]
    return pairs, len(unmatched)


def read_aligned_pairs(folder: Path) -> list[Pair]:
    """The pairs of a fetched set, with their alignments."""
    pairs, lines = read_pairs(folder / "pairs.tsv"), list(read_lines(folder / "alignments.txt"))
    if len(pairs) != len(lines):
        raise TextError(f"{folder}: {len(pairs)} pairs and {len(lines)} lines of alignments; move it away, fetch again")
    links = [frozenset((int(s), int(t)) for s, t in (link.split("-") for link in line.split())) for line in lines]
    return [Pair(pair.source, pair.target, alignment) for pair, alignment in zip(pairs, links, strict=True)]


def _rows(archive: Path, name: str) -> Iterator[dict[str, str]]:
    return csv.DictReader(read_member(archive, name).decode().splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)


def _append(texts: dict[str, str], verse: str, token: str, between: str) -> tuple[str, Place]:
    start = len(texts.setdefault(verse, ""))
    texts[verse] += token + between
    return verse, (start, start + len(token))


def _by_words(source: str, target: str, linked: Sequence[tuple[Place, Place]]) -> frozenset[tuple[int, int]]:
    """Links between tokens as links between all of their words: God’s is one token and two words."""
    left, right = spans(source), spans(target)
    return frozenset(link for a, b in linked for link in product(_overlapping(left, a), _overlapping(right, b)))


def _overlapping(words: Sequence[Place], token: Place) -> list[int]:
    return [number for number, (first, last) in enumerate(words) if first < token[1] and last > token[0]]
