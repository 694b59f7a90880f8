"""A browser for tests of pages; errors of a page, and requests to elsewhere, fail the test."""

import shutil
from contextlib import contextmanager


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
    assert wrong == []
