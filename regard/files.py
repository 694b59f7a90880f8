"""Files that are complete or not there, whatever happens while they are written; and JSON and YAML that somebody else
wrote, read without trust: from regular files, up to a size, a depth, and numbers that a float can hold."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import secrets
import shutil
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DEPTH = 64  # of lists and objects in each other
DIGITS = 300  # of a whole number: a float has room for 308

# ------------------------------------------------------------------------------------------------------------- writing


def write(path: Path, content: str | bytes | Callable[[Path], object]) -> None:
    """Write a file beside its place, force it to disk, move it there: readers see the old file or the whole new one.

    content: a text, bytes, or a function that writes a file at the path it is given.
    """
    # The name keeps its ending, by which writers of pictures choose their format.
    beside = path.with_name(f".{secrets.token_hex(4)}-{path.name}")
    try:
        with named(path):
            beside.touch(exist_ok=False)  # with the permissions that the user's umask leaves now
            permissions = beside.stat().st_mode
            if isinstance(content, str):
                beside.write_text(content, encoding="utf-8", newline="")
            elif isinstance(content, bytes):
                beside.write_bytes(content)
            else:
                content(beside)
                beside.chmod(permissions)  # safetensors puts a file there that only its owner can read
            sync(beside)
            beside.replace(path)
            sync(path.parent)
    finally:
        beside.unlink(missing_ok=True)


def to_json(value: Any, indent: int | None = None) -> str:
    """JSON for programs of others; NaN and infinities, for which it has no words, become null."""
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), ensure_ascii=False, indent=indent)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Within this block errors of the system name this file if they name none: that of a full disk does not."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:  # without a number it is a text that somebody wrote
            error.filename = str(path)
        raise


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which gets its name at the end of the block; it is removed if the block fails.

    A folder that is there by then stays: another process was faster.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{secrets.token_hex(4)}-{path.name}")
    try:
        beside.mkdir()
        yield beside
        permissions = beside.stat().st_mode & 0o666  # those that the umask left when the folder was made
        for file in beside.rglob("*"):
            if file.is_file():
                file.chmod(permissions)
            sync(file)
        sync(beside)
        if not path.exists():
            beside.rename(path)
            sync(path.parent)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def sync(path: Path) -> None:
    """Force a file, or the names in a folder, to disk, so that a power cut does not undo a rename."""
    if sys.platform == "win32" and path.is_dir():  # folders cannot be opened there
        return
    handle = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ------------------------------------------------------------------------------------------------------------- reading


class ContentError(ValueError):
    """What a file or a request holds cannot be used; the message says why, and not where it stands."""


def read_file(path: Path, most: int) -> bytes:
    """All bytes of a regular file, `most` at most. A device could go on forever, and a pipe would be waited for."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ContentError("expected a regular file, got a folder, a pipe or a device")
        with open(handle, "rb", closefd=False) as file:
            content = file.read(most + 1)
    finally:
        os.close(handle)
    if len(content) > most:
        raise ContentError(f"expected at most {most:,} bytes, got more")
    return content


def is_text(text: str) -> bool:
    """Whether UTF-8 can hold it: names of files may have bytes that are no text, which Python keeps as surrogates."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def parse_json(content: bytes) -> Any:
    """The value that a JSON text holds."""
    try:
        value = json.loads(content.decode(), parse_int=_integer)
    except RecursionError as error:
        raise ContentError(f"nested deeper than {DEPTH} levels") from error
    except ValueError as error:
        raise ContentError(str(error)) from error
    _check_bounds(value)
    return value


def parse_yaml(content: bytes) -> Any:
    """The value that a YAML text holds; one that repeats parts of itself by name could be of any size."""
    import yaml

    try:
        value = yaml.load(content.decode(), _yaml_loader())
    except Exception as error:  # beside YAMLError, whatever the constructors of numbers and dates raise
        raise ContentError(" ".join(str(error).split()) or type(error).__name__) from error
    _check_bounds(value)
    return value


@functools.cache
def _yaml_loader() -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise ContentError("expected no alias (*name): write the value again")
            self.depth += 1
            if self.depth > DEPTH:
                raise ContentError(f"nested deeper than {DEPTH} levels")
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            names = [key.value for key, _ in node.value if isinstance(key.value, str)]
            if twice := [(name, count) for name, count in Counter(names).items() if count > 1]:
                raise ContentError("{}: expected once, got {} times".format(*twice[0]))
            return super().construct_mapping(node, deep)

    return Loader


def _integer(digits: str) -> int:
    if len(digits) > DIGITS:
        raise ContentError(f"expected numbers of at most {DIGITS} digits, got {len(digits):,}")
    return int(digits)


def _check_bounds(value: Any) -> None:
    """ContentError for what is nested too deeply, numbers beyond a float, and halves of characters, which no file and
    no answer could hold."""
    level = [value]
    for _ in range(DEPTH):
        for item in level:
            if isinstance(item, str) and not is_text(item):
                raise ContentError("expected text, got half a character (a lone surrogate)")
            if isinstance(item, int) and abs(item) >= 10**DIGITS:
                raise ContentError(f"expected numbers of at most {DIGITS} digits")
        parents = [item for item in level if isinstance(item, dict | list)]
        level = [part for item in parents for part in ((*item, *item.values()) if isinstance(item, dict) else item)]
        if not level:
            return
    raise ContentError(f"nested deeper than {DEPTH} levels")
