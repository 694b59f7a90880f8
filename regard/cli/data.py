"""`regard data list` and `regard data fetch`."""

from __future__ import annotations

from typing import Any

import click

from regard.cli.options import CommandGroup, json_flag
from regard.files import to_json


@click.group("data", cls=CommandGroup, no_args_is_help=False)
def command() -> None:
    """List real data sets and weights that can be fetched, or fetch one."""


@command.command("list")
@json_flag
def list_sets(as_json: bool) -> None:
    """List data sets and weights, with their sizes and licences."""
    from regard.data.fetching import SETS, is_fetched, megabytes
    from regard.data.store import cache

    if as_json:
        print(to_json([_facts(name) for name in SETS], indent=2))
        return
    rows = [("NAME", "USE", "DOWNLOAD", "HERE", "LICENCE")]
    rows += [
        (name, row.use, megabytes(row.size), "yes" if is_fetched(name) else "-", row.licence)
        for name, row in SETS.items()
    ]
    for name, use, size, here, licence in rows:
        print(f"{name:<17}{use:<26}{size:>8} {here:<5}{licence}")
    print(f"\n`regard data fetch NAME` brings one into {cache()}.")


@command.command("fetch")
@click.argument("name", help="Name, as `regard data list` shows it.")
@json_flag
def fetch_set(name: str, as_json: bool) -> None:
    """Fetch a data set or weights into the cache folder, and print the path."""
    from regard.data.fetching import fetch

    folder = fetch(name)
    print(to_json(_facts(name)) if as_json else folder)


def _facts(name: str) -> dict[str, Any]:
    from regard.data.fetching import SETS, folder, is_fetched

    row = SETS[name]
    return {
        "name": name,
        "use": row.use,
        "download": row.size,
        "licence": row.licence,
        "fetched": is_fetched(name),
        "folder": str(folder(name)),
        "files": list(row.files),
    }
