"""`regard look`, as it is typed."""

import json

import pytest
import torch
from PIL import Image

from regard.cli import main
from tests.web.serving import folders


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("models")
    folders(home)
    Image.fromarray(torch.arange(64, dtype=torch.uint8).view(8, 8).numpy() * 4).save(home / "picture.png")
    (home / "broken.png").write_bytes(b"\x89PNG nothing")
    return home


@pytest.mark.parametrize("model", ["translator", "rnn", "language"])
def test_in_the_terminal(home, capsys, model):
    assert main(["look", str(home / model), "the cat is on the mat"]) == 0
    out = capsys.readouterr().out
    assert "query (looks) at the left" in out
    assert "effective" in out


@pytest.mark.parametrize("model", ["vit", "resnet"])
def test_pictures_in_the_terminal(home, capsys, model):
    assert main(["look", str(home / model), str(home / "picture.png")]) == 0
    assert "as a share of the most" in capsys.readouterr().out


@pytest.mark.parametrize("model", ["translator", "rnn", "language", "vit", "resnet"])
@pytest.mark.parametrize("ending", ["png", "html", "json"])
def test_files(home, capsys, tmp_path, model, ending):
    given = str(home / "picture.png") if model in ("vit", "resnet") else "a dog sees <b>the</b> cat"
    out = tmp_path / f"looks.{ending}"
    assert main(["look", str(home / model), given, "--out", str(out)]) == 0
    assert out.stat().st_size > 100
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"wrote {out}\n"
    if ending == "json":
        found = json.loads(out.read_text())
        assert ("heatmap" in found) == (model in ("vit", "resnet"))


def test_one_layer_in_json(home, tmp_path, capsys):
    out = tmp_path / "looks.json"
    assert main(["look", str(home / "language"), "the cat", "--layer", "1", "--out", str(out)]) == 0
    (layer,) = json.loads(out.read_text())["layers"]
    assert layer["layer"] == 1
    assert all(abs(sum(row) - 1) < 1e-5 for head in layer["weights"].values() for row in head)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "the cat"], "found none"),
        (["language", " "], "text: expected some words"),
        (["language", "a" * 1_000_000], "text: expected at most 100,000 characters, got 1,000,000"),
        (["language", "the cat", "--layer", "9"], "layer: expected one of 0, 1, got 9"),
        (["language", "the cat", "--head", "9"], "head: expected one of 0, 1, 2, got 9"),
        (["language", "the cat", "--out", "looks.gif"], "--out: expected a name that ends in"),
        (["vit", "broken.png"], "broken.png"),
        (["vit", "gone.png"], "gone.png"),
        (["resnet", "picture.png", "--layer", "0"], "no attention"),
    ],
)
def test_what_does_not_fit_is_one_line(home, capsys, arguments, message):
    model, given, *more = arguments
    given = str(home / given) if given.endswith(".png") else given
    assert main(["look", str(home / model), given, *more]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert message in err


def test_a_place_that_cannot_be_written(home, capsys):
    assert main(["look", str(home / "language"), "the cat", "--out", "/sys/looks.png"]) == 1  # not even by root
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("model", "given", "out", "message"),
    [
        ("language", "picture.png", None, "reads text, and"),
        ("vit", "no-such.png", None, "expected the path of one"),
        ("language", "the cat", "nowhere/looks.png", "there is no folder"),
    ],
)
def test_what_does_not_fit_is_told(home, capsys, model, given, out, message):
    given = str(home / given) if given.endswith(".png") else given
    assert main(["look", str(home / model), given, *(["--out", str(home / out)] if out else [])]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("forbidden", [False, True])
def test_colours_where_the_terminal_has_them(home, capsys, monkeypatch, forbidden):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    if forbidden:
        monkeypatch.setenv("NO_COLOR", "1")
    assert main(["look", str(home / "rnn"), "the cat"]) == 0
    assert ("\x1b[38;2;" in capsys.readouterr().out) != forbidden
