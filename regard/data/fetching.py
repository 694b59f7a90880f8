"""Real data sets and weights, brought once by ordinary clients and kept in the user's cache folder.

A set is there whole or not at all. Archives are kept beside the sets and checked, so that a fetch which was stopped
goes on where it was, and sets share what they have in common.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from regard.data.archives import FetchError
from regard.data.catalog import Archive, Row, UnknownSetError, find
from regard.data.clients import bring

__all__ = ["FetchError", "Lines", "Report", "UnknownSetError", "cache", "fetch", "folder", "is_fetched", "megabytes"]

WORK = ".fetch-"  # how the folders begin in which a fetch is at work


class Report(Protocol):
    """Who is told how a fetch goes."""

    def begin(self, archive: Archive, number: int, count: int) -> None:
        """The archive with this number, of so many, is on its way."""

    def grown(self, size: int) -> None:
        """So many bytes of it are here."""

    def note(self, text: str) -> None:
        """A line that the user should read."""


class Lines:
    """A line on stderr for each archive and each note."""

    def begin(self, archive: Archive, number: int, count: int) -> None:
        """See Report."""
        self.note(f"{number}/{count}  {archive.request}  ({megabytes(archive.size)})")

    def grown(self, size: int) -> None:
        """See Report."""

    def note(self, text: str) -> None:
        """See Report."""
        print(text, file=sys.stderr)


def cache() -> Path:
    """Where everything that is fetched is kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "regard"


def folder(name: str) -> Path:
    """Where a set is, once it is fetched."""
    find(name)
    return cache() / name


def is_fetched(name: str) -> bool:
    """Whether all files of a set are there."""
    return not _missing(folder(name), find(name))


def fetch(name: str, report: Report | None = None) -> Path:
    """The folder of a set, brought if it is not there yet. FetchError says what went wrong, and leaves no part."""
    row, place, report = find(name), folder(name), report or Lines()
    if is_fetched(name):
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with _alone(cache(), report), tempfile.TemporaryDirectory(prefix=WORK, dir=cache()) as work:
        if is_fetched(name):  # by somebody whom we have waited for
            return place
        if place.exists():
            absent = _missing(place, row)[0]
            raise FetchError(f"{place}: {absent} is missing there; move the folder away, and fetch again")
        report.note(f"{name}: licence: {row.licence}")
        made = Path(work) / name
        made.mkdir()
        archives = _archives(row, Path(work), report)
        report.note(f"{name}: unpacking")
        row.unpack(archives, made)
        if absent_now := _missing(made, row):
            raise FetchError(f"{name}: its archives hold no {absent_now[0]}")
        _settle(made)
        made.rename(place)
        _sync(place.parent)
    return place


def megabytes(size: int) -> str:
    """A number of bytes as people say it."""
    return f"{size / 1e6:.1f} MB" if size < 9.95e6 else f"{size / 1e6:.0f} MB"


def _missing(place: Path, row: Row) -> list[str]:
    return [name for name in row.files if not (place / name).is_file()]


def _archives(row: Row, work: Path, report: Report) -> list[Path]:
    """The archives of a set, kept or brought."""
    store = cache() / "archives"
    store.mkdir(exist_ok=True)
    kept = [_kept(archive, store, report) for archive in row.archives]
    _check_space(row, [archive for archive, path in zip(row.archives, kept, strict=True) if path is None])
    found = []
    for number, (archive, path) in enumerate(zip(row.archives, kept, strict=True), 1):
        if path is None:
            report.begin(archive, number, len(row.archives))
            path = _keep(archive, bring(archive, work, report.grown), store, report)
        found.append(path)
    return found


def _check_space(row: Row, archives: list[Archive]) -> None:
    """Before anything is brought. Clients may hold an archive twice for a while."""
    sizes = [archive.size for archive in archives]
    needed, free = sum(sizes) + max(sizes, default=0) + row.space, shutil.disk_usage(cache()).free
    if free < needed:
        raise FetchError(f"{cache()}: expected {megabytes(needed)} of free space, got {megabytes(free)}")


def _kept(archive: Archive, store: Path, report: Report) -> Path | None:
    """An archive of an earlier fetch, if it is what it was; else it is taken away."""
    pattern = f"{archive.request}_*.deb" if archive.client == "apt" else archive.file
    for path in sorted(store.glob(pattern), key=lambda each: each.name != archive.file):
        if _sha256(path) == _expected(archive, path):
            if path.name != archive.file:
                report.note(_another(archive, path))
            return path
        report.note(f"{path}: is not what was fetched once, and is fetched again")
        path.unlink()
        _checksum(path).unlink(missing_ok=True)
    return None


def _keep(archive: Archive, brought: Path, store: Path, report: Report) -> Path:
    """Put what was brought among the archives, if it is what was checked, or if apt vouches for it."""
    found = _sha256(brought)
    if archive.sha256 is None or (archive.client == "apt" and brought.name != archive.file):
        if brought.name != archive.file:
            report.note(_another(archive, brought))
        _checksum(store / brought.name).write_text(f"{found}\n", encoding="ascii")
    elif found != archive.sha256:
        raise FetchError(f"{archive.request}: expected SHA-256 {archive.sha256}, got {found}; it is not used")
    path = store / (brought.name if archive.client == "apt" else archive.file)
    _sync(brought)
    brought.replace(path)
    _sync(store)
    return path


def _another(archive: Archive, path: Path) -> str:
    return (
        f"{archive.request}: apt's signed index vouches for {path.name}; the version that was checked is {archive.file}"
    )


def _expected(archive: Archive, path: Path) -> str | None:
    if archive.sha256 and path.name == archive.file:
        return archive.sha256
    checksum = _checksum(path)
    return checksum.read_text(encoding="ascii", errors="replace").strip() if checksum.exists() else None


def _checksum(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def _alone(place: Path, report: Report) -> Iterator[None]:
    """One fetch at a time; whoever comes second waits. The lock goes with its process, however that ends."""
    if sys.platform == "win32":  # without a lock: whoever is second to put the same folder in place fails
        yield
        return
    import fcntl

    with (place / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report.note("another fetch is at work: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        for leftover in place.glob(f"{WORK}*"):  # of a fetch that was killed
            shutil.rmtree(leftover)
        yield


def _settle(place: Path) -> None:
    """All of it on disk before it gets its name, so that a power cut leaves no set with holes."""
    for path in place.rglob("*"):
        _sync(path)
    _sync(place)


def _sync(path: Path) -> None:
    if sys.platform == "win32" and path.is_dir():  # folders cannot be opened there
        return
    handle = os.open(path, os.O_RDONLY if sys.platform != "win32" else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
