"""Images in a folder for each class: looked through for what their headers claim, then decoded, by several threads.

Pillow lets other threads run while it decodes. A few images are in memory at a time, and the file names of one class.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy

from regard.data.image_files import ImageError, Pixels, decode, peek, silent
from regard.data.image_parts import BLOCK_BYTES, Block, ImagePart, Names, Refuse, Shapes, check_names
from regard.data.store import advance, prepared
from regard.files import digest

__all__ = ["FolderImages", "folders"]

Item = TypeVar("Item")
Result = TypeVar("Result")
Header = tuple[int, tuple[int, int]]  # channels, (height, width)
THREADS = os.cpu_count() or 1
AHEAD = 4  # images for each thread that wait to be decoded, or to be taken
SETTLED = 2.0  # seconds: a file that is younger may change once more and keep its times, where clocks are coarse
HIDDEN = {"thumbs.db", "desktop.ini", "__macosx"}  # what systems put beside pictures, and show to nobody


@dataclass(frozen=True)
class File:
    """A file of a class."""

    label: int
    name: str  # with that of its folder
    path: Path


@dataclass(frozen=True)
class State:
    """What the file system says about files: their names, sizes and times as a SHA-256, the last change, how many."""

    digest: str
    newest: float  # seconds
    count: int


class FolderImages(ImagePart):
    """A folder with a folder of pictures for each class. What is hidden does not count."""

    def __init__(self, path: Path, train_names: Names | None, expected: str = "a folder of pictures per class") -> None:
        self.path, self.names = path, tuple(folder.name for folder in folders(path))
        if not self.names:
            raise ImageError(f"{path}: no folders in it, expected {expected}")
        check_names(path, self.names, train_names)

    def files(self) -> Iterator[File]:
        """All files, sorted by class and name."""
        for label, name in self._names():
            yield File(label, name, self.path / name)

    def _names(self) -> Iterator[tuple[int, str]]:
        """The class of each file, and its name with that of its folder."""
        for label, name in enumerate(self.names):
            files = _visible(self.path / name)
            if not files:
                raise ImageError(f"{self.path / name}: no pictures of this class: add some or delete the folder")
            for file in files:
                yield label, f"{name}/{file}"

    @property
    def shapes(self) -> Shapes:
        shapes = self._scanned["shapes"]
        size, other = (shapes[name] and (shapes[name][0], shapes[name][1]) for name in ("size", "other"))
        return Shapes(shapes["count"], shapes["channels"], shapes["edge"], size, other)

    def digest(self) -> str:
        return str(self._scanned["digest"])

    def blocks(self, shape: tuple[int, int, int], refuse: Refuse) -> Iterator[Block]:
        state = self._state()
        count = max(1, BLOCK_BYTES // int(numpy.prod(shape)))
        decoded = in_threads(partial(_decode, shape=shape), self.files())
        while results := list(islice(decoded, count)):
            images = [(file, pixels) for file, pixels in results if not isinstance(pixels, ImageError)]
            for file, error in results:
                if isinstance(error, ImageError):
                    refuse(file.name, error)
            if images:
                labels = numpy.array([file.label for file, _ in images])
                yield Block(numpy.stack([pixels for _, pixels in images]), labels, [file.name for file, _ in images])
        if self._state() != state:
            raise ImageError(f"{self.path}: changed while it was read: start again when it is complete")

    @cached_property
    def _scanned(self) -> dict[str, Any]:
        """What `_scan` found, now or when the files were as they are."""
        state = self._state()
        if state.newest + SETTLED > time.time():
            return self._scan(state.count)
        return prepared({"folder of images": state.digest}, lambda _: self._scan(state.count)).facts

    def _scan(self, count: int) -> dict[str, Any]:
        """What the headers claim, and the digest of the names and contents of all files, of which there are `count`."""
        total, channels, edges, broken = hashlib.sha256(), 1, Counter[int](), ""
        sizes: list[tuple[int, int]] = []  # the first one, and one that differs
        with silent():
            for number, (file, (content, header)) in enumerate(in_threads(_look, self.files()), 1):
                advance("looking through pictures", number, count)
                total.update(f"{file.name}\0{content}\0".encode(errors="surrogatepass"))
                if isinstance(header, ImageError):
                    broken = broken or str(header)
                    continue
                channels = max(channels, header[0])
                edges[min(header[1])] += 1
                if len(sizes) < 2 and header[1] not in sizes:
                    sizes.append(header[1])
        if not sizes:
            raise ImageError(broken)
        return {
            "shapes": asdict(Shapes(edges.total(), channels, _median(edges), *sizes)),
            "digest": total.hexdigest(),
        }

    def _state(self) -> State:
        """What the file system says about all files."""
        home = os.path.realpath(self.path)
        total, newest, count = hashlib.sha256(f"{home}\0".encode(errors="surrogatepass")), 0.0, 0
        for _, name in self._names():
            count += 1
            try:
                about = os.stat(f"{home}/{name}")  # a Path for each of a million files would take seconds
            except OSError as error:  # a link that leads nowhere: it is refused when it is decoded
                total.update(f"{name}\0{error.errno}\0".encode(errors="surrogatepass"))
                continue
            times = f"{about.st_size} {about.st_mtime_ns} {about.st_ctime_ns} {about.st_ino}"
            total.update(f"{name}\0{times}\0".encode(errors="surrogatepass"))
            newest = max(newest, about.st_mtime, about.st_ctime)
        return State(total.hexdigest(), newest, count)


def folders(path: Path) -> list[Path]:
    """The folders in a folder, sorted."""
    return [path / name for name in _visible(path) if (path / name).is_dir()]


def _visible(folder: Path) -> list[str]:
    """The names of what is in a folder and not hidden, sorted."""
    try:
        return sorted(name for name in os.listdir(folder) if name[0] != "." and name.lower() not in HIDDEN)
    except OSError as error:
        raise ImageError(f"{folder}: {error.strerror or error}") from error


def _look(file: File) -> tuple[str, Header | ImageError]:
    """The SHA-256 of a file, and what its header claims, or why it cannot be read."""
    try:
        return digest(file.path), peek(file.path)
    except OSError as error:
        return str(error.errno), ImageError(f"{file.path}: {error.strerror or error}")
    except ImageError as error:
        return digest(file.path), error


def _decode(file: File, shape: tuple[int, int, int]) -> Pixels | ImageError:
    """The pixels of a file, or why there are none."""
    try:
        return decode(file.path, shape[0], shape[1:])
    except ImageError as error:
        return error


def in_threads(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[tuple[Item, Result]]:
    """Each item and its result, in order; a few items are worked on at a time."""
    waiting = iter(items)
    with ThreadPoolExecutor(THREADS) as threads:
        try:
            running = deque((item, threads.submit(work, item)) for item in islice(waiting, THREADS * AHEAD))
            while running:
                item, result = running.popleft()
                yield item, result.result()
                running.extend((item, threads.submit(work, item)) for item in islice(waiting, 1))
        finally:
            threads.shutdown(cancel_futures=True)


def _median(counts: Counter[int]) -> int:
    """The lower median of numbers that were counted."""
    below = 0
    for number in sorted(counts):
        below += counts[number]
        if 2 * below >= counts.total():
            return number
    raise ValueError("counts: expected a number, got none")
