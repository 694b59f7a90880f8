"""The server of `regard explore`, and of `regard.explore` around a module that lives in this process: static files, and
answers in JSON, one at a time."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from torch import nn

from regard.errors import RegardError
from regard.files import to_json
from regard.tour import default_language
from regard.tour.section import Language
from regard.view.page import SCRIPTS
from regard.web.answers import ANSWERS
from regard.web.guard import Guard, Params, RefusedError, refuse
from regard.web.model_store import RECIPES, ModelStore, Trainer
from regard.web.tour import Tour
from regard.web.work import LimitError, Protocol, Work

LABORATORY = ("app", "charts", "curve", "formula", "image", "laboratory_words", "offer", "texts", "writing")
# What the page is made of, by the room that has it: pages of one file are made of that of the view, too.
FILES = {
    "regard.web/static": (*(f"{name}.js" for name in LABORATORY), "style.css"),
    "regard.view/static": (*(f"{name}.js" for name in SCRIPTS), "view.css", "chart.css"),
    "regard.tour": ("page.js", "page.css"),
}
JSON = "application/json"
TYPES = {".js": "text/javascript", ".css": "text/css"}
QUICK = ("tour", "train", "training")  # they only look what is there, or start a process
# Of uvicorn. At the end, answers that are being computed have some seconds.
SETTINGS: Any = {
    "http": Protocol,
    "ws": "none",
    "lifespan": "off",
    "server_header": False,
    "timeout_graceful_shutdown": 5,
}
MESSAGE = 500  # characters of an error that may quote what was sent


def application(store: ModelStore, trainer: Trainer, tour: Tour, port: int) -> Guard:
    """The ASGI application behind its guard.

    store: the models. trainer: trains others. tour: the sections. port: of the server.
    """
    work = Work()  # models and numba compute one thing at a time
    answers: dict[str, Callable[[Params], Any]] = {
        **{name: partial(answer, store) for name, answer in ANSWERS.items()},
        "train": lambda params: trainer.start(params.choice("kind", list(RECIPES))),
        "training": lambda params: trainer.status(),
        "section": tour.picture,
        "tour": tour.bodies,
    }

    def encoded(name: str, body: bytes) -> bytes | str:
        content = answers[name](Params(body))
        return content if isinstance(content, bytes) else to_json(content)

    async def answer(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in answers:
            return JSONResponse({"error": "there is no such question"}, 404)
        try:
            body = await request.body()
            if name in QUICK:
                content = await run_in_threadpool(encoded, name, body)
            else:
                content = await work.run(partial(encoded, name, body), partial(_disconnection, request))
        except ClientDisconnect:
            return Response(status_code=400)  # which nobody reads
        # What rooms refuse, what a module of others refuses, and files that cannot be read or written
        except (ValueError, IndexError, RuntimeError, OSError, RegardError, LimitError) as error:
            return JSONResponse({"error": " ".join(str(error).split())[:MESSAGE]}, 400)
        return Response(content, media_type="application/octet-stream" if isinstance(content, bytes) else JSON)

    def page(request: Request) -> Response:
        chosen = request.query_params.get("language") or request.cookies.get("language") or default_language()
        language: Language = "zh" if chosen == "zh" else "en"
        response = Response(tour.page(language, laboratory=request.url.path == "/laboratory"), media_type="text/html")
        response.set_cookie("language", language, samesite="strict")
        return response

    # What the page is made of, by name; in memory, so that no request has to wait for it.
    places = [(place.split("/"), name) for place, names in FILES.items() for name in names]
    contents = {name: files(package).joinpath(*folders, name).read_bytes() for (package, *folders), name in places}

    async def static_file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in contents:
            return JSONResponse({"error": "there is no such page"}, 404)
        return Response(contents[name], media_type=TYPES[Path(name).suffix])

    routes = [
        Route("/", page),
        Route("/laboratory", page),
        Route("/static/{name}", static_file),
        Route("/api/{name}", answer, methods=["POST"]),
    ]
    return Guard(Starlette(routes=routes, exception_handlers={RefusedError: refuse}), port)


async def _disconnection(request: Request) -> None:
    """Over once the client is gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def free_socket(port: int) -> socket.socket:
    """A listening socket on this machine's own address: at this port, or where it is taken at the next free one."""
    last = min(port + 99, 65_535)
    for number in range(port, last + 1):
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
    raise OSError(f"no port from {port} to {last} is free")


def _server(store: ModelStore, trainer: Trainer, tour: Tour, port: int) -> tuple[socket.socket, Guard, Any]:
    """A listening socket, the application, and uvicorn's server for it."""
    import uvicorn

    listener = free_socket(port)
    guard = application(store, trainer, tour, listener.getsockname()[1])
    return listener, guard, uvicorn.Server(uvicorn.Config(guard, log_level="warning", **SETTINGS))


def serve(folders: Sequence[Path], port: int) -> None:
    """Serve until Ctrl-C. folders: of the models to explore. port: or the next free one."""
    trainer, tour = Trainer(), Tour()
    listener, guard, server = _server(ModelStore(folders), trainer, tour, port)
    print(guard.address(), flush=True)
    print("regard: open that page, in one browser; Ctrl-C ends", file=sys.stderr)
    guard.used = lambda: print(f"regard: for another browser: {guard.address()}", file=sys.stderr)
    tour.start()
    try:
        server.run(sockets=[listener])
    finally:
        trainer.stop()
        tour.stop()


class Explorer:
    """A page that is being served; `close` ends it, as leaving a `with` block does."""

    def __init__(self, store: ModelStore, port: int) -> None:
        self._trainer = Trainer()
        self._listener, self._guard, self._server = _server(store, self._trainer, Tour(), port)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listener]}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The address of the page, for one browser; afterwards it is another one."""
        return self._guard.address("laboratory") + "#/model"

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
    http://127.0.0.1:84.../laboratory?key=...#/model
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    explorer = Explorer(ModelStore(live={type(model).__name__: (model, tokenizer)}), port)
    print(explorer.url, flush=True)
    return explorer
