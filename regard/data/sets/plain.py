"""Sets whose files stand in the archive as training reads them, perhaps under another name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from regard.data.archives import FetchError, members

__all__ = ["unpack"]


def unpack(archives: Sequence[Path], place: Path, *, inside: str, names: dict[str, str]) -> None:
    """The files below the folder `inside` that `names` maps to their new names."""
    (archive,) = archives
    wanted = {inside + name: new for name, new in names.items()}
    for name, content in members(archive, wanted.__contains__):
        (place / wanted[name]).parent.mkdir(parents=True, exist_ok=True)
        (place / wanted[name]).write_bytes(content)
    for name, new in wanted.items():
        if not (place / new).exists():
            raise FetchError(f"{archive}: expected {name} in it, and it is not there")
