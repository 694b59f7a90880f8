"""Tables of the README are lines of pages that commands make; where a page is made anew, they follow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


def replace_table(page: str, names: Iterable[str]) -> None:
    """Have the table of both READMEs that begins with the same two heads as the page's hold these rows of it.

    names: what the last cells of the rows say.
    """
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    rows = {line.split("|")[-2].strip(): line for line in lines}
    for front in FRONTS:
        content = replaced(front.read_text(encoding="utf-8"), [*lines[:2], *(rows[name] for name in names)])
        files.write(front, content)


def replaced(front: str, table: Sequence[str]) -> str:
    """The same text with this table in the place of the one whose head begins with the same two cells."""
    lines = front.splitlines()
    start = next(number for number, line in enumerate(lines) if _name(line) == _name(table[0]))
    end = next((number for number in range(start, len(lines)) if not lines[number].startswith("|")), len(lines))
    return "\n".join([*lines[:start], *table, *lines[end:]]) + "\n"


def _name(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.split("|")[1:3])
