"""A browser, where there is one."""

import os
import shutil

import pytest


@pytest.fixture(scope="session")
def browser():
    """Debian's Chromium, driven by Playwright. CI has to have it."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium here: install Debian's package chromium")
        pytest.skip("no Chromium here: install Debian's package chromium")
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
                 "--disable-sync", "--no-first-run", "--disable-quic"]  # fmt: skip
        found = playwright.chromium.launch(executable_path=path, args=flags)
        yield found
        found.close()
