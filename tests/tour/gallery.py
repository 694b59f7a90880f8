"""The pictures of the tour in README.md and README.zh.md. To make them anew:

regard tour
python -m tests.tour.gallery regard-tour docs/pictures
"""

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.browsing import launched


def main(tour: Path, out: Path) -> None:
    """The top of the page in each language."""
    with sync_playwright() as playwright:
        browser = launched(playwright)
        for language, name in (("en", "tour"), ("zh", "tour-zh")):
            page = browser.new_page(viewport={"width": 1250, "height": 700}, device_scale_factor=1.5)
            page.goto((tour.resolve() / f"{language}.html").as_uri())
            page.screenshot(path=out / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
