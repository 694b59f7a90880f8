"""Which requests are answered: those of the page that this server gave out, on this machine, up to a size.

A web site elsewhere could send requests to a port of this machine from its visitor's browser, or let its own name point
to this machine's address. So the Host has to be ours, the Origin too where there is one, and whatever computes needs
the token that only our page has.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["BodyTooLargeError", "Guard", "read_json"]

BODY = 8_000_000  # bytes: a photograph
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
        await self.application(scope, _bounded(receive), guarded)

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


def _bounded(receive: Receive) -> Receive:
    """The body, up to BODY bytes."""
    left = BODY

    async def bounded() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise BodyTooLargeError(f"expected at most {BODY // 1_000_000} MB")
        return message

    return bounded


def read_json(body: bytes) -> Mapping[str, Any]:
    """An object in JSON."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ValueError("the request is no JSON") from error
    if not isinstance(content, dict):
        raise ValueError("the request is no JSON object")
    return content
