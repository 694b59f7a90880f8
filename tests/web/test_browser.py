"""The page in a real browser. Errors of the page, and requests to anywhere else, fail."""

import re
import urllib.request
from pathlib import Path
from urllib.parse import parse_qs

import pytest
import torch
from PIL import Image

import regard
from regard.data.tokens import train_tokenizer
from regard.view.attention import AttentionDisplay
from regard.view.heads import SCORES
from regard.web import model_store
from tests.browsing import minded, until, violations
from tests.web.serving import TEXTS, folders, serving

TABS = ("curve", "formula", "heads", "translate", "language", "image", "model")
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
        server.enter(opened)
        yield opened


def go(page, server, place):
    server.enter(page)
    page.goto("about:blank")
    page.goto(f"{server.address}/laboratory#/{place}")


def screenshot(page, name):
    SCREENS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENS / f"{name}.png")


def values(page):
    query = page.evaluate("location.hash").partition("?")[2]
    return {name: texts[0] for name, texts in parse_qs(query).items()}


def drawn(page, least=1):
    until(page, f"Number(document.querySelector('#curve').dataset.drawn || 0) >= {least}")
    return int(page.locator("#curve").get_attribute("data-drawn"))


def drawn_view(page):
    until(page, "document.querySelector('#view')?.dataset.drawn && document.querySelector('.rv-grid').dataset.painted")


def follow_a_token(page):
    """By the keys, to the second token."""
    page.locator(".rv-slider").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    until(page, "document.querySelectorAll('.rv-strips .rv-chosen').length === 1")


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


@pytest.mark.parametrize("tab", ["heads", "translate", "language", "model"])
def test_texts(page, server, tab):
    go(page, server, tab)
    drawn_view(page)
    page.evaluate("document.querySelector('.rv-columns').dataset.old = '1'")
    page.locator("#text").fill("tom sees <b>the</b> cat")
    until(page, "document.querySelector('.rv-columns:not([data-old]) .rv-grid[data-painted]')")
    assert "tom" in values(page)["text"]
    if tab == "translate":
        assert page.locator(".aligned tr").count() > 1
    page.locator("[role=gridcell]").last.click()
    until(page, "[...document.querySelectorAll('.rv-grid [role=gridcell]')].at(-1).ariaSelected === 'true'")
    follow_a_token(page)
    assert values(page)["row"] == "1"
    screenshot(page, tab)
    page.keyboard.press("Escape")
    until(page, "document.querySelectorAll('.rv-strips .rv-chosen').length === 0")
    assert "row" not in values(page)


def test_the_inside_of_a_head_is_computed_when_it_is_asked_for(page, server):
    go(page, server, "heads?model=language&text=the%20cat%20is%20on&view=inside&heads=1.2&row=3")
    page.get_by_text("weights = softmax(scores + mask)").wait_for()
    page.wait_for_load_state("networkidle")  # the scores of heads have come, and nothing is drawn again by itself
    page.get_by_label("key", exact=True).select_option("0")
    chosen = "document.querySelector('.rv-inside').textContent.includes('“on” → “the”')"
    until(page, chosen)
    assert page.locator(".rv-inside image").count() == 9
    page.locator(".rv-inside").evaluate("node => { node.firstElementChild.dataset.old = 'true'; }")
    page.emulate_media(color_scheme="dark")  # all is drawn again, and the choice stays
    until(page, "!document.querySelector('.rv-inside [data-old]')")
    until(page, chosen)
    page.emulate_media(color_scheme="light")
    page.get_by_label("query", exact=True).select_option("0")
    page.get_by_label("key", exact=True).select_option("3")
    until(page, "document.querySelector('.rv-inside').textContent.includes('“the” may not look at “on”')")
    screenshot(page, "inside")


# What the small language model has learned: a story may say a sentence again, and its head 2.0 finds how it went on.
STORY = (
    "the%20tired%20king%20watches%20a%20horse.%20she%20laughs%20in%20my%20garden.%20the%20tired%20king%20watches%20a"
)


def bars(page):
    """The likeliest next words and their probabilities, before a cut and after it."""
    rows = page.locator(".bars label").all()
    return {row.locator("b").inner_text(): re.findall(r"[\d.]+", row.locator(".share").inner_text()) for row in rows}


def test_a_click_cuts_a_head_and_the_bars_show_what_that_changes(page, server):
    go(page, server, f"language?model=small%20language&text={STORY}")
    page.locator(".contributions [role=gridcell]").last.wait_for()
    before = bars(page)
    assert page.locator(".rv-chip").inner_text() == "layer 2, head 0"
    assert page.locator(".rv-badge").first.inner_text().startswith("induction")
    assert next(iter(before)) == "␣horse"
    assert float(before["␣horse"][0]) > 50
    assert page.locator(".contributions [role=gridcell]").count() == 12
    page.locator(".contributions [data-head='2.0']").click()
    until(page, "document.querySelector('.bars .changed') !== null")
    old, new = bars(page)["␣horse"]
    assert float(old) == float(before["␣horse"][0])
    assert float(new) < 0.5 * float(old)
    assert values(page)["cut"] == "2.0"
    assert "without 2.0" in page.locator(".cuts").inner_text()
    screenshot(page, "cut")
    page.reload()  # a link keeps it
    until(page, "document.querySelector('.bars .changed') !== null")
    page.locator(".contributions [data-head='2.0']").focus()
    page.keyboard.press("Enter")
    until(page, "document.querySelector('.bars label') && document.querySelector('.bars .changed') === null")
    assert bars(page) == before


def test_the_next_word_by_temperature_and_among_the_top(page, server):
    go(page, server, f"language?model=small%20language&text={STORY}")
    until(page, "document.querySelectorAll('.bars label').length === 10")
    first = bars(page)
    page.locator("#temperature").focus()
    for _ in range(40):
        page.keyboard.press("ArrowRight")
    until(page, f"!document.querySelector('.share').textContent.startsWith('{first['␣horse'][0]}')")
    assert float(bars(page)["␣horse"][0]) < float(first["␣horse"][0])
    page.locator("#top_k").focus()
    page.keyboard.press("ArrowRight")
    until(page, "document.querySelector('.share').textContent.startsWith('100')")
    assert values(page)["top_k"] == "1"
    page.get_by_role("button", name="reset").click()
    until(page, f"document.querySelector('.share').textContent.startsWith('{first['␣horse'][0]}')")
    page.get_by_label("put “␣horse” behind the text").click()
    until(page, "document.querySelector('#text').value.endsWith('watches a horse')")
    until(page, "document.querySelector('.bars b').textContent !== '␣horse'")
    page.locator(".bars input").nth(1).check()
    second = page.locator(".bars b").nth(1).inner_text()
    until(page, f"document.querySelectorAll('.writing h2')[1].textContent.includes('“{second}”')")


@pytest.mark.parametrize("mode", ["text", "model"])
def test_two_texts_or_two_models_side_by_side(page, server, mode):
    go(page, server, f"heads?model=small%20language&text={STORY}")
    drawn_view(page)
    page.get_by_role("button", name=f"another {mode}").click()
    until(page, "document.querySelectorAll('.rv-panel').length === 2")
    if mode == "text":
        page.get_by_role("button", name="map").click()
        page.get_by_text("first text minus second text", exact=True).wait_for()
        page.locator("#text2").fill("the cat is on")
        until(page, "document.querySelectorAll('.rv-panel')[1].querySelectorAll('.rv-words span').length === 4")
    else:
        page.locator("#model2").select_option("language")
        until(page, "document.querySelectorAll('.rv-name')[1]?.textContent === 'language'")
    screenshot(page, f"compare-{mode}")
    address = page.evaluate("location.href")
    go(page, server, "formula")
    page.goto(address)
    until(page, "document.querySelectorAll('.rv-panel').length === 2")


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
    drawn_view(page)
    page.locator("#text").fill(" ".join(["the cat is on the mat"] * 95))
    until(page, "document.querySelectorAll('.rv-words span').length === 570")
    page.locator("[role=gridcell]").last.click()
    until(page, "document.querySelector('.rv-chip').textContent.startsWith('layer 1, head 2')")
    follow_a_token(page)


# What is not a word of the page: names of kernels and models, what the reader typed, tokens, and module paths.
DATA = (
    "#kernel, #model, #model2, textarea, .rv-words, .rv-strips, .rv-heat text, td, .rv-table th, .translation, "
    ".aligned th, figcaption, .bars b, .bars button, .rv-inside select, .rv-inside p, .rv-readout, .rv-slider, .rv-name"
)
SHOWN = """(data) => {
  const nodes = document.createTreeWalker(document.getElementById("tab"), 5); // elements and texts
  const found = [document.title];
  for (let node = nodes.nextNode(); node; node = nodes.nextNode()) {
    if (node.nodeType === 3 && !node.parentElement.closest(data)) found.push(node.data);
    else if (node.nodeType === 1 && !node.closest(data)) {
      found.push(node.getAttribute("aria-label") ?? "", node.getAttribute("title") ?? "");
    }
  }
  return found;
}"""
NAMES = {
    "regard",
    "softmax",
    "Shift",
    "ViT",
    "ResNet",
    "Python",
    "SVG",
    "PNG",
    "explore",
    "FOLDER",
    "model",
    "tokenizer",
    "logit",
}


def english(page, names=()):
    """Texts of the open tab with a Latin word that is not a name."""
    texts = [re.sub(r"“.*?”|\w+\.[\w.]+", "", text) for text in page.evaluate(SHOWN, DATA)]  # tokens and paths
    return [text for text in texts if set(re.findall(r"[A-Za-z]{3,}|to|of", text)) - NAMES - set(names)]


@pytest.mark.parametrize("tab", TABS)
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
        drawn_view(page)
        if tab == "language":
            page.locator(".contributions [role=gridcell]").first.click()
            until(page, "document.querySelector('.bars .changed') !== null")
        assert english(page) == []  # before a token is chosen
        follow_a_token(page)
        page.get_by_role("button", name="内部").click()
        until(page, "document.querySelectorAll('.rv-inside image').length === 9")
        page.get_by_text("数据", exact=True).click()
    assert english(page, ["small", "vit", "resnet"] if tab == "image" else []) == []
    screenshot(page, f"{tab}-zh")


def test_words_of_the_pages_and_of_the_table_are_the_same():
    """Every text that goes through t is in Chinese, and nothing else is."""
    static = Path("regard/web/static")
    paths = [*static.glob("*.js"), *Path("regard/view/static").glob("*.js")]
    table, source = (
        re.sub(
            r'"\s+\+ "', "", "".join(path.read_text("utf-8") for path in paths if ("words" in path.stem) == is_table)
        )
        for is_table in (True, False)
    )
    words = {quoted or plain for quoted, plain in re.findall(r'^  (?:\[?"(.+?)"\]?|(\w+)):', table, re.MULTILINE)}
    assert len(words) > 80
    assert set(re.findall(r'\bt\(\s*"(.+?)"', source)) <= words
    from_python = {
        "self",
        "cross",
        "causal",
        "rollout",
        "class activation",
        *(name.replace("_", " ") for name in SCORES),
    }
    assert [word for word in words - from_python if f'"{word}"' not in source] == []


def test_the_last_text_wins_and_a_slow_answer_has_a_busy_mark(page, server):
    go(page, server, "heads?model=language&text=the%20cat")
    drawn_view(page)
    waiting, is_slow = [], [True]
    page.route("**/api/text", lambda route: waiting.append(route) if is_slow else route.continue_())
    page.locator("#text").fill("a dog")
    until(page, "document.querySelector('#tab').ariaBusy === 'true'")
    style = "getComputedStyle(document.querySelector('#tab'), '::after')"
    assert page.evaluate(f"{style}.animationDelay").startswith("0.15s")
    for text in ("a dog sees", "a dog sees the", "a dog sees the mat"):
        page.locator("#text").fill(text)
        page.wait_for_timeout(350)
    assert len(waiting) == 1  # what was typed meanwhile waits, and only the last of it is sent
    is_slow.clear()
    waiting[0].continue_()
    until(page, "document.querySelectorAll('.rv-words span').length === 5")
    until(page, "document.querySelector('#tab').ariaBusy === 'false'")


def test_two_tabs_at_once(browser, server):
    """Each has its own text, and weights that belong to it."""
    first, second = browser.new_page(), browser.new_page()
    for page, text in ((first, "the cat"), (second, "a dog sees the mat")):
        go(page, server, f"model?model=language&text={text.replace(' ', '%20')}")
    for page, count in ((first, 2), (second, 5)):
        drawn_view(page)
        until(page, f"document.querySelectorAll('.rv-words span').length === {count}")
        page.locator("[role=gridcell]").last.click()
        until(page, "document.querySelector('.rv-chip').textContent.startsWith('layer 1, head 2')")
        page.close()


@pytest.mark.parametrize("tab", TABS)
def test_dark_and_narrow(page, server, tab):
    """On a phone in the dark: nothing sticks out to the side."""
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 390, "height": 800})
    go(page, server, tab)
    until(page, "document.querySelectorAll('main canvas, main table').length > 0")
    if tab in ("heads", "translate", "language", "model"):
        drawn_view(page)
    page.wait_for_timeout(300)
    screenshot(page, f"{tab}-dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert violations(page) == []


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
    drawn_view(page)
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
        page.get_by_role("alert").get_by_text("its server was started anew").wait_for()
    page.close()


def test_a_page_of_one_file_has_tokens_that_are_text(page, tmp_path):
    """It opens from the disk, with nothing else around it."""
    model = regard.LanguageModel(31, 24, 2, 3).eval()
    with regard.capture(model) as capture:
        model(torch.tensor([[3, 4, 5, 6]]))
    path = AttentionDisplay(capture, ["<b>", "</script>", "猫", "&amp;"], title="<i>title</i>").save(
        tmp_path / "looks.html"
    )
    page.goto(path.as_uri() + "#heads=1.2&row=1")
    drawn_view(page)
    assert page.locator("h1").inner_text() == "<i>title</i>"
    assert page.locator(".rv-words span").all_inner_texts() == ["<b>", "</script>", "猫", "&amp;"]
    assert page.locator(".rv-readout").inner_text().startswith("“</script>” looks at")


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
