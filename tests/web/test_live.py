"""The tour's page, served: controls that draw again, and sections that arrive."""

import pytest

from regard.tour.runner import run_section
from regard.web.tour import Tour
from tests.browsing import minded, until
from tests.tour import small
from tests.web.serving import serving


@pytest.fixture(scope="module")
def tour():
    live = Tour([small.section(3), small.section(5)])
    live.results[3] = run_section(live.sections[0])
    return live


@pytest.fixture(scope="module")
def server(tour):
    with serving(tour=tour, port=8_650) as served:
        yield served


@pytest.fixture
def page(browser, server):
    with minded(browser, (server.address, "data:", "blob:"), viewport={"width": 1200, "height": 800}) as opened:
        server.enter(opened)
        opened.goto(f"{server.address}/?language=en")
        yield opened


def picture(page):
    return page.locator("#claim-03 .cell .frame").inner_html()


def test_every_control_draws_again_and_reset_brings_back(page):
    first = picture(page)
    slider = page.locator("#claim-03 input[type=range]").first
    slider.focus()
    slider.press("ArrowRight")
    until(page, "document.querySelector('#claim-03 .controls output').textContent !== '1'")
    until(page, f"document.querySelector('#claim-03 .cell .frame').innerHTML !== {first!r}")
    page.locator("#claim-03 select").select_option("square")
    page.locator("#claim-03 input[type=text]").fill("a dog")
    page.locator("#claim-03 .controls button").click()
    until(page, f"document.querySelector('#claim-03 .cell .frame').innerHTML === {first!r}")
    assert page.locator("#claim-03 input[type=text]").input_value() == "the cat"


def test_the_last_answer_wins(page):
    slider = page.locator("#claim-03 input[type=range]").nth(1)
    slider.focus()
    for _ in range(6):
        slider.press("ArrowRight")
    until(page, "document.querySelector('#claim-03 .controls').getAttribute('aria-busy') === 'false'")
    until(page, "document.querySelectorAll('#claim-03 .controls output')[1].textContent === '9'")
    until(page, "document.querySelector('#claim-03 .tables').textContent.includes('10')")  # 1 + 9, the last


def test_sections_arrive_while_they_are_run(page, tour):
    assert page.locator('[data-pending="5"]').count() == 1
    tour.results[5] = run_section(tour.sections[1])
    until(page, "!document.querySelector('[data-pending]')")
    assert page.locator("#claim-05 figure").count() == 2
    assert page.locator("#claim-05 .controls").count() == 1
    del tour.results[5]


def test_the_laboratory_is_a_link_away_and_keeps_the_language(page, server):
    page.goto(f"{server.address}/?language=zh")
    page.locator('#rail a[data-place="formula"]').click()
    until(page, "location.pathname === '/laboratory'")
    assert page.evaluate("document.documentElement.lang") == "zh-Hans"
    until(page, "document.querySelector('#tab').children.length > 0")
    page.locator(".topbar .name").click()
    until(page, "location.pathname === '/'")
