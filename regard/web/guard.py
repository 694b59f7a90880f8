"""Which requests are answered: those of the page that this server gave out, on this machine, up to a size.

A web site elsewhere could send requests to a port of this machine from its visitor's browser, or let its own name point
to this machine's address. So the Host has to be ours, and the Origin too where there is one. Other users of this
machine can reach the port as well. So the address that the terminal shows has a key in it, which opens the page once:
the browser that brings it gets a cookie, and whatever is more than the page's own files needs that cookie. `Params`
checks what a request says: numbers, words and tables of a size that can be computed at once.
"""

from __future__ import annotations

import asyncio
import hmac
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.files import ContentError, parse_json

BODY = 8_000_000  # bytes: a photograph
BODIES = 64_000_000  # bytes of all requests that are being received or answered
BODY_SECONDS = 30.0  # for a body to come
LARGEST = 1e6  # of the numbers in a table
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class RefusedError(Exception):
    """A request that is not answered: its status, and why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Guard:
    """ASGI middleware: refuses other pages, machines and users, and tells browsers what the page may do.

    application: what answers. port: of the server. used: called when the key has been used, and there is a new one.
    """

    def __init__(self, application: ASGIApp, port: int, used: Callable[[], object] = lambda: None) -> None:
        self.application, self.port, self.used = application, port, used
        self.hosts = {f"{name}:{port}".removesuffix(":80") for name in ("127.0.0.1", "localhost")}  # as browsers do
        self.origins = {f"http://{host}" for host in self.hosts}
        # Browsers send a cookie to every port of a machine: the name keeps two of these servers apart.
        self.cookie, self.session, self.key = f"regard-{port}", secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        self.received = 0  # bytes of bodies, see BODIES

    def address(self, path: str = "") -> str:
        """The address that opens the page, once."""
        return f"http://127.0.0.1:{self.port}/{path}?key={self.key}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.application(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no websockets
        request = Request(scope)
        headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *headers]}
            await send(message)

        try:
            if self._check(request):
                cookie = f"{self.cookie}={self.session}; HttpOnly; Path=/; SameSite=Strict"
                headers.append((b"set-cookie", cookie.encode()))
                self.key = secrets.token_urlsafe(24)
                self.used()
            await self._answer(scope, receive, guarded)
        except RefusedError as error:
            response = await refuse(request, error)
            await response(scope, receive, guarded)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application answer, which may receive so many bytes, for so long."""
        size, more, deadline = 0, True, asyncio.get_running_loop().time() + BODY_SECONDS

        async def bounded() -> Message:
            nonlocal size, more
            try:
                async with asyncio.timeout_at(deadline if more else None):
                    message = await receive()
            except TimeoutError:
                raise RefusedError(408, f"expected the whole request within {BODY_SECONDS:g} s") from None
            more = more and message.get("more_body", False)
            count = len(message.get("body", b""))
            size, self.received = size + count, self.received + count
            if size > BODY:
                raise RefusedError(413, f"expected at most {BODY // 1_000_000} MB")
            if self.received > BODIES:
                raise RefusedError(429, "too much is being sent at once: try again in a moment")
            return message

        try:
            await self.application(scope, bounded, send)
        finally:
            self.received -= size

    def _check(self, request: Request) -> bool:
        """Whether a request has brought the key, and not yet the cookie; RefusedError unless it has one of them."""
        headers, path = request.headers, request.scope["path"]
        if headers.getlist("host") != [headers.get("host", "")] or headers["host"] not in self.hosts:
            raise RefusedError(403, "this page is for this machine only: open it as the terminal says")
        if "origin" in headers and headers["origin"] not in self.origins:
            raise RefusedError(403, "requests of other pages are refused")
        if request.method not in ("GET", "HEAD", "POST"):
            raise RefusedError(403, "expected GET or POST")
        if path.startswith("/static/") or _same(request.cookies.get(self.cookie, ""), self.session):
            return False
        if request.method == "GET" and _same(request.query_params.get("key", ""), self.key):
            return True
        raise RefusedError(
            403,
            "this page is open elsewhere, or its server was started anew: open the newest address "
            "that the terminal shows",
        )


async def refuse(request: Request, error: Any) -> Response:
    """The answer to a request that is refused: a line where a browser shows it, else JSON."""
    if request.method == "GET":
        return PlainTextResponse(str(error), error.status)
    return JSONResponse({"error": str(error)}, error.status)


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), expected.encode())


class Params:
    """Fields by name. One that is missing or wrong raises a ValueError that names it.

    body: the JSON object that the page sent.
    """

    def __init__(self, body: bytes) -> None:
        try:
            self.fields: Mapping[str, Any] = parse_json(body)
        except ContentError as error:
            raise ValueError(f"the request is no JSON: {error}") from error
        if not isinstance(self.fields, dict):
            raise ValueError("the request is no JSON object")

    def number(self, name: str, low: float, high: float, default: float | None = None) -> float:
        """A finite number from `low` to `high`."""
        value = self.fields.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{name}: expected a number, got {value!r}")
        if not low <= value <= high:
            raise ValueError(f"{name}: expected a number from {low:g} to {high:g}, got {value:g}")
        return float(value)

    def integer(self, name: str, low: int, high: int, default: int | None = None) -> int:
        """A whole number from `low` to `high`."""
        value = self.number(name, low, high, default)
        if value != int(value):
            raise ValueError(f"{name}: expected a whole number, got {value:g}")
        return int(value)

    def choice(self, name: str, choices: Sequence[str], default: str | None = None) -> str:
        """One of these words."""
        value = self.fields.get(name, default)
        if value not in choices:
            raise ValueError(f"{name}: expected one of {', '.join(choices)}, got {value!r}")
        return str(value)

    def text(self, name: str, max_length: int) -> str:
        """A text of at most so many characters."""
        value = self.fields.get(name)
        if not isinstance(value, str):
            raise ValueError(f"{name}: expected a text, got {type(value).__name__}")
        if len(value) > max_length:
            raise ValueError(f"{name}: expected at most {max_length:,} characters, got {len(value):,}")
        return value

    def table(self, name: str, rows: tuple[int, int], columns: tuple[int, int]) -> list[list[float]]:
        """Rows of numbers, all of one length; `rows` and `columns` are the least and the greatest count."""
        table = self.fields.get(name)
        if not isinstance(table, list) or not rows[0] <= len(table) <= rows[1]:
            raise ValueError(f"{name}: expected {rows[0]} to {rows[1]} rows")
        widths = {len(row) if isinstance(row, list) else -1 for row in table}
        if len(widths) != 1 or not columns[0] <= max(widths) <= columns[1]:
            raise ValueError(f"{name}: expected rows of {columns[0]} to {columns[1]} numbers, all of one length")
        for cell in (cell for row in table for cell in row):
            if isinstance(cell, bool) or not isinstance(cell, int | float) or not abs(cell) < LARGEST:
                raise ValueError(f"{name}: expected numbers below a million, got {cell!r}")
        return [[float(cell) for cell in row] for row in table]
