"""Fetching: a set is there whole or not at all, whatever the clients do. All clients here are small scripts."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from regard.cli import main
from regard.data import fetching
from regard.data.catalog import SETS, Archive, Row
from regard.data.fetching import FetchError, fetch

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the clients are shell scripts")

CONTENT = {"first": b"one\n" * 101, "second": b"two\n" * 103}  # what is in the archives, which nobody here opens


class Heard:
    """A report that remembers, and tells sizes and notes on."""

    def __init__(self, on=lambda own: None):
        self.begun, self.sizes, self.notes, self.on = [], [], [], on

    def begin(self, archive, number, count):
        self.begun.append((archive.request, number, count))

    def grown(self, size):
        self.sizes.append(size)
        self.on(size)

    def note(self, text):
        self.notes.append(text)
        self.on(text)


class Shop:
    """Clients that do what a line of shell says, a cache of its own, and sets made of CONTENT."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.monkeypatch = folder, monkeypatch
        self.bin, self.cache, self.calls = folder / "bin", folder / "cache" / "regard", folder / "calls"
        self.bin.mkdir()
        for name, content in CONTENT.items():
            (folder / name).write_bytes(content)
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        monkeypatch.setenv("PATH", f"{self.bin}{os.pathsep}/usr/bin{os.pathsep}/bin")
        monkeypatch.setattr(sys, "executable", str(self.bin / "python"))

    def client(self, name, line):
        """The last argument is what is asked for; every call is written down."""
        script = self.bin / name
        asked = f'for request in "$@"; do :; done; echo "$request" >> {self.calls}'
        script.write_text(f"#!/bin/sh\n{asked}\nshop={self.folder}\n{line}\n")
        script.chmod(0o755)

    def set(self, client="npm", suffix="tgz", names=("first",)):
        """A set called tiny, which holds its archives one after another."""
        archives = tuple(
            Archive(client, name, f"{name}_1.{suffix}", len(CONTENT[name]), hashlib.sha256(CONTENT[name]).hexdigest())
            for name in names
        )
        row = Row("a test", "free", archives, ("joined",), 7, join)
        self.monkeypatch.setitem(SETS, "tiny", row)

    def asked(self):
        return self.calls.read_text().split() if self.calls.exists() else []

    def is_clean(self):
        """No set, and nothing of one."""
        left = {path.name for path in self.cache.iterdir()} if self.cache.exists() else set()
        return left <= {"archives", "lock"}


def join(archives, place):
    (place / "joined").write_bytes(b"".join(archive.read_bytes() for archive in archives))


@pytest.fixture
def shop(tmp_path, monkeypatch):
    return Shop(tmp_path, monkeypatch)


APT = 'case "$request" in update) touch lists_Packages;; *) cp "$shop/$request" "${request}_1.deb";; esac'
WAIT = 'while ! test -e "$shop/{}"; do sleep 0.02; done'  # for the test to have seen something
WORKING = {
    "pip": ("python", "whl", 'cp "$shop/$request" brought.whl'),
    "npm": ("npm", "tgz", 'cp "$shop/$request" "$request-1.tgz"'),
    "apt": ("apt-get", "deb", APT),
}


@pytest.mark.parametrize("client", WORKING)
def test_every_client_brings_what_is_asked_for(client, shop):
    program, suffix, line = WORKING[client]
    shop.client(program, line)
    shop.set(client, suffix, ("first", "second"))
    heard = Heard()
    place = fetch("tiny", heard)
    assert place == fetching.folder("tiny") == shop.cache / "tiny"
    assert (place / "joined").read_bytes() == CONTENT["first"] + CONTENT["second"]
    assert heard.begun == [("first", 1, 2), ("second", 2, 2)]
    assert any("free" in note for note in heard.notes)
    assert [request for request in shop.asked() if request != "update"] == ["first", "second"]
    assert shop.asked().count("update") == (client == "apt")
    assert {path.name for path in shop.cache.iterdir()} == {"archives", "lock", "tiny"}


def test_what_is_there_needs_no_client(shop):
    shop.client("npm", WORKING["npm"][2])
    shop.set()
    first = fetch("tiny")
    assert fetch("tiny") == first
    assert shop.asked() == ["first"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "echo npm error code E404; echo npm error no such host; exit 1",
            "npm could not bring first: npm error no such",
        ),
        ("echo strange >&2; exit 3", "strange"),
        ("exit 1", "did not say why"),
        ("exit 0", "expected one .tgz from npm, got 0"),
        ("touch a.tgz b.tgz", "got 2"),
        ('head -c 97 "$shop/first" > first.tgz', "SHA-256"),
        ("kill -9 $$", "npm could not bring first"),
    ],
)
def test_a_fetch_that_fails_leaves_nothing(line, words, shop):
    shop.client("npm", line)
    shop.set()
    with pytest.raises(FetchError, match=words) as caught:
        fetch("tiny")
    assert "\n" not in str(caught.value)
    assert shop.is_clean()
    assert not any((shop.cache / "archives").iterdir())


@pytest.mark.parametrize(
    ("client", "words"), [("npm", "install Node"), ("apt", r"needs apt-get \(Debian or Ubuntu\)"), ("pip", "ensurepip")]
)
def test_a_missing_client_is_named_with_its_cure(client, words, shop):
    shop.client("python", "echo $0: No module named pip; exit 1")
    shop.monkeypatch.setenv("PATH", str(shop.bin))
    shop.set(client)
    with pytest.raises(FetchError, match=words):
        fetch("tiny")
    assert shop.is_clean()


def test_a_fetch_goes_on_where_it_was_stopped(shop):
    shop.set(names=("first", "second"))
    shop.client("npm", f'test "$request" = first || exit 1; {WORKING["npm"][2]}')
    with pytest.raises(FetchError, match="second"):
        fetch("tiny")
    assert shop.is_clean()
    shop.client("npm", WORKING["npm"][2])
    fetch("tiny")
    assert shop.asked() == ["first", "second", "second"]


def test_a_kept_archive_that_has_changed_is_fetched_again(shop):
    shop.client("npm", WORKING["npm"][2])
    shop.set()
    fetch("tiny")
    (shop.cache / "tiny" / "joined").unlink()
    (shop.cache / "tiny").rmdir()
    (shop.cache / "archives" / "first_1.tgz").write_bytes(CONTENT["first"][:-1])
    heard = Heard()
    assert (fetch("tiny", heard) / "joined").read_bytes() == CONTENT["first"]
    assert shop.asked() == ["first", "first"]
    assert any("fetched again" in note for note in heard.notes)


def test_apt_may_bring_another_version_and_both_are_named(shop):
    line = APT.replace("_1.deb", "_2.deb").replace('cp "$shop/$request"', "echo newer >")
    shop.client("apt-get", line)
    shop.set("apt", "deb")
    for time_of_asking in range(2):  # once brought, once kept
        heard = Heard()
        place = fetch("tiny", heard)
        assert (place / "joined").read_bytes() == b"newer\n"
        (note,) = [note for note in heard.notes if "vouches" in note]
        assert "first_1.deb" in note
        assert "first_2.deb" in note
        assert shop.asked() == ["update", "first"], time_of_asking
        (place / "joined").unlink()
        place.rmdir()
    (shop.cache / "archives" / "first_2.deb").write_bytes(b"older\n")
    assert (fetch("tiny") / "joined").read_bytes() == b"newer\n"


def test_apt_may_not_bring_another_content_under_the_same_name(shop):
    shop.client("apt-get", APT.replace('cp "$shop/$request"', "echo other >"))
    shop.set("apt", "deb")
    with pytest.raises(FetchError, match="SHA-256"):
        fetch("tiny")


def test_an_update_without_a_network_is_noticed(shop):
    """apt-get ends well where it can reach nobody."""
    shop.client("apt-get", 'echo "W: Failed to fetch lists, Temporary failure resolving"')
    for client in ("apt", "apt lists"):
        shop.set(client, "deb")
        with pytest.raises(FetchError, match="Temporary failure resolving"):
            fetch("tiny")


def test_descriptions_come_with_the_lists(shop):
    text = "Description-md5: 7\\nDescription-LANGUAGE: WORDS\\n\\n"
    english = text.replace("LANGUAGE", "en").replace("WORDS", "a small cat sleeps")
    french = text.replace("LANGUAGE", "fr").replace("WORDS", "un petit chat dort")
    lists = f"printf '{english}' > x_Translation-en; printf '{french}' > x_Translation-fr"
    shop.client("apt-get", f'case "$*" in *Languages=en,fr*update) {lists};; *) exit 1;; esac')
    place = fetch("descriptions-fr")
    assert (place / "pairs.tsv").read_text() == "a small cat sleeps\tun petit chat dort\n"


def test_of_two_fetches_at_once_the_second_waits(shop):
    shop.client("npm", f"{WAIT.format('go')}; {WORKING['npm'][2]}")
    shop.set()
    go = shop.folder / "go"
    heard, places = [Heard(lambda own: go.touch() if "waiting" in str(own) else None) for _ in range(2)], []
    threads = [threading.Thread(target=lambda own=own: places.append(fetch("tiny", own))) for own in heard]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert places == [shop.cache / "tiny"] * 2
    assert shop.asked() == ["first"]


FETCH = """
import pathlib, signal, sys
from regard.data.catalog import SETS, Archive, Row
from regard.data.fetching import Lines, fetch

class Seen(Lines):
    def grown(self, size):
        pathlib.Path(sys.argv[1]).touch()

SETS["tiny"] = Row("a test", "free", (Archive("npm", "first", "first.tgz", 7, 64 * "0"),), ("joined",), 7, print)
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell turns off for what it runs in the background
fetch("tiny", Seen())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_fetch_that_is_stopped_leaves_no_part(number, shop):
    runs, seen = shop.folder / "runs", shop.folder / "seen"
    shop.client("npm", f"echo half > first.tgz; echo $$ > {runs}; exec sleep 60")
    shop.monkeypatch.undo()
    environment = os.environ | {"XDG_CACHE_HOME": str(shop.folder / "cache"), "PYTHONPATH": str(Path.cwd())}
    environment["PATH"] = f"{shop.bin}{os.pathsep}{os.environ['PATH']}"
    child = subprocess.Popen([sys.executable, "-c", FETCH, seen], env=environment, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (seen.exists() and runs.exists() and runs.read_text().strip()) and time.monotonic() < deadline:
        time.sleep(0.02)
    child.send_signal(number)
    assert child.wait(30)
    client = int(runs.read_text())
    if number == signal.SIGINT:
        assert shop.is_clean()
        with pytest.raises(ProcessLookupError):
            os.kill(client, 0)
    else:  # nobody can clean up behind it but the next fetch
        os.kill(client, signal.SIGKILL)
        assert not (shop.cache / "tiny").exists()
        shop.monkeypatch.setenv("XDG_CACHE_HOME", str(shop.folder / "cache"))
        shop.monkeypatch.setenv("PATH", environment["PATH"])
        shop.client("npm", WORKING["npm"][2])
        shop.set()
        fetch("tiny")
        assert {path.name for path in shop.cache.iterdir()} == {"archives", "lock", "tiny"}


def test_a_set_that_does_not_unpack_leaves_its_archives_only(shop):
    shop.client("npm", WORKING["npm"][2])
    shop.set()
    row = SETS["tiny"]
    for unpack in (lambda archives, place: (place / "half").touch(), lambda archives, place: 1 / 0):
        shop.monkeypatch.setitem(SETS, "tiny", Row(row.use, row.licence, row.archives, row.files, row.space, unpack))
        with pytest.raises((FetchError, ZeroDivisionError)):
            fetch("tiny")
        assert shop.is_clean()
    assert shop.asked() == ["first"]


def test_a_folder_with_a_hole_is_not_touched(shop):
    shop.set()
    (shop.cache / "tiny").mkdir(parents=True)
    (shop.cache / "tiny" / "mine").touch()
    with pytest.raises(FetchError, match=r"tiny: joined is missing"):
        fetch("tiny")
    assert (shop.cache / "tiny" / "mine").exists()


def test_a_full_disk_is_noticed_before_anything_is_brought(shop):
    shop.set()
    usage = fetching.shutil.disk_usage("/")
    needed = 2 * len(CONTENT["first"]) + 7
    shop.monkeypatch.setattr(fetching.shutil, "disk_usage", lambda path: usage._replace(free=needed - 1))
    with pytest.raises(FetchError, match="free space"):
        fetch("tiny")
    assert shop.asked() == []
    shop.monkeypatch.setattr(fetching.shutil, "disk_usage", lambda path: usage._replace(free=needed))
    shop.client("npm", WORKING["npm"][2])
    fetch("tiny")


def test_the_size_of_what_is_there_grows(shop):
    line = f'mkdir deep; head -c 97 "$shop/first" > deep/part; {WAIT.format("97")}; {WORKING["npm"][2]}'
    shop.client("npm", f"{line}; {WAIT.format(len(CONTENT['first']))}")
    shop.set()
    heard = Heard(lambda own: (shop.folder / str(own)).touch() if isinstance(own, int) else None)
    fetch("tiny", heard)
    assert heard.sizes == sorted(heard.sizes)


# ---------------------------------------------------------------------------------------------------------- the command


@pytest.mark.parametrize("terminal", [False, True])
def test_the_command_says_where_the_set_is(terminal, shop, capsys):
    shop.monkeypatch.setenv("FORCE_COLOR", "1") if terminal else shop.monkeypatch.delenv("FORCE_COLOR", raising=False)
    shop.client("npm", WORKING["npm"][2])
    shop.set()
    assert main(["data", "fetch", "tiny"]) == 0
    said = capsys.readouterr()
    assert said.out == f"{shop.cache / 'tiny'}\n"
    assert "licence: free" in said.err
    assert "first" in said.err
    assert ("\x1b[" in said.err) == terminal
    assert main(["data", "fetch", "tiny", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fetched"] is True


def test_the_command_fails_in_one_line(shop, capsys):
    shop.client("npm", "echo npm error no network; exit 1")
    shop.set()
    assert main(["data", "fetch", "tiny"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines()[-1] == "regard: npm could not bring first: npm error no network"
    assert main(["data", "fetch", "tinny"]) == 2
    assert "did you mean 'tiny'?" in capsys.readouterr().err
    shop.monkeypatch.setenv("XDG_CACHE_HOME", str(shop.folder / "first"))  # a file
    assert main(["data", "fetch", "tiny"]) == 1
    assert capsys.readouterr().err.startswith("regard: ")


def test_the_list_fits_a_terminal_and_names_every_licence(shop, capsys):
    (shop.cache / "shakespeare").mkdir(parents=True)
    (shop.cache / "shakespeare" / "input.txt").touch()
    assert main(["data", "list"]) == 0
    table = capsys.readouterr().out.partition("\n\n")[0].splitlines()
    assert len(table) == len(SETS) + 1
    assert max(map(len, table)) <= 80
    for line, (name, row) in zip(table[1:], SETS.items(), strict=True):
        assert line.startswith(f"{name} ")
        assert row.use in line
        assert line.endswith(f" {row.licence}")
        assert (" yes " in line) == (name == "shakespeare")
    assert main(["data", "list", "--json"]) == 0
    assert [own["name"] for own in json.loads(capsys.readouterr().out) if own["fetched"]] == ["shakespeare"]


def test_every_archive_is_pinned_or_vouched_for():
    suffixes = {"pip": ".whl", "npm": ".tgz", "apt": ".deb", "apt lists": ".gz"}
    for name, row in SETS.items():
        assert row.files, name
        assert row.archives, name
        for archive in row.archives:
            assert archive.file.endswith(suffixes[archive.client])
            assert (archive.sha256 is None) == (archive.client == "apt lists")
            assert archive.sha256 is None or len(bytes.fromhex(archive.sha256)) == 32
