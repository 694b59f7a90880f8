"""The pictures of docs/seeing.md, student.md and training.md. `make pictures` makes them anew:

python -m tests.web.gallery docs/pictures $(regard data fetch SmolLM2)
"""

import sys
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import sync_playwright

from tests.browsing import launched
from tests.web.serving import serving

TIRED = quote("The animal didn't cross the street because it was too tired.")
MARY = quote("When Mary and John went to the store, John gave a drink to")
PLACES = {
    "curve": ("curve?samples=60&bandwidth=0.35&kernel=gaussian", "#curve[data-drawn]", None),
    "translate": ("translate?text=the%20cat%20is%20on%20the%20mat", ".aligned", None),
    "model": (f"heads?model={{model}}&text={TIRED}&heads=13.8,11.1&row=8", ".rv-grid[data-painted]", "#view"),
    "write": (f"language?model={{model}}&text={MARY}&cut=29.1", ".contributions [role=gridcell]", ".writing"),
}


def main(out: Path, model: Path) -> None:
    """A screenshot of each part, half as large again as it is."""
    with serving([model]) as server, sync_playwright() as playwright:
        browser = launched(playwright)
        for name, (place, drawn, part) in PLACES.items():
            page = browser.new_page(viewport={"width": 1280, "height": 820}, device_scale_factor=1.5)
            server.enter(page)
            page.goto(f"{server.address}/laboratory?language=en#/{place.format(model=model.name)}")
            page.locator(drawn).first.wait_for(timeout=60_000)
            page.wait_for_timeout(2_500)
            (page.locator(part) if part else page).screenshot(path=out / f"explore-{name}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
