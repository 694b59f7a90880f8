"""What was made before is not made again: results of sections, and models that they need, by what they came from."""

import hashlib
import inspect
import json
import os
import platform
import shutil
import sys
import typing
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import regard
from regard.data.fetching import cache as cache_folder
from regard.models.model import Model
from regard.tour.section import LANGUAGES, Language, Numbers, Section
from regard.view.pictures import THEMES

__all__ = ["PICTURES", "Kept", "Picture", "find", "keep", "model"]

HOME = Path(regard.__file__).parent
WITHOUT = (HOME / "tour" / "sections", HOME / "web")  # what no number depends on, but for a section's own file


Picture = tuple[Language, str]  # and the theme
PICTURES: list[Picture] = [(language, theme) for language in LANGUAGES for theme in THEMES]


class Kept(typing.NamedTuple):
    """What is kept of a section that ran well."""

    numbers: Numbers
    pictures: dict[Picture, bytes]  # PNG
    seconds: float


@cache
def code() -> str:
    """A digest of regard's code and of what it computes with."""
    found = hashlib.sha256()
    for path in sorted(HOME.rglob("*.py")):
        if not any(path.is_relative_to(folder) for folder in WITHOUT):
            found.update(path.read_bytes())
    for name in ("torch", "numpy", "matplotlib", "scikit-learn"):
        found.update(f"{name} {version(name)}".encode())
    found.update(f"{platform.python_version()} {platform.machine()}".encode())
    return found.hexdigest()


def place(name: str, *depends: object) -> Path:
    """The folder for something that depends on regard's code and on these; older ones of this name are removed."""
    own = hashlib.sha256(repr((code(), *depends)).encode()).hexdigest()[:16]
    home = cache_folder() / "tour"
    for other in home.glob(f"{name}.*") if home.exists() else ():
        if other.name != f"{name}.{own}":
            shutil.rmtree(other, ignore_errors=True)
    return home / f"{name}.{own}"


def model(name: str, make: Callable[[], Model], *depends: object) -> Path:
    """The folder of a model that depends on regard's code and these: made if it is not there, whole or not at all."""
    folder = place(name, *depends)
    if not folder.exists():
        made = make()
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".making-", dir=folder.parent) as work:
            made.save(Path(work, name))
            if not folder.exists():  # somebody else may have been faster
                Path(work, name).rename(folder)
    return folder


def find(section: Section[Any], *, full: bool) -> Kept | None:
    """What is kept of a section, if it is whole."""
    folder = _folder(section, full=full)
    try:
        record = json.loads((folder / "numbers.json").read_text(encoding="utf-8"))
        pictures = {picture: (folder / _file(picture)).read_bytes() for picture in PICTURES}
        numbers = _numbers(section)(**{name: _frozen(value) for name, value in record["numbers"].items()})
    except (OSError, ValueError, KeyError, TypeError):
        return None  # there is none, or somebody has been at it: it is made anew
    return Kept(numbers, pictures, record["seconds"])


def keep(section: Section[Any], found: Kept, *, full: bool) -> None:
    """Keep it, whole or not at all. A folder that cannot be written costs time, next time, and nothing else."""
    folder = _folder(section, full=full)
    part = folder.with_name(f"{folder.name}.{os.getpid()}")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        record = {"numbers": asdict(found.numbers), "seconds": found.seconds}
        (part / "numbers.json").write_text(json.dumps(record), encoding="utf-8")
        for picture, content in found.pictures.items():
            (part / _file(picture)).write_bytes(content)
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
    except OSError:
        shutil.rmtree(part, ignore_errors=True)


def _folder(section: Section[Any], *, full: bool) -> Path:
    source = inspect.getsource(sys.modules[section.judge.__module__])
    return place(f"claim-{section.number:02}{'-full' if full else ''}", source)


def _file(picture: Picture) -> str:
    return f"{'-'.join(picture)}.png"


def _numbers(section: Section[Any]) -> type[Numbers]:
    """The class of a section's numbers, as its `judge` says."""
    found: type[Numbers] = next(iter(typing.get_type_hints(section.judge).values()))
    return found


def _frozen(value: Any) -> Any:
    """JSON knows no tuples."""
    return tuple(map(_frozen, value)) if isinstance(value, Sequence) and not isinstance(value, str) else value
