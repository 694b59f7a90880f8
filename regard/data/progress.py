"""How far a preparation of data has come, for whoever wants to show it: readers `advance`, a command `watches`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["advance", "watched"]

Listener = Callable[[str, int, int], None]  # what is being done, how many parts of it are done, of how many

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def advance(text: str, done: int, total: int) -> None:
    """Tell that so many parts of `total` are done."""
    listener = _listener.get()
    if listener is not None:
        listener(text, done, total)


@contextmanager
def watched(listener: Listener) -> Iterator[None]:
    """Within this block the listener is told."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)
