"""Stores: what was written comes back; a store is whole or is built anew, by one process."""

import errno
import json
import os
import pickle
import signal
import subprocess
import sys
import time

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.store import Store, StoreError, StoreWriter, prepared, prepared_folder

DTYPES = st.sampled_from([numpy.uint8, numpy.uint16, numpy.uint32, numpy.int64, numpy.float32])


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_PREPARED", str(tmp_path / "prepared"))
    return tmp_path / "prepared"


def build(writer):
    writer.column("ids", numpy.arange(7, dtype=numpy.uint16))
    writer.texts("texts", ["one", "", "drei 三"])
    return {"rows": 7}


def names(folder):
    return {path.name for path in folder.iterdir() if not path.name.endswith(".lock")}


@given(st.lists(st.integers(0, 13), min_size=1, max_size=5), st.sampled_from([(), (3,), (2, 5)]), DTYPES)
def test_rows_of_one_shape_come_back(tmp_path_factory, blocks, shape, dtype):
    folder, generator = tmp_path_factory.mktemp("store"), numpy.random.default_rng(0)
    parts = [generator.integers(0, 200, (rows, *shape)).astype(dtype) for rows in blocks]
    with StoreWriter(folder) as writer:
        for part in parts:
            writer.column("numbers", part)
        writer.finish({})
    column, expected = Store(folder).column("numbers"), numpy.concatenate(parts)
    assert len(column) == len(expected)
    rows = generator.permutation(len(expected))
    for actual, wanted in (
        (column.take(rows), expected[rows]),
        (column.between(1, 4), expected[1:4]),
        (column.between(0, len(expected)), expected),
    ):
        assert actual.dtype == dtype
        assert numpy.array_equal(actual, wanted)
    starts = [start for start in (0, 2, 3) if start + 3 <= len(expected)]
    if starts:
        assert numpy.array_equal(column.windows(starts, 3), [expected[start : start + 3] for start in starts])


@given(st.lists(st.lists(st.text(max_size=9), max_size=7), min_size=1, max_size=4))
def test_rows_of_different_lengths_come_back(tmp_path_factory, blocks):
    folder = tmp_path_factory.mktemp("store")
    with StoreWriter(folder) as writer:
        for block in blocks:
            writer.texts("texts", block)
        writer.finish({})
    texts, expected = Store(folder).ragged("texts"), [text for block in blocks for text in block]
    assert len(texts) == len(expected)
    assert texts.texts(range(len(expected))) == expected
    assert texts.texts(range(len(expected))[::-1]) == expected[::-1]
    assert [row.tobytes().decode() for row in texts.take([0] * len(expected[:1]))] == expected[:1]


def test_rows_of_another_shape_or_type_are_refused(tmp_path):
    with StoreWriter(tmp_path) as writer:
        writer.column("ids", numpy.zeros((3, 2), numpy.uint16))
        for rows in (numpy.zeros((3, 5), numpy.uint16), numpy.zeros((3, 2), numpy.uint32)):
            with pytest.raises(ValueError, match=r"ids\.values: expected rows of <u2"):
                writer.column("ids", rows)


def test_a_store_is_built_once_and_found_by_its_key(home):
    first = prepared({"content": "a"}, build)
    second = prepared({"content": "a"}, lambda writer: pytest.fail("built again"))
    assert first.key == second.key != prepared({"content": "b"}, build).key
    assert second.facts == {"rows": 7}
    assert second.column("ids").take([6, 0]).tolist() == [6, 0]
    assert second.ragged("texts").texts([2, 1, 0]) == ["drei 三", "", "one"]
    assert second.size == 7 * 2 + 11 + 4 * 8
    assert pickle.loads(pickle.dumps(second)).column("ids").take([3]).tolist() == [3]
    assert len(names(home)) == 2


@pytest.mark.parametrize("damage", ["shorter", "longer", "missing", "no facts", "no JSON", "no index"])
def test_a_damaged_store_is_built_again(home, damage):
    folder = prepared({}, build).folder
    values, index = folder / "ids.values", folder / "store.json"
    if damage in ("shorter", "longer"):
        os.truncate(values, 13 if damage == "shorter" else 15)
    elif damage == "missing":
        values.unlink()
    elif damage == "no facts":
        index.write_text(json.dumps({"columns": {}}))
    elif damage == "no JSON":
        index.write_text('{"facts')
    else:
        index.unlink()
    with pytest.raises(StoreError, match="is not whole"):
        Store(folder)
    assert prepared({}, build).column("ids").between(0, 7).tolist() == list(range(7))


def test_a_build_that_fails_leaves_nothing(home):
    def fail(writer):
        build(writer)
        raise RuntimeError("no space left")

    with pytest.raises(RuntimeError, match="no space left"):
        prepared({}, fail)
    assert names(home) == set()


SLOW = """
import os, sys, time
import numpy
from regard.data.store import prepared
def build(writer):
    with open(sys.argv[1], "a") as file:
        file.write("x")
    writer.column("ids", numpy.arange(5))
    time.sleep(float(sys.argv[2]))
    return {}
prepared({"content": sys.argv[3]}, build).column("ids").take([4])
"""


FULL = r"{}: the disk is full: choose another folder by REGARD_PREPARED"
ERRORS = {errno.ENOSPC: FULL, errno.EDQUOT: FULL, errno.EFBIG: r"\[Errno 27\] File too large: '{}/.*'"}


@pytest.mark.parametrize("number", ERRORS)
def test_a_full_disk_is_named_with_what_to_do(home, number):
    def fill(writer):
        raise OSError(number, os.strerror(number))  # as the system says it, without a name

    with pytest.raises(OSError, match=ERRORS[number].format(home)):
        prepared({}, fill)
    assert names(home) == set()


def test_two_processes_build_once(tmp_path, home):
    command = [sys.executable, "-c", SLOW, str(tmp_path / "builds"), "0.5", "same"]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert (tmp_path / "builds").read_text() == "x"
    assert len(names(home)) == 1


def test_what_a_killed_build_left_is_removed_by_the_next_one_of_any_store(tmp_path, home):
    builds = tmp_path / "builds"
    at_work, killed = (
        subprocess.Popen([sys.executable, "-c", SLOW, str(builds), "60", content]) for content in ("at work", "killed")
    )
    try:
        while not builds.exists() or builds.read_text() != "xx":
            assert at_work.poll() is None
            assert killed.poll() is None
            time.sleep(0.05)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert len(names(home)) == 2
        assert all(name.startswith(".") for name in names(home))
        store = prepared({"content": "another"}, build)
        left = names(home)
        assert len(left) == 2  # this store, and what the process at work has begun
        assert store.key in left
    finally:
        at_work.kill()
        at_work.wait()


def test_without_a_cache_that_can_be_written_stores_are_temporary(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REGARD_PREPARED", str(tmp_path / "file" / "prepared"))
    monkeypatch.delenv("REGARD_TEMPORARY", raising=False)
    script = """if True:
        import os, subprocess, sys
        from regard.data.store import prepared_folder
        print(prepared_folder(), flush=True)
        prepared_folder().joinpath("x").touch()
        if len(sys.argv) == 1:  # the first process: one that it starts uses the same folder, and leaves it
            subprocess.run([sys.executable, "-c", os.environ["SCRIPT"], "second"], check=True)
            assert prepared_folder().joinpath("x").exists()
    """
    monkeypatch.setenv("SCRIPT", script)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    folder, other = done.stdout.splitlines()
    assert folder == other
    assert str(tmp_path) not in folder
    assert not os.path.exists(folder)
    assert prepared_folder().is_dir()
