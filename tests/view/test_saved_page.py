"""A saved page in a real browser: mouse, keys, screen readers, phones, darkness, Chinese, links, files, speed; and the
same view as a widget. Errors of the page, and requests to anywhere else, fail."""

import json
import re
from pathlib import Path

import pytest
import torch
from PIL import Image

import regard
from regard.attention.capture import AttentionMap
from regard.view.attention import AttentionDisplay
from regard.view.page import SCRIPTS
from tests.browsing import minded, until, violations

SCREENS = Path("build/screens")  # kept, to be looked at
WORDS = ("the", "cat", "sat", "on", "a", "mat", "while", "one", "dog", "and", "two", "birds", "were", "looking", "at")


def display_of(layers, heads, n, title="a title"):
    """Heads that look at the token before (1.2), three before (1.3), at the first (0.0), at what came next (1.4)."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(len(WORDS), (n,), generator=generator)
    ids[n // 2 :] = ids[: n - n // 2].clone()  # what was said is said again
    row, key = torch.arange(n)[:, None], torch.arange(n)
    patterns = {
        (1, 2): 9.0 * (key == row - 1),
        (1, 3): 9.0 * (key == row - 3),
        (0, 0): 9.0 * (key == 0),
        (1, 4): 4.0 * ((ids[key - 1] == ids[:, None]) & (key > 0)),
    }
    maps = []
    for layer in range(layers):
        scores = torch.randn(heads, n, n, generator=generator) * 1.5
        for head in range(heads):
            scores[head] += patterns.get((layer, head), torch.zeros(n, n))
        weights = scores.masked_fill(key > row, -torch.inf).softmax(-1)[None]
        maps.append(AttentionMap(f"blocks.{layer}", "causal", weights, tuple(range(heads)), tuple(range(n)), layer))
    return AttentionDisplay(maps, [WORDS[number] for number in ids], title=title)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return display_of(3, 5, 13).save(tmp_path_factory.mktemp("pages") / "small.html").as_uri()


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    return display_of(2, 5, 211).save(tmp_path_factory.mktemp("pages") / "long.html").as_uri()


@pytest.fixture
def page(browser):
    with minded(browser, ("data:", "blob:", "file:"), viewport={"width": 1280, "height": 860}) as opened:
        yield opened


def show(page, address):
    page.goto("about:blank")
    page.goto(address)
    until(page, "document.querySelector('#view')?.dataset.drawn && document.querySelector('.rv-grid').dataset.painted")


def chips(page):
    return [text.replace("×", "").strip() for text in page.locator(".rv-chip").all_inner_texts()]


def lines(page):
    return page.locator(".rv-lines path").count()


def token(page, side, index):
    return page.locator(f".rv-strips g[data-side={side}][data-index='{index}']")


def test_it_opens_on_the_head_that_stands_out_and_a_token_shows_what_it_looks_at(page, small):
    show(page, small)
    assert chips(page) == ["layer 1, head 2"]
    assert "previous token" in page.locator(".rv-about").inner_text()
    token(page, "row", 7).hover()
    until(page, "document.querySelector('.rv-readout').textContent.includes('looks at')")
    tokens = page.locator(".rv-words span").all_inner_texts()
    assert page.locator(".rv-readout").inner_text().startswith(f"“{tokens[7]}” looks at: {tokens[6]} 1.00")
    assert page.locator(".rv-strips .rv-chosen").text_content() == tokens[7]
    token(page, "column", 6).hover()
    until(page, f"document.querySelector('.rv-readout').textContent.startsWith('“{tokens[6]}” is looked at by')")
    page.mouse.move(2, 2)
    until(page, "document.querySelector('.rv-readout').textContent.startsWith('Point')")  # nothing is kept


def test_a_click_keeps_a_token_and_another_one_releases_it(page, small):
    show(page, small)
    token(page, "row", 5).click()
    page.mouse.move(2, 2)
    until(page, "location.hash.includes('row=5')")
    assert page.locator(".rv-strips .rv-chosen").count() == 1
    page.reload()  # a link keeps it
    until(page, "document.querySelectorAll('.rv-strips .rv-chosen').length === 1")
    token(page, "row", 5).click()
    until(page, "!location.hash.includes('row=')")


def test_several_heads_at_once_by_colour(page, small):
    show(page, small)
    page.locator("[role=gridcell]").nth(8).click(modifiers=["Shift"])
    until(page, "document.querySelectorAll('.rv-chip').length === 2")
    token(page, "row", 7).hover()
    until(page, "document.querySelectorAll('.rv-lines .c1').length > 0")
    styles = {path.get_attribute("stroke-dasharray") for path in page.locator(".rv-lines path").all()}
    assert len(styles) == 2  # not by colour alone
    page.get_by_label("close layer 1, head 2").click()
    until(page, "document.querySelectorAll('.rv-chip').length === 1")
    assert chips(page) == ["layer 1, head 3"]


def test_the_grid_is_one_stop_of_the_tab_key(page, small):
    show(page, small)
    assert page.locator("[role=gridcell]").count() == 15
    assert page.locator("[role=gridcell][tabindex='0']").count() == 1
    page.locator("[role=gridcell][tabindex='0']").focus()
    for key in ("ArrowUp", "ArrowRight", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    until(page, "location.hash.includes('heads=0.4')")
    page.keyboard.press("Home")
    page.keyboard.press("Space")
    until(page, "location.hash.includes('heads=0.4%2C0.0')")
    until(page, "document.activeElement.getAttribute('aria-selected') === 'true'")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('role')") != "gridcell"


def test_arrow_keys_choose_tokens_and_what_they_look_at_is_read_aloud(page, small):
    show(page, small)
    page.get_by_role("slider").focus()
    for key in ("Home", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    until(page, "location.hash.includes('row=2')")
    slider = page.get_by_role("slider")
    assert slider.get_attribute("aria-valuenow") == "2"
    assert slider.get_attribute("aria-valuetext") == page.locator(".rv-readout").inner_text()
    page.get_by_text("the numbers", exact=True).click()
    until(page, "document.querySelectorAll('.rv-numbers tr').length === 14")  # a key each, below the heads
    page.get_by_role("slider").focus()
    page.keyboard.press("Escape")
    until(page, "!location.hash.includes('row=')")


def test_heads_are_sorted_by_their_scores(page, small):
    show(page, small)
    for score, head in (("previous token", "1.2"), ("first token", "0.0"), ("induction", "1.4")):
        page.locator(".rv-sort").select_option(score)
        until(page, f"document.querySelector('[role=gridcell]').dataset.head === '{head}'")
    assert re.match(r"1·4\n0\.\d\d", page.locator("[role=gridcell] small").first.inner_text())


def test_links_keep_everything(page, small):
    show(page, small + "#heads=2.1,2.3&row=4&view=map&scale=log&sort=induction")
    assert chips(page) == ["layer 2, head 1", "layer 2, head 3"]
    assert page.locator(".rv-heat .rv-chosen").count() == 1
    pressed = page.locator("[aria-pressed=true]").all_inner_texts()
    assert pressed == ["log", "map"]
    assert page.locator(".rv-sort").input_value() == "induction"
    show(page, small + "#heads=9.9,x&row=-3&view=none&scale=&sort=constructor&at=1")  # nonsense is ignored
    assert chips(page) == ["layer 1, head 2"]


@pytest.mark.parametrize("ending", ["svg", "png"])
@pytest.mark.parametrize("view", ["lines", "map"])
def test_what_is_shown_can_be_saved(page, small, tmp_path, ending, view):
    show(page, f"{small}#view={view}&row=7")
    with page.expect_download() as download:
        page.get_by_role("button", name=ending.upper()).click()
    path = tmp_path / f"saved.{ending}"
    download.value.save_as(path)
    if ending == "svg":
        text = path.read_text(encoding="utf-8")
        assert "looks" in text
        assert "var(" not in text
        assert "class=" not in text  # colours and letters are in it
    else:
        with Image.open(path) as image:
            assert min(image.size) > 300
            assert len(image.convert("RGB").getcolors(1 << 20)) > 20


def test_a_long_text_is_a_window_beside_the_whole(page, long):
    show(page, long)
    assert page.locator(".rv-strips g[data-side=row]").count() == 40
    box = page.locator(".rv-overview").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.7, box["y"] + box["height"] * 0.7)
    until(page, "Number(document.querySelector('.rv-strips g[data-side=row]').dataset.index) > 90")
    page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + box["height"] * 0.7)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + box["height"] * 0.5, steps=3)
    page.mouse.up()
    until(page, "Number(document.querySelector('.rv-strips g[data-side=column]').dataset.index) < 40")
    show(page, long + "#heads=0.0&row=200")  # what a token looks at most is far above the window
    assert page.locator(".rv-outside g").first.text_content().startswith("↑")
    page.get_by_role("slider").focus()
    page.keyboard.press("Home")
    until(page, "document.querySelector('.rv-strips g[data-side=row]').dataset.index === '0'")


def test_a_thin_diagonal_stays_visible_in_small(page, long):
    """Of a head that looks at the token before, every row of its small picture has a dark cell."""
    show(page, long + "#scale=weight")
    darkest = page.evaluate("""() => {
      const canvas = document.querySelector("[data-head='1.2'] canvas");
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      return Array.from({ length: canvas.height }, (_, row) => Math.min(...Array.from({ length: canvas.width },
        (_, column) => data[4 * (row * canvas.width + column) + 1])));
    }""")
    assert len(darkest) == 48
    assert max(darkest) < 60


@pytest.mark.parametrize("place", ["", "#view=map&row=3", "#heads=1.2,0.0&row=3"])
@pytest.mark.parametrize(("width", "scheme", "language"), [(1280, "light", "en"), (390, "dark", "zh")])
def test_axe_finds_nothing_and_nothing_sticks_out(page, small, long, width, scheme, language, place):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 860})
    for name, address in (("small", small), ("long", long)):
        show(page, f"{address}{place or '#'}&language={language}")
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        SCREENS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SCREENS / f"page-{name}-{scheme}-{len(place)}.png", full_page=True)


def test_language_and_theme_by_a_click(page, small):
    show(page, small)
    page.get_by_role("button", name="中文").click()
    until(page, "document.documentElement.lang === 'zh-Hans' && document.body.textContent.includes('第 1 层，第 2 头')")
    text = page.evaluate("document.querySelector('main').innerText.replace(/blocks\\.\\d/g, '')")
    tokens = set(WORDS)
    assert set(re.findall(r"[A-Za-z]{3,}", text)) - tokens <= {"Shift", "SVG", "PNG"}
    page.get_by_role("button", name="浅色或深色").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 24, 29)"
    page.get_by_role("button", name="English").click()
    until(page, "document.documentElement.lang === 'en'")


def test_transitions_are_short_and_absent_where_motion_is_unwanted(page, small):
    page.emulate_media(reduced_motion="no-preference")
    show(page, small)
    times = (
        "[...document.querySelectorAll('.rv *')].map((node) => parseFloat(getComputedStyle(node).transitionDuration))"
    )
    assert set(page.evaluate(times)) <= {0, 0.15}
    page.emulate_media(reduced_motion="reduce")
    assert set(page.evaluate(times)) == {0}


def test_what_changed_is_two_runs_and_their_difference(page, tmp_path):
    first, second = display_of(2, 5, 13), display_of(2, 5, 13)
    second.maps[1].weights[0, 2, 7] = torch.eye(13)[3]
    show(page, (second - first).save(tmp_path / "change.html").as_uri() + "#heads=1.2&row=7")
    assert page.locator(".rv-panel").count() == 2
    after, before = page.locator(".rv-readout").all_inner_texts()
    tokens = second.maps[0].tokens
    assert f"looks at: {tokens[3]} 1.00" in after
    assert f"looks at: {tokens[6]} 1.00" in before
    page.get_by_role("button", name="map").click()
    until(page, "document.querySelectorAll('.rv-name')[1].textContent === 'after minus before'")
    assert violations(page) == []


def test_the_inside_of_a_head(page, tmp_path):
    """Every number of it is there, and they add up: the products to the score, weights and values to the output."""
    model = regard.LanguageModel(31, 24, 2, 3).eval()
    for block in model.blocks:
        torch.nn.init.normal_(block.mixer.in_proj[0].weight)
    with regard.capture(model, operands=True) as seen:
        model(torch.tensor([[3, 4, 5, 6, 7]]))
    display = AttentionDisplay(seen, list("abcde"))
    show(page, display.save(tmp_path / "inside.html").as_uri() + "#view=inside&row=4")
    layer, head = map(int, re.match(r"layer (\d), head (\d)", chips(page)[0]).groups())
    seen = display.maps[layer]
    page.get_by_label("key", exact=True).select_option("2")
    until(page, "document.querySelector('.rv-inside').textContent.includes('“e” → “c”')")
    score = float(seen.query[0, head, 4] @ seen.key[0, head, 2] / 8**0.5)
    text = page.locator(".rv-inside").inner_text().replace("−", "-")
    assert float(re.search(r"the score is .*? = (-?[\d.]+)\.", text)[1]) == pytest.approx(score, abs=0.06)
    assert float(re.search(r"Σ e\^score = ([\d.]+)\.", text)[1]) == pytest.approx(
        float(seen.weights[0, head, 4, 2]), abs=6e-4
    )
    page.get_by_text("the numbers of this query").click()
    rows = [row.locator("td").all_text_contents() for row in page.locator(".rv-inside tr").all()[1:]]
    dimension = int(page.get_by_label("dimension of v").input_value())
    total = sum(float(row[-1].replace("−", "-")) for row in rows)
    assert total == pytest.approx(float(seen.output[0, head, 4, dimension]), abs=0.05)
    image = page.locator(".rv-inside image").nth(2)  # the scores: point at the first row
    image.hover(position={"x": 0.9 * float(image.get_attribute("width")), "y": 3})
    until(page, "document.querySelector('.rv-inside').textContent.includes('“a” may not look at “e”')")
    assert violations(page) == []


def test_the_page_of_twelve_layers_of_twelve_heads_over_512_tokens(page, tmp_path):
    """It is small, and shows the lines of a token that the mouse points at; how fast, the benchmarks say."""
    path = display_of(12, 12, 512).save(tmp_path / "large.html")
    assert path.stat().st_size < 6_000_000
    show(page, path.as_uri())
    box = page.locator(".rv-strips").bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 90)
    page.wait_for_function("document.querySelectorAll('.rv-strips path').length > 0")
    assert lines(page) > 0


def test_the_widget_shows_the_same_and_loads_nothing(page, tmp_path):
    """Its module in a page that stands for a notebook: dark by its background alone."""
    widget = display_of(2, 5, 13).widget()
    data = json.dumps(widget.data).replace("<", "\\u003c")
    (tmp_path / "notebook.html").write_text(
        f"<!doctype html><html lang=en><meta charset=utf-8><title>x</title>"
        f"<style>body {{ background: #111 }} {widget._css}</style><main id=cell></main>"
        f"<script type=application/json id=data>{data}</script><script type=module>"
        f"{widget._esm.replace('export default', 'const widget =')}\n"
        "const kept = { data: JSON.parse(document.getElementById('data').textContent), state: {} };\n"
        "window.kept = kept;\n"
        "const set = (name, value) => { kept[name] = value; };\n"
        "const model = { get: (name) => kept[name], set, save_changes() {} };\n"
        "widget.render({ model, el: document.getElementById('cell') });</script></html>",
        encoding="utf-8",
    )
    page.goto((tmp_path / "notebook.html").as_uri())
    until(page, "document.querySelectorAll('.rv-lines path').length > 0")
    assert chips(page) == ["layer 1, head 2"]
    assert page.evaluate("document.getElementById('cell').dataset.theme") == "dark"
    page.locator("[role=gridcell]").first.click()
    until(page, "kept.state.heads === '0.0'")


def test_notebooks_show_the_widget_and_a_picture_where_there_is_none():
    from IPython.core.formatters import DisplayFormatter

    shown, _ = DisplayFormatter().format(display_of(2, 5, 7))
    assert {"application/vnd.jupyter.widget-view+json", "text/html"} <= shown.keys()


def test_modules_of_the_view_import_only_what_stands_before_them():
    """So that they can be joined to one script."""
    for number, name in enumerate(SCRIPTS):
        source = Path(f"regard/view/static/{name}.js").read_text(encoding="utf-8")
        assert set(re.findall(r'from "\./(\w+)\.js"', source)) <= set(SCRIPTS[:number])
