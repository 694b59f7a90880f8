"""`regard tour`."""

from pathlib import Path
from typing import Literal

import click

from regard.cli.options import PATH, json_flag


def _numbers(ctx: click.Context, parameter: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in text.split(",")) if text else ()
    except ValueError:
        raise click.BadParameter(f"expected numbers joined by commas, got {text!r}") from None


@click.command("tour")
@click.option("--out", metavar="DIR", type=PATH, default="regard-tour", help="Folder to write into.")
@click.option("--language", type=click.Choice(["en", "zh"]), default="en", help="Language of the page.")
@click.option("--only", metavar="N,N…", default="", callback=_numbers, help="Numbers of claims to run, such as 17,18.")
@click.option("--full", is_flag=True, help="More seeds, longer training and larger data: some hours.")
@click.option("--no-cache", is_flag=True, help="Ignore the results of earlier tours.")
@json_flag
def command(
    out: Path, language: Literal["en", "zh"], only: tuple[int, ...], full: bool, no_cache: bool, as_json: bool
) -> int:
    """Run every idea of the course notes, with its picture and whether its claim held."""
    from regard import tour

    return tour.run(out, language=language, only=only, full=full, no_cache=no_cache, as_json=as_json)
