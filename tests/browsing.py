"""A browser for tests of pages; errors of a page, and requests to elsewhere, fail the test."""

import shutil
import time
from contextlib import contextmanager
from pathlib import Path

import axe_playwright_python

AXE = Path(axe_playwright_python.__file__).parent / "axe.min.js"


def chromium():
    """Where the browser is, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def launched(playwright):
    """The browser, running, which opens no connection by itself."""
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
             "--disable-sync", "--no-first-run", "--disable-quic"]  # fmt: skip
    return playwright.chromium.launch(executable_path=chromium(), args=flags)


@contextmanager
def minded(browser, allowed, **settings):
    """A new page. By the end of the block it must have had no error, and sent no request but to allowed addresses."""
    context = browser.new_context(**settings)
    page = context.new_page()
    wrong = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("request", lambda request: wrong.append(request.url) if not request.url.startswith(allowed) else None)
    yield page
    context.close()
    assert wrong == [], wrong


def until(page, expression):
    """Wait for an expression to be true. (Playwright's wait_for_function evaluates text, which the policy forbids.)"""
    deadline = time.monotonic() + 30
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, f"it never came to {expression}"
        page.wait_for_timeout(20)


def violations(page):
    """What axe-core finds wrong: rules and elements."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    return page.evaluate("axe.run().then(({ violations }) => violations.map(({ id, nodes }) => [id, nodes[0].html]))")
