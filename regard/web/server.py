"""The server of `regard explore`, and of `regard.explore` around a module that lives in this process: static files, and
answers in JSON, one at a time."""

from __future__ import annotations

import secrets
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from torch import nn

from regard.tour import default_language
from regard.tour.section import Language
from regard.view.page import SCRIPTS
from regard.web.answers import ANSWERS
from regard.web.guard import BodyTooLargeError, Guard, Params
from regard.web.model_store import RECIPES, ModelStore, Trainer
from regard.web.tour import Tour

LABORATORY = ("app", "charts", "curve", "formula", "image", "laboratory_words", "offer", "texts", "writing")
# What the page is made of, by the room that has it: pages of one file are made of that of the view, too.
FILES = {
    "regard.web/static": (*(f"{name}.js" for name in LABORATORY), "style.css"),
    "regard.view/static": (*(f"{name}.js" for name in SCRIPTS), "view.css", "chart.css"),
    "regard.tour": ("page.js", "page.css"),
}
TYPES = {".js": "text/javascript", ".css": "text/css"}


def application(store: ModelStore, trainer: Trainer, tour: Tour, token: str, port: int) -> Guard:
    """The ASGI application behind its guard.

    store: the models. trainer: trains others. tour: the sections. token: what the page has to send with each request.
    port: of the server.
    """
    lock = threading.Lock()  # models and numba compute one thing at a time
    answers: dict[str, Callable[[Params], Any]] = {
        **{name: partial(answer, store) for name, answer in ANSWERS.items()},
        "train": lambda params: trainer.start(params.choice("kind", list(RECIPES))),
        "training": lambda params: trainer.status(),
        "section": tour.picture,
        "tour": tour.bodies,
    }

    def compute(name: str, params: Params) -> Any:
        with nullcontext() if name == "tour" else lock:  # that one only looks what is there
            return answers[name](params)

    async def answer(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in answers:
            return JSONResponse({"error": "there is no such question"}, 404)
        try:
            content = await run_in_threadpool(compute, name, Params(await request.body()))
        except BodyTooLargeError as error:
            return JSONResponse({"error": str(error)}, 413)
        except (ValueError, IndexError) as error:
            return JSONResponse({"error": " ".join(str(error).split())}, 400)
        if isinstance(content, bytes):
            return Response(content, media_type="application/octet-stream")
        return JSONResponse(content)

    def page(request: Request) -> Response:
        chosen = request.query_params.get("language") or request.cookies.get("language") or default_language()
        language: Language = "zh" if chosen == "zh" else "en"
        text = tour.page(language, token, laboratory=request.url.path == "/laboratory")
        response = Response(text, media_type="text/html")
        response.set_cookie("language", language, samesite="strict")
        return response

    routes = [
        Route("/", page),
        Route("/laboratory", page),
        Route("/static/{name}", _static_file),
        Route("/api/{name}", answer, methods=["POST"]),
    ]
    return Guard(Starlette(routes=routes), token, port)


def _static_file(request: Request) -> Response:
    name = request.path_params["name"]
    place = next((place for place, names in FILES.items() if name in names), None)
    if place is None:
        return JSONResponse({"error": "there is no such page"}, 404)
    package, *folders = place.split("/")
    text = files(package).joinpath(*folders, name).read_text(encoding="utf-8")
    return Response(text, media_type=TYPES[Path(name).suffix])


def free_socket(port: int) -> socket.socket:
    """A listening socket on this machine's own address: at this port, or where it is taken at the next free one."""
    for number in range(port, port + 100):
        # asyncio sends the small packets of a socket at once that says it is TCP; else each answer would wait for 40 ms
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", number))
        except OSError:
            listener.close()
            continue
        listener.listen(128)  # bound alone, another process could still take the same port
        return listener
    raise OSError(f"no port from {port} to {port + 99} is free")


def _server(store: ModelStore, trainer: Trainer, tour: Tour, port: int) -> tuple[socket.socket, Any]:
    """A listening socket, and uvicorn's server for it."""
    import uvicorn

    listener = free_socket(port)
    app = application(store, trainer, tour, secrets.token_urlsafe(24), listener.getsockname()[1])
    return listener, uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", server_header=False))


def serve(folders: Sequence[Path], port: int) -> None:
    """Serve until Ctrl-C. folders: of the models to explore. port: or the next free one."""
    trainer, tour = Trainer(), Tour()
    listener, server = _server(ModelStore(folders), trainer, tour, port)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/", flush=True)
    print("regard: open that page; Ctrl-C ends", file=sys.stderr)
    tour.start()
    try:
        server.run(sockets=[listener])
    finally:
        trainer.stop()
        tour.stop()


class Explorer:
    """A page that is being served. `url` is its address; `close` ends it, as leaving a `with` block does."""

    def __init__(self, store: ModelStore, port: int) -> None:
        self._trainer = Trainer()
        self._listener, self._server = _server(store, self._trainer, Tour(), port)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/laboratory#/model"
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listener]}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the server; the page then says that it is gone."""
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()
        self._trainer.stop()

    def __enter__(self) -> Explorer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Explorer({self.url!r})"


def explore(model: nn.Module, tokenizer: Any = None, *, port: int = 8_417) -> Explorer:
    """Serve a page on this machine to look into a module that lives here, with every head of every text; print its
    address. The page computes with the module as it is at the time: train it further, and read the text again.

    model: a torch.nn.Module that reads token ids · tokenizer: of transformers or of tokenizers; None: the model's own ·
    port: or the next free one

    >>> import regard, tokenizers
    >>> model = regard.LanguageModel(vocab_size=31, size=16, layers=2, heads=4)
    >>> words = {word: number for number, word in enumerate("[UNK] the cat sat on a mat".split())}
    >>> tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    >>> with regard.explore(model, tokenizer, port=8_417) as page:  # doctest: +ELLIPSIS
    ...     print(page.url)
    http://127.0.0.1:84...
    http://127.0.0.1:84.../laboratory#/model
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    explorer = Explorer(ModelStore(live={type(model).__name__: (model, tokenizer)}), port)
    print(explorer.url, flush=True)
    return explorer
