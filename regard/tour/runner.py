"""The command `regard tour`: walk through all sections, write the page, say how it went."""

import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from regard.tour import report, words
from regard.tour.notebook import notebook
from regard.tour.page import page
from regard.tour.section import LANGUAGES, Language, Outcome, Section
from regard.tour.sections import load
from regard.tour.walk import Result, walk, walk_together


def run(
    out: Path,
    *,
    language: Language = "en",
    only: Sequence[int] = (),
    full: bool = False,
    no_cache: bool = False,
    as_json: bool = False,
    sections: Sequence[Section[Any]] | None = None,
) -> int:
    """Run the sections (all of them, unless told which) and write the page into the folder that is asked for.

    Exit code 0: every section ran, whatever its verdict. 1: one failed. 2: the request cannot be met.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot write ⁻¹ is no reason to stop
    try:
        chosen = _chosen(load(), only) if sections is None else sections
        out.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=out).close()  # better now than after the work
        if sections is None:
            coming = walk_together(chosen, full=full, again=no_cache)
        else:
            coming = walk(chosen)
        results = sorted(_with_progress(coming, len(chosen), language), key=lambda result: result.section.number)
        for name, content in files(results, language).items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_bytes(content)
    except ValueError as error:
        print(f"regard: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        no_folder = isinstance(error, FileExistsError | NotADirectoryError)
        reason = "there is a file in the way of that folder" if no_folder else error.strerror or error
        print(f"regard: --out: cannot write into {out}: {reason}", file=sys.stderr)
        return 2
    if as_json:
        print(report.as_json(results, language), end="")
    else:
        report.print_table(results, language)
        print(f"{words.PAGE.to(language)}{(out / 'index.html').resolve()}")
    return 1 if any(result.outcome is Outcome.FAILED for result in results) else 0


def _chosen(sections: Sequence[Section[Any]], only: Sequence[int]) -> list[Section[Any]]:
    known = {section.number: section for section in sections}
    for number in only:
        if number not in known:
            raise ValueError(f"--only: expected claims from {min(known)} to {max(known)}, got {number}")
    return [known[number] for number in sorted(set(only))] if only else list(sections)


def files(results: Sequence[Result], language: Language) -> dict[str, bytes]:
    """Everything that a tour leaves behind: file name → content. index.html is the page in the chosen language."""
    pages = {f"{each}.html": page(results, each).encode() for each in LANGUAGES}
    pictures = {result.picture_name(*which): own for result in results for which, own in result.pictures.items()}
    notebooks = {
        result.notebook_name(each): notebook(result.section, each).encode() for result in results for each in LANGUAGES
    }
    written = {"results.json": report.as_json(results, language).encode(), "index.html": pages[f"{language}.html"]}
    return pages | pictures | notebooks | written


def _with_progress(coming: Iterator[Result], count: int, language: Language) -> Iterator[Result]:
    """The results of a walk, with a bar on stderr where that is a terminal, and else with a line for each."""
    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TimeElapsedColumn(),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=count)
        for done, result in enumerate(coming, 1):
            title = result.section.title.to(language)
            bar.update(task, completed=done, description=title)
            if result.error:
                bar.console.print(f"{result.anchor}: {result.error}", markup=False, highlight=False, soft_wrap=True)
            elif not console.is_terminal:
                elapsed = words.KEPT if result.is_kept else words.seconds(result.seconds)
                claim = f"{words.CLAIM.to(language)} {result.section.number}"
                print(f"{done}/{count}  {claim}: {title}  ({elapsed.to(language)})", file=sys.stderr)
            yield result
