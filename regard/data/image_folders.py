"""Images in a folder for each class: looked through for what their headers claim, then decoded, by several threads.

Pillow lets other threads run while it decodes. A few images are in memory at a time, and the file names of one class.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from statistics import median_low
from typing import Any

import numpy

from regard.data.image_files import (
    BLOCK_BYTES,
    Block,
    ImageError,
    ImagePart,
    Names,
    Pixels,
    Refuse,
    Shapes,
    check_names,
    decode,
    peek,
    silent,
)
from regard.data.store import FileState, advance, map_in_threads, prepared
from regard.files import digest

Header = tuple[int, tuple[int, int]]  # channels, (height, width)
HIDDEN = {"thumbs.db", "desktop.ini", "__macosx"}  # what systems put beside pictures, and show to nobody


class FolderImages(ImagePart):
    """A folder with a folder of pictures for each class. What is hidden does not count."""

    def __init__(self, path: Path, train_names: Names | None, expected: str = "a folder of pictures per class") -> None:
        self.path, self.names = path, tuple(folder.name for folder in folders(path))
        if not self.names:
            raise ImageError(f"{path}: no folders in it, expected {expected}")
        check_names(path, self.names, train_names)

    def _names(self) -> Iterator[tuple[int, str]]:
        """The class of each file, and its name with that of its folder; sorted by both."""
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
        decoded = map_in_threads(partial(self._decode, shape=shape), self._names())
        while results := list(islice(decoded, count)):
            images = []
            for label, name, pixels in results:
                if isinstance(pixels, ImageError):
                    refuse(name, pixels)
                else:
                    images.append((label, name, pixels))
            if images:
                labels, names, arrays = zip(*images, strict=True)
                yield Block(numpy.stack(arrays), numpy.array(labels), list(names))
        if self._state() != state:
            raise ImageError(f"{self.path}: changed while it was read: start again when it is complete")

    @cached_property
    def _scanned(self) -> dict[str, Any]:
        """What `_scan` found, now or when the files were as they are."""
        state = self._state()
        if not state.is_settled:
            return self._scan(state.count)
        return prepared({"folder of images": state.digest}, lambda _: self._scan(state.count)).facts

    def _scan(self, count: int) -> dict[str, Any]:
        """What the headers claim, and the digest of the names and contents of all files, of which there are `count`."""
        total, channels, edges, broken = hashlib.sha256(), 1, Counter[int](), ""
        sizes: list[tuple[int, int]] = []  # the first one, and one that differs
        with silent():
            for number, (name, content, header) in enumerate(map_in_threads(self._look, self._names()), 1):
                advance("looking through pictures", number, count)
                total.update(f"{name}\0{content}\0".encode(errors="surrogatepass"))
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
            "shapes": asdict(Shapes(edges.total(), channels, median_low(edges.elements()), *sizes)),
            "digest": total.hexdigest(),
        }

    def _state(self) -> FileState:
        """What the file system says about all files."""
        home = os.path.realpath(self.path)
        return FileState.of(f"{home}/{name}" for _, name in self._names())

    def _look(self, item: tuple[int, str]) -> tuple[str, str, Header | ImageError]:
        """The name of a file, its SHA-256, and what its header claims, or why it cannot be read."""
        path = self.path / item[1]
        try:
            return item[1], digest(path), peek(path)
        except OSError as error:
            return item[1], str(error.errno), ImageError(f"{path}: {error.strerror or error}")
        except ImageError as error:
            return item[1], digest(path), error

    def _decode(self, item: tuple[int, str], shape: tuple[int, int, int]) -> tuple[int, str, Pixels | ImageError]:
        """The class of a file, its name, and its pixels, or why there are none."""
        try:
            return *item, decode(self.path / item[1], shape[0], shape[1:])
        except ImageError as error:
            return *item, error


def folders(path: Path) -> list[Path]:
    """The folders in a folder, sorted."""
    return [path / name for name in _visible(path) if (path / name).is_dir()]


def _visible(folder: Path) -> list[str]:
    """The names of what is in a folder and not hidden, sorted."""
    try:
        return sorted(name for name in os.listdir(folder) if name[0] != "." and name.lower() not in HIDDEN)
    except OSError as error:
        raise ImageError(f"{folder}: {error.strerror or error}") from error
