"""The base class of what goes wrong because of a file, an option or an input, and not because of a bug."""


class RegardError(Exception):
    """Something that the user can mend. The message names the file or the argument, what is wrong and what to do.

    The command line prints it as one line, unless it keeps its lines, and ends with `exit_code`.
    """

    exit_code = 2
    keeps_lines = False
