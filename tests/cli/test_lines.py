"""Commands that run a model on the lines of stdin: line k of the output belongs to line k of the input."""

import io
import json
import sys

import pytest
import torch

from regard import Encoder, LanguageModel, Transformer, load
from regard.cli import main
from tests.models.cases import shaken, word_tokenizer

SIZES = {"size": 24, "layers": 1, "heads": 4, "max_positions": 11}
MODELS = {
    "translate": lambda: Transformer(6, 6, **SIZES, bos=1, eos=2),
    "generate": lambda: LanguageModel(6, **SIZES, bos=1),
    "classify": lambda: Encoder(6, **SIZES, classes=3, labels=["a", "b", "c"]),
}
RESULTS = {"translate": "translation", "generate": "text", "classify": "label"}
OPTIONS = {"translate": ["--max-new-tokens", "7"], "generate": ["--max-new-tokens", "7"], "classify": []}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a model for each command."""
    home = tmp_path_factory.mktemp("lines")
    torch.manual_seed(5)
    for command, make in MODELS.items():
        model = shaken(make())
        model.tokenizer = word_tokenizer()
        model.save(home / command)
    return home


@pytest.fixture
def run(home, capsys, monkeypatch):
    """A command on bytes of stdin, or on texts; its exit code, stdout and stderr."""

    def call(command, given, *options):
        texts = given if isinstance(given, list) else []
        if not texts:
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))
        code = main([command, str(home / command), *OPTIONS[command], *options, *texts])
        output = capsys.readouterr()
        return code, output.out, output.err

    return call


STDIN = {
    "blank lines": (b"\ncat\n\n \t\nmat on\n\n", ["", "cat", "", " \t", "mat on", ""]),
    "one blank line": (b"\n", [""]),
    "only blank lines": (b"\n \n\r\n", ["", " ", ""]),
    "nothing": (b"", []),
    "of Windows": (b"cat\r\n\r\nmat\r\n", ["cat", "", "mat"]),
    "of Windows, with a mark": (b"\xef\xbb\xbfcat\r\n\r\nmat", ["cat", "", "mat"]),
    "without a last newline": (b"cat\n\nmat", ["cat", "", "mat"]),
    "other ends of lines": (
        "cat\rmat\n\u2028on\x85\x0cmat\n\ncat".encode(),
        ["cat\rmat", "\u2028on\x85\x0cmat", "", "cat"],
    ),
    "more than a batch": (b"cat\n" * 63 + b"\n\nmat\n" + b"\n" * 66, ["cat"] * 63 + ["", "", "mat"] + [""] * 66),
}


@pytest.mark.parametrize("command", MODELS)
def test_a_text_that_names_a_file_is_a_text_and_the_user_is_told(run, command, tmp_path):
    (tmp_path / "my texts").write_text("cat")
    code, _, err = run(command, ["mat", str(tmp_path / "my texts")])
    assert code == 0
    assert [line for line in err.splitlines() if "cut from" not in line] == [
        f"regard: {tmp_path}/my texts: is taken as a text; for the lines of this file: < '{tmp_path}/my texts'"
    ]


@pytest.mark.parametrize("command", MODELS)
@pytest.mark.parametrize("name", STDIN)
def test_line_k_of_the_output_belongs_to_line_k(run, command, name):
    content, lines = STDIN[name]
    alone = {text: run(command, [text])[1].removesuffix("\n") for text in set(lines) if text.strip()}
    code, out, err = run(command, content)
    assert (code, err) == (0, "")
    assert out == "".join(alone.get(line, "") + "\n" for line in lines)
    code, out, _ = run(command, content, "--json")
    records = [json.loads(record) for record in out.split("\n")[:-1]]
    assert [record["line"] for record in records] == list(range(1, len(lines) + 1))
    for line, record in zip(lines, records, strict=True):
        assert line in record.values()
        assert bool(record[RESULTS[command]]) == bool(line.strip())


@pytest.mark.parametrize("command", MODELS)
@pytest.mark.parametrize(("line", "message"), [(b"ca\0t", "NUL"), (b"\xff\xfe", "UTF-8"), (b"mat \xe7\x8c", "UTF-8")])
@pytest.mark.parametrize("number", [1, 2, 5, 64, 65, 3_001])
def test_a_line_that_is_no_text_is_named_after_those_before_it(run, command, line, message, number):
    before = (b"\n" if number > 65 else b"cat\n") * (number - 1)
    code, out, err = run(command, before + line + b"\nmat\n")
    assert (code, err.count("\n"), out.count("\n")) == (2, 1, number - 1)
    assert f"line {number}: " in err
    assert message in err


@pytest.mark.parametrize("command", MODELS)
def test_a_line_that_is_too_long_is_named(run, command):
    code, out, err = run(command, b"\n" + b"cat " * (1 << 19))
    assert (code, err.count("\n"), out) == (2, 1, "\n")
    assert "line 2: expected at most 1048576 bytes" in err


@pytest.mark.parametrize("command", MODELS)
def test_a_cut_is_a_note_on_stderr(run, command):
    """Each time, also of a text that was cut in the same way before."""
    long = b"cat " * 17 + b"\n"
    code, out, err = run(command, (long + b"\n") * 65)
    batches = 65 if command == "generate" else 3
    assert (code, out.count("\n"), err.count("\n")) == (0, 130, batches)
    assert all(note.startswith("regard: ") for note in err.splitlines())
    assert err.count("17 to 11 tokens") == batches


@pytest.mark.parametrize("command", MODELS)
def test_bytes_that_are_no_text_are_refused(run, command):
    code, out, err = run(command, ["cat \udcff"])
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "lone surrogate in 'cat \\udcff'" in err


def test_an_empty_prompt_that_is_given_is_one(run):
    code, out, _ = run("generate", [""])
    assert code == 0
    assert len(out.split()) == 7


def test_an_empty_prompt_is_refused_where_no_token_begins_a_text(tmp_path, home, capsys):
    model = load(home / "generate")
    model.config["bos"] = None
    model.save(tmp_path / "model")
    assert main(["generate", str(tmp_path / "model"), "cat", ""]) == 2
    assert capsys.readouterr().err == "regard: prompt: expected one token or more, got none in ''\n"


@pytest.mark.parametrize("command", MODELS)
def test_a_stdin_that_is_closed_has_no_lines(home, command, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", None)
    assert main([command, str(home / command)]) == 0
    assert capsys.readouterr() == ("", "")
    sys.stdin.close()
