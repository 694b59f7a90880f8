"""The pictures of README.md and docs/seeing.md. To make them anew, with a translator and folders of your own:

regard train translate
python -m tests.web.gallery docs/pictures regard-translate $(regard data fetch MiniLM)
"""

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.browsing import launched
from tests.web.serving import serving

SENTENCE = "The%20animal%20didn%27t%20cross%20the%20street%20because%20it%20was%20too%20tired."
TABS = {
    "curve": ("curve?samples=60&bandwidth=0.35&kernel=gaussian", "#curve[data-drawn]"),
    "translate": ("translate?text=the%20cat%20is%20on%20the%20mat", ".aligned"),
    "model": (f"model?model={{model}}&text={SENTENCE}&layer=2&head=10&row=10", ".maps-table tr"),
}


def main(out: Path, models: list[Path]) -> None:
    """A screenshot of each tab, twice as fine as it is large."""
    with serving(models) as server, sync_playwright() as playwright:
        browser = launched(playwright)
        for name, (place, drawn) in TABS.items():
            page = browser.new_page(viewport={"width": 1200, "height": 740}, device_scale_factor=1.5)
            page.goto(f"{server.address}/laboratory#/{place.format(model=models[-1].name)}")
            page.locator(drawn).first.wait_for()
            page.wait_for_timeout(700)  # the small maps come when they are seen
            page.screenshot(path=out / f"explore-{name}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(argument) for argument in sys.argv[2:]])
