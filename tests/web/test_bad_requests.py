"""The explorer's server, asked at random, nearly what the page sends, from several clients at once; and what models and
files that are no good make of good requests."""

import base64
import json
import os
import random
import socket
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest
import torch

import regard
from regard.attention.kernels import KERNELS
from regard.data.tokens import train_tokenizer
from regard.measure import resident_memory
from regard.tour.runner import run_section
from regard.training.folder import RESULTS
from regard.web.model_store import SMALL, ModelStore, is_trained, trained_folder
from regard.web.tour import Tour
from tests.tour import small
from tests.web.serving import SAMPLES, TEXTS, folders, half_open, serving

ODD = [
    *("null", "true", "-1", "0", "1", "2", "0.5", "-0.0", "1e-320", "1e308", "1e999", "-1e999", "NaN", "Infinity"),
    *(str(10**18), str(10**30), str(10**400), "1" * 5_000, '""', '" "', '"the cat"', '"\\ud800"', '"a\\udc00b"'),
    *(
        json.dumps("a " * 9_000),
        json.dumps("猫" * 3_000),
        '"\\u0000"',
        json.dumps("\u202e<script>"),
        "[]",
        "{}",
        "[[]]",
    ),
    *("[" * 100 + "]" * 100, "[" * 100_000, '{"a":' * 500 + "1" + "}" * 500, "[[0, 0], [1, 1]]", "[[1e5, -1e5]]"),
    *("[[1, null]]", '[["a", 1]]', "[[1, 2], [3]]", "[[1], [2]]", str([[0, 1]] * 2_001), '{"__proto__": 1}', "[true]"),
]
QUESTIONS = {
    "curve": {"samples": SAMPLES, "kernel": "gaussian", "bandwidth": 0.5, "bandwidth_by": "number"},
    "formula": {
        "q": [[1, 2]],
        "k": [[1, 0], [0, 1]],
        "v": [[1], [2]],
        "score": "cosine",
        "mask": "lengths",
        "length": 1,
    },
    "text": {"model": "language", "text": "the cat is on the mat"},
    "weights": {"display": 1, "layer": 0, "head": 0},
    "inside": {"display": 1, "layer": 0, "head": 0, "row": 0, "key": 0},
    "next": {"display": 1, "cut": [[0, 0]], "temperature": 1.0, "top_k": 3},
    "contributions": {"display": 1, "token": 3},
    "picture": {"model": "vit", "picture": base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40)).decode()},
    "section": {"number": 3, "values": {"width": 2.0, "count": 5}, "language": "en"},
    "tour": {"numbers": [3], "language": "zh"},
    **{name: {} for name in ("models", "examples", "training", "nothing")},
}
MODELS = ("language", "translator", "rnn", "vit", "resnet", "small language", "small translator", "../language", "")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    tour = Tour([small.section(3)])
    tour.results[3] = run_section(tour.sections[0])
    with serving(folders(tmp_path_factory.mktemp("models")), tour=tour) as served:
        yield served


def question(chance):
    """A name, and a body that is nearly what the page sends."""
    name = chance.choice(list(QUESTIONS))
    fields = {field: json.dumps(value) for field, value in QUESTIONS[name].items()}
    if name == "curve":
        fields |= {"kernel": json.dumps(chance.choice(list(KERNELS))), "bandwidth": str(10 ** chance.uniform(-4, 4))}
    if "model" in fields:
        fields["model"] = json.dumps(chance.choice(MODELS))
    if "display" in fields:
        fields["display"] = str(chance.randrange(12))
    for field in [field for field in (*fields, "more") if chance.random() < 0.3]:
        fields[field] = chance.choice(ODD)
    body = bytearray(
        ("{" + ", ".join(f"{json.dumps(field)}: {value}" for field, value in fields.items()) + "}").encode()
    )
    for _ in range(chance.choice([0, 0, 0, 1, 3])):
        place = chance.randrange(len(body) + 1)
        body[place : place + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
    return name, bytes(body)


def one_request(server, chance):
    """The status of one request; 0 where it was left, or was no HTTP."""
    name, body = question(chance)
    kind = chance.random()
    if kind < 0.08:
        half_open(server, body, name).close()
        return 0
    if kind < 0.12:
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(chance.randbytes(chance.randrange(200)) + b"\r\n\r\n")
            connection.settimeout(30)
            answer = connection.recv(1_000)
            return int(answer.split()[1]) if answer else 0
    method = chance.choice(["GET", "HEAD", "PUT"]) if kind < 0.2 else "POST"
    return server.send(method, f"/api/{name}" if kind > 0.15 else f"/{name}?{name}=%ff", body)[0]


@pytest.mark.parametrize("count", [400, pytest.param(5_000, marks=pytest.mark.faults)])
def test_bad_requests_while_models_are_busy_neither_break_nor_hang_the_server(server, count):
    server.ask("models")  # all are loaded
    before = resident_memory()

    def client(number):
        chance = random.Random(number)
        return [one_request(server, chance) for _ in range(count // 8)]

    with ThreadPoolExecutor(8) as pool:
        statuses = [status for job in [pool.submit(client, number) for number in range(8)] for status in job.result()]
    assert max(statuses) < 500
    assert {0, 200, 400, 404, 405} <= set(statuses)
    assert server.ask("text", model="language", text="the cat")[0] == 200
    assert resident_memory() - before < 1_000


# ---------------------------------------------------------------------------------------------- what is no good here


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_point_that_no_sample_reaches_has_no_window(server, kernel):
    status, answer = server.ask("curve", samples=SAMPLES, kernel=kernel, bandwidth=0.01)
    assert status == 200
    reached = regard.KernelRegressor(kernel, 0.01).fit([[0.0], [1.0]], [0.0, 1.0]).window([[0.5]]).effective
    assert (None in answer["low"]) == (None in answer["effective"]) == bool(numpy.isnan(reached[0]))
    assert None not in answer["y"]


def test_a_bandwidth_that_is_infinite_is_none(server):
    status, answer = server.ask("curve", samples=[[1, 0], [1, 2]], kernel="gaussian", bandwidth_by="loo")
    assert (status, answer["bandwidth"], set(answer["y"])) == (200, None, {1.0})


class Positions(torch.nn.TransformerEncoderLayer):
    """A module of others that knows two positions, as many as it is asked for first."""

    def __init__(self):
        super().__init__(6, 3, batch_first=True)
        self.embedding, self.positions = torch.nn.Embedding(60, 6), torch.nn.Parameter(torch.zeros(2, 6))

    def forward(self, ids):
        return super().forward(self.embedding(ids) + self.positions)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_what_a_module_of_others_refuses_is_said():
    live = {"theirs": (Positions(), train_tokenizer(TEXTS, "word", 60, append_eos=False))}
    with serving(live=live) as served:
        assert served.ask("text", model="theirs", text="the cat")[0] == 200
        status, answer = served.ask("text", model="theirs", text="the cat is on the mat")
        assert status == 400
        assert "must match the size" in answer["error"]


def test_what_a_model_whose_weights_overflow_is_asked_for_is_refused(tmp_path):
    translator = regard.load(folders(tmp_path)[0])
    for parameter in translator.parameters():
        torch.nn.init.constant_(parameter, 3e38)
    translator.save(tmp_path / "large")
    with serving([tmp_path / "large"]) as served:
        status, answer = served.ask("text", model="large", text="the cat")
        assert (status, "damaged or diverged" in answer["error"]) == (400, True)


def test_a_folder_may_be_called_as_one_of_the_small_models_is(tmp_path):
    folder = folders(tmp_path)[2].rename(tmp_path / "small language")
    given, builtin = ModelStore([folder]).model("small language"), ModelStore().model("small language")
    assert given.config["max_positions"] == 600 != builtin.config["max_positions"]


def test_a_trained_model_that_is_damaged_is_trained_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = trained_folder("language")
    folders(tmp_path)[2].rename(folder)
    (folder / RESULTS).write_text("{}")
    assert is_trained("language")
    with (folder / "model.safetensors").open("ab") as file:
        file.write(b"more")
    assert not is_trained("language")
    with serving() as served:
        status, answer = served.ask("models")
        assert (status, {model["name"] for model in answer["models"]}) == (200, set(SMALL))


def test_where_the_cache_cannot_be_written_models_are_trained_elsewhere(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    folder = trained_folder("images")
    assert os.access(folder.parent, os.W_OK)
    assert not folder.is_relative_to(tmp_path)
