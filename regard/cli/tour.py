"""`regard tour`."""

from pathlib import Path
from typing import Any

import click

from regard.cli.options import json_flag, path_option, refuse_ignored


def _numbers(ctx: click.Context, parameter: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in text.split(",")) if text else ()
    except ValueError:
        raise click.BadParameter(f"expected numbers joined by commas, got {text!r}") from None


@click.command("tour")
@path_option("--out", metavar="DIR", default="regard-tour", help="Folder to write into.")
@click.option("--language", type=click.Choice(["en", "zh"]), help="Of the page; by default that of the locale.")
@click.option("--only", metavar="N,N…", default="", callback=_numbers, help="Numbers of claims to run, such as 17,18.")
@click.option("--full", is_flag=True, help="More seeds, longer training and larger data: some hours.")
@click.option("--no-cache", is_flag=True, help="Ignore the results of earlier tours.")
@path_option("--notes", metavar="DIR", help="Folder of the course notes: the page shows what it judges.")
@path_option("--code", metavar="DIR", help="Write the plain code of all claims, and run nothing.")
@json_flag
def command(only: tuple[int, ...], code: Path | None, **options: Any) -> int:
    """Run every claim of the course notes: the code they lack, its picture, and whether the claim held."""
    from regard import tour

    if code is not None:
        refuse_ignored(options, "beside --code, which runs nothing")
        for path in tour.write_code(code, only=only):
            click.echo(path)
        return 0
    return tour.run(only=only, **options)
