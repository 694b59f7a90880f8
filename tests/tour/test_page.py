"""The page: self-contained, whole in both languages, and at one with the code and with results.json."""

import html
import inspect
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import axe_playwright_python
import pytest
from PIL import Image

from regard.tour import report, words
from regard.tour.page import highlight, measuring_code
from regard.tour.section import LANGUAGES, show
from tests.browsing import minded

SCREENS = Path("build/screens")  # kept, to be looked at
SIZES = {"laptop": (1280, 800), "phone": (390, 844)}
VOID = {"meta", "img", "source", "br", "link", "input"}
LOADS = ("src", "srcset", "data", "poster", "action", "background")


class Reader(HTMLParser):
    """Elements with their attributes; closing tags have to match."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.open = [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> at {self.getpos()}"

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(params=LANGUAGES)
def language(request):
    return request.param


@pytest.fixture
def page(finished, language):
    return finished.page(language)


@pytest.fixture
def reader(page):
    return Reader(page)


def text_of(part):
    return html.unescape(re.sub(r"<[^>]*>", "", part))


def part_of(page, result):
    """The section of the page that belongs to a result."""
    return re.search(rf'<section id="{result.section.anchor}".*?</section>', page, flags=re.DOTALL).group()


def test_it_is_html_in_its_language(page, reader, language):
    assert page.startswith("<!doctype html>")
    assert reader.all("html") == [{"lang": {"en": "en", "zh": "zh-Hans"}[language]}]
    for tag in ("main", "nav", "h1"):
        assert len(reader.all(tag)) == 1


def test_it_loads_nothing_from_elsewhere(page, reader):
    for tag, attributes in reader.elements:
        for name in LOADS:
            assert not re.match(r"\w+:|//", attributes.get(name) or "")
        assert tag == "math" or "style" not in attributes
    assert [link["href"] for link in reader.all("link")] == ["data:,"]
    without_names = page.replace("http://www.w3.org/", "")  # of namespaces
    assert not re.search(r"url\(|@import|https?:", without_names)


def test_every_link_leads_somewhere(finished, reader):
    ids = [attributes["id"] for _, attributes in reader.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [attributes["href"] for attributes in reader.all("a")]
    assert "results.json" in links
    for link in links:
        assert link[1:] in ids if link.startswith("#") else (finished.out / link).is_file(), link


def test_the_contents_name_every_section(page, finished):
    contents = re.search(r"<nav.*?</nav>", page, flags=re.DOTALL).group()
    table = re.search(r'<table class="verdicts".*?</table>', page, flags=re.DOTALL).group()
    for result in finished.results:
        assert f'href="#{result.section.anchor}"' in contents
        assert f'href="#{result.section.anchor}"' in table


def test_every_picture_is_there_and_described(page, finished, language):
    for result in finished.results:
        part = part_of(page, result)
        assert part.count("<svg") == len(result.pictures)
        for picture in result.pictures:
            assert picture.svg.to(language) in part
            assert f"<figcaption>{html.escape(picture.caption.to(language))}</figcaption>" in part.replace(
                "&#39;", "&#x27;"
            )


def test_the_code_that_is_shown_is_the_code_that_ran(page, finished):
    for result in finished.results:
        shown = [text_of(code) for code in re.findall(r"<code>(.*?)</code>", part_of(page, result), flags=re.DOTALL)]
        section = result.section
        assert shown[0] == section.plain.strip()
        assert shown[1] == section.short.strip()
        assert shown[-1] == measuring_code(section)
        assert inspect.getsource(section.judge).strip() in shown[-1]
        assert section.plain.strip() not in shown[-1]
        for exercise, lines in zip(section.exercises, shown[2:-1], strict=True):
            assert [line.split("  #")[0].strip() for line in lines.splitlines()] == list(exercise.change)


def test_page_table_and_results_agree(page, finished, language, capsys):
    whole = json.loads((finished.out / "results.json").read_text(encoding="utf-8"))
    report.print_table(finished.results, "en")
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    for claim, result in zip(whole["claims"], finished.results, strict=True):
        part = part_of(page, result)
        meanings = {name: meaning.to(language) for name, meaning in result.section.meanings.items()}
        numbers = dict(re.findall(r'<th scope="row">(.*?)</th><td class="n">(.*?)</td>', part))
        shown = {meanings[name]: show(value) for name, value in claim["numbers"].items()}
        assert {html.unescape(meaning): number for meaning, number in numbers.items()} == shown
        assert words.say(claim["verdict"]).to(language) in text_of(re.search("<h2.*?</h2>", part).group())
        for criterion, met in zip(result.criteria, claim["criteria"], strict=True):
            assert criterion.met is met["met"]
            assert criterion.sentence.to(language) in text_of(part)
        (row,) = (row for row in rows if row[:1] == [str(claim["number"])])
        assert claim["verdict"] in " ".join(row)
        assert show(claim["numbers"][claim["deciding"]]) in " ".join(row)


def test_results_say_what_made_them(finished):
    whole = json.loads((finished.out / "results.json").read_text(encoding="utf-8"))
    assert list(whole["versions"]) == ["regard", "Python", "torch", "numpy"]
    assert whole["seconds"] == pytest.approx(sum(claim["seconds"] for claim in whole["claims"]), abs=0.05)
    for claim in whole["claims"]:
        assert claim["error"] is None
        assert claim["claim"]


def test_the_index_is_the_page_in_the_chosen_language(finished):
    assert (finished.out / "index.html").read_text(encoding="utf-8") == finished.page("en") != finished.page("zh")
    assert 'href="zh.html"' in finished.page("en")
    assert 'href="en.html"' in finished.page("zh")


def test_highlighting_changes_nothing_but_colours():
    source = 'def run(x):\n    # a < b & c\n    return f"{x!r} <b>", regard.attend(x), 1_000, """\n  two\n"""\n'
    marked = highlight(source)
    assert text_of(marked) == source.strip()
    assert '<span class="k">def</span>' in marked
    assert '<span class="c"># a &lt; b &amp; c</span>' in marked
    assert '<span class="nn">attend</span>' in marked


def test_the_cover_is_drawn(tmp_path):
    from tests.tour import cover

    cover.main(tmp_path / "cover.png")
    committed = Path(__file__).resolve().parents[2] / "docs" / "pictures" / "attention.png"
    with Image.open(tmp_path / "cover.png") as drawn, Image.open(committed) as stored:
        assert drawn.size == stored.size
        assert stored.size[0] == 1600
    assert committed.stat().st_size < 200_000


# ----------------------------------------------------------------------------------------------------- in a browser


@pytest.fixture(params=["laptop", "phone"])
def size(request):
    return request.param


@pytest.fixture(params=["light", "dark"])
def colours(request):
    return request.param


@pytest.fixture
def tab(browser, finished, language, size, colours):
    width, height = SIZES[size]
    settings = {"viewport": {"width": width, "height": height}, "color_scheme": colours}
    with minded(browser, ("data:", "file:"), **settings) as page:
        page.goto((finished.out / f"{language}.html").as_uri())
        yield page


def test_nothing_sticks_out(tab, language, size, colours):
    SCREENS.mkdir(parents=True, exist_ok=True)
    tab.screenshot(path=SCREENS / f"tour-{language}-{size}-{colours}.png")
    assert tab.evaluate("document.documentElement.scrollWidth") == SIZES[size][0]
    paper = tab.evaluate("getComputedStyle(document.querySelector('section')).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") is (colours == "light")
    ink = tab.evaluate("getComputedStyle(document.querySelector('.chart text')).fill")
    assert (ink == "rgb(35, 39, 47)") is (colours == "light")


one_screen = pytest.mark.parametrize(("size", "colours"), [("laptop", "light")], indirect=True)


def test_a_page_that_fills_is_loaded_again_unless_it_is_in_use(browser, finished, tmp_path):
    text = (finished.out / "en.html").read_text(encoding="utf-8")
    (tmp_path / "en.html").write_text(text.replace("<section ", '<section data-pending="1" ', 1), encoding="utf-8")
    with minded(browser, ("data:", "file:")) as page:
        page.add_init_script("window.setInterval = (work) => { window.tick = work; }")
        page.goto((tmp_path / "en.html").as_uri())
        page.fill("#search", "kernel")
        page.evaluate("tick()")
        page.wait_for_timeout(300)
        assert page.input_value("#search") == "kernel"
        page.fill("#search", "")
        with page.expect_event("load"):
            page.evaluate("setTimeout(tick)")
        page.goto((finished.out / "en.html").as_uri())
        assert page.evaluate("window.tick === undefined")  # nothing is being run


@one_screen
def test_the_other_language_is_a_click_away(tab, language):
    tab.locator(".topbar a[lang]").click()
    assert tab.evaluate("document.documentElement.lang") == {"en": "zh-Hans", "zh": "en"}[language]


@one_screen
def test_theme_search_and_copying(tab, language):
    tab.locator("#theme").click()
    assert tab.evaluate("document.documentElement.dataset.theme") == "dark"
    tab.locator("#search").fill("softmax")
    shown = tab.evaluate("[...document.querySelectorAll('#rail li')].filter(item => !item.hidden).length")
    assert 0 < shown < len(tab.locator("#rail li").all())
    assert tab.locator("pre .copy").count() > 80


@one_screen
def test_a_picture_is_saved_with_its_colours(tab, tmp_path):
    for name, start in (("SVG", b"<svg"), ("PNG", b"\x89PNG")):
        with tab.expect_download() as download:
            tab.locator(".saves button", has_text=name).first.click()
        path = tmp_path / name
        download.value.save_as(path)
        assert path.read_bytes().startswith(start)
        assert b"var(--" not in path.read_bytes() or b"fill: rgb" in path.read_bytes()


@one_screen
def test_it_prints(tab, language):
    paper = tab.pdf(path=SCREENS / f"tour-{language}.pdf", format="A4")
    assert 40 < len(re.findall(rb"/Type\s*/Page\b", paper)) < 120


@pytest.mark.parametrize("size", ["phone"], indirect=True)
@pytest.mark.parametrize("colours", ["light"], indirect=True)
def test_on_a_phone_the_contents_are_a_drawer(tab):
    assert not tab.locator("#rail").is_visible()
    tab.locator("#menu").click()
    assert tab.locator("#rail").is_visible()
    tab.keyboard.press("Escape")
    assert not tab.locator("#rail").is_visible()


@pytest.mark.parametrize(
    ("language", "size", "colours"), [("en", "laptop", "light"), ("zh", "phone", "dark")], indirect=True
)
def test_axe_finds_nothing(tab):
    tab.evaluate((Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8"))
    some = "axe.run({ exclude: ['#claims > section:nth-child(n + 9)'] })"  # they are made alike, and there are many
    found = tab.evaluate(f"{some}.then(report => report.violations.map(each => [each.id, each.nodes[0].html]))")
    assert found == []
