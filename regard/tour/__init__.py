"""The course notes, claim by claim: the code that they lack, its picture, and whether the claim held."""

from __future__ import annotations

import locale
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.tour.section import Language, Section

__all__ = ["TourError", "default_language", "draw", "run", "write_code"]


class TourError(RegardError, ValueError):
    """A tour that cannot be made as asked for."""


def default_language() -> Language:
    """Chinese where the locale is, else English."""
    name = next((os.environ[key] for key in ("LC_ALL", "LC_MESSAGES", "LANG") if os.environ.get(key)), "")
    return "zh" if (name or locale.getlocale()[0] or "").startswith(("zh", "Chinese")) else "en"


def run(
    out: Path,
    *,
    language: Language | None = None,
    only: Sequence[int] = (),
    full: bool = False,
    no_cache: bool = False,
    as_json: bool = False,
    notes: Path | None = None,
) -> int:
    """Run the sections, write their page into a folder, print the verdicts, and return the exit code.

    out: the folder of the page, made if it is not there; the page fills while the sections run.
    language: of what is printed, and of index.html; None: that of the locale.
    only: numbers of claims; none: all of them.
    full: with more seeds, longer training and larger data.
    no_cache: compute also what an earlier tour has computed.
    as_json: print the results for a program to read.
    notes: the folder of the course notes; the page then shows the passages that it judges.

    Exit code 0: every section ran, whatever its verdict. 1: one failed. A TourError says what cannot be done.
    """
    from regard.tour import page, report, words
    from regard.tour.notes import Notes, read_notes
    from regard.tour.runner import run_sections
    from regard.tour.section import Outcome, Result

    language = language or default_language()
    chosen = _chosen(only)
    known = Notes() if notes is None else read_notes(notes)
    missing = known.without_passage(chosen) if notes is not None else []
    no_passage = [f"no passage for claims {', '.join(map(str, missing))}"] if missing else []
    for problem in [*known.problems, *no_passage]:
        print(f"--notes: {problem}", file=sys.stderr)
    with _writing(out):  # better found out now than after the work
        out.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=out).close()
    address = f"{words.COLON.to(language)}{(out / 'index.html').resolve()}"
    results: list[Result] = []
    written = 0.0
    for result in report.with_progress(run_sections(chosen, full=full, no_cache=no_cache), len(chosen), language):
        results.append(result)
        if not result.cached and time.monotonic() - written > 3:
            with _writing(out):
                page.write_pages(chosen, results, language, out, known)
            if not written and len(results) < len(chosen):
                print(f"{words.say('The page fills while the claims are run').to(language)}{address}", file=sys.stderr)
            written = time.monotonic()
    order = [section.number for section in chosen]
    results.sort(key=lambda result: order.index(result.section.number))
    with _writing(out):
        page.write_folder(chosen, results, language, out, known)
    if as_json:
        print(report.as_json(results, language), end="")
    else:
        report.print_table(results, language)
        print(f"{words.say('Page').to(language)}{address}")
    return 1 if any(result.outcome is Outcome.FAILED for result in results) else 0


def write_code(folder: Path, *, only: Sequence[int] = ()) -> list[Path]:
    """Write the plain cells of the sections as scripts and notebooks into a folder; nothing is run."""
    from regard.tour import course

    with _writing(folder, "--code"):
        return course.write_code(_chosen(only), folder)


def draw(number: int, variables: Mapping[str, Any], language: Language = "en") -> Drawn:
    """The picture of a section's plain cell, from the variables that it has left behind; for notebooks."""
    (section,) = _chosen([number])
    if section.show is None:
        raise TourError(f"claim {number} has no picture of its cell")
    return Drawn(section.show(SimpleNamespace(**variables)).svg(language))


class Drawn:
    """A picture that a notebook shows."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def _repr_html_(self) -> str:
        from regard.view.page import static

        return f"<style>{static('chart.css')}</style>{self.svg}"


def _chosen(only: Sequence[int]) -> list[Section]:
    from regard.tour.sections import load

    sections = load()
    numbers = [section.number for section in sections]
    for number in only:
        if number not in numbers:
            raise TourError(f"--only: expected claims from {min(numbers)} to {max(numbers)}, got {number}")
    return [section for section in sections if not only or section.number in only]


@contextmanager
def _writing(out: Path, option: str = "--out") -> Iterator[None]:
    """Errors of the file system say that the folder cannot be written, and why."""
    try:
        yield
    except OSError as error:
        in_the_way = isinstance(error, FileExistsError | NotADirectoryError)
        reason = "there is a file in the way of that folder" if in_the_way else error.strerror or error
        raise TourError(f"{option}: cannot write into {out}: {reason}") from None
