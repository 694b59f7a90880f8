"""What a tour says besides its page: the table of verdicts on stdout, and results.json."""

import json
import math
import platform
import sys
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text as Styled

import regard
from regard.tour import words
from regard.tour.section import Language, Outcome, Text, show
from regard.tour.walk import Result

STYLES = {
    Outcome.HELD: "green",
    Outcome.PARTLY: "yellow",
    Outcome.DID_NOT_HOLD: "red",
    Outcome.FAILED: "bold red",
}


def versions() -> dict[str, str]:
    """What the numbers were made with."""
    packages = {name: version(name) for name in ("torch", "numpy", "matplotlib")}
    return {"regard": regard.__version__, "Python": platform.python_version(), **packages}


def deciding(result: Result) -> tuple[str, Text]:
    """The number that decided, and what it is; the error, where there is no number."""
    if result.numbers is None:
        return "", Text(result.error, result.error)
    labels = {name: (show(value), label) for name, label, value in result.numbers.labelled()}
    return labels[result.section.deciding]


def tally(results: Sequence[Result]) -> list[tuple[Outcome, int]]:
    """How many claims ended how, without those that none did."""
    counted = Counter(result.outcome for result in results)
    return [(outcome, counted[outcome]) for outcome in Outcome if counted[outcome]]


def print_table(results: Sequence[Result], language: Language) -> None:
    """Claim, verdict and the number that decided, on stdout."""
    # In a file or a pipe there is no edge to wrap at.
    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 200)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("#", justify="right")
    table.add_column(words.CLAIM.to(language), overflow="fold")
    table.add_column(words.VERDICT.to(language), no_wrap=True)
    table.add_column(words.NUMBER.to(language), justify="right", no_wrap=True)
    table.add_column(words.MEANING.to(language), overflow="fold")
    for result in results:
        number, label = deciding(result)
        outcome = Styled(words.OUTCOMES[result.outcome].to(language), style=STYLES[result.outcome])
        title, meaning = Styled(result.section.title.to(language)), Styled(label.to(language))
        table.add_row(str(result.section.number), title, outcome, number, meaning)
    with console.capture() as printed:
        console.print(table)
        for result in results:
            for criterion in result.criteria:
                if not criterion.met:
                    name = f"{result.section.number}, {words.OUTCOMES[result.outcome].to(language)}: "
                    console.print(Styled(name + criterion.sentence.to(language)))
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
            "numbers": {name: _plain(value) for name, _, value in result.numbers.labelled()} if result.numbers else {},
            "criteria": [
                {"met": criterion.met, "sentence": criterion.sentence.to(language)} for criterion in result.criteria
            ],
            "error": result.error or None,
            "pictures": [result.picture_name(*which) for which in result.pictures],
            "seconds": round(result.seconds, 3),
        }
        for result in results
    ]
    whole = {
        "claims": claims,
        "versions": versions(),
        "machine": platform.platform(),
        "seconds": round(sum(result.seconds for result in results), 3),
    }
    return json.dumps(whole, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return value if math.isfinite(value) else None
