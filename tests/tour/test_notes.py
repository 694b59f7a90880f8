"""The notes beside the tour: passages by digest and line, every line accounted for, and bad folders."""

import hashlib
import os
import re
from pathlib import Path

import pytest

from regard import cli
from regard.tour import notes, sections, words
from regard.tour.notes import DIGESTS, read_notes
from tests.tour import small

HERE = Path(os.environ.get("REGARD_NOTES", Path(__file__).resolve().parents[3] / "shared" / "notes"))
with_notes = pytest.mark.skipif(not HERE.is_dir(), reason="the course notes do not lie beside the project")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A set of notes of our own, five lines long."""
    content = "# 标题\n\n第三行\n第四行\n最后一行\n"
    (tmp_path / "mine.txt").write_text(content, encoding="utf-8")
    monkeypatch.setitem(DIGESTS, "000", hashlib.sha256(content.encode()).hexdigest()[:32])
    return tmp_path


def test_one_line_is_a_line_and_several_are_lines():
    places = words.notes([("000", 132, 132), ("003", 42, 44), ("004", 5, 5), ("004", 9, 9)])
    assert places.en == "notes 000, line 132; notes 003, lines 42–44; notes 004, lines 5, 9"
    assert places.zh == "笔记 000 第 132 行；笔记 003 第 42–44 行；笔记 004 第 5、9 行"


def test_a_passage_is_found_by_its_digest(folder):
    found = read_notes(folder)
    assert found.passages(small.section(3)) == [(small.section(3).notes[0], "第三行\n第四行")]
    assert found.problems == ["no file is the set of notes 001, 002, 003, 004"]
    assert found.without_passage([small.section(3)]) == []


def test_each_line_is_a_claim_or_none_or_forgotten(folder, monkeypatch):
    treated = [claims for _, claims in read_notes(folder).coverage([small.section(3)])["000"]]
    assert treated == [[], [], [3], [3], None, []]  # a title, nothing, …
    monkeypatch.setitem(notes.OTHER_LINES, "000", ((5, 5),))
    assert read_notes(folder).coverage([small.section(3)])["000"][4][1] == []


def test_other_files_and_wrong_encodings_are_told(folder, tmp_path):
    (folder / "other.txt").write_bytes(b"\xff\xfe\x00")
    assert "other.txt: not one of the five sets of notes, or changed since" in read_notes(folder).problems
    gone = read_notes(tmp_path / "nowhere")
    assert gone.lines == {}
    assert "nowhere" in gone.problems[0]
    assert gone.without_passage([small.section(3)]) == [3]


def test_the_command_says_what_it_misses_and_goes_on(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sections, "load", lambda: [small.section(3)])
    assert cli.main(["tour", "--notes", str(tmp_path / "nowhere"), "--out", str(tmp_path / "out")]) == 0
    assert "--notes: no passage for claims 3" in capsys.readouterr().err


def test_the_page_shows_the_passage(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(sections, "load", lambda: [small.section(3)])
    out = tmp_path / "out"
    assert cli.main(["tour", "--notes", str(folder), "--out", str(out), "--only", "3"]) == 0
    assert "第三行\n第四行" in (out / "en.html").read_text(encoding="utf-8")
    assert "第四行" in (out / "notes.zh.html").read_text(encoding="utf-8")


@with_notes
def test_every_line_of_the_notes_is_accounted_for():
    found = read_notes(HERE)
    assert found.problems == []
    forgotten = [
        f"{file}:{number}: {text}"
        for file, lines in found.coverage(sections.load()).items()
        for number, (text, claims) in enumerate(lines, 1)
        if claims is None
    ]
    assert not forgotten, "\n".join(forgotten)


@with_notes
def test_no_sentence_of_the_notes_is_in_the_project():
    """Fourteen Chinese letters in a row that the notes have, too, are a quotation."""
    text = "".join("".join(lines) for lines in read_notes(HERE).lines.values())
    for section in sections.load():
        for part in (section.title, section.claim, section.idea):
            for run in re.findall(r"[\u4e00-\u9fff，、]{14,}", part.zh):
                copied = [run[at : at + 14] for at in range(len(run) - 13) if run[at : at + 14] in text]
                assert not copied, (section.number, copied[0])
