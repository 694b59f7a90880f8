"""What takes time, one thing at a time in a thread of its own, while few requests wait and pages and files do not; and
connections that send nothing or read nothing, which are closed.

A client that is gone waits for nothing: its request leaves the queue, and where it is being answered, the next
operation of PyTorch ends that. So does one that comes too late, or after too much memory was taken. What such an end
cuts short is put right again: see Limits.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from torch import Tensor
from torch.overrides import TorchFunctionMode
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.measure import resident_memory
from regard.models.tokenizer_files import panics_raised
from regard.view.intercept import CHECK
from regard.web.guard import RefusedError

WAITING = 64  # requests that wait or are being answered
SECONDS = 120.0  # for an answer
MEGABYTES = 6_000.0  # that an answer may take: weights are up to 2 GB, see view/reading.py, and are copied once
INTERVAL = 0.05  # seconds between looks at the memory
GRACE = 1.0  # seconds for what has to be put back after a LimitError
HEADER_SECONDS = 10.0  # for a request to begin and its headers to come; for a part of an answer to be read
CONNECTIONS = 256  # open at a time


class LimitError(BaseException):  # as Ctrl-C is: not for those who look after failures of one part
    """An answer that would take too long, or too much memory."""


class Limits(TorchFunctionMode):
    """Within this block an operation of PyTorch raises LimitError once the time is over, the memory is taken, or
    `stop` is set.

    The blocks that it leaves put back what they changed: what only sets a state of PyTorch, such as whether gradients
    are recorded, never raises (the thread would keep that state), and for a moment after an error nothing does.
    """

    def __init__(self, stop: threading.Event) -> None:
        super().__init__()
        self.stop, self.end = stop, time.monotonic() + SECONDS
        self.look, self.memory = time.monotonic() + INTERVAL, resident_memory() + MEGABYTES
        self.quiet = 0.0  # until then nothing is raised

    def __enter__(self) -> Limits:
        self._before = CHECK.set(self.check)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        CHECK.reset(self._before)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if result is not None or func is Tensor.__setitem__:  # else it may set a state, as no_grad does
            self.check()
        return result

    def check(self) -> None:
        """LimitError where the work has to end."""
        now = time.monotonic()
        if now < self.quiet:
            return
        try:
            self._check(now)
        except LimitError:
            self.quiet = now + GRACE
            raise

    def _check(self, now: float) -> None:
        if self.stop.is_set():
            raise LimitError("nobody waits for this answer any longer")
        if now > self.end:
            raise LimitError(f"this takes longer than {SECONDS:g} s: try a shorter text, or smaller values")
        if now > self.look:
            self.look = now + INTERVAL
            if resident_memory() > self.memory:
                raise LimitError(f"this takes more than {MEGABYTES:,g} MB: try a shorter text, or smaller values")


class Work:
    """Functions that are called one after the other."""

    def __init__(self) -> None:
        self.count = 0  # of those that wait or run
        self._turn = asyncio.Lock()

    async def run(self, function: Callable[[], Any], gone: Callable[[], Awaitable[object]]) -> Any:
        """What the function returns, when its turn has come; it is left out, or ended, once `gone` is over."""
        if self.count >= WAITING:
            raise RefusedError(429, "too many questions wait for their answers: try again in a moment")
        self.count += 1
        stop, begun = threading.Event(), threading.Event()
        task = asyncio.ensure_future(self._in_turn(function, stop, begun))
        task.add_done_callback(self._ended)
        leaving = asyncio.ensure_future(gone())
        try:
            await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise RefusedError(408, "nobody waits for this answer any longer")
            return task.result()
        finally:
            leaving.cancel()
            stop.set()
            if not begun.is_set():
                task.cancel()  # what has begun keeps the turn until its thread is done

    async def _in_turn(self, function: Callable[[], Any], stop: threading.Event, begun: threading.Event) -> Any:
        def limited() -> Any:
            with Limits(stop), panics_raised():
                return function()

        async with self._turn:
            begun.set()
            return await run_in_threadpool(limited)

    def _ended(self, task: asyncio.Future[Any]) -> None:
        self.count -= 1
        if not task.cancelled():
            task.exception()  # seen, though nobody may wait for it


class Protocol(H11Protocol):
    """HTTP by uvicorn. A connection whose next request does not come, or which does not read its answers, is closed,
    and so are those beyond CONNECTIONS."""

    def connection_made(self, transport: Any) -> None:
        """A client has connected."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS:
            transport.abort()
            return
        self.before: Any = None, 0  # what it waited for when it was looked at last
        self.loop.call_later(HEADER_SECONDS, self._watch)

    def _watch(self) -> None:
        """Close the connection if it has neither sent whole headers nor read any of an answer since the last time."""
        waits = self.cycle is None or self.cycle.response_complete or self.flow.write_paused
        now = (self.cycle, self.transport.get_write_buffer_size()) if waits else None
        if self.transport.is_closing():
            return
        if waits and self.before == now:
            self.transport.abort()
            return
        self.before = now
        self.loop.call_later(HEADER_SECONDS, self._watch)
