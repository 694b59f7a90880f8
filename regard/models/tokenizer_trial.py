"""A program of its own: reads a tokenizer.json from stdin, and encodes and decodes texts on which bad patterns and
tables fail or take forever, within limits of time and memory. It exits with 0 if all went well.

It imports nothing of regard, and is done in a second; `tokenizer_files` runs it.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import permutations

SECONDS, MEMORY = 10, 2 << 30  # of the processor; bytes
LENGTH = 1_000  # characters of a text
CHARACTERS = 96  # that are tried, those of the file's own patterns among them
PAIRED = 32  # characters of its patterns of which each two are tried together
DOUBLINGS = 32  # of the two; a pattern that can take each in two ways is at its end after twenty
GROWTH = 64  # a text may become so many times as long
KINDS = " \n\t\raA1!_'-.é中▁\u0301\u200d🙂\0"  # a character of each kind that patterns tell apart


def limit() -> None:
    """Have the system end this process, rather than let it take the machine."""
    try:
        import resource
    except ImportError:  # Windows, where the parent's patience is the only limit
        return
    for kind, value in ((resource.RLIMIT_CPU, SECONDS), (resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_CORE, 0)):
        with suppress(ValueError, OSError):  # a system that has no such limit
            resource.setrlimit(kind, (value, value))


def texts(content: str) -> Iterator[str]:
    """Runs of one character and of two, which end in others; and nearly every character there is.

    Behind a run stands every character of the patterns: without one that it needs, a pattern is not even begun.
    """
    literals = "".join(re.findall(r'"(?:Regex|String)": ?"((?:\\.|[^"\\])*)"', content))
    characters = list(dict.fromkeys(KINDS + literals))[:CHARACTERS]
    end = "~" + "".join(characters)
    for character in characters:
        yield character * LENGTH + end
    for one, other in permutations([*dict.fromkeys(literals)][:PAIRED], 2):
        yield (one + other) * DOUBLINGS + end
    for start in range(0, 0x20000, LENGTH):
        yield "".join(chr(code) for code in range(start, start + LENGTH) if not 0xD800 <= code < 0xE000) or "~"


def main() -> None:
    """Try what stdin holds."""
    content = sys.stdin.buffer.read().decode()
    limit()
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(content)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    for text in texts(content):
        encoding = tokenizer.encode(text)
        decoded = tokenizer.decode(encoding.ids, skip_special_tokens=False)
        if max(len(encoding.ids) / 4, len(decoded)) > GROWTH * len(text):  # a character has up to four bytes
            sys.exit(f"a text becomes more than {GROWTH} times as long")


if __name__ == "__main__":
    main()
