"""The page: self-contained, whole in both languages, and at one with the code and with results.json."""

import html
import inspect
import json
import re
import struct
from html.parser import HTMLParser
from pathlib import Path

import pytest

from regard.tour import report, words
from regard.tour.page import highlight
from regard.tour.section import LANGUAGES, Outcome, show
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
    return re.search(rf'<section id="{result.anchor}".*?</section>', page, flags=re.DOTALL).group()


def test_it_is_html_in_its_language(page, reader, language):
    assert page.startswith("<!doctype html>")
    assert reader.all("html") == [{"lang": {"en": "en", "zh": "zh-Hans"}[language]}]
    assert len(reader.all("title")) == len(reader.all("main")) == len(reader.all("nav")) == len(reader.all("h1")) == 1


def test_it_loads_nothing_from_elsewhere(page, reader):
    for _, attributes in reader.elements:
        for name in LOADS:
            assert not re.match(r"\w+:|//", attributes.get(name) or "")
        assert "style" not in attributes
    assert not reader.all("script")
    assert not reader.all("link")
    assert not re.search(r"url\(|@import|https?:", page)


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
        assert f'href="#{result.anchor}"' in contents
        assert f'href="#{result.anchor}"' in table


def test_every_picture_is_there_and_described(finished, reader, language):
    images, dark = reader.all("img"), reader.all("source")
    assert len(images) == len(dark) == len(finished.results)
    for image, other, result in zip(images, dark, finished.results, strict=True):
        assert image["alt"] == result.section.caption.to(language)
        assert "dark" in other["media"]
        sizes = [png_size(finished.out / name) for name in (image["src"], other["srcset"])]
        assert sizes[0] == sizes[1]
        assert sizes[0][0] == 1440
        assert (finished.out / image["src"]).read_bytes() != (finished.out / other["srcset"]).read_bytes()


def png_size(path):
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG")
    return struct.unpack(">II", content[16:24])


def test_the_code_that_is_shown_is_the_code_that_ran(page, finished):
    for result in finished.results:
        shown = text_of(re.search(r"<code>(.*?)</code>", part_of(page, result), flags=re.DOTALL).group(1))
        assert shown == inspect.getsource(result.section.run).strip()


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
        assert words.OUTCOMES[Outcome(claim["verdict"])].to(language) in text_of(re.search("<h2.*?</h2>", part).group())
        for criterion, met in zip(result.criteria, claim["criteria"], strict=True):
            assert criterion.met is met["met"]
            assert criterion.sentence.to(language) in text_of(part)
        (row,) = (row for row in rows if row[:1] == [str(claim["number"])])
        assert claim["verdict"] in " ".join(row)
        assert show(claim["numbers"][claim["deciding"]]) in row


def test_results_say_what_made_them(finished):
    whole = json.loads((finished.out / "results.json").read_text(encoding="utf-8"))
    assert list(whole["versions"]) == ["regard", "Python", "torch", "numpy", "matplotlib"]
    assert whole["seconds"] == pytest.approx(sum(claim["seconds"] for claim in whole["claims"]), abs=0.05)
    for claim in whole["claims"]:
        assert claim["error"] is None
        assert claim["claim"]
        assert all((finished.out / name).is_file() for name in claim["pictures"])


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
    from regard.tour import cover

    cover.main(tmp_path / "cover.png")
    committed = Path(__file__).resolve().parents[2] / "docs" / "pictures" / "attention.png"
    assert png_size(tmp_path / "cover.png") == png_size(committed)
    assert png_size(committed)[0] == 1600
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


def test_nothing_sticks_out_and_every_picture_comes(tab, finished, language, size, colours):
    SCREENS.mkdir(parents=True, exist_ok=True)
    tab.screenshot(path=SCREENS / f"tour-{language}-{size}-{colours}.png")
    assert tab.evaluate("document.documentElement.scrollWidth") == SIZES[size][0]
    assert set(tab.evaluate("[...document.images].map(image => image.complete && image.naturalWidth)")) == {1440}
    first = tab.evaluate("document.images[0].currentSrc")
    assert first.endswith(f"/{finished.results[0].picture_name(language, colours)}")


@pytest.mark.parametrize(("size", "colours"), [("laptop", "light")], indirect=True)
def test_the_other_language_is_a_click_away(tab, language):
    tab.locator(".languages a").click()
    assert tab.evaluate("document.documentElement.lang") == {"en": "zh-Hans", "zh": "en"}[language]


@pytest.mark.parametrize(("size", "colours"), [("laptop", "light")], indirect=True)
def test_it_prints(tab, language):
    paper = tab.pdf(path=SCREENS / f"tour-{language}.pdf", format="A4")
    assert 30 < len(re.findall(rb"/Type\s*/Page\b", paper)) < 60
    assert len(re.findall(rb"/Subtype\s*/Image", paper)) >= 31  # every picture
