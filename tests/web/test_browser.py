"""The page in a real browser. Errors of the page, and requests to anywhere else, fail."""

import re
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import torch
from PIL import Image

import regard
from regard.view.attention import AttentionDisplay
from regard.web import training
from tests.browsing import minded
from tests.web.serving import folders, serving

SCREENS = Path("build/screens")  # kept, to be looked at


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(folders(tmp_path_factory.mktemp("models"))) as served:
        yield served


@pytest.fixture
def page(browser, server):
    """A page whose errors and requests are checked at the end."""
    allowed = (server.address, "data:", "blob:", "file:")
    with minded(browser, allowed, viewport={"width": 1200, "height": 800}) as opened:
        yield opened


def until(page, expression):
    """Wait for an expression to be true. (Playwright's wait_for_function evaluates text, which the policy forbids.)"""
    deadline = time.monotonic() + 30
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, f"it never came to {expression}"
        page.wait_for_timeout(20)


def go(page, server, place):
    page.goto("about:blank")
    page.goto(f"{server.address}/laboratory#/{place}")


def screenshot(page, name):
    SCREENS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENS / f"{name}.png")


def values(page):
    return {name: texts[0] for name, texts in parse_qs(urlsplit(page.url).fragment.partition("?")[2]).items()}


def drawn(page, least=1):
    until(page, f"Number(document.querySelector('#curve').dataset.drawn || 0) >= {least}")
    return int(page.locator("#curve").get_attribute("data-drawn"))


def follow_a_token(page):
    """By the keys, to the second row of a map."""
    page.locator(".maps-canvas").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")
    until(page, "document.querySelectorAll('.maps-table tr').length > 1")


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


@pytest.mark.parametrize("tab", ["translate", "language", "model"])
def test_texts(page, server, tab):
    go(page, server, tab)
    page.locator(".maps-canvas").wait_for()
    page.locator("#text").fill("a dog sees <b>the</b> cat")
    until(page, "location.hash.includes('dog')")
    until(page, "document.querySelector('#maps h2').textContent.startsWith('layer 0, head 0')")
    if tab == "language":
        assert page.locator(".next tr").count() == 8
    if tab == "translate":
        assert page.locator(".aligned tr").count() > 1
    page.locator(".maps-row button").last.click()
    until(page, "document.querySelector('.maps-row:last-child button:last-child').ariaCurrent === 'true'")
    follow_a_token(page)
    assert values(page)["row"] == "1"
    screenshot(page, tab)
    page.keyboard.press("Escape")
    until(page, "document.querySelectorAll('.maps-table tr').length === 0")
    assert "row" not in values(page)


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


def test_six_hundred_tokens(page, server):
    """The page answers while they are there: a head is drawn, another one chosen, a token followed, in little time."""
    go(page, server, "model?model=language")
    page.locator(".maps-canvas").wait_for()
    page.locator("#text").fill("the cat is on the mat " * 95)
    until(page, "document.querySelector('.maps-canvas').width >= 500")
    page.locator(".maps-row button").last.click()
    until(page, "document.querySelector('#maps h2').textContent.startsWith('layer 1, head 2')")
    follow_a_token(page)


# What is not a word of the page: names of kernels and models, what the reader typed, tokens, and module paths.
DATA = (
    "#kernel, #model, textarea, .maps-words b, .maps-words span, td, .translation, .aligned th, figcaption b, .next td"
)
TEXTS = """(data) => {
  const nodes = document.createTreeWalker(document.getElementById("tab"), 5); // elements and texts
  const found = [document.title];
  for (let node = nodes.nextNode(); node; node = nodes.nextNode()) {
    if (node.nodeType === 3 && !node.parentElement.closest(data)) found.push(node.data);
    else if (node.nodeType === 1) found.push(...["aria-label", "title"].map((name) => node.getAttribute(name) ?? ""));
  }
  return found;
}"""
NAMES = {"regard", "softmax", "Shift", "ViT", "ResNet", "Python"}


def english(page, names=()):
    """Texts of the open tab with a Latin word that is not a name."""
    texts = [re.sub(r"“.*?”|\w+\.[\w.]+", "", text) for text in page.evaluate(TEXTS, DATA)]  # tokens and paths
    return [text for text in texts if set(re.findall(r"[A-Za-z]{3,}|to|of", text)) - NAMES - set(names)]


@pytest.mark.parametrize("tab", ["curve", "formula", "translate", "language", "image", "model"])
def test_in_chinese(page, server, tab):
    page.goto(f"{server.address}/laboratory?language=zh#/{tab}")
    until(page, "document.querySelectorAll('main canvas, main table.shown').length > 0")
    if tab == "curve":
        drawn(page)
        page.get_by_text("图中的数据").click()
        page.locator("details table tr").nth(10).wait_for()
    elif tab == "image":
        until(page, "document.querySelectorAll('figure canvas[data-drawn]').length === 2")
        page.locator("#layer").select_option("1")
    elif tab != "formula":
        until(page, "document.querySelector('#maps h2').textContent !== ''")
        assert english(page) == []  # before a row is chosen
        follow_a_token(page)
    assert english(page, ["vit", "resnet"] if tab == "image" else []) == []
    screenshot(page, f"{tab}-zh")


def test_words_of_the_pages_and_of_the_table_are_the_same():
    """Every text that goes through t is in Chinese, and nothing else is."""
    static = Path("regard/web/static")
    sources = [path.read_text("utf-8") for path in static.glob("*.js") if path.name != "words.js"]
    source = re.sub(r'"\s+\+ "', "", "".join([*sources, Path("regard/view/static/maps.js").read_text("utf-8")]))
    table = re.sub(r'"\s+\+ "', "", (static / "words.js").read_text("utf-8"))
    words = {quoted or plain for quoted, plain in re.findall(r'^  (?:\[?"(.+?)"\]?|(\w+)):', table, re.MULTILINE)}
    assert len(words) > 80
    assert set(re.findall(r'\bt\(\s*"(.+?)"', source)) <= words
    from_python = {"self", "cross", "causal", "rollout", "class activation"}
    assert [word for word in words - from_python if f'"{word}"' not in source] == []


def test_two_tabs_at_once(browser, server):
    """Each has its own text, and weights that belong to it."""
    first, second = browser.new_page(), browser.new_page()
    for page, text in ((first, "the cat"), (second, "a dog sees the mat")):
        go(page, server, f"model?model=language&text={text.replace(' ', '%20')}")
    for page, count in ((first, 2), (second, 5)):
        page.locator(".maps-canvas").focus()
        page.keyboard.press("Enter")
        until(page, f"document.querySelectorAll('.maps-words span').length === {count}")
        page.locator(".maps-row button").last.click()
        until(page, "document.querySelector('#maps h2').textContent.startsWith('layer 1, head 2')")
        page.close()


@pytest.mark.parametrize("tab", ["curve", "formula", "translate", "language", "image", "model"])
def test_dark_and_narrow(page, server, tab):
    """On a phone in the dark: nothing sticks out to the side."""
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 390, "height": 800})
    go(page, server, tab)
    until(page, "document.querySelectorAll('main canvas, main table').length > 0")
    page.wait_for_timeout(300)
    screenshot(page, f"{tab}-dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_back_and_forth(page, server):
    go(page, server, "curve")
    drawn(page)
    page.get_by_role("link", name="Formula").click()
    page.locator("#weights").wait_for()
    page.go_back()
    drawn(page)
    assert page.get_by_role("link", name="Curve").get_attribute("aria-current") == "page"


def test_nothing_is_ever_markup(page, server):
    """A text that would be a script, were it one."""
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    page.on("dialog", lambda dialog: pytest.fail("a script of the text ran"))
    go(page, server, "model")
    page.locator("#text").fill(evil)
    until(page, "location.hash.includes('onerror')")
    page.locator(".maps-canvas").wait_for()
    assert page.locator("main img").count() == 0
    assert page.locator("main script").count() == 0


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
        page.get_by_role("alert").get_by_text("load the page again").wait_for()
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_of_one_file(page, tmp_path, scheme):
    """It opens from the disk, with nothing else around it, and its tokens are text."""
    model = regard.LanguageModel(31, 24, 2, 3).eval()
    with regard.capture(model) as capture:
        model(torch.tensor([[3, 4, 5, 6]]))
    path = AttentionDisplay(capture, ["<b>", "</script>", "猫", "&amp;"], title="<i>title</i>").save(
        tmp_path / "looks.html"
    )
    page.emulate_media(color_scheme=scheme)
    page.goto(path.as_uri() + "#layer=1&head=2&row=1")
    page.locator(".maps-table tr").first.wait_for()
    assert page.locator("h1").inner_text() == "<i>title</i>"
    assert page.locator(".maps-words b").inner_text() == "</script>"
    assert page.locator("h2").inner_text().startswith("layer 1, head 2")
    screenshot(page, f"looks-{scheme}")


def test_without_a_model_one_is_trained_on_request(browser, monkeypatch, tmp_path):
    """Each tab offers it; an error is shown, and then how far it is, and what the model looks at."""
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
        button = page.get_by_role("button", name="train it now")
        for tab in ("translate", "language", "model", "image"):
            go(page, server, tab)
            button.wait_for()
        page.goto(f"{server.address}/laboratory?language=zh#/image")
        page.get_by_role("button", name="现在训练").wait_for()
        assert english(page) == []
        page.goto(f"{server.address}/laboratory?language=en#/image")
        button.wait_for()
        monkeypatch.setitem(training.RECIPES, "images", {"vit": ["images", str(tmp_path / "nowhere")]})
        button.click()
        page.get_by_text("nowhere").wait_for(timeout=120_000)
        monkeypatch.setitem(training.RECIPES, "images", {"vit": ["images", "--model", "vit", *short]})
        button.click()
        page.locator("progress").wait_for()
        page.locator("figure canvas[data-drawn]").wait_for(timeout=120_000)
        page.close()
