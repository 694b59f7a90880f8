"""Try the mutants that have no verdict yet, and write docs/mutants.md: python -m experiments.mutants."""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measured import table
from experiments.mutants.mutations import Mutant, sample
from experiments.mutants.tracing import TRACED, WHOLE, Tests, digest, is_traced, test_files, traced
from experiments.mutants.trying import LIKELY, attempt, attempt_by, copy, is_there, likely
from regard import files
from regard.data.store import cache

ROOT = Path(__file__).parent.parent.parent
VERDICTS, EQUIVALENT = Path(__file__).with_name("verdicts.json"), Path(__file__).with_name("equivalent.toml")
PAGE = ROOT / "docs" / "mutants.md"
BASE = cache() / "experiments" / "mutants" / "regard"  # a copy, which is brought up to date
ROOMS = ("attention", "kernel", "models", "training", "view")
# What its own tests do not kill is tried by those of a room that uses it.
ALSO_TESTED_BY = {"attention": ("kernel", "view"), "training": ("cli",), "view": ("cli",)}
COUNT = 40  # mutants of each room
# Imported before anything forks. The first sets what has to be set before torch and scipy are imported.
LARGE = (
    *("tests.conftest", "torch", "numba", "pandas", "scipy.stats", "sklearn.utils.estimator_checks"),
    *("matplotlib.pyplot", "transformers", "tokenizers", "safetensors.torch"),
)
INTRODUCTION = """# Mutants

Do the tests notice a fault? `make mutants` makes small ones, one at a time, in a copy of the package: another
comparison, another sign, a number one larger, `and` for `or`, a call or a result left out, `max` for `min`, a slice one
longer; of each kind as many as of the others, drawn by a seed. It then runs the tests that run the changed line, for a
minute of the processor at most. A mutant is killed when one of them fails, hangs or crashes, and survives when none
does; it is undecided when the first of them have not killed it and the others have not been run yet, and counts as a
survivor. The table is made of what came out (`experiments/mutants/verdicts.json`), and not by hand. Survivors were met
by better tests, so the shares say what the tests notice of this sample now; of another one they would notice less.

`python -m experiments.mutants --by "heads.py find_heads" tests/view/test_heads.py` says whether a new test kills: it
tries the mutants with this text in file, function and change, by this test or file of tests alone.
"""
COLUMNS = ("killed", "survived", "undecided", "equivalent", "not tried")
Verdict = dict[str, Any]  # file, function, change, number: which mutant; source: of which code; verdict; …
Key = tuple[str, str, str, int]


def main() -> int:
    """Exit code 0 when each mutant has a verdict."""
    parser = argparse.ArgumentParser(prog="python -m experiments.mutants", description=__doc__)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no other mutant after these")
    parser.add_argument("--room", choices=ROOMS, help="only mutants of this room")
    parser.add_argument(
        "--by",
        action="append",
        nargs="+",
        metavar="TEXT",
        help="only mutants with this text in file, function and change, and only by the tests that follow",
    )
    parser.add_argument("--page", action="store_true", help="only write the page again")
    options = parser.parse_args()
    mutants = [mutant for room in ROOMS for mutant in sample(ROOT, room, COUNT)]
    verdicts = known(mutants, json.loads(VERDICTS.read_text("utf-8")) if VERDICTS.exists() else [])
    todo = [mutant for mutant in mutants if not is_settled(mutant, verdicts.get(mutant.key, {}))]
    if options.by:  # a named test may kill what survived the others
        todo += [mutant for mutant in mutants if verdicts.get(mutant.key, {}).get("verdict") == "survived"]
    todo = [mutant for mutant in todo if options.room in (None, room(mutant.file))]
    if options.by:
        prepare()
        for text, *tests in options.by:
            todo = run_by(text, tests, mutants, todo, verdicts)
    elif todo and not options.page:
        prepare()
        todo = run(mutants, todo, verdicts, time.monotonic() + 60 * options.minutes)
    files.write(PAGE, page(save(mutants, verdicts)))
    for row in reasons():
        if (row["file"], row["function"], row["change"]) not in {mutant.key[:3] for mutant in mutants}:
            print(f"{EQUIVALENT.name}: no such mutant any more: {row['file']}: {row['change']}", file=sys.stderr)
    print(f"{len(todo)} mutants are still to be tried; wrote docs/{PAGE.name}")
    return 1 if todo else 0


def room(file: str) -> str:
    """The room that a file is in."""
    return file.split("/")[1]


def known(mutants: Sequence[Mutant], earlier: Sequence[Verdict]) -> dict[Key, Verdict]:
    """The verdicts on functions that are as they were, and on mutants that no test can notice."""
    why = {(row["file"], row["function"], row["change"]): row["why"] for row in reasons()}
    before = {_key(verdict): verdict for verdict in earlier}
    verdicts = {}
    for mutant in mutants:
        if mutant.key[:3] in why:
            verdicts[mutant.key] = {"verdict": "equivalent", "why": why[mutant.key[:3]]}
        elif before.get(mutant.key, {}).get("source") == mutant.source:
            verdicts[mutant.key] = before[mutant.key]
    return verdicts


def is_settled(mutant: Mutant, verdict: Verdict) -> bool:
    """Killed by a test that is there; or survived, and no test of the room has changed since; or equivalent."""
    if "by" in verdict:
        return is_there(ROOT, verdict["by"])
    return verdict.get("verdict") == "equivalent" or verdict.get("suite") == suite(ROOT, mutant)


def suite(root: Path, mutant: Mutant) -> str:
    """A digest of the tests of the mutant's room."""
    return digest(root, test_files(root, [room(mutant.file)]))


def reasons() -> list[dict[str, str]]:
    """The mutants that do what the code does, by file, function and change; why."""
    return tomllib.loads(EQUIVALENT.read_text("utf-8")).get("equivalent", [])


def prepare() -> None:
    """Import what is large, and bring the copy of the package up to date."""
    for name in LARGE:
        importlib.import_module(name)
    copy(ROOT, BASE)


def run_by(
    text: str, tests: Sequence[str], mutants: Sequence[Mutant], todo: Sequence[Mutant], verdicts: dict[Key, Verdict]
) -> list[Mutant]:
    """Try those with this text by these tests: where none fails, what was known of a mutant stays. Those left to do."""
    left = []
    for mutant in todo:
        verdict = attempt_by(BASE, mutant, tests) if text in " ".join(mutant.key[:3]) else {}
        if "by" in verdict:
            verdicts[mutant.key] = {"source": mutant.source, **verdict}
            save(mutants, verdicts)
        else:
            left.append(mutant)
        if verdict:
            print(f"{' · '.join(map(str, mutant.key))}: {verdict}", file=sys.stderr, flush=True)
    return left


def run(
    mutants: Sequence[Mutant], todo: Sequence[Mutant], verdicts: dict[Key, Verdict], end: float
) -> Sequence[Mutant]:
    """Give verdicts, and save each; return the mutants for which there was no time."""
    tests_of = functools.cache(lambda file, seconds: traced(BASE, file, mutants, seconds))
    todo = by_turns(sorted(todo, key=lambda mutant: mutant.key in verdicts))  # the undecided have been tried before
    for groups_of, seconds in ((at_first, TRACED), (one_by_one, WHOLE), (together, WHOLE)):
        later: list[Mutant] = []
        for number, mutant in enumerate(todo):
            for group in groups_of(BASE, mutant):
                tests: dict[str, Tests] = {}
                for file in group:
                    if time.monotonic() > end:
                        return [*later, *todo[number:]]
                    tests[file] = tests_of(file, seconds)
                verdict = attempt(BASE, mutant, tests, briefly=groups_of is not together)
                if "by" in verdict:
                    break
            if "by" not in verdict and groups_of is together:
                verdict["suite"] = suite(BASE, mutant)
            elif "by" not in verdict:
                verdict["verdict"] = "undecided"
                later.append(mutant)
            verdicts[mutant.key] = {"source": mutant.source, **verdict}
            save(mutants, verdicts)
            print(f"{' · '.join(map(str, mutant.key))}: {verdict}; {len(todo) - number - 1} left", file=sys.stderr)
        todo = later
    return todo


def by_turns(mutants: Sequence[Mutant]) -> list[Mutant]:
    """One of each room, then the second of each: where there is no time for all, something is known of each room."""
    rooms: Counter[str] = Counter()
    places = {}
    for mutant in mutants:
        rooms[room(mutant.file)] += 1
        places[mutant.key] = rooms[room(mutant.file)]
    return sorted(mutants, key=lambda mutant: places[mutant.key])


def at_first(base: Path, mutant: Mutant) -> list[list[str]]:
    """Files of tests that try it: those of which it is known whether they run it; then likely ones, one by one."""
    files = likely(base, mutant, test_files(base, _rooms(mutant)))
    known = [file for file in files if is_traced(base, file, mutant)]
    return [known, *([file] for file in files[:LIKELY] if file not in known)]


def one_by_one(base: Path, mutant: Mutant) -> list[list[str]]:
    """All of its room, and of rooms that use it."""
    return [[file] for file in likely(base, mutant, test_files(base, _rooms(mutant)))]


def together(base: Path, mutant: Mutant) -> list[list[str]]:
    """The same, all at once."""
    return [likely(base, mutant, test_files(base, _rooms(mutant)))]


def _rooms(mutant: Mutant) -> list[str]:
    """Its own, and others that have tests of it."""
    return [room(mutant.file), *ALSO_TESTED_BY.get(room(mutant.file), ())]


def save(mutants: Sequence[Mutant], verdicts: dict[Key, Verdict]) -> list[Verdict]:
    """Write, and return, what is known of each mutant of the sample."""
    known = [
        {
            **dict(zip(("file", "function", "change", "number"), mutant.key, strict=True)),
            "kind": mutant.kind,
            "verdict": "not tried",
            **verdicts.get(mutant.key, {}),
        }
        for mutant in mutants
    ]
    files.write(VERDICTS, json.dumps(known, indent=1, ensure_ascii=False) + "\n")
    return known


def _key(verdict: Verdict) -> Key:
    return verdict["file"], verdict["function"], verdict["change"], verdict["number"]


def page(verdicts: Sequence[Verdict]) -> str:
    """The page in Markdown."""
    rows = [_row(name, [verdict for verdict in verdicts if room(verdict["file"]) == name]) for name in ROOMS]
    head = ["room", "mutants", *COLUMNS, "killed, of those that can be"]
    parts = [INTRODUCTION, table(head, [*rows, _row("all", verdicts)])]
    kinds = sorted({verdict["kind"] for verdict in verdicts})
    rows = [_row(kind, [verdict for verdict in verdicts if verdict["kind"] == kind]) for kind in kinds]
    parts += ["\n## By kind\n", table(["kind", *head[1:]], rows)]
    for name, title, last in (
        ("survived", "Survivors", lambda verdict: f"{verdict['tests']}"),
        ("undecided", "Undecided", lambda verdict: f"{verdict['tests']}"),
        ("equivalent", "Equivalent", lambda verdict: verdict["why"]),
    ):
        rows = [
            [f"`{verdict['file']}` {verdict['function']}", f"`{verdict['change']}`".replace("|", "\\|"), last(verdict)]
            for verdict in verdicts
            if verdict["verdict"] == name
        ]
        if rows:
            column = "why no test can notice it" if name == "equivalent" else "tests that were run"
            parts += [f"\n## {title}\n", table(["where", "change", column], rows)]
    return "\n".join([*parts, ""])


def _row(name: str, verdicts: Sequence[Verdict]) -> list[Any]:
    counts = Counter(verdict["verdict"] for verdict in verdicts)
    can_be = counts["killed"] + counts["survived"] + counts["undecided"]
    share = f"{counts['killed'] / can_be:.1%}" if can_be else ""
    return [name, len(verdicts), *(counts[column] for column in COLUMNS), share]


if __name__ == "__main__":
    sys.exit(main())
