"""The explorer's server: static files, and answers in JSON, one at a time."""

from __future__ import annotations

import secrets
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from regard.view.page import static
from regard.web import curve, formula, pictures, texts
from regard.web.guard import Guard, TooMuch, read_json
from regard.web.model_store import Shelf
from regard.web.params import Asked
from regard.web.training import RECIPES, Trainer

__all__ = ["PORT", "application", "free_socket", "serve"]

PORT = 8_417
OWN = ("index.html", "app.js", "charts.js", "curve.js", "formula.js", "image.js", "model.js", "offer.js", "style.css")
SHARED = ("maps.js", "maps.css")  # which pages of one file are made of too
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}


def application(shelf: Shelf, trainer: Trainer, token: str, port: int) -> Guard:
    """The whole of it, behind its guard."""
    lock = threading.Lock()  # models and numba are asked one thing at a time
    answers: dict[str, Callable[[Asked], Any]] = {
        "curve": curve.answer,
        "formula": formula.answer,
        "text": lambda asked: texts.answer(shelf, asked),
        "weights": lambda asked: texts.weights(shelf, asked),
        "models": lambda asked: {"models": shelf.listed()},
        "picture": lambda asked: pictures.answer(shelf, asked),
        "examples": lambda asked: pictures.examples(),
        "train": lambda asked: trainer.start(asked.choice("kind", list(RECIPES))),
        "training": lambda asked: trainer.status(),
    }

    async def ask(request: Request) -> Response:
        work = answers.get(request.path_params["name"])
        if work is None:
            return JSONResponse({"error": "there is no such question"}, 404)
        try:
            asked = Asked(read_json(await request.body()))
            found = await run_in_threadpool(_alone, lock, work, asked)
        except TooMuch as error:
            return JSONResponse({"error": str(error)}, 413)
        except (ValueError, IndexError) as error:
            return JSONResponse({"error": " ".join(str(error).split())}, 400)
        if isinstance(found, bytes):
            return Response(found, media_type="application/octet-stream")
        return JSONResponse(found)

    def file(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in (*OWN, *SHARED):
            return JSONResponse({"error": "there is no such page"}, 404)
        text = static(name) if name in SHARED else _own(name)
        if name == "index.html":
            text = text.replace("{{token}}", escape(token))
        return Response(text, media_type=TYPES[Path(name).suffix])

    routes = [
        Route("/", file),
        Route("/static/{name}", file),
        Route("/api/{name}", ask, methods=["POST"]),
    ]
    return Guard(Starlette(routes=routes), token, port)


def _alone(lock: threading.Lock, work: Callable[[Asked], Any], asked: Asked) -> Any:
    with lock:
        return work(asked)


def _own(name: str) -> str:
    return files("regard.web").joinpath("static", name).read_text("utf-8")


def free_socket(port: int) -> socket.socket:
    """A socket on this machine's own address: at this port, or where it is taken at the next free one."""
    for number in range(port, port + 100):
        # Named as TCP, it is one whose small packets asyncio sends at once; else each answer would wait for 40 ms.
        own = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            own.bind(("127.0.0.1", number))
        except OSError:
            own.close()
            continue
        own.listen(128)  # bound alone, another process could still take the same port
        return own
    raise OSError(f"no port from {port} to {port + 99} is free")


def serve(folders: Sequence[Path], port: int = PORT) -> int:
    """Serve until Ctrl-C."""
    import uvicorn

    shelf, trainer = Shelf.of(folders), Trainer()
    own = free_socket(port)
    number = own.getsockname()[1]
    answering = application(shelf, trainer, secrets.token_urlsafe(24), number)
    config = uvicorn.Config(answering, log_level="warning", lifespan="off", server_header=False)
    print(f"http://127.0.0.1:{number}/", flush=True)
    print("regard: open that page; Ctrl-C ends", file=sys.stderr)
    try:
        uvicorn.Server(config).run(sockets=[own])
    finally:
        trainer.stop()
    return 0
