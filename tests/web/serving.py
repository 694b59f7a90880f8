"""Small models of every kind, and a server for a test, on a free port."""

import http.client
import json
import socket
import threading
import time
from contextlib import contextmanager

import torch
import uvicorn

import regard
from regard.data.tokens import train_tokenizer
from regard.web.model_store import ModelStore, Trainer
from regard.web.server import SETTINGS, application, free_socket
from regard.web.tour import Tour

TEXTS = ["the cat is on the mat", "a dog sees <b>the</b> cat", "tom & jerry", "le chat est sur le tapis"]
SAMPLES = [[0.1, 1.0], [0.7, 2.0], [1.9, 0.5], [3.1, 1.5]]
LABELS = [str(number) for number in range(10)]


def folders(home):
    """Untrained models of every kind, saved."""
    torch.manual_seed(0)
    tokenizer = train_tokenizer(TEXTS * 3, "word", 60)
    count = tokenizer.get_vocab_size()
    models = {
        "translator": regard.Transformer(count, count, 24, 2, 3, bos=1, eos=2),
        "rnn": regard.Seq2Seq(count, count, 16, 12),
        "language": regard.LanguageModel(count, 24, 2, 3, max_positions=600),
        "vit": regard.ViT(8, 2, 24, 2, 3, 10, channels=1, pooling="mean", labels=LABELS),
        "resnet": regard.ResNet([1, 1], 10, width=4, stem="cifar", channels=1, labels=LABELS),
    }
    for name, model in models.items():
        if name == "language":
            model.tokenizer = train_tokenizer(TEXTS * 3, "word", 60, append_eos=False)
        elif name in ("translator", "rnn"):
            model.tokenizer = tokenizer
        model.save(home / name)
    return [home / name for name in models]


class Served:
    """The address of a server, and requests to it, with the cookie of a browser that has opened the page."""

    def __init__(self, guard):
        self.guard, self.port = guard, guard.port
        self.address = f"http://127.0.0.1:{guard.port}"
        self.cookie = f"{guard.cookie}={guard.session}"

    def enter(self, page):
        """Give the cookie to the browser of a page."""
        page.context.add_cookies([{"name": self.guard.cookie, "value": self.guard.session, "url": self.address}])

    def send(self, method, path, body=b"", **headers):
        """The status, the headers and the body of the answer. Headers are given with _ for -; None leaves one out."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = {"host": f"127.0.0.1:{self.port}", "cookie": self.cookie, **headers}
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in sent.items():
            if value is not None:
                connection.putheader(name.replace("_", "-"), value)
        connection.putheader("content-length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, dict(answer.getheaders()), content

    def ask(self, name, **fields):
        """The status, and the answer."""
        status, headers, content = self.send("POST", f"/api/{name}", json.dumps(fields).encode())
        binary = headers["content-type"] == "application/octet-stream"
        return status, content if binary else json.loads(content)


@contextmanager
def serving(models=(), port=8_600, tour=None, live=None):
    """Within this block a server runs in this process."""
    listener, trainer = free_socket(port), Trainer()
    guard = application(ModelStore(models, live), trainer, tour or Tour(), listener.getsockname()[1])
    server = uvicorn.Server(uvicorn.Config(guard, log_level="error", **SETTINGS))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield Served(guard)
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()
        trainer.stop()


def half_open(served, body=b"{}", name="formula"):
    """A connection that has sent a question, and does not read the answer."""
    connection = socket.create_connection(("127.0.0.1", served.port))
    head = f"POST /api/{name} HTTP/1.1\r\nhost: 127.0.0.1:{served.port}\r\ncookie: {served.cookie}\r\n"
    connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    return connection
