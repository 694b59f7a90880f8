"""The command `regard tour`: walk through all sections, write the page, say how it went."""

import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from regard.tour import report, words
from regard.tour.page import page
from regard.tour.section import LANGUAGES, Language, Outcome, Section
from regard.tour.sections import load
from regard.tour.walk import Result, walk


def run(out: Path, language: Language = "en", sections: Sequence[Section[Any]] | None = None) -> int:
    """Run the sections (all of them, unless told which) and write the page into the folder `out`.

    Exit code 0: every section ran, whatever its verdict. 1: one failed. 2: `out` cannot be written.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot write ⁻¹ is no reason to stop
    try:
        out.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=out).close()  # better now than after the work
        results = list(_with_progress(load() if sections is None else sections, language))
        for name, content in files(results, language).items():
            (out / name).write_bytes(content)
    except OSError as error:
        no_folder = isinstance(error, FileExistsError | NotADirectoryError)
        reason = "there is a file in the way of that folder" if no_folder else error.strerror or error
        print(f"regard: --out: cannot write into {out}: {reason}", file=sys.stderr)
        return 2
    report.print_table(results, language)
    print(f"{words.PAGE.to(language)}{(out / 'index.html').resolve()}")
    return 1 if any(result.outcome is Outcome.FAILED for result in results) else 0


def files(results: Sequence[Result], language: Language) -> dict[str, bytes]:
    """Everything that a tour leaves behind: file name → content. index.html is the page in the chosen language."""
    pages = {f"{each}.html": page(results, each).encode() for each in LANGUAGES}
    pictures = {result.picture_name(theme): picture for result in results for theme, picture in result.pictures.items()}
    written = {"results.json": report.as_json(results, language).encode(), "index.html": pages[f"{language}.html"]}
    return pages | pictures | written


def _with_progress(sections: Sequence[Section[Any]], language: Language) -> Iterator[Result]:
    """The results of a walk, with a bar on stderr where that is a terminal, and else with a line for each."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        titles = [section.title.to(language) for section in sections]
        task = bar.add_task(titles[0] if titles else "", total=len(titles))
        for done, result in enumerate(walk(sections), 1):
            bar.update(task, completed=done, description=titles[done] if done < len(titles) else "")
            if result.error:
                bar.console.print(f"{result.anchor}: {result.error}", markup=False, highlight=False, soft_wrap=True)
            elif not console.is_terminal:
                elapsed = words.seconds(result.seconds).to(language)
                print(f"{done}/{len(titles)}  {titles[done - 1]}  ({elapsed})", file=sys.stderr)
            yield result
