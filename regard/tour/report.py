"""What a tour says besides its page: its progress on stderr, the table of verdicts on stdout, and results.json."""

import platform
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.metadata import version

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text as Styled

import regard
from regard.files import to_json
from regard.progress import ProgressBar
from regard.tour import words
from regard.tour.section import Language, Outcome, Result

# The mark of an outcome on the page, and its colour in the terminal.
MARKS = {
    Outcome.HELD: ("✓", "green"),
    Outcome.PARTLY: ("◐", "yellow"),
    Outcome.DID_NOT_HOLD: ("✗", "red"),
    Outcome.BY_DEFINITION: ("≡", "cyan"),
    Outcome.IMPRECISE: ("≈", "yellow"),
    Outcome.NOT_TESTABLE: ("?", "dim"),
    Outcome.FAILED: ("!", "bold red"),
}


def versions() -> dict[str, str]:
    """What the numbers were made with."""
    packages = {name: version(name) for name in ("torch", "numpy")}
    return {"regard": regard.__version__, "Python": platform.python_version(), **packages}


def tally(results: Sequence[Result]) -> list[tuple[Outcome, int]]:
    """How many claims ended how, without those that none did."""
    counted = Counter(result.outcome for result in results)
    return [(outcome, counted[outcome]) for outcome in Outcome if counted[outcome]]


def with_progress(results: Iterator[Result], count: int, language: Language) -> Iterator[Result]:
    """The results as they come, with a bar on stderr where that is a terminal, and else with a line for each."""
    t = words.translator(language)
    with ProgressBar() as bar:
        for done, result in enumerate(results, 1):
            title = t(result.section.title)
            bar.update(done, count, title)
            if result.error:
                bar.note(f"{result.section.anchor}: {result.error}")
            elif not bar.is_terminal:
                elapsed = t("cached") if result.cached else t("{seconds:.1f} s", seconds=result.seconds)
                bar.note(f"{done}/{count}  {t('claim')} {result.section.number}: {title}  ({elapsed})")
            yield result


def print_table(results: Sequence[Result], language: Language) -> None:
    """Claim, verdict and the number that decided, on stdout; then the criteria that were not met."""
    t = words.translator(language)
    # In a file or a pipe there is no edge to wrap at.
    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 200)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("#", justify="right")
    table.add_column(t("claim"), overflow="fold")
    table.add_column(t("verdict"), no_wrap=True)
    table.add_column(t("number"), justify="right", no_wrap=True)
    table.add_column(t("what it is"), overflow="fold")
    for result in results:
        number, meaning = result.deciding
        outcome = Styled(t(result.outcome), style=MARKS[result.outcome][1])
        title = Styled(t(result.section.title))
        table.add_row(str(result.section.number), title, outcome, number, Styled(t(meaning)))
    with console.capture() as printed:
        console.print(table)
        for result in results:
            for criterion in result.criteria:
                if not criterion.met:
                    name = f"{result.section.number}, {t(result.outcome)}: "
                    console.print(Styled(name + t(criterion.sentence)))
    print("\n".join(line.rstrip() for line in printed.get().strip("\n").splitlines()))


def as_json(results: Sequence[Result], language: Language) -> str:
    """The results for a program to read."""
    claims = [
        {
            "number": result.section.number,
            "title": result.section.title.to(language),
            "claim": result.section.claim.to(language),
            "verdict": str(result.outcome),
            "deciding": result.section.deciding,
            "numbers": {name: value for name, _, value in result.labelled()},
            "criteria": [
                {"met": criterion.met, "kind": criterion.kind, "sentence": criterion.sentence.to(language)}
                for criterion in result.criteria
            ],
            "error": result.error or None,
            "answers": [answer.to(language) for answer in result.answers],
            "seconds": round(result.seconds, 3),
        }
        for result in results
    ]
    tour = {
        "claims": claims,
        "versions": versions(),
        "machine": platform.platform(),
        "seconds": round(sum(result.seconds for result in results), 3),
    }
    return to_json(tour, indent=2) + "\n"
