"""A browser to look at pages, and pages that mind their manners."""

import shutil
from contextlib import contextmanager


def chromium():
    """Where the browser is, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def launched(playwright):
    """The browser, running, which asks nobody for anything."""
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
             "--disable-sync", "--no-first-run", "--disable-quic"]  # fmt: skip
    return playwright.chromium.launch(executable_path=chromium(), args=flags)


@contextmanager
def minded(browser, allowed, **settings):
    """A page of its own. At the end of the block nothing may have gone wrong in it, and no other address been asked."""
    context = browser.new_context(**settings)
    page = context.new_page()
    wrong = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("request", lambda own: wrong.append(own.url) if not own.url.startswith(allowed) else None)
    yield page
    context.close()
    assert wrong == []
