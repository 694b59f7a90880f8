"""What several commands share: arguments, options, the lines of stdin, and loading a model of the right kind."""

from __future__ import annotations

import os
import shlex
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.models.model import Model


class NamedPath(click.Path):
    """A path that has a name: an empty one, of an unset variable of a shell, would be the working folder."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """The path."""
        if value == "":
            self.fail("expected a name, got an empty one", parameter, context)
        return super().convert(value, parameter, context)


PATH = NamedPath(path_type=Path)
BATCH = 64  # lines of stdin that are read before the model runs on them
LONGEST_LINE = 1 << 20  # bytes
Function = TypeVar("Function", bound=Callable[..., Any])
AnyModel = TypeVar("AnyModel", bound="Model")
Answer = TypeVar("Answer")

int_option = partial(click.option, metavar="N", type=int)
path_option = partial(click.option, type=PATH)
json_flag = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


class CommandGroup(click.Group):
    """A group that lists its commands in their order, each with the whole first line of its help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order in which they were added."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in `--help`."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, str(item.help).partition("\n")[0]) for name, item in self.commands.items()])


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


def refuse_ignored(names: Collection[str], where: str) -> None:
    """Refuse those of these parameters that were given; `where` says in what case they mean nothing."""
    context = click.get_current_context()
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{parameter.opts[0]}: means nothing {where}")


@contextmanager
def notes_on_stderr() -> Iterator[None]:
    """Within this block a warning that texts are cut is a line on stderr."""
    from regard.models.texts import CutWarning

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        print(f"regard: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always", CutWarning)
        warnings.showwarning = show
        yield


def answers(
    inputs: Sequence[str], answer: Callable[[list[str]], Iterable[Answer]], *, files: bool = False
) -> Iterator[tuple[int, str, Answer | None]]:
    """The inputs with their numbers, and what `answer` makes of them; None for a blank one.

    Up to 64 are answered at a time; one at a time where a person types them. files: whether inputs are names of files.
    """
    for batch in _batches(inputs, files):
        texts = [text for _, text in batch if text.strip()]
        with notes_on_stderr():
            try:
                results = iter(answer(texts) if texts else ())
            except RegardError:  # one of them is a damaged picture: those before it come first
                results = (result for text in texts for result in answer([text]))
        for number, text in batch:
            yield number, text, next(results) if text.strip() else None


def _batches(inputs: Sequence[str], files: bool) -> Iterator[list[tuple[int, str]]]:
    size = 1 if not inputs and sys.stdin.isatty() else BATCH
    batch: list[tuple[int, str]] = []
    try:
        for numbered in input_lines(inputs, files=files):
            batch.append(numbered)
            if len(batch) == size:
                yield batch
                batch = []
    except click.UsageError:  # of a line that cannot be read: those before it come first
        yield batch
        raise
    yield batch


def input_lines(inputs: Sequence[str], *, files: bool = False) -> Iterator[tuple[int, str]]:
    """The inputs, or else the lines of stdin, with their numbers from 1. A text that names a file stays a text."""
    if inputs:
        for text in () if files else filter(os.path.isfile, inputs):
            lines = f"for the lines of this file: < {shlex.quote(text)}"
            print(f"regard: {text}: is taken as a text; {lines}", file=sys.stderr)
        yield from enumerate(inputs, 1)
        return
    if sys.stdin.isatty():
        print("a line at a time; Ctrl-D ends", file=sys.stderr)
    # Bytes, because sys.stdin takes a lone \r for the end of a line, and decodes many lines at once: which one is
    # wrong could not be said.
    for number, line in enumerate(iter(partial(sys.stdin.buffer.readline, LONGEST_LINE + 1), b""), 1):
        if len(line) > LONGEST_LINE:
            raise click.UsageError(f"stdin: line {number}: expected at most {LONGEST_LINE} bytes, got more")
        if b"\0" in line:
            raise click.UsageError(f"stdin: line {number}: expected text, got a NUL byte")
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise click.UsageError(f"stdin: line {number}: not UTF-8 ({error.reason})") from error
        yield number, text.removesuffix("\n").removesuffix("\r")
