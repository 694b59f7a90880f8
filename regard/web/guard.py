"""Who may ask, and for how much: only pages that this server gave out, on this machine.

A web site elsewhere could send requests to a port of this machine from its visitor's browser, or give its own name this
machine's address. So the Host has to be ours, the Origin too where there is one, and whatever computes wants the token
that only our page has.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Guard", "TooMuch"]

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


class TooMuch(Exception):
    """A body that is longer than BODY."""


class Guard:
    """Around the application: refuses strangers, and tells browsers what the page may do."""

    def __init__(self, application: ASGIApp, token: str, port: int) -> None:
        self.application, self.token = application, token
        self.hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}
        self.origins = {f"http://{host}" for host in self.hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.application(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # nothing else is spoken here
        reason = self.refusal(Headers(scope=scope), scope["method"])

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", []), *own]}
            await send(message)

        if reason is not None:
            await JSONResponse({"error": reason}, 403)(scope, receive, guarded)
            return
        await self.application(scope, _bounded(receive), guarded)

    def refusal(self, headers: Headers, method: str) -> str | None:
        """Why a request is refused; None: it is not."""
        if headers.getlist("host") != [headers.get("host", "")] or headers["host"] not in self.hosts:
            return "this page is for this machine only: open it as the terminal says"
        if "origin" in headers and headers["origin"] not in self.origins:
            return "this page answers to itself only"
        if method not in ("GET", "HEAD", "POST"):
            return "this page is asked by GET and POST"
        if method == "POST" and not hmac.compare_digest(
            headers.get("x-regard-token", "").encode(), self.token.encode()
        ):
            return "the server was started anew: load the page again"
        return None


def _bounded(receive: Receive) -> Receive:
    """The body, as long as it is not too long."""
    left = BODY

    async def bounded() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise TooMuch(f"at most {BODY // 1_000_000} MB are taken")
        return message

    return bounded


def read_json(body: bytes) -> Mapping[str, Any]:
    """An object in JSON."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ValueError("the request is no JSON") from error
    if not isinstance(found, dict):
        raise ValueError("the request is no JSON object")
    return found
