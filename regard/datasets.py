"""`regard data`: real data sets and weights to fetch, and what is here already."""

from __future__ import annotations

import json
import sys
from typing import Any

from regard.data.catalog import SETS, Archive, Row
from regard.data.fetching import Lines, UnknownSetError, cache, fetch, folder, is_fetched, megabytes

__all__ = ["run_fetch", "run_list"]


def run_list(*, as_json: bool = False) -> int:
    """Print which sets there are."""
    if as_json:
        print(json.dumps([_facts(name, row) for name, row in SETS.items()], indent=2, ensure_ascii=False))
        return 0
    print(_line("NAME", "USE", "DOWNLOAD", "HERE", "LICENCE"))
    for name, row in SETS.items():
        print(_line(name, row.use, megabytes(row.size), "yes" if is_fetched(name) else "-", row.licence))
    print(f"\n`regard data fetch NAME` brings one into {cache()}.")
    return 0


def run_fetch(name: str, *, as_json: bool = False) -> int:
    """Fetch a set and print where it is. Exit code 1 where that failed, 2 where no set has this name."""
    try:
        with _Bar() as bar:
            place = fetch(name, bar if bar.is_terminal else Lines())
    except UnknownSetError as error:
        print(f"regard: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"regard: {error}", file=sys.stderr)
        return 1
    print(json.dumps(_facts(name, SETS[name]), ensure_ascii=False) if as_json else place)
    return 0


def _line(name: str, use: str, size: str, here: str, licence: str) -> str:
    return f"{name:<16}{use:<26}{size:>8}  {here:<5}{licence}"


def _facts(name: str, row: Row) -> dict[str, Any]:
    return {
        "name": name,
        "use": row.use,
        "download": row.size,
        "licence": row.licence,
        "fetched": is_fetched(name),
        "folder": str(folder(name)),
        "files": list(row.files),
    }


class _Bar:
    """How a fetch goes, as a bar on the terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

        console = Console(stderr=True)
        self.is_terminal = console.is_terminal
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._progress.add_task("", total=None, visible=False)
        self._size = 0

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begin(self, archive: Archive, number: int, count: int) -> None:
        self._size = archive.size
        text = f"{number}/{count} {archive.request}"
        self._progress.reset(self._task, total=archive.size, description=text, visible=True)
        self._progress.refresh()  # it may be over before the next

    def grown(self, size: int) -> None:
        self._progress.update(self._task, completed=min(size, self._size))

    def note(self, text: str) -> None:
        self._progress.update(self._task, visible=False)
        self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)
