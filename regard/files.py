"""Files that are complete or not there, whatever happens while they are written."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def write(path: Path, content: str | bytes | Callable[[Path], object]) -> None:
    """Write a file beside its place, force it to disk, move it there: readers see the old file or the whole new one.

    content: a text, bytes, or a function that writes a file at the path it is given.
    """
    # The name keeps its ending, by which writers of pictures choose their format.
    beside = path.with_name(f".{secrets.token_hex(4)}-{path.name}")
    try:
        beside.touch(exist_ok=False)  # with the permissions that the user's umask leaves
        if isinstance(content, str):
            beside.write_text(content, encoding="utf-8", newline="")
        elif isinstance(content, bytes):
            beside.write_bytes(content)
        else:
            content(beside)
        sync(beside)
        beside.replace(path)
        sync(path.parent)
    finally:
        beside.unlink(missing_ok=True)


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
        for file in beside.rglob("*"):
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
