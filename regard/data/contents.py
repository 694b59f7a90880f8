"""What files hold, as one SHA-256: the key of whatever is prepared from them.

A file that has the size, the times and the inode it had when it was read is not read again.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable
from pathlib import Path

from filelock import FileLock

from regard.data.store import prepared_folder
from regard.files import digest, write

__all__ = ["content_digest"]

REMEMBERED = 1_000  # lists of files whose digests are remembered
SETTLED = 2.0  # seconds: a file that is younger may change once more and keep its times, where clocks are coarse


def content_digest(paths: Iterable[Path]) -> str:
    """The SHA-256 of what these files hold, in this order; their names do not count."""
    paths = list(paths)
    state = _state(paths)
    memory = prepared_folder() / "digests.json"
    known: str | None = _read(memory).get(state)
    if known is not None:
        return known
    total = hashlib.sha256("".join(digest(path) for path in paths).encode()).hexdigest()
    if _state(paths) == state and _newest(paths) + SETTLED < time.time():
        _remember(memory, state, total)
    return total


def _state(paths: list[Path]) -> str:
    """What the file system says about files, as a SHA-256: it changes when they do."""
    total = hashlib.sha256()
    for path in paths:
        real = path.resolve()
        about = real.stat()
        total.update(f"{real}\0{about.st_size} {about.st_mtime_ns} {about.st_ctime_ns} {about.st_ino}\0".encode())
    return total.hexdigest()


def _newest(paths: list[Path]) -> float:
    """When the last one of the files changed."""
    return max((max(path.stat().st_mtime, path.stat().st_ctime) for path in paths), default=0.0)


def _read(memory: Path) -> dict[str, str]:
    try:
        content = json.loads(memory.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # absent or damaged: the files are read again
        return {}
    return content if isinstance(content, dict) else {}


def _remember(memory: Path, state: str, total: str) -> None:
    with FileLock(memory.with_name(".digests.lock")):
        latest = {**_read(memory), state: total}
        write(memory, json.dumps(dict(list(latest.items())[-REMEMBERED:]), indent=1))
