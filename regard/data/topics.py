"""The topics of Python's help (`help("ASSERTION")` and so on): a small corpus that needs no download."""

from __future__ import annotations

__all__ = ["topics"]


def topics() -> list[str]:
    """The topics as documents, about half a megabyte of English and Python in all."""
    from pydoc_data.topics import topics as texts

    return [texts[name] for name in sorted(texts)]
