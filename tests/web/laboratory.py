"""The laboratory in a browser: where to go, what is drawn, and which words are on it."""

import re
from pathlib import Path
from urllib.parse import parse_qs

from tests.browsing import until

TABS = ("curve", "formula", "heads", "translate", "language", "image", "model")
SCREENS = Path("build/screens")  # kept, to be looked at


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
