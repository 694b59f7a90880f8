"""For the tests of `regard curve`."""

import numpy
import pytest


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with a table of 151 rows; the third column says nothing about y."""
    random = numpy.random.default_rng(0)
    x, z = random.uniform(0, 5, (2, 151))
    y = 2 * numpy.sin(x) + random.normal(0, 0.3, len(x))
    rows = "\n".join(",".join(map(repr, row)) for row in numpy.column_stack([x, z, y]).tolist())
    (tmp_path / "bumps.csv").write_text(f"x,z,y\n{rows}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path
