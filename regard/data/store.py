"""Data that were prepared once, in files that are read a few rows at a time: no process holds them in memory.

    prepared_folder()/KEY/    store.json           columns, and facts about the data
                              NAME.values          the values of a column, end to end
                              NAME.offsets         of a ragged column: where each row begins, and the end of all

The key is made of the content of the user's files and of everything else that the rows depend on. A folder is complete
or not there: a preparation that was killed leaves nothing that anybody would read.

Every read maps its file and lets go of it: mapped pages count as resident, and a long run would map the whole corpus.
`content_digest` says what files hold; readers `advance` while they prepare, and a command that shows it is `watched`.
"""

from __future__ import annotations

import atexit
import errno
import functools
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy
from filelock import FileLock, Timeout
from numpy.typing import DTypeLike, NDArray

from regard.data.texts import open_file
from regard.errors import RegardError
from regard.files import named, new_folder, write

Array = NDArray[Any]
STORE = "store.json"
FORMAT = 1  # a store of another format is made anew
NUMBERS = 1 << 20  # rows that are looked at together
REMEMBERED = 1_000  # lists of files whose digests are remembered
SETTLED = 2.0  # seconds: a file that is younger may change once more and keep its times, where clocks are coarse
Listener = Callable[[str, int, int], None]  # what is being done, how many parts of it are done, of how many
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


class StoreError(RegardError, ValueError):
    """A store that is not whole."""


def prepared(key: Mapping[str, Any], build: Callable[[StoreWriter], Mapping[str, Any]]) -> Store:
    """The store of a key; it is built if it is not there, by one process while others wait for it.

    key: everything that the rows depend on, as JSON can write it.
    build: fills a writer, and returns facts about the data.
    """
    name = hashlib.sha256(json.dumps({"format": FORMAT, **key}, sort_keys=True).encode()).hexdigest()[:32]
    folder = prepared_folder() / name
    with FileLock(_lock(folder)):
        try:
            return Store(folder)
        except StoreError:
            shutil.rmtree(folder, ignore_errors=True)
        _remove_remains(folder)
        try:
            with named(folder), new_folder(folder) as unfinished, StoreWriter(unfinished) as writer:
                writer.finish(build(writer))
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise OSError(f"{folder.parent}: the disk is full: choose another folder by REGARD_PREPARED") from error
    return Store(folder)


def cache() -> Path:
    """The folder of everything that is fetched or prepared: `$XDG_CACHE_HOME/regard`, or `~/.cache/regard`."""
    home = Path(os.path.expanduser("~"))
    if not home.is_absolute():  # a user that the system knows nothing of, as in some containers
        home = Path(os.devnull)  # below it there is no folder that anybody could write
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "regard"


def prepared_folder() -> Path:
    """Where stores are: `$REGARD_PREPARED`, or a folder in the user's cache."""
    return writable(Path(os.environ.get("REGARD_PREPARED") or cache() / "prepared"))


def writable(folder: Path) -> Path:
    """This folder; where it cannot be written, one that this process shares with those it starts, and removes."""
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        folder = _temporary_folder() / folder.name
        folder.mkdir(exist_ok=True)
    return folder


@functools.cache
def _temporary_folder() -> Path:
    if "REGARD_TEMPORARY" not in os.environ:  # else it belongs to the process that started this one
        os.environ["REGARD_TEMPORARY"] = tempfile.mkdtemp(prefix="regard-")
        atexit.register(shutil.rmtree, os.environ["REGARD_TEMPORARY"], ignore_errors=True)
    return Path(os.environ["REGARD_TEMPORARY"])


def _lock(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.lock")


def _remove_remains(folder: Path) -> None:
    """Remove what killed preparations, of this store or another, left behind; those at work hold a lock."""
    for remains in filter(Path.is_dir, folder.parent.glob(".????????-*")):
        other = folder.with_name(remains.name.partition("-")[2])
        with suppress(Timeout), nullcontext() if other == folder else FileLock(_lock(other), timeout=0):
            shutil.rmtree(remains, ignore_errors=True)


class Column:
    """Rows of one shape."""

    def __init__(self, path: Path, dtype: DTypeLike, rows: int, shape: Sequence[int] = ()) -> None:
        self.path, self.dtype, self.rows, self.shape = path, numpy.dtype(dtype), rows, tuple(shape)

    def __len__(self) -> int:
        return self.rows

    def take(self, rows: Sequence[int] | Array) -> Array:
        """Rows, by their numbers: (len(rows), *shape)."""
        return numpy.asarray(self._map()[numpy.asarray(rows, dtype=numpy.int64)])

    def between(self, start: int, stop: int) -> Array:
        """The rows from `start` up to `stop`."""
        return numpy.array(self._map()[start:stop])

    def blocks(self) -> Iterator[Array]:
        """All rows in order, NUMBERS at a time."""
        return (self.between(start, start + NUMBERS) for start in range(0, len(self), NUMBERS))

    def windows(self, starts: Sequence[int] | Array, length: int) -> Array:
        """`length` rows from each start on: (len(starts), length, *shape)."""
        values = self._map()
        return numpy.stack([values[start : start + length] for start in numpy.asarray(starts).tolist()])

    def _map(self) -> Array:
        if not self.rows:
            return numpy.empty((0, *self.shape), self.dtype)
        return numpy.memmap(self.path, self.dtype, "r", shape=(self.rows, *self.shape))


class Ragged:
    """Rows of different lengths."""

    def __init__(self, values: Column, offsets: Column) -> None:
        self.values, self.offsets = values, offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, rows: Sequence[int] | Array) -> list[Array]:
        """Rows, by their numbers."""
        rows = numpy.asarray(rows, dtype=numpy.int64)
        starts, stops = self.offsets.take(rows).tolist(), self.offsets.take(rows + 1).tolist()
        values = self.values._map()
        return [numpy.array(values[start:stop]) for start, stop in zip(starts, stops, strict=True)]

    def texts(self, rows: Sequence[int] | Array) -> list[str]:
        """The texts that rows of bytes hold."""
        return [row.tobytes().decode(errors="surrogatepass") for row in self.take(rows)]


class Store:
    """What was prepared: columns by name, and facts."""

    def __init__(self, folder: Path) -> None:
        """Open a folder; StoreError if it is not whole."""
        self.folder = folder
        try:
            content = json.loads((folder / STORE).read_text(encoding="utf-8"))
            self.facts: dict[str, Any] = content["facts"]
            self.columns: dict[str, dict[str, Any]] = content["columns"]
            for name, column in self.columns.items():
                if (folder / name).stat().st_size != column["bytes"]:
                    raise StoreError(f"{folder / name}: is not whole")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{folder}: is not whole: {error}") from error

    def __reduce__(self) -> tuple[type[Store], tuple[Path]]:
        return Store, (self.folder,)

    def column(self, name: str) -> Column:
        """The rows of one shape that were written as `name`."""
        return self._column(f"{name}.values")

    def ragged(self, name: str) -> Ragged:
        """The rows of different lengths that were written as `name`."""
        return Ragged(self._column(f"{name}.values"), self._column(f"{name}.offsets"))

    def _column(self, name: str) -> Column:
        about = self.columns[name]
        return Column(self.folder / name, about["dtype"], about["rows"], about["shape"])

    @property
    def key(self) -> str:
        """What the data are, in 32 letters."""
        return self.folder.name

    @property
    def is_temporary(self) -> bool:
        """Whether it is in a folder of this process, because that of prepared data cannot be written."""
        return str(self.folder.parent.parent) == os.environ.get("REGARD_TEMPORARY")

    @property
    def size(self) -> int:
        """Bytes of all columns."""
        return sum(column["bytes"] for column in self.columns.values())


class StoreWriter(ExitStack):
    """Writes a store, a block of rows at a time."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.files: dict[str, IO[bytes]] = {}
        self.columns: dict[str, dict[str, Any]] = {}

    def column(self, name: str, rows: Array) -> None:
        """Add rows of one shape, (n, *shape); a column begins with its first block."""
        self._write(f"{name}.values", rows)

    def arrays(self, name: str, rows: Sequence[Array], dtype: DTypeLike) -> None:
        """Add rows of different lengths, each an array, to a ragged column."""
        before = self.columns.get(f"{name}.values")
        ends = numpy.cumsum([before["rows"] if before else 0, *map(len, rows)], dtype=numpy.int64)
        self._write(f"{name}.values", numpy.concatenate([numpy.empty(0, dtype), *rows]))
        self._write(f"{name}.offsets", ends[1:] if before else ends)

    def texts(self, name: str, texts: Sequence[str]) -> None:
        """Add texts to a ragged column of bytes."""
        contents = [text.encode(errors="surrogatepass") for text in texts]
        self.arrays(name, [numpy.frombuffer(content, numpy.uint8) for content in contents], numpy.uint8)

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Write store.json, without which a folder is no store."""
        self.close()
        content = {"facts": dict(facts), "columns": self.columns}
        # In ASCII: names of files may hold bytes that are no text in any encoding.
        (self.folder / STORE).write_text(json.dumps(content, indent=1), encoding="utf-8")

    def _write(self, name: str, rows: Array) -> None:
        rows = numpy.ascontiguousarray(rows)
        dtype, shape = rows.dtype.str, list(rows.shape[1:])
        about = self.columns.setdefault(name, {"dtype": dtype, "shape": shape, "rows": 0, "bytes": 0})
        if (about["dtype"], about["shape"]) != (dtype, shape):
            raise ValueError(f"{name}: expected rows of {about['dtype']} {about['shape']}, got {rows.dtype} {shape}")
        if name not in self.files:
            self.files[name] = self.enter_context((self.folder / name).open("wb"))
        self.files[name].write(rows.data.cast("B") if rows.size else b"")
        about["rows"] += len(rows)
        about["bytes"] += rows.nbytes


# ------------------------------------------------------------------------------------------------ what is prepared from


class FileState(NamedTuple):
    """What the file system says about files: names, sizes and times as a SHA-256, the last change, how many."""

    digest: str
    newest: float  # seconds
    files: int

    @classmethod
    def of(cls, paths: Iterable[str]) -> FileState:
        """Of files, by their absolute paths: a Path for each of a million files would take seconds."""
        total, newest, files = hashlib.sha256(), 0.0, 0
        for path in paths:
            files += 1
            try:
                about = os.stat(path)
                times = f"{about.st_size} {about.st_mtime_ns} {about.st_ctime_ns} {about.st_ino}"
                newest = max(newest, about.st_mtime, about.st_ctime)
            except OSError as error:  # it is refused when it is read
                times = str(error.errno)
            total.update(f"{path}\0{times}\0".encode(errors="surrogatepass"))
        return cls(total.hexdigest(), newest, files)

    @property
    def is_settled(self) -> bool:
        """Whether another change would be seen."""
        return self.newest + SETTLED < time.time()


def content_digest(paths: Iterable[Path]) -> str:
    """The SHA-256 of what these files hold, in this order; their names do not count. TextError if one is no file.

    A file that has the size, the times and the inode it had when it was read is not read again.
    """
    paths = list(paths)
    real = [os.path.realpath(path) for path in paths]
    state, memory = FileState.of(real), prepared_folder() / "digests.json"
    known = _read_digests(memory).get(state.digest)
    if known is not None:
        return known
    total = hashlib.sha256("".join(map(_digest, paths)).encode()).hexdigest()
    if FileState.of(real) == state and state.is_settled:
        with FileLock(memory.with_name(".digests.lock")):
            latest = {**_read_digests(memory), state.digest: total}
            write(memory, json.dumps(dict(list(latest.items())[-REMEMBERED:]), indent=1))
    return total


def _digest(path: Path) -> str:
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_digests(memory: Path) -> dict[str, str]:
    try:
        content = json.loads(memory.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # absent or damaged: the files are read again
        return {}
    return content if isinstance(content, dict) else {}


def advance(text: str, done: int, total: int) -> None:
    """Report that so many parts of `total` are done."""
    listener = _listener.get()
    if listener is not None:
        listener(text, done, total)


@contextmanager
def watched(listener: Listener) -> Iterator[None]:
    """Within this block the listener gets the reports."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)
