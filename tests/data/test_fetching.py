"""Fetching: a set is complete or absent, whatever the clients do. The clients here are small shell scripts."""

import dataclasses
import hashlib
import importlib
import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from regard.cli import main
from regard.data.fetching import SETS, Archive, FetchError, Row, fetch, folder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the clients are shell scripts")

PYTHON = sys.executable  # before it is replaced
CONTENT = {"first": b"one\n" * 101, "second": b"two\n" * 103}  # of the archives, which nothing here opens


class Bar:
    """A progress bar that records what it is given, and passes sizes and notes on."""

    is_terminal = True

    def __init__(self, react=lambda message: None):
        self.stages, self.sizes, self.notes, self.react = [], [], [], react

    def stage(self, text):
        self.stages.append(text.split())

    def update(self, done, total):
        assert done <= total
        self.sizes.append(done)
        self.react(done)

    def note(self, text):
        self.notes.append(text)
        self.react(text)


def join(archives, place):
    (place / "joined").write_bytes(b"".join(archive.read_bytes() for archive in archives))


class FakeClients:
    """Clients that do what a line of shell says, an empty cache, and a set called tiny, made of CONTENT."""

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
        """The last argument is the request; every call is written down."""
        script = self.bin / name
        request = f'for request in "$@"; do :; done; echo "$request" >> {self.calls}'
        script.write_text(f"#!/bin/sh\n{request}\nfolder={self.folder}\n{line}\n")
        script.chmod(0o755)

    def set(self, client="npm", suffix="tgz", names=("first",)):
        archives = tuple(
            Archive(client, name, f"{name}_1.{suffix}", len(CONTENT[name]), hashlib.sha256(CONTENT[name]).hexdigest())
            for name in names
        )
        self.monkeypatch.setitem(SETS, "tiny", Row("a test", "free", archives, ("joined",), join))

    def requests(self):
        return self.calls.read_text().split() if self.calls.exists() else []

    def forget(self):
        """Remove the set, but not its archives."""
        shutil.rmtree(self.cache / "tiny")

    def is_clean(self):
        """Whether no part of a set is left."""
        return {path.name for path in self.cache.iterdir()} <= {"archives", "lock"}


@pytest.fixture
def fakes(tmp_path, monkeypatch):
    return FakeClients(tmp_path, monkeypatch)


NPM = 'cp "$folder/$request" "$request-1.tgz"'
APT = 'case "$request" in update) touch lists_Packages;; *) cp "$folder/$request" "${request}_1.deb";; esac'
WAIT = 'while ! test -e "$folder/{}"; do sleep 0.02; done'  # until the test has noticed something
WORKING = {
    "pip": ("python", "whl", 'cp "$folder/$request" brought.whl'),
    "npm": ("npm", "tgz", NPM),
    "apt": ("apt-get", "deb", APT),
}


@pytest.mark.parametrize("client", WORKING)
def test_every_client_brings_what_is_requested_once(client, fakes):
    program, suffix, line = WORKING[client]
    fakes.client(program, line)
    fakes.set(client, suffix, ("first", "second"))
    bar = Bar()
    place = fetch("tiny", bar)
    assert place == folder("tiny") == fakes.cache / "tiny" == fetch("tiny")
    assert {path.name: path.read_bytes() for path in place.iterdir()} == {"joined": b"".join(CONTENT.values())}
    assert bar.stages == [["1/2", "first"], ["2/2", "second"]]
    assert any("free" in note for note in bar.notes)
    assert fakes.requests() == ["update"] * (client == "apt") + ["first", "second"]
    assert {path.name for path in fakes.cache.iterdir()} - {"lock"} == {"archives", "tiny"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "echo npm error code E404; echo npm error no such host; exit 1",
            "npm could not bring first: npm error no such",
        ),
        ("echo strange >&2; exit 3", "strange"),
        ("kill -9 $$", "npm could not bring first: it did not say why"),
        ("exit 0", "expected one .tgz from npm, got 0"),
        ("touch a.tgz b.tgz", "got 2"),
        ('head -c 97 "$folder/first" > first.tgz', "SHA-256"),
    ],
)
def test_a_fetch_that_fails_leaves_nothing(line, words, fakes):
    fakes.client("npm", line)
    fakes.set()
    with pytest.raises(FetchError, match=words) as caught:
        fetch("tiny")
    assert "\n" not in str(caught.value)
    assert fakes.is_clean()
    assert not any((fakes.cache / "archives").iterdir())


@pytest.mark.parametrize(
    ("client", "words"), [("npm", "install Node"), ("apt", r"needs apt-get \(Debian or Ubuntu\)"), ("pip", "ensurepip")]
)
def test_a_missing_client_is_named_with_its_cure(client, words, fakes):
    fakes.monkeypatch.setitem(sys.modules, "pip", None)
    fakes.monkeypatch.setenv("PATH", str(fakes.bin))
    fakes.set(client)
    with pytest.raises(FetchError, match=words):
        fetch("tiny")


def test_archives_are_used_again_unless_they_have_changed(fakes):
    fakes.set(names=("first", "second"))
    fakes.client("npm", f'test "$request" = first || exit 1; {NPM}')
    with pytest.raises(FetchError, match="second"):
        fetch("tiny")
    assert fakes.is_clean()
    fakes.client("npm", NPM)
    fetch("tiny")
    assert fakes.requests() == ["first", "second", "second"]
    fakes.forget()
    (fakes.cache / "archives" / "first_1.tgz").write_bytes(CONTENT["first"][:-1])
    bar = Bar()
    assert (fetch("tiny", bar) / "joined").read_bytes() == b"".join(CONTENT.values())
    assert fakes.requests() == ["first", "second", "second", "first"]
    assert any("fetched again" in note for note in bar.notes)


def test_apt_may_bring_another_version_but_no_other_content(fakes):
    fakes.client("apt-get", APT.replace("_1.deb", "_2.deb").replace('cp "$folder/$request"', "echo newer >"))
    fakes.set("apt", "deb")
    for stored in (False, True):
        bar = Bar()
        assert (fetch("tiny", bar) / "joined").read_bytes() == b"newer\n"
        (note,) = [note for note in bar.notes if "vouches" in note]
        assert "first_1.deb" in note
        assert "first_2.deb" in note
        assert fakes.requests() == ["update", "first"], stored
        fakes.forget()
    (fakes.cache / "archives" / "first_1.deb").write_bytes(b"older\n")
    assert (fetch("tiny") / "joined").read_bytes() == b"newer\n"
    fakes.forget()
    shutil.rmtree(fakes.cache / "archives")
    fakes.client("apt-get", APT.replace('cp "$folder/$request"', "echo other >"))
    with pytest.raises(FetchError, match="SHA-256"):
        fetch("tiny")


@pytest.mark.parametrize("client", ["apt", "apt-lists"])
def test_an_update_without_a_network_is_noticed(client, fakes):
    """apt-get succeeds without one."""
    fakes.client("apt-get", 'echo "W: Failed to fetch lists, Temporary failure resolving"')
    fakes.set(client, "deb")
    with pytest.raises(FetchError, match="Temporary failure resolving"):
        fetch("tiny")


def test_descriptions_come_with_the_lists(fakes):
    text = "Description-md5: 7\\nDescription-LANGUAGE: WORDS\\n\\n"
    english = text.replace("LANGUAGE", "en").replace("WORDS", "a small cat sleeps")
    french = text.replace("LANGUAGE", "fr").replace("WORDS", "un petit chat dort")
    lists = f"printf '{english}' > x_Translation-en; printf '{french}' > x_Translation-fr"
    fakes.client("apt-get", f'case "$*" in *Languages=en,fr*update) {lists};; *) exit 1;; esac')
    for _ in range(2):  # once downloaded, once stored
        place = fetch("descriptions-fr")
        assert (place / "pairs.tsv").read_text() == "a small cat sleeps\tun petit chat dort\n"
        shutil.rmtree(place)
    assert fakes.requests() == ["update"]


def test_of_two_fetches_at_once_the_second_waits(fakes):
    fakes.client("npm", f"{WAIT.format('go')}; {NPM}")
    fakes.set()
    go = fakes.folder / "go"
    bars = [Bar(lambda message: go.touch() if "waiting" in str(message) else None) for _ in range(2)]
    places = []
    threads = [threading.Thread(target=lambda bar=bar: places.append(fetch("tiny", bar))) for bar in bars]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert places == [fakes.cache / "tiny"] * 2
    assert fakes.requests() == ["first"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_fetch_that_is_stopped_leaves_no_part(number, fakes):
    pid = fakes.folder / "pid"
    fakes.client("npm", f"echo half > first.tgz; echo $$ > {pid}; exec sleep 60")
    child = subprocess.Popen(
        [PYTHON, "-m", "regard", "data", "fetch", "stories15M"],
        env=os.environ | {"PYTHONPATH": str(Path.cwd())},
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell ignores it for background jobs
    )
    deadline = time.monotonic() + 60
    while not (pid.exists() and pid.read_text().strip()) and time.monotonic() < deadline:
        time.sleep(0.02)
    child.send_signal(number)
    assert child.wait(30) == (130 if number == signal.SIGINT else -signal.SIGKILL)
    client = int(pid.read_text())
    if number == signal.SIGINT:
        with pytest.raises(ProcessLookupError):
            os.kill(client, 0)
    else:  # only the next fetch can clean up
        os.kill(client, signal.SIGKILL)
        assert not (fakes.cache / "stories15M").exists()
        fakes.client("npm", "exit 1")
        with pytest.raises(FetchError):
            fetch("stories15M")
    assert fakes.is_clean()


@pytest.mark.parametrize("unpack", [lambda archives, place: (place / "half").touch(), lambda archives, place: 1 / 0])
def test_a_set_that_does_not_unpack_leaves_its_archives_only(unpack, fakes):
    fakes.client("npm", NPM)
    fakes.set()
    fakes.monkeypatch.setitem(SETS, "tiny", dataclasses.replace(SETS["tiny"], unpack=unpack))
    for _ in range(2):
        with pytest.raises((FetchError, ZeroDivisionError)):
            fetch("tiny")
        assert fakes.is_clean()
    assert fakes.requests() == ["first"]


def test_an_incomplete_folder_of_the_user_is_not_touched(fakes):
    fakes.set()
    (fakes.cache / "tiny").mkdir(parents=True)
    (fakes.cache / "tiny" / "mine").touch()
    with pytest.raises(FetchError, match=r"tiny: joined is missing"):
        fetch("tiny")
    assert (fakes.cache / "tiny" / "mine").exists()


@pytest.mark.parametrize("place", ["file/cache", "x" * 300], ids=["in the way", "not to be looked into"])
def test_a_cache_that_cannot_be_written_is_named_with_its_cure(place, fakes, tmp_path, capsys):
    fakes.set()
    (tmp_path / "file").touch()
    fakes.monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / place))
    assert main(["data", "fetch", "tiny"]) == 1
    assert capsys.readouterr().err == (
        f"regard: {tmp_path / place}/regard: this folder cannot be written; set XDG_CACHE_HOME to one that can be\n"
    )


def test_a_user_without_a_home_is_told_to_name_a_cache(fakes, capsys):
    """As in containers that run as a user whom the system does not know."""
    fakes.set()
    for name in ("XDG_CACHE_HOME", "HOME", "USERPROFILE"):
        fakes.monkeypatch.delenv(name, raising=False)
    fakes.monkeypatch.setattr(os, "getuid", lambda: 2**31 - 5)
    assert main(["data", "list"]) == 0
    capsys.readouterr()
    assert main(["data", "fetch", "tiny"]) == 1
    assert "this folder cannot be written; set XDG_CACHE_HOME to one that can be" in capsys.readouterr().err


def test_a_full_disk_is_noticed_before_anything_is_downloaded(fakes):
    fakes.set()
    usage, needed = shutil.disk_usage("/"), 2 * len(CONTENT["first"])
    fakes.monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=needed - 1))
    with pytest.raises(FetchError, match="free space"):
        fetch("tiny")
    assert fakes.requests() == []
    fakes.monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=needed))
    fakes.client("npm", NPM)
    fetch("tiny")


def test_the_reported_size_grows_with_the_files(fakes):
    line = f'mkdir deep; head -c 97 "$folder/first" > deep/part; {WAIT.format("97")}; {NPM}'
    fakes.client("npm", f"{line}; {WAIT.format(len(CONTENT['first']))}")
    fakes.set()
    bar = Bar(lambda message: (fakes.folder / str(message)).touch() if isinstance(message, int) else None)
    fetch("tiny", bar)
    assert bar.sizes == sorted(bar.sizes)


def test_every_set_names_an_unpacker():
    for row in SETS.values():
        module, name = row.unpack.keywords["by"].split(".")
        options = {key: value for key, value in row.unpack.keywords.items() if key != "by"}
        unpack = getattr(importlib.import_module(f"regard.data.{module}"), name)
        inspect.signature(unpack).bind([Path("archive")], Path("folder"), **options)


def test_every_archive_is_pinned_or_vouched_for():
    suffixes = {"pip": ".whl", "npm": ".tgz", "apt": ".deb", "apt-lists": ".gz"}
    for archive in {archive for row in SETS.values() for archive in row.archives}:
        assert archive.file.endswith(suffixes[archive.client])
        assert (archive.sha256 is None) == (archive.client == "apt-lists")
        assert archive.sha256 is None or len(bytes.fromhex(archive.sha256)) == 32


# ---------------------------------------------------------------------------------------------------------- the command


@pytest.mark.parametrize("terminal", [False, True])
def test_the_command_prints_the_folder(terminal, fakes, capsys):
    fakes.monkeypatch.setenv("FORCE_COLOR", "1") if terminal else fakes.monkeypatch.delenv("FORCE_COLOR", raising=False)
    fakes.monkeypatch.delenv("NO_COLOR", raising=False)
    fakes.client("npm", NPM)
    fakes.set()
    assert main(["data", "fetch", "tiny"]) == 0
    output = capsys.readouterr()
    assert output.out == f"{fakes.cache / 'tiny'}\n"
    assert "licence: free" in output.err
    assert "first" in output.err
    assert ("\x1b[" in output.err) == terminal
    assert main(["data", "fetch", "tiny", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fetched"] is True


def test_the_command_fails_in_one_line(fakes, capsys):
    fakes.client("npm", "echo npm error no network; exit 1")
    fakes.set()
    assert main(["data", "fetch", "tiny"]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.splitlines()[-1] == "regard: npm could not bring first: npm error no network"
    assert main(["data", "fetch", "tinny"]) == 2
    assert "did you mean 'tiny'?" in capsys.readouterr().err


def test_the_list_fits_a_terminal_and_names_every_licence(fakes, capsys):
    (fakes.cache / "shakespeare").mkdir(parents=True)
    (fakes.cache / "shakespeare" / "input.txt").touch()
    assert main(["data", "list"]) == 0
    table = capsys.readouterr().out.partition("\n\n")[0].splitlines()
    assert max(map(len, table)) <= 80
    for line, (name, row) in zip(table[1:], SETS.items(), strict=True):
        assert line.startswith(f"{name} ")
        assert row.use in line
        assert line.endswith(f" {row.licence}")
        assert (" yes " in line) == (name == "shakespeare")
    assert main(["data", "list", "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out) if row["fetched"]] == ["shakespeare"]
