"""Results of sections, and models that they share, are computed once: they are found again by what they depend on."""

import hashlib
import json
import platform
import shutil
import sys
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path

import regard
from regard.data.store import cache as user_cache
from regard.data.store import writable
from regard.files import new_folder
from regard.models.model import Model
from regard.tour.cells import before
from regard.tour.section import Numbers, Picture, Result, Section, Text

HOME = Path(regard.__file__).parent
SECTIONS = "regard.tour.sections."
WITHOUT = (HOME / "tour" / "sections", HOME / "web")  # no number depends on these, but for those of a section


@cache
def code_digest() -> str:
    """A digest of regard's code and of what it computes with."""
    digest = hashlib.sha256()
    for path in sorted(HOME.rglob("*.py")):
        if not any(path.is_relative_to(folder) for folder in WITHOUT):
            digest.update(path.read_bytes())
    for name in ("torch", "numpy", "scikit-learn"):
        digest.update(f"{name} {version(name)}".encode())
    digest.update(f"{platform.python_version()} {platform.machine()}".encode())
    return digest.hexdigest()


def model_folder(name: str, make: Callable[[], Model], *dependencies: object) -> Path:
    """The folder of a model that depends on regard's code and these; the model is made if it is not there."""
    folder = _folder(name, *dependencies)
    if not folder.exists():
        model = make()
        with new_folder(folder) as beside:
            model.save(beside)
    return folder


def read_result(section: Section, *, full: bool) -> Result | None:
    """What an earlier tour has computed, if it is complete."""
    folder = _result_folder(section, full=full)
    try:
        record = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        pictures = [Picture(*(Text(*text) for text in picture)) for picture in record["pictures"]]
        answers = [Text(*answer) for answer in record["answers"]]
        return Result(section, record["seconds"], Numbers(**record["numbers"]), pictures, answers, cached=True)
    except (OSError, ValueError, KeyError, TypeError):
        return None  # there is none, or it was changed: it is computed again


def write_result(result: Result, *, full: bool) -> None:
    """Store a result, complete or not at all. A folder that cannot be written costs time on the next tour only."""
    folder = _result_folder(result.section, full=full)
    try:
        shutil.rmtree(folder, ignore_errors=True)
        with new_folder(folder) as beside:
            fields = ("seconds", "pictures", "answers")
            record = {"numbers": vars(result.numbers), **{name: getattr(result, name) for name in fields}}
            (beside / "result.json").write_text(json.dumps(record), encoding="utf-8")
    except OSError:
        return


def _result_folder(section: Section, *, full: bool) -> Path:
    """What comes of a section depends on its files, on those of sections that it imports from, and on earlier cells."""
    home = section.judge.__module__
    modules = {str(getattr(value, "__module__", "")) for value in vars(sys.modules[home]).values()}
    names = sorted({home, *(name for name in modules if name.startswith(SECTIONS))})
    files = [Path(str(sys.modules[name].__file__)).with_suffix(suffix) for name in names for suffix in (".py", ".md")]
    contents = [file.read_bytes() for file in files if file.exists()]
    cells = [earlier.plain for earlier in before(section)]
    return _folder(f"claim-{section.number:02}{'-full' if full else ''}", *contents, *cells)


def kept_folder() -> Path:
    """The folder of all that is kept. A process that starts others asks first: they share a temporary one with it."""
    return writable(user_cache() / "tour")


def _folder(name: str, *dependencies: object) -> Path:
    """The folder for something that depends on regard's code and on these; older ones of this name are removed."""
    digest = hashlib.sha256(repr((code_digest(), *dependencies)).encode()).hexdigest()[:16]
    folder = kept_folder() / f"{name}.{digest}"
    for other in folder.parent.glob(f"{name}.*"):
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)
    return folder
