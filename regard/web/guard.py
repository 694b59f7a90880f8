"""Which requests are answered: those of the page that this server gave out, on this machine, up to a size.

A web site elsewhere could send requests to a port of this machine from its visitor's browser, or let its own name point
to this machine's address. So the Host has to be ours, the Origin too where there is one, and whatever computes needs
the token that only our page has. `Params` checks what a request says: numbers, words and tables of a size that can be
computed at once.
"""

from __future__ import annotations

import hmac
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY = 8_000_000  # bytes: a photograph
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


class BodyTooLargeError(Exception):
    """A request whose body is longer than BODY."""


class Guard:
    """ASGI middleware: refuses other pages and machines, and tells browsers what the page may do.

    application: what answers. token: what a POST has to bring. port: of the server.
    """

    def __init__(self, application: ASGIApp, token: str, port: int) -> None:
        self.application, self.token = application, token
        self.hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}
        self.origins = {f"http://{host}" for host in self.hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.application(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no websockets
        reason = self.refusal(Headers(scope=scope), scope["method"])

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", []), *headers]}
            await send(message)

        if reason is not None:
            await JSONResponse({"error": reason}, 403)(scope, receive, guarded)
            return
        left = BODY

        async def bounded() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise BodyTooLargeError(f"expected at most {BODY // 1_000_000} MB")
            return message

        await self.application(scope, bounded, guarded)

    def refusal(self, headers: Headers, method: str) -> str | None:
        """Why a request is refused; None where it is not."""
        if headers.getlist("host") != [headers.get("host", "")] or headers["host"] not in self.hosts:
            return "this page is for this machine only: open it as the terminal says"
        if "origin" in headers and headers["origin"] not in self.origins:
            return "requests of other pages are refused"
        if method not in ("GET", "HEAD", "POST"):
            return "expected GET or POST"
        if method == "POST" and not hmac.compare_digest(
            headers.get("x-regard-token", "").encode(), self.token.encode()
        ):
            return "the server was started anew: load the page again"
        return None


class Params:
    """Fields by name. One that is missing or wrong raises a ValueError that names it.

    body: the JSON object that the page sent.
    """

    def __init__(self, body: bytes) -> None:
        try:
            self.fields: Mapping[str, Any] = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise ValueError("the request is no JSON") from error
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
