"""The wheel and the source archive, installed beside nothing but what the package says it needs."""

import re
import subprocess
import sys
import tarfile
import textwrap
import zipfile
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from hatchling.build import build_sdist, build_wheel
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent

# Finds nothing of what is installed here and not needed by the wheel, as if it were not installed.
BLOCKER = """
import sys

class Present:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in {absent!r} else self.finder.find_spec(name, path, target)

sys.meta_path[:] = map(Present, sys.meta_path)
"""


def needed() -> set[str]:
    """The distributions that regard needs without extras, and what these need."""
    names, open_names = set(), ["regard"]
    while open_names:
        name = re.sub(r"[-_.]+", "-", open_names.pop()).lower()
        if name in names:
            continue
        names.add(name)
        try:
            lines = requires(name) or []
        except PackageNotFoundError:  # for another system
            continue
        for requirement in map(Requirement, lines):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                open_names.append(requirement.name)
    return names


def absent() -> set[str]:
    """Top-level modules of the distributions that regard does not need."""
    names = needed()
    return {
        module
        for module, owners in packages_distributions().items()
        if not {re.sub(r"[-_.]+", "-", owner).lower() for owner in owners} & names
    }


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """The wheel and the source archive, built from this folder."""
    folder = tmp_path_factory.mktemp("dist")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        return folder / build_wheel(str(folder)), folder / build_sdist(str(folder))


@pytest.fixture(scope="module")
def run(archives, tmp_path_factory):
    """Run a program on the contents of the wheel, with its dependencies alone, in an empty folder."""
    site, work = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("work")
    zipfile.ZipFile(archives[0]).extractall(site)
    (site / "sitecustomize.py").write_text(BLOCKER.format(absent=absent() - {"regard"}))

    def run(program, *arguments):
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(work),
            "PYTHONPATH": str(site),
            "OMP_NUM_THREADS": "1",
            "LANG": "C.UTF-8",
        }
        command = [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)]
        done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


COMMAND = "import sys; from regard.cli import main; sys.exit(main(sys.argv[1:]))"


def test_the_wheel_computes(run):
    program = """
        import regard, torch
        print(regard.__file__)
        print(tuple(regard.attend(torch.randn(3, 2), torch.randn(5, 2), torch.randn(5, 7)).shape))
        try:
            import transformers
        except ModuleNotFoundError:
            print("no extras")
    """
    place, shape, extras = run(program).splitlines()
    assert not place.startswith(str(ROOT))
    assert (shape, extras) == ("(3, 7)", "no extras")


def test_the_wheel_draws_a_curve(run, tmp_path):
    table, picture = tmp_path / "data.csv", tmp_path / "curve.png"
    table.write_text("x,y\n" + "\n".join(f"{x / 7},{(x * 37 % 11) / 3}" for x in range(40)))
    # The loops are compiled for this wheel alone, and those of this kernel soonest.
    run(COMMAND, "curve", table, "--x", "x", "--y", "y", "--kernel", "laplace", "--picture", picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_wheel_runs_a_claim_of_the_tour(run, tmp_path):
    run(COMMAND, "tour", "--only", "11", "--out", tmp_path / "tour")
    assert "<svg" in (tmp_path / "tour" / "index.html").read_text(encoding="utf-8")


def test_both_archives_hold_the_same_package(archives):
    wheel, source = archives
    packaged = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("regard/")}
    with tarfile.open(source) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert packaged <= names
    tracked = subprocess.run(["git", "ls-files", "regard"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert set(tracked.stdout.splitlines()) <= packaged
