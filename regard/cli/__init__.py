"""The command line: results on stdout, progress on stderr.

Exit codes: 0 done, 1 failed, 2 cannot be carried out as given, 130 stopped by Ctrl-C.
Each command is a file of this folder, imported when it is called. Those files import rooms within their functions, so
that `regard --help`, the help of a command and completion in the shell wait for nothing heavy.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

import click

from regard import __version__
from regard.errors import RegardError

__all__ = ["COMMANDS", "commands", "main"]

COMMANDS = {
    "tour": "Run every claim of the course notes: the code they lack, its picture, and whether the claim held.",
    "curve": "Draw a smooth curve through columns of a file.",
    "search": "Find the lines of a file, or the paragraphs of a folder's files, that answer a question.",
    "train": "Train a translator, a language model, or a classifier of texts or images.",
    "translate": "Translate texts, or the lines of stdin.",
    "generate": "Let a language model continue prompts, or the lines of stdin.",
    "classify": "Classify texts, the lines of stdin, or image files.",
    "evaluate": "Measure a model on the test part of its data, or on other data.",
    "look": "Show what a model attends to, in the terminal or as a picture.",
    "explore": "Serve a page on this machine to see attention and change what it depends on.",
    "data": "List real data sets and weights that can be fetched, or fetch one.",
    "doctor": "Check whether regard works on this machine, and say what to do where it does not.",
}
EPILOG = (
    'Completion in the shell: add  eval "$(_REGARD_COMPLETE=bash_source regard)"  to ~/.bashrc, or the same with '
    "zsh_source to ~/.zshrc; for fish,  _REGARD_COMPLETE=fish_source regard | source  to its config."
)


class LazyGroup(click.Group):
    """A group whose commands are the modules of this folder; a module is imported when its command is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of `regard --help`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a module."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"regard.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is called; an unknown one is answered with those of a similar name."""
        if args[0] not in COMMANDS:
            raise click.NoSuchCommand(args[0], possibilities=COMMANDS, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in `regard --help`, which imports none of them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyGroup,
    epilog=EPILOG,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.version_option(__version__, message="regard %(version)s")
def commands() -> None:
    """Attention you can compute, train and see."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: the one place where an error becomes a line on stderr.

    Rooms refuse arguments by ValueError and IndexError, so these become lines as well, with exit code 2, unless a
    library raised them: then they are bugs, as all other errors are, and keep their traceback. All tracebacks are shown
    by `python -X dev -m regard`.
    """
    # At its first run matplotlib reads all fonts of the system, and would say so.
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    try:
        code: int | None = commands.main(arguments, prog_name="regard", standalone_mode=False)
        sys.stdout.flush()
        return code or 0
    except BrokenPipeError:  # the reader of our output has left, as in `regard doctor | head -n 1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except click.Abort as error:  # click's name for KeyboardInterrupt; and for EOFError, which here is a bug
        if isinstance(error.__cause__, EOFError):
            raise error.__cause__ from None
        return _fail("stopped", 130)
    except click.UsageError as error:
        message = error.format_message()
        if error.ctx is not None:
            message += f"{'' if message[-1] in '.?)' else '.'} Try '{error.ctx.command_path} --help'."
        return _fail(message, error.exit_code)
    except (RegardError, OSError, ValueError, IndexError) as error:
        if sys.flags.dev_mode or not (isinstance(error, RegardError | OSError) or _is_raised_by_regard(error)):
            raise
        if isinstance(error, RegardError):
            return _fail(str(error), error.exit_code, keeps_lines=error.keeps_lines)
        return _fail(str(error), 1 if isinstance(error, OSError) else 2)


def _is_raised_by_regard(error: Exception) -> bool:
    *_, (innermost, _) = traceback.walk_tb(error.__traceback__)
    return str(innermost.f_globals.get("__name__")).startswith("regard.")


def _fail(message: str, code: int, *, keeps_lines: bool = False) -> int:
    sys.stdout.flush()
    print(f"regard: {message if keeps_lines else ' '.join(message.split())}", file=sys.stderr)
    return code
