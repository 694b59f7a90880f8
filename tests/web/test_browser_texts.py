"""Texts in a real browser: heads, what is inside one, the next word, two side by side."""

import re

import pytest
import torch

import regard
from regard.view.attention import AttentionDisplay
from tests.browsing import until
from tests.web.laboratory import drawn_view, follow_a_token, go, screenshot, values

# What the small language model has learned: a story may say a sentence again, and its head 2.0 finds how it went on.
STORY = (
    "the%20tired%20king%20watches%20a%20horse.%20she%20laughs%20in%20my%20garden.%20the%20tired%20king%20watches%20a"
)


def bars(page):
    """The likeliest next words and their probabilities, before a cut and after it."""
    rows = page.locator(".bars label").all()
    return {row.locator("b").inner_text(): re.findall(r"[\d.]+", row.locator(".share").inner_text()) for row in rows}


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


def test_six_hundred_tokens(page, server):
    """The page answers while they are there: a head is drawn, another one chosen, a token followed, in little time."""
    go(page, server, "model?model=language")
    drawn_view(page)
    page.locator("#text").fill(" ".join(["the cat is on the mat"] * 95))
    until(page, "document.querySelectorAll('.rv-words span').length === 570")
    page.locator("[role=gridcell]").last.click()
    until(page, "document.querySelector('.rv-chip').textContent.startsWith('layer 1, head 2')")
    follow_a_token(page)


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
