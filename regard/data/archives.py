"""Packages opened: the files inside a wheel, an npm package or a Debian package, read one after another.

Nothing is unpacked to disk and nothing of a package is run, so it does not matter what else is in it.
"""

from __future__ import annotations

import lzma
import shutil
import subprocess
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from regard.errors import RegardError

__all__ = ["FetchError", "members", "only"]

LARGEST = 1 << 28  # bytes of one file inside: no set has a larger one
BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError)


class FetchError(RegardError, OSError):
    """What was to be fetched is not there, and why."""

    exit_code = 1


def members(archive: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """The names and contents of the wanted files of a .whl, .tgz or .deb, in the order of the archive."""
    read = {".whl": _wheel, ".tgz": _npm, ".deb": _debian}[archive.suffix]
    try:
        yield from read(archive, wanted)
    except BROKEN as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise FetchError(f"{archive}: is broken ({reason}); delete it and fetch again") from error


def only(archive: Path, name: str) -> bytes:
    """The content of one file of an archive."""
    for _, content in members(archive, lambda each: each == name):
        return content
    raise FetchError(f"{archive}: expected {name} in it, and it is not there")


def _wheel(archive: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(archive) as packed:
        for member in packed.infolist():
            if not member.is_dir() and wanted(member.filename):
                with packed.open(member) as file:
                    yield member.filename, _bounded(archive, member.filename, file)


def _npm(archive: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(archive, "r|gz") as packed:
        yield from _tar(archive, packed, wanted)


def _debian(archive: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """What dpkg-deb, which knows every compression of Debian's, gives out as a tar."""
    program = shutil.which("dpkg-deb")
    if program is None:
        raise FetchError(f"{archive.name}: opening it needs dpkg-deb (Debian or Ubuntu)")
    command = [program, "--fsys-tarfile", str(archive)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            with tarfile.open(fileobj=process.stdout, mode="r|") as packed:
                yield from _tar(archive, packed, wanted)
            while process.stdout.read(1 << 20):  # the zeros after the last file, so that dpkg-deb can end
                pass
            if process.wait():
                raise tarfile.ReadError(f"exit code {process.returncode} of dpkg-deb")
        finally:
            process.kill()  # it may still be writing for somebody who has read enough


def _tar(archive: Path, packed: tarfile.TarFile, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    for member in packed:
        name = member.name.removeprefix("./")
        if member.isfile() and wanted(name):
            file = packed.extractfile(member)
            assert file is not None  # because it is a file
            yield name, _bounded(archive, name, file)


def _bounded(archive: Path, name: str, file: IO[bytes]) -> bytes:
    content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise FetchError(f"{archive}: {name} in it is larger than {LARGEST >> 20} MB, so it is not what was expected")
    return content
