"""Every tab in Chinese, in the dark and on a phone, in a real browser."""

import re
from pathlib import Path

import pytest

from regard.view.heads import SCORES
from tests.browsing import until, violations
from tests.web.laboratory import TABS, drawn, drawn_view, english, follow_a_token, screenshot


@pytest.mark.parametrize("tab", TABS)
def test_in_chinese_and_on_a_phone_in_the_dark(page, server, tab):
    """No English; and nothing sticks out to the side, or cannot be read."""
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
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 390, "height": 800})
    page.wait_for_timeout(300)
    screenshot(page, f"{tab}-dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert violations(page) == []


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
