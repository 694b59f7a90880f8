"""The flags of `regard train`, made from the fields of the options."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from regard.training.options import EMBEDDED, TASKS, Options, kind_of

__all__ = ["add_tasks", "given"]

POSITIONAL = ("data", "target")
ABOUT = {
    "translate": "Learn to translate, from a TSV file (source, tab, target), or from two text files side by side.",
    "language": "Learn a language, from a text file or a folder of them.",
    "text": "Learn to classify texts, from a CSV, TSV or JSONL file with named columns.",
    "images": "Learn to classify images, from a folder for each class, idx files or an npz file.",
}
EPILOG = (
    "The run is kept in --out: the best model so far (for regard.load and the other commands), log.jsonl, "
    "training.yaml with all options, and checkpoints. Ctrl-C saves; --resume goes on as if nothing had happened. "
    "Several processes: torchrun --nproc-per-node N -m regard train …"
)


def add_tasks(parser: argparse.ArgumentParser, run: Any) -> None:
    """One subcommand for each task."""
    tasks = parser.add_subparsers(metavar="TASK", dest="task", required=True)
    for name, options in TASKS.items():
        places = [field for field in POSITIONAL if hasattr(options, field)]
        shown = [f"[{field.upper()}]" if EMBEDDED[name] else field.upper() for field in places]
        own = tasks.add_parser(
            name,
            help=ABOUT[name].rstrip("."),
            description=ABOUT[name],
            epilog=EPILOG,
            usage=f"%(prog)s {' '.join(shown)} [options]",
            argument_default=argparse.SUPPRESS,
        )
        for field in dataclasses.fields(options):
            _add(own, field, options, EMBEDDED[name])
        own.add_argument("--out", metavar="DIR", default=f"regard-{name}", help="default: %(default)s")
        own.add_argument("--config", metavar="YAML", default=None, help="a file with options; a flag is stronger")
        own.add_argument("--resume", action="store_true", default=False, help="go on with the run in --out")
        own.add_argument("--json", action="store_true", default=False, help="results for a program to read")
        own.set_defaults(run=run, optional=places)


def _add(
    parser: argparse.ArgumentParser, field: dataclasses.Field[Any], owner: type[Options], embedded: dict[str, Any]
) -> None:
    kind, _ = kind_of(field, owner)
    text = field.metadata["help"]
    if field.name in POSITIONAL:
        parser.add_argument(field.name, metavar=field.name.upper(), nargs="?", help=text)
        return
    if field.default is not None and kind is not bool:
        shown = field.default
        text += f"; default: {shown}"
        if field.name in embedded:
            text += f" ({embedded[field.name]} for the embedded data)"
    if field.metadata["only"]:
        text = f"{field.metadata['only']}: {text}"
    flag = "--" + field.name.replace("_", "-")
    text = text.replace("%", "%%")
    if kind is bool:
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, help=text)
    elif field.metadata["choices"]:
        parser.add_argument(flag, choices=field.metadata["choices"], help=text)
    else:
        metavar = {int: "N", float: "X", str: "NAME"}[kind]
        parser.add_argument(flag, metavar=metavar, type=kind, help=text)


def given(options: argparse.Namespace) -> dict[str, Any]:
    """The options that were given by flags."""
    known = {field.name for field in dataclasses.fields(TASKS[options.task])}
    return {name: value for name, value in vars(options).items() if name in known}
