"""The course notes, idea by idea: the code that runs it, its picture, and whether its claim held."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.tour.section import Language

__all__ = ["TourError", "run"]


class TourError(RegardError, ValueError):
    """A tour that cannot be made as asked for."""


def run(
    out: Path,
    *,
    language: Language = "en",
    only: Sequence[int] = (),
    full: bool = False,
    no_cache: bool = False,
    as_json: bool = False,
) -> int:
    """Run the sections, write their page into a folder, print the verdicts, and return the exit code.

    out: the folder of the page, made if it is not there.
    language: of what is printed, and of index.html.
    only: numbers of claims; none: all of them.
    full: with more seeds, longer training and larger data.
    no_cache: compute also what an earlier tour has computed.
    as_json: print the results for a program to read.

    Exit code 0: every section ran, whatever its verdict. 1: one failed. A TourError says what cannot be done.
    """
    from regard.tour import page, report, words
    from regard.tour.runner import run_sections
    from regard.tour.section import Outcome
    from regard.tour.sections import load

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot write ⁻¹ is no reason to stop
    sections = {section.number: section for section in load()}
    for number in only:
        if number not in sections:
            raise TourError(f"--only: expected claims from {min(sections)} to {max(sections)}, got {number}")
    chosen = [section for number, section in sections.items() if not only or number in only]
    with _writing(out):  # better found out now than after the work
        out.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=out).close()
    coming = report.with_progress(run_sections(chosen, full=full, no_cache=no_cache), len(chosen), language)
    results = sorted(coming, key=lambda result: result.section.number)
    with _writing(out):
        page.write_folder(results, language, out)
    if as_json:
        print(report.as_json(results, language), end="")
    else:
        report.print_table(results, language)
        print(f"{words.PAGE.to(language)}{(out / 'index.html').resolve()}")
    return 1 if any(result.outcome is Outcome.FAILED for result in results) else 0


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    """Errors of the file system say that the folder cannot be written, and why."""
    try:
        yield
    except OSError as error:
        in_the_way = isinstance(error, FileExistsError | NotADirectoryError)
        reason = "there is a file in the way of that folder" if in_the_way else error.strerror or error
        raise TourError(f"--out: cannot write into {out}: {reason}") from None
