"""Heads as pictures, tables and pages."""

import json
import zlib
from base64 import b64decode

import matplotlib
import numpy
import pytest
import torch
from matplotlib import font_manager

import regard
from regard.view import fonts, page
from regard.view.attention import AttentionDisplay
from regard.view.progress import TrainingWidthsDisplay
from regard.view.reading import read
from regard.view.seen import Seen
from tests.training import tiny
from tests.web.serving import folders

TOKENS = ["the", "cat", "<b>", "sat", "."]


def seen(heads=3, n=5, m=5, layer=0, kind="self", seed=0, batch=1):
    scores = torch.randn(batch, heads, n, m, generator=torch.Generator().manual_seed(seed)) * 2
    return Seen(f"blocks.{layer}", kind, regard.masked_softmax(scores), tuple(range(heads)), tuple(range(n)), layer)


@pytest.fixture
def display():
    return AttentionDisplay([seen(), seen(layer=1, seed=1)], TOKENS, title="a title")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("models")
    folders(home)
    return home


def test_one_head_is_drawn_as_it_is(display):
    axes = display.plot(1, 2).ax_
    (image,) = axes.get_images()
    numpy.testing.assert_allclose(image.get_array().filled(0), display.maps[1].weights[2].numpy())
    assert (image.norm.vmin, image.norm.vmax) == (0, 1)  # always, so that pictures can be compared
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("key (looked at)", "query (looks)")
    assert [label.get_text() for label in axes.get_yticklabels()] == TOKENS
    assert any(own.get_ylabel() == "weight" for own in display.figure_.axes)  # the legend
    (image,) = display.plot(1, by_row=True).ax_.get_images()
    assert image.get_array().max(1).tolist() == [1.0] * 5


def test_the_grid_has_all_of_them(display):
    axes = display.plot_grid().ax_
    assert len(axes.get_images()) == 6
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1", "2"]


@pytest.mark.parametrize("ending", ["png", "svg", "pdf", "html"])
def test_files(display, tmp_path, ending):
    for given in ((), (1,), (1, 2)):
        path = display.save(tmp_path / f"looks.{ending}", *given)
        assert path.stat().st_size > 1_000
    begins = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF", "html": b"<!doctype html>"}
    assert path.read_bytes().startswith(begins[ending])
    assert [own.name for own in tmp_path.iterdir()] == [path.name]


def test_what_changed(display):
    other = AttentionDisplay([seen(seed=5), seen(layer=1, seed=6)], TOKENS)
    changed = display - other
    torch.testing.assert_close(changed.maps[0].weights, display.maps[0].weights - other.maps[0].weights)
    (image,) = changed.plot(0, 0).ax_.get_images()
    assert image.norm.vmin == -image.norm.vmax
    with pytest.raises(ValueError, match="same layers, heads and tokens"):
        display - AttentionDisplay([seen(n=3, m=3)])


def test_tables(display):
    frame = display.to_frame()
    assert len(frame) == 2 * 3 * 25
    one = frame[(frame.layer == 1) & (frame["head"] == 2) & (frame["query"] == 3)]
    assert one.key_token.tolist() == TOKENS
    numpy.testing.assert_allclose(one.weight, display.maps[1].weights[2, 3])
    assert set(one.query_token) == {"sat"}
    assert len(display.to_frame(1, 0)) == 25


def test_the_summary_is_of_every_head(display, capsys):
    summary = display.summary()
    assert [(own.layer, own.head) for own in summary] == [(layer, head) for layer in (0, 1) for head in range(3)]
    assert all(1 <= own.width <= 5 for own in summary)
    assert len(summary.to_frame()) == 6
    summary.print()
    assert "effective" in capsys.readouterr().out
    assert str(summary).count("\n") == 6
    assert "<td>blocks.0</td>" in summary._repr_html_()
    assert summary.plot().ax_.get_ylabel() == "effective width (keys)"


def test_axes_of_translators():
    """An encoder reads the source, a decoder the target, and looks across."""
    looks = [seen(n=3, m=3), seen(n=2, m=2, kind="causal", layer=1), seen(n=2, m=3, kind="cross", layer=2)]
    display = AttentionDisplay(looks, ["un", "deux"], ["one", "two", "end"])
    assert [(own.rows, own.columns) for own in display.maps] == [
        (["one", "two", "end"], ["one", "two", "end"]),
        (["un", "deux"], ["un", "deux"]),
        (["un", "deux"], ["one", "two", "end"]),
    ]


def test_padding_is_left_out():
    display = AttentionDisplay([seen(batch=2, n=7, m=7)], TOKENS, entry=1)
    assert display.maps[0].weights.shape == (3, 5, 5)


@pytest.mark.parametrize(
    ("work", "error", "message"),
    [
        (lambda: AttentionDisplay([]), ValueError, "expected one or more"),
        (lambda: AttentionDisplay([seen(n=3, m=3)], TOKENS), ValueError, "has 3 keys, got 5 tokens"),
        (lambda: AttentionDisplay([seen()], entry=1), IndexError, "entry: expected a number below 1"),
        (lambda: AttentionDisplay([seen()]).plot(7), IndexError, "layer: expected one of 0, got 7"),
        (lambda: AttentionDisplay([seen()]).plot(0, 3), IndexError, "head: expected one of 0, 1, 2, got 3"),
        (lambda: AttentionDisplay([seen()]).save("x.gif"), ValueError, "expected a name that ends in"),
    ],
)
def test_wrong_calls(work, error, message):
    with pytest.raises(error, match=message):
        work()


# ------------------------------------------------------------------------------------------------- a page of one file


def test_the_page_holds_the_weights_as_text_that_nothing_can_break_out_of(display, tmp_path):
    text = display.save(tmp_path / "looks.html").read_text()
    policy = text.partition('Content-Security-Policy" content="')[2].partition('"')[0]
    assert "default-src &#x27;none&#x27;" in policy
    assert "unsafe" not in policy
    assert "<b>" not in text
    data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    assert data["layers"][0]["rows"] == TOKENS
    steps = zlib.decompress(b64decode(data["layers"][1]["weights"][2]), -15)
    found = (numpy.frombuffer(steps, numpy.uint8).reshape(5, 5) / data["levels"]) ** 2
    numpy.testing.assert_allclose(found, display.maps[1].weights[2], atol=0.005)


def test_a_large_page_takes_coarser_steps(monkeypatch):
    monkeypatch.setattr(page, "MOST", 20_000)
    looks = AttentionDisplay([seen(n=97, m=97)])
    data = page._data(looks._content())
    assert data["levels"] < 255
    assert sum(len(own) for own in data["layers"][0]["weights"]) < 20_000


# ------------------------------------------------------------------------------------------------------ any script


def test_a_font_is_found_for_every_letter(tmp_path, monkeypatch):
    """First the system has none for a letter, then one that has nothing else."""
    from fontTools.fontBuilder import FontBuilder
    from fontTools.pens.ttGlyphPen import TTGlyphPen

    letter = "𒀀"
    monkeypatch.setattr(fonts, "_others", list)
    with pytest.warns(UserWarning, match="no font of this system has"):
        assert fonts.families([f"a{letter}"]) == ["DejaVu Sans"]
    pen = TTGlyphPen(None)
    for move, place in (("moveTo", (0, 0)), ("lineTo", (500, 0)), ("lineTo", (500, 500))):
        getattr(pen, move)(place)
    pen.closePath()
    font = FontBuilder(1_000, isTTF=True)
    font.setupGlyphOrder([".notdef", "one"])
    font.setupCharacterMap({ord(letter): "one"})
    font.setupGlyf({".notdef": pen.glyph(), "one": pen.glyph()})
    font.setupHorizontalMetrics({".notdef": (600, 0), "one": (600, 0)})
    font.setupHorizontalHeader(ascent=800, descent=-200)
    font.setupNameTable({"familyName": "Only One", "styleName": "Regular"})
    font.setupOS2()
    font.setupPost()
    font.save(tmp_path / "one.ttf")
    before = list(font_manager.fontManager.ttflist)
    try:
        font_manager.fontManager.addfont(tmp_path / "one.ttf")
        monkeypatch.setattr(fonts, "_others", lambda: ["DejaVu Serif", "Only One"])
        assert fonts.families([f"a{letter}"]) == ["DejaVu Sans", "Only One"]
        shown = AttentionDisplay([seen()], ["a", letter, "b", "c", "d"])
        shown.save(tmp_path / "looks.png", 0, 0)  # without a warning that a letter is missing
    finally:
        font_manager.fontManager.ttflist = before
        fonts._letters.cache_clear()


def test_nothing_of_matplotlib_is_changed(display, tmp_path):
    before = dict(matplotlib.rcParams)
    display.save(tmp_path / "looks.png")
    assert dict(matplotlib.rcParams) == before


# ---------------------------------------------------------------------------------------------------- models and runs


@pytest.mark.parametrize("name", ["translator", "rnn", "language"])
def test_models_read(home, name):
    model = regard.load(home / name)
    display = read(model, "the cat is on the mat", **({} if name == "language" else {"target": "le chat est"}))
    for own in display.maps:
        torch.testing.assert_close(own.weights.sum(-1), torch.ones(own.weights.shape[:2]))
        if own.look.kind == "cross":
            assert own.rows == ["le", "chat", "est", "(end)"]
            assert own.columns[:6] == ["the", "cat", "is", "on", "the", "mat"]
    one = read(model, "the cat", layers=0, heads=0)
    assert [own.weights.shape[0] for own in one.maps] == [1]


@pytest.mark.parametrize(("text", "message"), [(" ", "some words"), ("a" * 100_001, "at most 100,000 characters")])
def test_texts_that_cannot_be_read(home, text, message):
    with pytest.raises(ValueError, match=message):
        read(regard.load(home / "language"), text)


def test_widths_over_training(tmp_path):
    data = tiny.make("text", tmp_path)
    regard.train("text", data, out=tmp_path / "run", widths=True, **tiny.options("text"))
    display = TrainingWidthsDisplay.from_run(tmp_path / "run")
    assert len(display.steps) > 1
    frame = display.to_frame()
    assert (frame.width >= 1).all()
    assert display.save(tmp_path / "widths.png").stat().st_size > 1_000
    regard.train("text", data, out=tmp_path / "plain", **tiny.options("text"))
    with pytest.raises(ValueError, match="train with --widths"):
        TrainingWidthsDisplay.from_run(tmp_path / "plain")
    assert tiny.losses(tmp_path / "plain") == tiny.losses(tmp_path / "run")  # looking changes nothing
