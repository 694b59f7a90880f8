"""`regard explore`."""

from collections.abc import Sequence
from pathlib import Path

import click

from regard.cli.options import PATH, int_option


@click.command("explore", epilog="Example: regard explore regard-translate")
@click.argument("models", metavar="[MODEL]...", type=PATH, nargs=-1, help="Model folders to look into.")
@int_option("--port", default=8_417, help="Port; the next free one if taken.")
def command(models: Sequence[Path], port: int) -> None:
    """Serve a page on this machine to see attention and change what it depends on."""
    from regard.web.server import serve

    serve(models, port)
