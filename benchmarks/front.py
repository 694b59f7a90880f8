"""Tables of the README are lines of pages that commands make; where a page is made anew, they follow."""

from __future__ import annotations

from pathlib import Path

from regard import files

ROOT = Path(__file__).parent.parent
FRONTS = (ROOT / "README.md", ROOT / "README.zh.md")


def refresh(page: str) -> None:
    """Bring the lines of both READMEs that are on this page up to date."""
    for front in FRONTS:
        files.write(front, refreshed(front.read_text(encoding="utf-8"), page))


def refreshed(front: str, page: str) -> str:
    """The same text, in which a row of a table whose first two cells are those of a row of the page is that row."""
    rows = {_name(line): line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| ---")}
    return "".join(
        rows.get(_name(line.rstrip("\n")), line.rstrip("\n")) + line[len(line.rstrip("\n")) :]
        for line in front.splitlines(keepends=True)
    )


def _name(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.split("|")[1:3])
