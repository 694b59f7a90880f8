"""Attention maps as pictures, tables and pages."""

import json
import zlib
from base64 import b64decode
from dataclasses import replace

import matplotlib
import numpy
import pytest
import torch
from IPython.core.formatters import HTMLFormatter

import regard
from regard.attention.capture import AttentionMap
from regard.view import page, pictures
from regard.view.attention import AttentionDisplay
from regard.view.display import heat_map
from regard.view.reading import read
from regard.view.widths import TrainingWidthsDisplay
from tests.fonts import system_font
from tests.training import tiny
from tests.web.serving import folders

TOKENS = ["the", "cat", "<b>", "sat", "."]


def attention_map(heads=3, n=5, m=5, layer=0, kind="self", seed=0, batch=1, queries=None):
    scores = torch.randn(batch, heads, n, m, generator=torch.Generator().manual_seed(seed)) * 2
    weights = regard.masked_softmax(scores)
    return AttentionMap(f"blocks.{layer}", kind, weights, tuple(range(heads)), queries or tuple(range(n)), layer)


@pytest.fixture
def display():
    return AttentionDisplay([attention_map(), attention_map(layer=1, seed=1)], TOKENS, title="a title")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("models")
    folders(home)
    return home


def test_one_head_is_drawn_as_it_is(display):
    axes = display.plot(1, 2).ax_
    (image,) = axes.get_images()
    numpy.testing.assert_allclose(image.get_array().filled(0), display.maps[1].weights[0, 2].numpy())
    assert (image.norm.vmin, image.norm.vmax) == (0, 1)  # always, so that pictures can be compared
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("key (looked at)", "query (looks)")
    assert [label.get_text() for label in axes.get_yticklabels()] == TOKENS
    assert any(other.get_ylabel() == "weight" for other in display.figure_.axes)  # the legend
    (image,) = display.plot(1, by_row=True).ax_.get_images()
    assert image.get_array().max(1).tolist() == [1.0] * 5


def test_the_grid_has_all_of_them(display):
    axes = display.plot_grid().ax_
    assert [image.get_clim() for image in axes.get_images()] == [(0, 1)] * 6
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1", "2"]


@pytest.mark.parametrize("ending", ["png", "svg", "pdf", "html"])
def test_files(display, tmp_path, ending):
    settings = dict(matplotlib.rcParams)
    for chosen in ((), (1,), (1, 2)) if ending != "html" else ((),):
        path = display.save(tmp_path / f"maps.{ending}", *chosen)
        assert path.stat().st_size > 1_000
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF", "html": b"<!doctype html>"}
    assert path.read_bytes().startswith(starts[ending])
    assert list(tmp_path.iterdir()) == [path]
    assert dict(matplotlib.rcParams) == settings


def test_a_page_of_one_layer_or_head_is_refused_as_it_has_all_of_them(display, tmp_path):
    for chosen in ({"layer": 1}, {"head": 2}):
        with pytest.raises(ValueError, match="a page has all of them"):
            display.save(tmp_path / "maps.html", **chosen)


def test_a_picture_of_no_layer_and_no_head_has_all_of_them(display, tmp_path):
    everything, last, again = (display.save(tmp_path / "a.svg", *layer).read_bytes() for layer in ((), (-1,), (-1,)))
    assert everything != last == again


def test_what_is_printed_says_which_head_it_is(display, capsys):
    for head, title in ((2, "layer 1 (blocks.1), head 2"), (None, "layer 1 (blocks.1), mean of 3 heads")):
        display.print(1, head)
        first, *lines = capsys.readouterr().out.splitlines()
        assert first == title
        assert [line.split()[0] for line in lines[-6:-1]] == TOKENS  # a row for each query, above the legend


def test_what_changed(display):
    other = AttentionDisplay([attention_map(seed=5), attention_map(layer=1, seed=6)], TOKENS)
    change = display - other
    torch.testing.assert_close(change.maps[0].weights, display.maps[0].weights - other.maps[0].weights)
    assert change.maps[0].tokens == tuple(TOKENS)
    (image,) = change.plot(0, 0).ax_.get_images()
    assert image.norm.vmin == -image.norm.vmax
    with pytest.raises(ValueError, match="same layers, heads and tokens"):
        display - AttentionDisplay([attention_map(n=3, m=3)])


def test_tables(display):
    frame = display.to_frame()
    assert len(frame) == 2 * 3 * 25
    row = frame[(frame.layer == 1) & (frame["head"] == 2) & (frame["query"] == 3)]
    assert row.key_token.tolist() == TOKENS
    numpy.testing.assert_allclose(row.weight, display.maps[1].weights[0, 2, 3])
    assert set(row.query_token) == {"sat"}
    assert len(display.to_frame(1, 0)) == 25


def test_the_summary_is_of_every_head(display, capsys):
    summary = display.summary()
    assert [(head.layer, head.head) for head in summary] == [(layer, head) for layer in (0, 1) for head in range(3)]
    assert all(1 <= head.width <= 5 for head in summary)
    assert len(summary.to_frame()) == 6
    summary.print()
    assert "effective" in capsys.readouterr().out
    assert str(summary).count("\n") == 6
    assert "<td>blocks.0</td>" in HTMLFormatter()(summary)
    assert summary.plot().ax_.get_ylabel() == "effective width (keys)"


def test_a_narrow_terminal_cuts_no_module_name(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    name = "model.decoder.layers.11.encoder_attention.self"
    AttentionDisplay([replace(attention_map(heads=1), name=name)]).summary().print()
    printed = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in printed)
    assert name in "".join(line.split()[-1] for line in printed)


def test_axes_of_translators():
    """An encoder reads the source, a decoder the target, and attends to the source."""
    maps = [
        attention_map(n=3, m=3),
        attention_map(n=2, m=2, kind="causal", layer=1),
        attention_map(n=2, m=3, kind="cross", layer=2),
    ]
    source, target = ("one", "two", "end"), ("un", "deux")
    display = AttentionDisplay(maps, target, source)
    axes = [(layer.tokens, layer.key_tokens) for layer in display.maps]
    assert axes == [(source, source), (target, target), (target, source)]


def test_tokens_leave_out_padding_and_follow_the_chosen_queries():
    layer = attention_map(batch=2, n=3, m=7, queries=(6, 2, 4))
    display = AttentionDisplay([layer], TOKENS, entry=1)
    assert display.maps[0].tokens == ("<b>", ".")  # there is no token 6
    torch.testing.assert_close(display.maps[0].weights, layer.weights[1:, :, 1:, :5])
    assert len(display.summary()) == 3
    assert AttentionDisplay([layer]).maps[0].tokens == ("6", "2", "4")


@pytest.mark.parametrize(
    ("work", "error", "message"),
    [
        (lambda: AttentionDisplay([]), ValueError, "expected one or more"),
        (lambda: AttentionDisplay([attention_map(n=3, m=3)], TOKENS), ValueError, "has 3 keys, got 5 tokens"),
        (lambda: AttentionDisplay([attention_map()], entry=1), IndexError, "entry: expected a number below 1"),
        (lambda: AttentionDisplay([attention_map()]).plot(7), IndexError, "layer: expected one of 0, got 7"),
        (lambda: AttentionDisplay([attention_map()]).plot(0, 3), IndexError, "head: expected one of 0, 1, 2, got 3"),
        (lambda: AttentionDisplay([attention_map()]).save("x.gif"), ValueError, r"name that ends in \.png, \.svg"),
    ],
)
def test_wrong_calls(work, error, message):
    with pytest.raises(error, match=message):
        work()


# ------------------------------------------------------------------------------------------------- a page of one file


def data_of(text):
    return json.loads(text.partition('id="data">')[2].partition("</script>")[0])


def test_the_page_holds_the_weights_as_text_that_nothing_can_break_out_of(display, tmp_path):
    text = display.save(tmp_path / "maps.html").read_text()
    policy = text.partition('Content-Security-Policy" content="')[2].partition('"')[0]
    assert "default-src &#x27;none&#x27;" in policy
    assert "unsafe" not in policy
    assert "<b>" not in text
    data = data_of(text)
    assert data["layers"][0]["tokens"] == TOKENS
    steps = zlib.decompress(b64decode(data["layers"][1]["weights"][2]), -15)
    weights = (numpy.frombuffer(steps, numpy.uint8).reshape(5, 5) / data["levels"]) ** 2
    numpy.testing.assert_allclose(weights, display.maps[1].weights[0, 2], atol=0.005)


def test_a_large_page_takes_coarser_steps():
    maps = [attention_map(n=97, m=97)]
    assert data_of(page.html("", maps))["levels"] == 255
    data = data_of(page.html("", maps, limit=20_000))
    assert data["levels"] < 255
    assert sum(map(len, data["layers"][0]["weights"])) <= 20_000
    chosen = [page.content(maps, limit=limit) for limit in range(40_000, 2_000, -2_000)]
    levels, kept = ([data[name] for data in chosen] for name in ("levels", "kept"))
    assert levels == sorted(levels, reverse=True)
    # Steps are as coarse as they get before weights are left out.
    assert all(count == 0 or level == page.LEVELS[-1][0] for level, count in zip(levels, kept, strict=True))
    assert kept[0] == 0 < kept[-1]


def test_weights_that_are_next_to_nothing_do_not_say_what_scores_are_made_of():
    weights = torch.tensor([[[[0.5, 0.5, 1e-12]]]], dtype=torch.float64)
    keys = torch.tensor([[[[1.0, 0.0], [1.0, 0.0], [9.0, 0.0]]]])
    operands = {"query": torch.tensor([[[[1.0, 0.0]]]]), "key": keys, "value": keys, "output": keys[:, :, :1]}
    for small, is_exact in ((1e-12, True), (1.1e-12, False)):
        weights[..., 2] = small
        layer = AttentionMap("blocks.0", "self", weights, (0,), (0,), 0, **operands)
        head = page.inside(layer, 0)
        assert (head["scale"] == 2**-0.5) == is_exact


def test_a_map_in_text_has_a_line_for_each_query():
    weights = torch.tensor([[1.0, 0.0, 0.1], [0.25, 0.75, 0.5]])
    *head, first, second, legend = heat_map(weights, ["a", "bcd"], ["x", "yz", "w"]).split("\n")
    assert head == ["       y", "    x  z  w"]
    assert (first, second) == ("  a ███   ░░░", "bcd ▒▒▒███▓▓▓")
    assert legend.startswith("query (looks) at the left")


# ------------------------------------------------------------------------------------------------------ any script


@pytest.mark.parametrize("letter", ["𒀀", "猫"])
def test_the_placeholder_font_of_matplotlib_has_no_letter(tmp_path, letter):
    with system_font(tmp_path, ""), pytest.warns(UserWarning, match=f"no font of this system has {letter}"):
        assert pictures.families([f"a{letter}"]) == ["DejaVu Sans"]


def test_another_font_writes_what_the_default_has_not(tmp_path, caplog):
    """Also one without a normal weight: then matplotlib's font finder would log a warning, which nobody needs."""
    with system_font(tmp_path, "𒀀", weight=200):
        assert pictures.families(["a𒀀"]) == ["DejaVu Sans", "Only One"]
        AttentionDisplay([attention_map()], ["a", "𒀀", "b", "c", "d"]).save(tmp_path / "maps.png", 0, 0)
    assert caplog.records == []


# ---------------------------------------------------------------------------------------------------- models and runs


@pytest.mark.parametrize("name", ["translator", "rnn", "language"])
def test_models_read(home, name):
    model = regard.load(home / name)
    display = read(model, "the cat is on the mat", **({} if name == "language" else {"target": "le chat est"}))
    for layer in display.maps:
        torch.testing.assert_close(layer.weights.sum(-1), torch.ones(layer.weights.shape[:-1]))
        if layer.kind == "cross":
            assert layer.tokens == ("le", "chat", "est", "(end)")
            assert layer.key_tokens[:6] == ("the", "cat", "is", "on", "the", "mat")
    assert [layer.heads for layer in read(model, "the cat", layers=0, heads=0).maps] == [(0,)]


@pytest.mark.parametrize(("text", "message"), [(" ", "some words"), ("a" * 100_001, "at most 100,000 characters")])
def test_texts_that_cannot_be_read(home, text, message):
    with pytest.raises(ValueError, match=message):
        read(regard.load(home / "language"), text)


def test_widths_over_training(tmp_path):
    data = tiny.make("text", tmp_path)
    regard.train("text", data, out=tmp_path / "run", widths=True, **tiny.options("text"))
    display = TrainingWidthsDisplay.from_run(tmp_path / "run")
    assert len(display.steps) > 1
    assert (display.to_frame().width >= 1).all()
    assert display.save(tmp_path / "widths.png").stat().st_size > 1_000
    regard.train("text", data, out=tmp_path / "plain", **tiny.options("text"))
    with pytest.raises(ValueError, match="train with --widths"):
        TrainingWidthsDisplay.from_run(tmp_path / "plain")
    assert tiny.losses(tmp_path / "plain") == tiny.losses(tmp_path / "run")  # observing changes nothing


def test_scores_of_a_text_are_those_of_find_heads():
    """What does not need repeated tokens; and of repeated ones, those of the text."""
    model = regard.LanguageModel(31, 24, 2, 3).eval()
    ids = torch.tensor([[3, 5, 7, 11, 3, 5, 2, 13, 3, 5, 7]])
    with regard.capture(model) as seen:
        model(ids)
    display = AttentionDisplay(seen, [str(number) for number in ids[0].tolist()])
    scores, found = page.head_scores(display.maps), regard.find_heads(model, ids)
    for name in ("previous_token", "first_token", "fixed_offset"):
        expected = [[head.scores[name] for head in found.heads if head.layer == layer] for layer in (0, 1)]
        numpy.testing.assert_allclose(scores[name.replace("_", " ")], expected, atol=1e-6)
    weights = display.maps[1].weights[0]
    pairs = {4: [1], 5: [2], 8: [1, 5], 9: [2, 6], 10: [3]}  # what came after the same token
    expected = [sum(float(head[row, keys].sum()) for row, keys in pairs.items()) / 5 for head in weights]
    numpy.testing.assert_allclose(scores["induction"][1], expected, atol=1e-6)
    assert scores["alignment"] == [[None] * 3] * 2
    assert page.most_telling({**scores, "induction": [[0.0, 0.1, 0.0], [0.9, 0.0, 0.1]]}) == (1, 0)
