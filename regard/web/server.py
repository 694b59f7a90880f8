"""The server of `regard explore`: static files, and answers in JSON, one at a time."""

from __future__ import annotations

import secrets
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from regard.tour import default_language
from regard.tour.section import Language
from regard.view.page import SCRIPTS
from regard.web import curve, formula, pictures, texts, writing
from regard.web.guard import BodyTooLargeError, Guard, read_json
from regard.web.model_store import ModelStore
from regard.web.params import Params
from regard.web.tour import Tour
from regard.web.training import RECIPES, Trainer

__all__ = ["FILES", "application", "free_socket", "serve"]

# What the page is made of, by the room that has it: pages of one file are made of that of the view, too.
FILES = {
    "regard.web/static": (
        "app.js",
        "charts.js",
        "curve.js",
        "formula.js",
        "image.js",
        "laboratory_words.js",
        "offer.js",
        "texts.js",
        "writing.js",
        "style.css",
    ),
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
        "curve": curve.answer,
        "formula": formula.answer,
        "text": lambda params: texts.answer(store, params),
        "weights": lambda params: texts.weights(store, params),
        "inside": lambda params: texts.inside(store, params),
        "next": lambda params: writing.next_tokens(store, params),
        "contributions": lambda params: writing.contributions(store, params),
        "models": lambda params: {"models": store.list_models()},
        "picture": lambda params: pictures.answer(store, params),
        "examples": lambda params: pictures.examples(),
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
            content = await run_in_threadpool(compute, name, Params(read_json(await request.body())))
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


def serve(folders: Sequence[Path], port: int) -> None:
    """Serve until Ctrl-C. folders: of the models to explore. port: or the next free one."""
    import uvicorn

    store, trainer, tour = ModelStore(folders), Trainer(), Tour()
    listener = free_socket(port)
    number = listener.getsockname()[1]
    app = application(store, trainer, tour, secrets.token_urlsafe(24), number)
    config = uvicorn.Config(app, log_level="warning", lifespan="off", server_header=False)
    print(f"http://127.0.0.1:{number}/", flush=True)
    print("regard: open that page; Ctrl-C ends", file=sys.stderr)
    tour.start()
    try:
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        trainer.stop()
        tour.stop()
