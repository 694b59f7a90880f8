"""The digest of files is that of their contents, whether they were read just now or are remembered."""

import hashlib
import os
import time

import pytest

from regard.data import store
from regard.data.store import content_digest


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_PREPARED", str(tmp_path / "prepared"))


@pytest.fixture
def reads(monkeypatch):
    """The files that were read."""
    read = []

    def digest(path):
        read.append(path.name)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    monkeypatch.setattr(store, "_digest", digest)
    monkeypatch.setattr(store, "SETTLED", -1.0)  # files count as old at once
    return read


def test_contents_and_their_order_count_and_names_do_not(write):
    one, two, same = write("one", "first"), write("two", "second"), write("same", "first")
    digests = {
        content_digest(paths) for paths in ([one], [two], [one, two], [two, one], [], [write("both", "firstsecond")])
    }
    assert len(digests) == 6
    assert content_digest([one, two]) == content_digest([same, two])
    assert content_digest(iter([one, two])) == content_digest([same, two])


def test_files_that_have_not_changed_are_not_read_again(write, reads):
    paths = [write("one", "first"), write("two", "second")]
    digest = content_digest(paths)
    assert content_digest(paths) == digest
    assert reads == ["one", "two"]
    assert content_digest(paths[:1]) != digest
    assert reads == ["one", "two", "one"]


def test_a_change_that_keeps_size_and_time_is_seen(write, reads):
    path = write("one", "first")
    before, about = content_digest([path]), path.stat()
    time.sleep(0.02)
    path.write_text("other")
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert content_digest([path]) != before
    replaced = write("two", "third")
    os.utime(replaced, ns=(about.st_atime_ns, about.st_mtime_ns))
    replaced.replace(path)
    assert content_digest([path]) == hashlib.sha256(hashlib.sha256(b"third").hexdigest().encode()).hexdigest()


def test_a_file_that_was_just_written_is_not_remembered(write, reads, monkeypatch):
    monkeypatch.setattr(store, "SETTLED", 1e9)
    path = write("one", "first")
    assert content_digest([path]) == content_digest([path])
    assert reads == ["one", "one"]


@pytest.mark.parametrize("damage", ['{"', "[1]", "\0"])
def test_a_damaged_memory_is_forgotten(write, reads, tmp_path, damage):
    path = write("one", "first")
    digest = content_digest([path])
    (tmp_path / "prepared" / "digests.json").write_text(damage)
    assert content_digest([path]) == digest == content_digest([path])
    assert reads == ["one", "one"]


def test_the_memory_stays_small(write, reads, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "REMEMBERED", 3)
    paths = [write(str(number), str(number)) for number in range(7)]
    for path in paths:
        content_digest([path])
    del reads[:]
    for path in paths[:3:-1]:
        content_digest([path])
    assert reads == []
    content_digest(paths[:1])
    assert reads == ["0"]
