"""`regard search`."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import click

from regard.cli.options import PATH, int_option, json_flag, notes_on_stderr, path_option
from regard.files import to_json

if TYPE_CHECKING:
    from regard.models.encoder import Match

INDENT = 8  # characters in front of a text


@click.command(
    "search",
    epilog='Example: regard search notes.txt "where does the cat sit?" --model FOLDER. MiniLM is such a model: '
    "`regard data fetch MiniLM` fetches it and prints its folder.",
)
@click.argument("file", type=PATH, help="Text file, or a folder of them.")
@click.argument("question", help="Question in words.")
@path_option("--model", metavar="FOLDER", required=True, help="Folder of an encoder: regard's, or a BERT.")
@int_option("--top", default=5, help="Number of results.")
@json_flag
def command(file: Path, question: str, model: Path, top: int, as_json: bool) -> None:
    """Find the lines of a file, or the paragraphs of a folder's files, that answer a question.

    Texts are compared by the vectors of a sentence encoder. The percentage is a text's share of the attention among all
    texts.
    """
    from regard.models.encoder import search
    from regard.progress import ProgressBar

    with notes_on_stderr(), ProgressBar() as bar:
        bar.stage("reading")
        matches = search(file, question, model, top=top, progress=bar.update)
    if as_json:
        print(to_json([dataclasses.asdict(match) for match in matches]))
        return
    for match in matches:
        print(f"{match.weight:6.1%}  cos {match.cosine:.2f}  {match.place}")
        print(" " * INDENT + _line(match, max(shutil.get_terminal_size().columns - INDENT, 20)))


def _line(match: Match, width: int) -> str:
    """The text on one line of the terminal, without control characters."""
    text = "".join(letter if letter.isprintable() else " " for letter in " ".join(match.text.split()))
    return text if len(text) <= width else text[: width - 1] + "…"
