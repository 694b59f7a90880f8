"""A browser, where there is one."""

import os

import pytest

from tests.web.serving import chromium, launched


@pytest.fixture(scope="session")
def browser():
    """Debian's Chromium, driven by Playwright. CI has to have it."""
    from playwright.sync_api import sync_playwright

    if chromium() is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium here: install Debian's package chromium")
        pytest.skip("no Chromium here: install Debian's package chromium")
    with sync_playwright() as playwright:
        found = launched(playwright)
        yield found
        found.close()
