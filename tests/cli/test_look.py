"""`regard look`."""

import json

import pytest
import torch
from PIL import Image

from regard import ViT
from regard.cli import main
from tests.web.serving import folders


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("models")
    folders(home)
    labels = [str(number) for number in range(10)]
    ViT(8, 2, 24, 2, 3, 10, channels=1, pooling="class", labels=labels).save(home / "class-token")
    Image.fromarray(torch.arange(64, dtype=torch.uint8).view(8, 8).numpy() * 4).save(home / "picture.png")
    (home / "broken.png").write_bytes(b"\x89PNG nothing")
    return home


@pytest.mark.parametrize("model", ["translator", "rnn", "language"])
def test_in_the_terminal(home, capsys, model):
    assert main(["look", str(home / model), "the cat is on the mat"]) == 0
    out = capsys.readouterr().out
    assert "query (looks) at the left" in out
    assert "effective" in out


@pytest.mark.parametrize("model", ["vit", "class-token", "resnet"])
def test_pictures_in_the_terminal_as_classify_shows_them(home, capsys, model):
    assert main(["look", str(home / model), str(home / "picture.png")]) == 0
    shown = capsys.readouterr().out
    assert "rows and columns of the image" in shown
    assert main(["classify", str(home / model), str(home / "picture.png"), "--show"]) == 0
    assert capsys.readouterr().err == shown


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
        assert ("heatmap" in json.loads(out.read_text())) == (model in ("vit", "resnet"))


@pytest.mark.parametrize(("options", "heads"), [(["--layer", "1"], "012"), (["--layer", "-1", "--head", "2"], "2")])
def test_one_layer_in_json(home, tmp_path, capsys, options, heads):
    out = tmp_path / "looks.json"
    assert main(["look", str(home / "language"), "the cat", *options, "--out", str(out)]) == 0
    (layer,) = json.loads(out.read_text())["layers"]
    assert (layer["layer"], [*layer["weights"]]) == (1, [*heads])
    assert all(abs(sum(row) - 1) < 1e-5 for head in layer["weights"].values() for row in head)


@pytest.mark.parametrize(
    ("model", "given", "options", "message"),
    [
        ("nowhere", "the cat", [], "found none"),
        ("language", " ", [], "text: expected some words"),
        ("language", "a" * 1_000_000, [], "text: expected at most 100,000 characters, got 1,000,000"),
        ("language", "the cat", ["--layer", "9"], "layer: expected one of 0, 1, got 9"),
        ("language", "the cat", ["--head", "9"], "head: expected one of 0, 1, 2, got 9"),
        ("language", "the cat", ["--layer", "9", "--out", "looks.json"], "layer: expected one of 0, 1, got 9"),
        ("language", "the cat", ["--head", "9", "--out", "looks.json"], "head: expected one of 0, 1, 2, got 9"),
        ("language", "the cat", ["--head", "1", "--out", "looks.html"], "a page has all of them"),
        ("vit", "picture.png", ["--head", "1"], "layer: expected that of head 1"),
        ("language", "the \udcff", [], "got a lone surrogate in 'the \\udcff'"),
        ("language", "the cat", ["--out", "looks.gif"], "--out: expected a name that ends in"),
        ("language", "the cat", ["--out", "nowhere/looks.png"], "there is no folder"),
        ("language", "picture.png", [], "reads text, and"),
        ("vit", "broken.png", [], "broken.png"),
        ("vit", "gone.png", [], "expected the path of one"),
        ("resnet", "picture.png", ["--layer", "0"], "no attention"),
    ],
)
def test_what_does_not_fit_is_one_line(home, capsys, model, given, options, message):
    given = str(home / given) if given.endswith(".png") else given
    assert main(["look", str(home / model), given, *options]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert message in err


def test_a_place_that_cannot_be_written(home, capsys):
    assert main(["look", str(home / "language"), "the cat", "--out", "/sys/looks.png"]) == 1  # not even by root
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("forbidden", [False, True])
def test_colours_where_the_terminal_has_them(home, capsys, monkeypatch, forbidden):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("NO_COLOR", "1") if forbidden else monkeypatch.delenv("NO_COLOR", raising=False)
    assert main(["look", str(home / "rnn"), "the cat"]) == 0
    assert ("\x1b[38;2;" in capsys.readouterr().out) != forbidden
