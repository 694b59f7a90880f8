"""The pictures of docs/student.md and docs/tutorial.md, in both languages. `make pictures` makes them anew:

regard tour
python -m tests.tour.gallery regard-tour docs/pictures
"""

import os
import re
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import sync_playwright

from tests.browsing import launched

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"


def main(tour: Path, out: Path) -> None:
    """Screenshots of the tour, and what the tutorial draws."""
    tutorial(out.resolve())
    with sync_playwright() as playwright:
        browser = launched(playwright)
        for language, name in (("en", "tour"), ("zh", "tour-zh")):
            page = browser.new_page(viewport={"width": 1250, "height": 700}, device_scale_factor=1.5)
            page.goto((tour.resolve() / f"{language}.html").as_uri())
            page.screenshot(path=out / f"{name}.png")
        browser.close()


def tutorial(out: Path) -> None:
    """Run the tutorial in a folder of its own and keep its pictures."""
    before, scope = Path.cwd(), {}
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for code in re.findall(r"^```python\n(.*?)^```", TUTORIAL.read_text("utf-8"), re.DOTALL | re.MULTILINE):
                exec(compile(code, TUTORIAL.name, "exec"), scope)
            for name in ("curve", "weights", "alignment"):
                shutil.copy(f"{name}.png", out / f"tutorial-{name}.png")
        finally:
            os.chdir(before)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
