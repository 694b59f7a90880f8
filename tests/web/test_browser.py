"""The page in a real browser. Errors of the page, and requests to anywhere else, fail."""

import re
import urllib.request

import pytest
from PIL import Image

import regard
from regard.data.tokens import train_tokenizer
from regard.web import model_store
from tests.browsing import until
from tests.web.laboratory import drawn, drawn_view, english, go, screenshot, values
from tests.web.serving import TEXTS, serving


def test_curve_by_slider_and_learning(page, server):
    go(page, server, "curve?samples=37&bandwidth=2")
    count = drawn(page)
    assert page.locator("#numbers").inner_text().startswith("bandwidth 2.00")
    slider = page.locator("#bandwidth")
    slider.focus()
    slider.press("ArrowLeft")
    drawn(page, count + 1)
    assert float(values(page)["bandwidth"]) < 2
    page.get_by_role("button", name="learn w").click()
    until(page, "Number(document.querySelector('#numbers').dataset.bandwidth) < 1")
    page.locator("#kernel").select_option("epanechnikov")
    until(page, "location.hash.includes('epanechnikov')")
    screenshot(page, "curve")
    page.get_by_text("the numbers behind the pictures").click()
    page.locator("details table tr").nth(10).wait_for()


def test_a_curve_that_no_sample_reaches_is_drawn(page, server):
    go(page, server, "curve?samples=5&bandwidth=0.01&kernel=boxcar")
    drawn(page)
    assert "5.0 samples count for the middle" in page.locator("#numbers").inner_text()  # their mean is the curve there
    page.get_by_text("the numbers behind the pictures").click()
    assert "–" not in page.locator("details table tr").nth(10).inner_text()
    assert page.locator("#error").is_hidden()


def test_a_sample_is_moved_by_the_keys(page, server):
    go(page, server, "curve?samples=5&bandwidth=0.5")
    count = drawn(page)
    canvas = page.locator("#curve")
    canvas.press("ArrowRight")  # chooses the first one from the left
    canvas.press("Shift+ArrowUp")
    drawn(page, count + 1)
    moved = values(page)["moved"]
    assert re.fullmatch(r"\d,-?[\d.]+,-?[\d.]+", moved)
    page.reload()  # a link keeps it
    drawn(page)
    assert values(page)["moved"] == moved


def test_a_sample_is_dragged_by_the_mouse(page, server):
    """Down near one, along, and up: with so many there is one near the middle, at some height."""
    go(page, server, "curve?samples=200&bandwidth=0.5")
    count = drawn(page)
    box = page.locator("#curve").bounding_box()
    across = box["x"] + box["width"] / 2
    for down in range(int(box["y"]) + 20, int(box["y"] + box["height"]) - 40, 20):
        page.mouse.move(across, down)
        page.mouse.down()
        page.mouse.move(across + 40, down + 20, steps=3)
        page.mouse.up()
        if "moved" in values(page):
            break
    drawn(page, count + 1)
    moved = values(page)["moved"]
    page.mouse.move(across, box["y"] + 30)  # released: it stays where it is
    page.wait_for_timeout(100)
    assert values(page)["moved"] == moved
    assert len(moved.split(";")) == 1


def test_formula_follows_every_number(page, server):
    go(page, server, "formula")
    cells = page.locator("#weights td")
    cells.nth(1).wait_for()
    before = cells.nth(1).inner_text()
    page.get_by_label("queries 0, 0").fill("4")
    until(page, f"document.querySelectorAll('#weights td')[1].textContent !== {before!r}")
    page.locator("#mask").select_option("causal")
    until(page, "document.querySelector('#restricted').textContent.includes('−∞')")
    assert page.locator("#weights tr").nth(1).locator("td").all_inner_texts() == ["1.000", "0.000", "0.000", "0.000"]
    page.get_by_label("keys: one row more").click()
    until(page, "document.querySelectorAll('#weights tr')[1].querySelectorAll('td').length === 5")
    screenshot(page, "formula")
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    page.locator("#weights td").nth(5).wait_for()
    assert page.get_by_label("queries 0, 0").input_value() == "4"


def test_images(page, server):
    go(page, server, "image")
    until(page, "document.querySelectorAll('figure canvas[data-drawn]').length === 2")
    page.get_by_label("the digit 7").click()
    until(page, "location.hash.includes('example=7')")
    page.locator("#layer").select_option("1")
    page.locator("#head").select_option("2")
    until(page, "document.querySelector('figcaption').textContent.includes('layer 1, head 2')")
    screenshot(page, "image")
    page.go_back()


def test_an_image_from_a_file(browser, server, tmp_path):
    Image.new("L", (23, 19), 200).save(tmp_path / "good.png")
    (tmp_path / "spoilt.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    page = browser.new_page()
    go(page, server, "image")
    until(page, "document.querySelectorAll('figure canvas[data-drawn]').length === 2")  # the example's
    page.evaluate("document.querySelectorAll('figure').forEach((figure) => { figure.dataset.old = '1'; })")
    page.locator("#file").set_input_files(tmp_path / "good.png")
    until(page, "document.querySelectorAll('figure:not([data-old]) canvas[data-drawn]').length === 2")
    page.locator("#file").set_input_files(tmp_path / "spoilt.png")
    page.get_by_role("alert").get_by_text("is no picture").wait_for()
    page.close()


def test_back_and_forth(page, server):
    go(page, server, "curve")
    drawn(page)
    page.get_by_role("link", name="Formula").click()
    page.locator("#weights").wait_for()
    page.go_back()
    drawn(page)
    assert page.get_by_role("link", name="Curve").get_attribute("aria-current") == "page"


def test_a_server_that_is_gone_or_another_one_is_an_error_that_says_what_to_do(browser):
    page = browser.new_page()
    with serving() as first:
        go(page, first, "formula")
        page.locator("#weights").wait_for()
    page.get_by_label("queries 0, 0").fill("3")
    page.get_by_role("alert").get_by_text("The server does not answer").wait_for()
    with serving(port=first.port) as second:
        assert second.port == first.port
        page.get_by_label("queries 0, 0").fill("4")
        page.get_by_role("alert").get_by_text("its server was started anew").wait_for()
    page.close()


def test_without_a_model_small_ones_are_there_and_larger_ones_are_trained_on_request(browser, monkeypatch, tmp_path):
    """No part is empty; an error of training is shown, and then how far it is, and what the model looks at."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    short = [
        "--steps",
        "12",
        "--evaluate-every",
        "6",
        "--size",
        "12",
        "--layers",
        "1",
        "--heads",
        "3",
        "--patch-size",
        "2",
    ]
    with serving() as server:
        page = browser.new_page()
        for tab in ("heads", "translate", "language", "model"):
            go(page, server, tab)
            drawn_view(page)
        page.goto(f"{server.address}/laboratory?language=zh#/image")
        page.get_by_role("button", name="现在训练").wait_for()
        assert english(page, ["small", "vit", "resnet"]) == []
        page.goto(f"{server.address}/laboratory?language=en#/image")
        until(page, "document.querySelectorAll('figure canvas[data-drawn]').length === 2")
        button = page.get_by_role("button", name="train it now")
        monkeypatch.setitem(model_store.RECIPES, "images", {"vit": ["images", str(tmp_path / "nowhere")]})
        button.click()
        page.get_by_text("nowhere").wait_for(timeout=120_000)
        monkeypatch.setitem(model_store.RECIPES, "images", {"vit": ["images", "--model", "vit", *short]})
        button.click()
        page.locator("progress").wait_for()
        until(page, "document.querySelectorAll('figure canvas[data-drawn]').length === 1")
        page.close()


def test_any_module_is_explored_from_python(browser, capsys):
    tokenizer = train_tokenizer(TEXTS * 3, "word", 60, append_eos=False)
    model = regard.LanguageModel(tokenizer.get_vocab_size(), 24, 2, 3)
    with regard.explore(model, tokenizer, port=8_660) as explorer:
        assert capsys.readouterr().out == f"{explorer.url}\n"
        page, key = browser.new_page(), explorer.url.partition("key=")[2]
        page.goto(explorer.url)
        drawn_view(page)
        assert "key=" not in page.url  # nor in the history
        assert key not in explorer.url  # there is a new one, for another browser
        page.reload()
        drawn_view(page)
        assert page.locator("#model").inner_text().startswith("LanguageModel")
        page.locator("#text").fill("a dog sees the cat")
        until(page, "document.querySelectorAll('.rv-words span').length === 5")
        page.close()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(explorer.url)
    assert model.training  # as it was
    with pytest.raises(TypeError, match=r"model: expected a torch\.nn\.Module, got str"):
        regard.explore("a folder")
