"""The explorer's server: who may ask, how much, and what comes back."""

import base64
import json
import socket
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest
import torch

import regard
from regard.tour.runner import run_section
from regard.web import model_store
from regard.web.server import FILES, free_socket
from regard.web.tour import Tour
from tests.tour import small
from tests.web.serving import SAMPLES, serving

QUESTION = json.dumps({"samples": SAMPLES, "kernel": "gaussian", "bandwidth": 0.5}).encode()


# ---------------------------------------------------------------------------------------------------------- strangers


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "127.0.0.1"},
        {"host": "127.0.0.1:1"},
        {"host": "localhost.evil.example:8600"},
        {"host": None},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"cookie": None},
        {"cookie": ""},
        {"cookie": "regard=guessed"},
    ],
    ids=str,
)
def test_strangers_are_refused(server, headers):
    status, _, content = server.send("POST", "/api/curve", QUESTION, **headers)
    assert status in ((403,) if headers.get("host", "x") is not None else (400, 403))
    assert b"weights" not in content


def test_the_page_itself_is_for_this_host_only(server):
    assert server.send("GET", "/", host="evil.example")[0] == 403
    assert server.send("GET", "/", origin="http://evil.example")[0] == 403
    for name in ("127.0.0.1", "localhost"):
        status, _, content = server.send(
            "GET", "/", host=f"{name}:{server.port}", origin=f"http://{name}:{server.port}"
        )
        assert status == 200
        assert b"laboratory" in content


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_other_methods_are_refused(server, method):
    assert server.send(method, "/api/curve", QUESTION)[0] in (403, 405)


def test_it_listens_on_this_machine_only_and_at_a_free_port():
    with free_socket(8_710) as first, free_socket(first.getsockname()[1]) as second:
        assert {listener.getsockname()[0] for listener in (first, second)} == {"127.0.0.1"}
        assert second.getsockname()[1] > first.getsockname()[1]
        # asyncio sends small packets at once for sockets that say they are TCP; else an answer's body waits for 40 ms
        assert first.proto == socket.IPPROTO_TCP


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/..%2fserver.py",
        "/static/%2e%2e/server.py",
        "/static//etc/passwd",
        "/static/%00",
        "/server.py",
        "/static/",
        "/api/",
        "/../../etc/passwd",
        "/static/view.js/..",
    ],
)
def test_nothing_else_is_served(server, path):
    status, _, content = server.send("GET", path)
    assert status in (404, 405)
    assert b"import" not in content


@pytest.mark.parametrize("name", [name for names in FILES.values() for name in names])
def test_browsers_are_told_what_the_page_may_do(server, name):
    status, headers, content = server.send("GET", f"/static/{name}")
    assert status == 200
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http:" not in policy.replace("'self'", "")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert b"://" not in content.replace(b"http://www.w3.org", b"")  # nothing is loaded from anywhere else
    if name.endswith(".html"):
        assert b"<script>" not in content
        assert b"style=" not in content


# ---------------------------------------------------------------------------------------------------------- too much


def test_bodies_are_bounded(server):
    status, _, content = server.send("POST", "/api/curve", b" " * 8_000_001)
    assert status == 413, content


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("curve", {"samples": [[0.0, 1.0]] * 2_001}, "samples: expected 2 to 2000 rows"),
        ("curve", {"samples": SAMPLES, "kernel": "none"}, "kernel: expected one of"),
        ("curve", {"samples": SAMPLES, "kernel": "boxcar", "bandwidth": 0}, "bandwidth: expected a number from"),
        ("curve", {"samples": SAMPLES, "kernel": "boxcar", "bandwidth": "x"}, "bandwidth: expected a number, got"),
        ("curve", {"samples": [[0, 1], [2]]}, "samples: expected rows of 2"),
        ("curve", {"samples": [[0, 1], [2, None]]}, "samples: expected numbers below a million"),
        ("formula", {"q": [[1.0]], "k": [[1.0, 2.0]], "v": [[1.0]]}, "k: expected as many numbers"),
        ("formula", {"q": [[1.0]], "k": [[1.0]], "v": [[1.0], [2.0]]}, "v: expected a value for each of 1 keys"),
        ("formula", {"q": [[1.0]] * 13, "k": [[1.0]], "v": [[1.0]]}, "q: expected 1 to 12 rows"),
        ("text", {"model": "rnn", "text": "a" * 1_000_000}, "text: expected at most 20,000 characters"),
        ("text", {"model": "rnn", "text": " "}, "text: expected some words"),
        ("text", {"model": "../rnn", "text": "cat"}, "model: expected one of"),
        ("text", {"model": "vit", "text": "cat"}, "reads no text"),
        ("weights", {"display": 99, "layer": 0, "head": 0}, "no longer kept"),
        ("picture", {"model": "rnn", "picture": ""}, "reads no pictures"),
        ("picture", {"model": "vit", "picture": "?"}, "picture: expected a file's content"),
        ("picture", {"model": "vit", "picture": base64.b64encode(b"nothing").decode()}, "the picture: is no picture"),
        ("train", {"kind": "everything"}, "kind: expected one of"),
        ("next", {"display": 99}, "no longer kept"),
        ("next", {"display": 99, "temperature": 0}, "no longer kept"),
        ("contributions", {"display": -1, "token": 0}, "display: expected a number from 0"),
        ("inside", {"display": 99, "layer": 0, "head": 0, "row": 0, "key": 0}, "no longer kept"),
    ],
)
def test_what_cannot_be_answered_is_an_error_that_says_why(server, name, fields, message):
    status, answer = server.ask(name, **fields)
    assert status == 400
    assert message in answer["error"]
    assert "/" not in answer["error"].replace("../rnn", "")  # no path of this machine


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"a": NaN', b"[" * 100_000, b"\xff"])
def test_what_is_no_json_object_is_refused(server, body):
    status, _, content = server.send("POST", "/api/curve", body)
    assert status == 400
    assert b"JSON" in content


def test_fifty_at_once(server):
    with ThreadPoolExecutor(50) as pool:
        jobs = [pool.submit(server.ask, "curve", **json.loads(QUESTION)) for _ in range(40)]
        jobs += [pool.submit(server.ask, "text", model="rnn", text="the cat") for _ in range(10)]
        assert [job.result()[0] for job in jobs] == [200] * 50
    assert server.ask("models")[0] == 200


# ------------------------------------------------------------------------------------------------------------ answers


def test_curve_is_the_regressor(server):
    status, answer = server.ask("curve", samples=SAMPLES, kernel="epanechnikov", bandwidth=1.3)
    assert status == 200
    x, y = numpy.array(SAMPLES)[:, :1], numpy.array(SAMPLES)[:, 1]
    model = regard.KernelRegressor("epanechnikov", 1.3, empty="mean").fit(x, y)
    numpy.testing.assert_allclose(answer["y"], model.predict(numpy.array(answer["x"])[:, None]))
    numpy.testing.assert_allclose(numpy.array(answer["weights"]).sum(1), 1, atol=1e-5)
    fixed, learned = (
        server.ask("curve", samples=SAMPLES, kernel="gaussian", bandwidth=1.0, bandwidth_by=rule)[1]
        for rule in ("number", "gradient")
    )
    assert learned["loo_error"] <= fixed["loo_error"]


@pytest.mark.parametrize("score", ["dot", "scaled dot", "cosine", "additive", "gaussian"])
@pytest.mark.parametrize("mask", ["none", "causal", "lengths"])
def test_formula_is_attend(server, score, mask):
    tables = {"q": [[1.0, 2.0], [0.5, -1.0]], "k": [[1.0, 0.0], [0.0, 1.0], [2.0, 1.0]], "v": [[1.0], [2.0], [4.0]]}
    status, answer = server.ask("formula", **tables, score=score, mask=mask, length=2, temperature=0.7)
    assert status == 200
    weights, scores, visible = (torch.tensor(answer[name]) for name in ("weights", "scores", "visible"))
    torch.testing.assert_close(weights, regard.masked_softmax(scores, regard.keep(visible)))
    torch.testing.assert_close(torch.tensor(answer["output"]), weights @ torch.tensor(tables["v"]))


@pytest.mark.parametrize("model", ["translator", "rnn", "language"])
def test_texts_and_their_weights(server, model):
    status, answer = server.ask("text", model=model, text="the cat is on the mat")
    assert status == 200
    assert ("translation" in answer) == (model != "language")
    assert answer["opens"] < [len(answer["layers"]), 0]
    for number, layer in enumerate(answer["layers"]):
        for head in range(len(layer["heads"])):
            status, packed = server.ask("weights", display=answer["display"], layer=number, head=head)
            assert status == 200
            steps = numpy.frombuffer(zlib.decompress(packed, -15), numpy.uint8)
            rows = (steps.reshape(len(layer["tokens"]), len(layer["key_tokens"])) / answer["levels"]) ** 2
            numpy.testing.assert_allclose(rows.sum(1), 1, atol=0.05)


@pytest.mark.parametrize("model", ["vit", "resnet"])
def test_pictures(server, model):
    pictures = server.ask("examples")[1]["pictures"]
    assert len(pictures) == 10
    status, answer = server.ask("picture", model=model, picture=pictures[3])
    assert status == 200
    assert answer["label"] in "0123456789"
    assert len(answer["layers"]) == (2 if model == "vit" else 0)
    if model == "vit":
        assert abs(sum(map(sum, answer["all_layers"])) - 1) < 1e-5
        mean = torch.tensor(answer["heads"][0]).mean(0)
        torch.testing.assert_close(mean, torch.tensor(answer["layers"][0]), rtol=1e-3, atol=1e-4)


def test_training_imports_nothing_from_the_working_folder(monkeypatch, tmp_path):
    """A numpy.py that lies where the page was started would be run by a child that looks there first."""
    (tmp_path / "numpy.py").write_text("open('run', 'w')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    short = ["--steps", "2", "--warmup", "1", "--size", "12", "--layers", "1", "--heads", "3"]
    monkeypatch.setitem(model_store.RECIPES, "images", {"vit": ["images", *short]})
    with serving() as server:
        status, answer = server.ask("train", kind="images")
        while answer["running"]:
            time.sleep(0.2)
            status, answer = server.ask("training")
        assert (status, answer["error"]) == (200, "")
        models = {model["name"]: model["kind"] for model in server.ask("models")[1]["models"]}
        assert models["embedded vit"] == "images"
    assert not (tmp_path / "run").exists()


# ----------------------------------------------------------------------------------------------------------- the tour


@pytest.fixture(scope="module")
def touring():
    tour = Tour([small.section(3), small.section(5)])
    tour.results[3] = run_section(tour.sections[0])
    with serving(tour=tour) as served:
        yield served


def test_the_page_has_what_is_there_in_either_language(touring):
    for language, title, code in (("en", "Title 3", b'lang="en"'), ("zh", "标题 3", b'lang="zh-Hans"')):
        _, _, page = touring.send("GET", f"/?language={language}")
        assert title.encode() in page
        assert code in page
        assert b'data-pending="5"' in page
        assert b'data-pending="3"' not in page
        assert b"<style>" not in page  # the policy allows files alone


def test_the_language_is_kept(touring):
    _, headers, _ = touring.send("GET", "/?language=zh")
    cookie = f"{touring.cookie}; {headers['set-cookie'].split(';')[0]}"
    assert b'lang="zh-Hans"' in touring.send("GET", "/laboratory", cookie=cookie)[2]


def test_sections_arrive(touring):
    status, answer = touring.ask("tour", numbers=[3, 5, 7, "3", None], language="zh")
    assert status == 200
    assert list(answer["bodies"]) == ["3"]
    assert "标题 3" in answer["bodies"]["3"]


def test_a_picture_follows_its_controls(touring):
    status, first = touring.ask("section", number=3, values={}, language="en")
    assert status == 200
    assert first["svg"].startswith("<svg")
    assert touring.ask("section", number=3, values={"width": 2, "count": 5}, language="en")[1] != first


@pytest.mark.parametrize(
    "fields",
    [
        {"number": 3, "values": {"width": 1e9}},
        {"number": 3, "values": {"width": "__import__('os')"}},
        {"number": 3, "values": {"total": 1}},
        {"number": 3, "values": []},
        {"number": 4, "values": {}},
        {"number": "3", "values": {}},
        {"values": {}},
        {"number": 3, "values": {}, "language": "xx"},
    ],
    ids=str,
)
def test_other_values_are_refused(touring, fields):
    status, answer = touring.ask("section", **fields)
    assert status == 400
    assert answer["error"]


# ------------------------------------------------------------------------------------------------------------- writing


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("next", {"temperature": 0}, "temperature: expected a number from 0.05"),
        ("next", {"top_k": 1.5}, "top_k: expected a whole number"),
        ("next", {"cut": [[0]]}, "cut: expected rows of 2"),
        ("next", {"cut": [[7, 0]]}, "is not among those that attended"),
        ("contributions", {"token": 10**6}, "target: expected numbers"),
        ("inside", {"layer": 3, "head": 0, "row": 0, "key": 0}, "layer: expected a number from 0 to 2"),
    ],
)
def test_what_cannot_be_cut_or_explained_is_an_error_that_says_why(server, name, fields, message):
    _, display = server.ask("text", model="small language", text="the cat is on the mat")
    status, answer = server.ask(name, display=display["display"], **fields)
    assert (status, message in answer["error"]) == (400, True), answer


def test_a_model_that_writes_nothing_has_no_next_word(server):
    _, display = server.ask("text", model="small translator", text="the cat")
    status, answer = server.ask("next", display=display["display"])
    assert (status, answer["error"]) == (400, "model: small translator predicts no next word")


def test_next_tokens_are_those_of_the_model_and_of_one_without_a_head(server):
    """By temperature, among the top, and the same as by hand."""
    model, text = regard.load(model_store.SMALL["small language"]), "the cat is on the mat. the cat is on the"
    _, display = server.ask("text", model="small language", text=text)
    ids = torch.tensor([model.tokenizer.encode(text).ids])
    with torch.no_grad():
        before = (model(ids)[0, -1] / 0.7).softmax(-1)
        with regard.intervene(model) as edit:
            edit.ablate(2, 0)
            after = (model(ids)[0, -1] / 0.7).softmax(-1)
    fields = {"display": display["display"], "temperature": 0.7}
    _, answer = server.ask("next", **fields)
    assert answer["change"] is None
    for token in answer["tokens"]:
        assert token["before"] == pytest.approx(float(before[token["id"]]), abs=1e-5)
    assert [token["id"] for token in answer["tokens"]] == before.topk(10).indices.tolist()
    _, cut = server.ask("next", **fields, cut=[[2, 0]])
    for token in cut["tokens"]:
        assert token["after"] == pytest.approx(float(after[token["id"]]), abs=1e-5)
    assert cut["change"] == pytest.approx(float((after * (after / before).log()).sum()), abs=1e-4)
    _, top = server.ask("next", **fields, top_k=3)
    assert sum(token["before"] for token in top["tokens"]) == pytest.approx(1, abs=1e-6)


def test_contributions_of_heads_and_of_all_else_add_up_to_the_logit(server):
    model, text = regard.load(model_store.SMALL["small language"]), "the cat is on the mat. the cat is on the"
    _, display = server.ask("text", model="small language", text=text)
    token = model.tokenizer.encode(" mat").ids[0]
    status, answer = server.ask("contributions", display=display["display"], token=token)
    assert status == 200
    assert [len(layer) for layer in answer["layers"]] == [4, 4, 4]
    with torch.no_grad():
        logit = float(model(torch.tensor([model.tokenizer.encode(text).ids]))[0, -1, token])
    assert sum(map(sum, answer["layers"])) + answer["others"] == pytest.approx(logit, abs=1e-3)


def test_the_inside_of_one_head_is_what_its_weights_are_made_of(server):
    _, display = server.ask("text", model="small translator", text="the cat is on the mat")
    for number, layer in enumerate(display["layers"]):
        _, inside = server.ask("inside", display=display["display"], layer=number, head=1, row=0, key=0)
        n, m = len(layer["tokens"]), len(layer["key_tokens"])
        size, value_size = inside["size"]
        shapes = {"query": (n, size), "key": (m, size), "value": (m, value_size), "output": (n, value_size)}
        parts = {
            name: torch.frombuffer(bytearray(base64.b64decode(inside[name])), dtype=torch.float32).view(shape)
            for name, shape in {**shapes, "weights": (n, m)}.items()
        }
        scores = inside["scale"] * parts["query"] @ parts["key"].T
        weights = scores.masked_fill(parts["weights"] == 0, -torch.inf).softmax(-1)
        assert inside["exact"]
        torch.testing.assert_close(weights, parts["weights"], atol=1e-4, rtol=1e-3)
        torch.testing.assert_close(parts["weights"] @ parts["value"], parts["output"], atol=1e-4, rtol=1e-3)
