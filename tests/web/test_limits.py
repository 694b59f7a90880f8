"""The explorer's server under attack: who gets in, what waits, what ends, and connections that are bounded."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import pytest
import torch
import uvicorn

from regard.web import guard, model_store, work
from regard.web.answers import ANSWERS
from regard.web.model_store import Kept, ModelStore
from regard.web.server import serve
from regard.web.tour import Tour
from tests.tour import small
from tests.web.serving import SAMPLES, half_open, serving


def until(holds, seconds=30):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


# ----------------------------------------------------------------------------------------------------------------- key


def test_the_key_opens_the_page_once_and_the_cookie_again(server):
    key = server.guard.key
    status, headers, page = server.send("GET", f"/?key={key}", cookie=None)
    assert status == 200
    assert key.encode() not in page
    session = headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(session.split("; "))
    assert server.send("GET", f"/?key={key}", cookie=None)[0] == 403  # used
    cookie = session.split(";")[0]
    assert server.send("GET", "/", cookie=cookie)[0] == 200
    assert server.send("POST", "/api/models", b"{}", cookie=cookie)[0] == 200
    assert server.send("GET", f"/laboratory?key={server.guard.key}", cookie=None)[0] == 200  # there is a new one


@pytest.mark.parametrize("path", ["/", "/laboratory", "/?key=", "/?key=guessed", "/api/models", "/nothing"])
def test_another_user_of_this_machine_gets_nothing_but_the_code(server, path):
    for method in ("GET", "HEAD", "POST"):
        for cookie in (None, "", f"{server.guard.cookie}=", f"{server.guard.cookie}=guessed", "é=ü"):
            status, headers, content = server.send(method, path, b"{}" if method == "POST" else b"", cookie=cookie)
            assert status == 403
            assert "set-cookie" not in headers
            assert server.guard.key.encode() not in content
            assert server.guard.session.encode() not in content
    assert server.send("GET", "/static/app.js", cookie=None)[0] == 200


def test_a_key_is_not_used_by_looking_at_the_headers(server):
    key = server.guard.key
    assert server.send("HEAD", f"/?key={key}", cookie=None)[0] == 403
    assert server.send("POST", f"/api/models?key={key}", b"{}", cookie=None)[0] == 403
    assert server.guard.key == key


def test_two_servers_at_once_keep_their_cookies_apart(server):
    with serving(port=server.port + 1) as other:
        assert other.guard.cookie != server.guard.cookie
        both = f"{server.cookie}; {other.cookie}"
        assert server.send("GET", "/", cookie=both)[0] == other.send("GET", "/", cookie=both)[0] == 200


def test_the_command_prints_the_address_and_another_one_when_it_was_used(monkeypatch, capsys):
    servers = []
    monkeypatch.setattr(Tour, "start", lambda tour: None)
    monkeypatch.setattr(uvicorn.Server, "startup", _noting(uvicorn.Server.startup, servers))
    thread = threading.Thread(target=serve, args=([], 8_690), daemon=True)
    thread.start()
    until(lambda: servers and servers[0].started)
    printed = capsys.readouterr()
    (address,) = printed.out.split()
    assert urllib.request.urlopen(address).status == 200
    until(lambda: "for another browser" in (lines := capsys.readouterr().err) and _open(lines.split()[-1]))
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(address)
    servers[0].should_exit = True
    thread.join(30)
    assert not thread.is_alive()


ENDED = """
import signal, subprocess
signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a terminal, also where the tests run in the background
from regard.cli import main
from regard.web.model_store import Trainer
from regard.web.tour import Tour

def stub(self):
    self.process, self.queue = subprocess.Popen(["sleep", "600"]), []
    print(self.process.pid)

Trainer.__init__, Tour.start = stub, lambda tour: None
raise SystemExit(main(["explore", "--port", "8695"]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGTERM")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_what_is_being_trained_ends_with_the_server(number, code):
    with subprocess.Popen([sys.executable, "-c", ENDED], stdout=subprocess.PIPE, text=True) as server:
        trainer, address = (server.stdout.readline().strip() for _ in range(2))
        urllib.request.urlopen(address).read()
        server.send_signal(number)
        assert server.wait(60) == code
    with pytest.raises(ProcessLookupError):
        os.kill(int(trainer), 0)


def _noting(function, objects):
    async def noted(self, *arguments, **options):
        objects.append(self)
        return await function(self, *arguments, **options)

    return noted


def _open(address):
    return urllib.request.urlopen(address).status == 200


# ---------------------------------------------------------------------------------------------------------------- work


@contextmanager
def slow(server, monkeypatch):
    """Within this block the question `formula` computes until it is let go; yields an event for that, and how often it
    has begun and ended."""
    state = SimpleNamespace(let_go=threading.Event(), begun=0, ended=0)

    def compute(store, params):
        state.begun += 1
        try:
            while not state.let_go.is_set():
                torch.ones(3).sum()
                time.sleep(0.005)
            return {}
        finally:
            state.ended += 1

    monkeypatch.setitem(ANSWERS, "formula", compute)
    with serving(port=8_680) as served:
        try:
            yield served, state
        finally:
            state.let_go.set()


def test_what_nobody_waits_for_is_ended_and_what_waited_is_not_begun(server, monkeypatch):
    with slow(server, monkeypatch) as (served, state):
        connections = [half_open(served) for _ in range(45)]
        until(lambda: state.begun >= 1)
        for connection in connections:
            connection.close()
        until(lambda: state.ended >= 1)
        status, _ = served.ask("curve", samples=SAMPLES, kernel="gaussian", bandwidth=1.0)
        assert status == 200
        assert state.begun < 5  # of 45: those whose connection was not yet closed


def test_pages_and_files_do_not_wait_behind_work(server, monkeypatch):
    with slow(server, monkeypatch) as (served, state):
        connections = [half_open(served) for _ in range(60)]  # more than there are threads
        until(lambda: state.begun >= 1)
        for path in ("/", "/laboratory", "/static/app.js", "/static/page.css"):
            assert served.send("GET", path)[0] == 200
        for name in ("training", "tour"):
            assert served.ask(name)[0] == 200
        assert state.ended == 0
        for connection in connections:
            connection.close()


def test_few_wait_and_more_are_told_to_come_again(server, monkeypatch):
    monkeypatch.setattr(work, "WAITING", 3)
    with slow(server, monkeypatch) as (served, state):
        connections = [half_open(served) for _ in range(3)]
        until(lambda: state.begun >= 1)
        until(lambda: served.ask("curve")[0] == 429)
        for connection in connections:
            connection.close()
        until(lambda: served.ask("curve", samples=SAMPLES, kernel="gaussian", bandwidth=1.0)[0] == 200)


def test_an_answer_that_takes_too_long_ends(server, monkeypatch):
    monkeypatch.setattr(work, "SECONDS", 0.2)
    with slow(server, monkeypatch) as (served, state):
        status, answer = served.ask("formula")
        assert status == 400
        assert "takes longer than 0.2 s" in answer["error"]
        assert state.ended == 1


def test_an_answer_that_takes_too_much_memory_ends(server, monkeypatch):
    monkeypatch.setattr(work, "MEGABYTES", 50.0)
    kept = []

    def compute(store, params):
        while True:
            kept.append(torch.ones(250_000))
            time.sleep(0.002)

    monkeypatch.setitem(ANSWERS, "formula", compute)
    with serving(port=8_680) as served:
        status, answer = served.ask("formula")
    assert status == 400
    assert "takes more than 50 MB" in answer["error"]
    assert len(kept) < 400


def test_a_cell_of_the_tour_is_bounded_like_all_else(monkeypatch):
    monkeypatch.setattr(work, "SECONDS", 0.2)
    endless = small.section(3, plain=small.PLAIN + "\nwhile True:\n    torch.ones(1).sum()\n")
    with serving(tour=Tour([endless]), port=8_680) as served:
        status, answer = served.ask("section", number=3, values={})
    assert status == 400
    assert "takes longer" in answer["error"]


def test_kept_displays_are_weighed(monkeypatch):
    monkeypatch.setattr(model_store, "BYTES", 1_000)
    store = ModelStore()

    def display(size):
        return Kept("m", "text", None, SimpleNamespace(maps=[SimpleNamespace(weights=torch.zeros(size))]))

    first, second, third = (store.keep(display(size)) for size in (100, 100, 100))  # of 400 bytes
    with pytest.raises(ValueError, match="no longer kept"):
        store.display(first)
    assert store.display(second).size == store.display(third).size == 400
    large = store.keep(display(10_000))
    assert list(store.displays) == [large]


def test_logits_of_many_cuts_are_not_all_kept(server, monkeypatch):
    monkeypatch.setattr("regard.web.answers.CUTS", 3)
    kept = []
    keep = ModelStore.keep
    monkeypatch.setattr(ModelStore, "keep", lambda store, one: kept.append(one) or keep(store, one))
    _, display = server.ask("text", model="small language", text="the cat is on the mat")
    for layer in range(3):
        for head in range(4):
            assert server.ask("next", display=display["display"], cut=[[layer, head]])[0] == 200
    assert len(kept[0].logits) <= 4


# --------------------------------------------------------------------------------------------------------- connections


def closed_in_time(connection, seconds=10):
    connection.settimeout(seconds)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("sent", [b"", b"GET / HTT", b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx: "])
def test_half_sent_headers_are_not_waited_for(monkeypatch, sent):
    monkeypatch.setattr(work, "HEADER_SECONDS", 0.2)
    with serving(port=8_680) as served:
        with socket.create_connection(("127.0.0.1", served.port)) as connection:
            connection.sendall(sent)
            assert closed_in_time(connection)
        with half_open(served, name="models") as connection:  # then, after an answer, the same
            assert connection.recv(1_000_000).startswith(b"HTTP/1.1 200")
            connection.sendall(sent + b"G")
            while connection.recv(1_000_000) if not closed_in_time(connection) else False:
                pass
        assert served.send("GET", "/")[0] == 200


def test_headers_that_drip_are_not_waited_for(monkeypatch):
    monkeypatch.setattr(work, "HEADER_SECONDS", 0.3)
    with serving(port=8_680) as served, socket.create_connection(("127.0.0.1", served.port)) as connection:
        until(lambda: not _sends(connection, b"x"))


def _sends(connection, content):
    try:
        connection.sendall(content)
    except TimeoutError:
        return True
    except OSError:
        return False
    return True


def test_answers_that_nobody_reads_are_not_waited_for(monkeypatch):
    monkeypatch.setattr(work, "HEADER_SECONDS", 0.3)
    with serving(port=8_680) as served, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.connect(("127.0.0.1", served.port))
        head = f"GET /static/page.js HTTP/1.1\r\nhost: 127.0.0.1:{served.port}\r\n\r\n".encode()
        connection.settimeout(0.1)
        with suppress(TimeoutError):  # the server reads no more while its answers wait
            connection.sendall(head * 2_000)
        until(lambda: not _sends(connection, b"x"))


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.2)
    with serving(port=8_680) as served:
        connection = socket.create_connection(("127.0.0.1", served.port))
        head = f"POST /api/curve HTTP/1.1\r\nhost: 127.0.0.1:{served.port}\r\ncookie: {served.cookie}\r\n"
        connection.sendall(f"{head}content-length: 100\r\n\r\n{{".encode())
        connection.settimeout(10)
        assert connection.recv(1_000).startswith(b"HTTP/1.1 408")
        connection.close()
        assert served.ask("models")[0] == 200


def test_bodies_are_bounded_together(monkeypatch):
    monkeypatch.setattr(guard, "BODIES", 3_000)
    with serving(port=8_680) as served:
        connections = []
        for _ in range(3):  # each a thousand bytes of two
            connection = socket.create_connection(("127.0.0.1", served.port))
            head = f"POST /api/curve HTTP/1.1\r\nhost: 127.0.0.1:{served.port}\r\ncookie: {served.cookie}\r\n"
            connection.sendall(f"{head}content-length: 2000\r\n\r\n".encode() + b" " * 900)
            connections.append(connection)
        until(lambda: served.guard.received == 2_700)
        assert served.send("POST", "/api/curve", b" " * 1_000)[0] == 429
        for connection in connections:
            connection.close()
        until(lambda: served.guard.received == 0)
        assert served.ask("models")[0] == 200


def test_connections_are_bounded(monkeypatch):
    monkeypatch.setattr(work, "CONNECTIONS", 5)
    with serving(port=8_680) as served:
        connections = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(12)]
        assert sum(closed_in_time(connection, 0.5) if number > 4 else False
                   for number, connection in enumerate(connections)) == 7  # fmt: skip
        for connection in connections:
            connection.close()
        until(lambda: _answers(served))


def _answers(served):
    try:
        return served.send("GET", "/static/app.js")[0] == 200
    except OSError:
        return False
