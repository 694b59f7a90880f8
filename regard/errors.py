"""The base class of what goes wrong because of a file, an option or an input, and not because of a bug; and messages
that a terminal can show."""

import re

CONTROLS = re.compile(r"[\0-\x08\x0b-\x1f\x7f-\x9f]")  # all but tabs and ends of lines


class RegardError(Exception):
    """Something that the user can mend. The message names the file or the argument, what is wrong and what to do.

    The command line prints it as one line, unless it keeps its lines, and ends with `exit_code`.
    """

    exit_code = 2
    keeps_lines = False


def visible(text: str) -> str:
    """A text for the terminal, which would carry out what names, labels and tokens of others may hold."""
    return CONTROLS.sub("·", text)
