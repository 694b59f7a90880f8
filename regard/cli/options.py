"""What several commands share: arguments, options, the lines of stdin, and loading a model of the right kind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from regard.models.model import Model

__all__ = ["PATH", "input_batches", "input_lines", "json_flag", "load_as", "model_and_inputs"]

PATH = click.Path(path_type=Path)
BATCH = 64  # lines of stdin that are read before the model runs on them
LONGEST_LINE = 1 << 20  # characters
Function = TypeVar("Function", bound=Callable[..., Any])
AnyModel = TypeVar("AnyModel", bound="Model")

json_flag = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


def model_and_inputs(name: str) -> Callable[[Function], Function]:
    """The arguments MODEL and `name`…, and the options --show and --json, of commands that run a model on lines."""

    def decorate(function: Function) -> Function:
        for decorator in (
            click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each input."),
            click.option("--show", is_flag=True, help="Show on stderr what the model attended to."),
            click.argument("inputs", metavar=f"[{name}]...", nargs=-1, help="Inputs; default: the lines of stdin."),
            click.argument("model", type=PATH, help="Model folder."),
        ):
            function = decorator(function)
        return function

    return decorate


def load_as(folder: Path, kind: type[AnyModel], purpose: str) -> AnyModel:
    """The model of a folder, which has to be of this kind; `purpose` says what such a model does."""
    from regard.models.folders import load

    model = load(folder)
    if not isinstance(model, kind):
        raise click.UsageError(f"{folder}: expected a model that {purpose}; got a {type(model).__name__}")
    return model


def input_batches(inputs: Sequence[str]) -> Iterator[list[str]]:
    """The inputs, up to 64 at a time; one at a time where a person types them."""
    size = 1 if not inputs and sys.stdin.isatty() else BATCH
    lines = input_lines(inputs)
    while batch := list(islice(lines, size)):
        yield batch


def input_lines(inputs: Sequence[str]) -> Iterator[str]:
    """The inputs, or else the lines of stdin."""
    if inputs:
        yield from inputs
        return
    if sys.stdin.isatty():
        print("a line at a time; Ctrl-D ends", file=sys.stderr)
    number = 0
    try:
        while line := sys.stdin.readline(LONGEST_LINE + 1):
            number += 1
            if len(line) > LONGEST_LINE:
                raise click.UsageError(f"stdin: line {number} is longer than {LONGEST_LINE} characters")
            yield line.rstrip("\n")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"stdin: line {number + 1}: not UTF-8 ({error.reason})") from error
