"""`regard explore`."""

import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from regard.cli.options import PATH


@click.command("explore", epilog="Example: regard explore regard-translate")
@click.argument("models", metavar="[MODEL]...", type=PATH, nargs=-1, help="Model folders to look into.")
@click.option(
    "--port", metavar="N", type=click.IntRange(0, 65_535), default=8_417, help="Port; the next free one if taken."
)
def command(models: Sequence[Path], port: int) -> None:
    """Serve a page on this machine to see attention and change what it depends on."""
    from regard.web.server import serve

    # uvicorn ends the server at SIGTERM, and then raises it again: what is being trained has to be stopped first.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    serve(models, port)
