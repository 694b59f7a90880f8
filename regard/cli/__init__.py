"""The command line: results on stdout, progress on stderr.

Exit codes: 0 done, 1 failed, 2 cannot be carried out as given, 130 stopped by Ctrl-C.
Each command is a file of this folder. They import rooms within their functions, so that `regard --help`, the help
of a command and completion in the shell wait for nothing heavy.
"""

from __future__ import annotations

import codecs
import io
import logging
import os
import sys
import traceback
from collections.abc import Sequence

import click

from regard import __version__
from regard.cli import classify, curve, data, doctor, evaluate, explore, generate, look, search, tour, train, translate
from regard.cli.options import CommandGroup
from regard.errors import RegardError, visible

EPILOG = (
    'Completion in the shell: add  eval "$(_REGARD_COMPLETE=bash_source regard)"  to ~/.bashrc, or the same with '
    "zsh_source to ~/.zshrc; for fish,  _REGARD_COMPLETE=fish_source regard | source  to its config."
)


# In the order of `regard --help`.
MODULES = (tour, curve, search, train, translate, generate, classify, evaluate, look, explore, data, doctor)


@click.group(
    cls=CommandGroup,
    commands=[module.command for module in MODULES],
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
    # matplotlib would say that it reads all fonts of the system, and in which folder it keeps what it found.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    _prepare_streams()
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
            message += f"{'' if message[-1] in '.?' else '.'} Try '{error.ctx.command_path} --help'."
        return _fail(message, error.exit_code)
    except (RegardError, OSError, ValueError, IndexError) as error:
        if sys.flags.dev_mode or not (isinstance(error, RegardError | OSError) or _is_raised_by_regard(error)):
            raise
        if isinstance(error, RegardError):
            return _fail(str(error), error.exit_code, keeps_lines=error.keeps_lines)
        return _fail(str(error), 1 if isinstance(error, OSError) else 2)


def _prepare_streams() -> None:
    """Let those that are closed, as a service's may be, lead nowhere, and stdout write whatever its encoding lacks."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # in this order they get their numbers back
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    codecs.register_error("regard", _escaped)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="regard")


def _escaped(error: UnicodeError) -> tuple[str | bytes, int]:
    """Names of files come out as they came in, whatever bytes they have; else \\uXXXX, which JSON reads, too."""
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeEncodeError as other:
        text = other.object[other.start : other.end]
        return "\\u" + text.encode("utf-16-be", "surrogatepass").hex("|", 2).replace("|", "\\u"), other.end


def _is_raised_by_regard(error: Exception) -> bool:
    *_, (innermost, _) = traceback.walk_tb(error.__traceback__)
    return str(innermost.f_globals.get("__name__")).startswith("regard.")


def _fail(message: str, code: int, *, keeps_lines: bool = False) -> int:
    sys.stdout.flush()
    print(f"regard: {visible(message if keeps_lines else ' '.join(message.split()))}", file=sys.stderr)
    return code
