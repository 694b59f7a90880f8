"""`regard search`: the search engine of the notes. The question is a query, every text has a key, and is a value.

    weight_j = softmax_j( cos(question, text_j) / temperature )

Vectors come from an Encoder; the texts with the largest weights are the answer.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from regard.attention import Cosine, weights
from regard.data.texts import Passage, TextError, read_texts
from regard.models import Encoder, FolderError, load

__all__ = ["Found", "Request", "find", "run"]

TEMPERATURE = 0.05  # a cosine that is this much larger weighs e times as much
ERRORS = (FolderError, TextError, ValueError)  # what the user can mend


@dataclass(frozen=True)
class Request:
    """What the command line asked for."""

    file: Path
    question: str
    model: Path
    top: int
    as_json: bool


@dataclass(frozen=True)
class Found:
    """A text that answers, and how well."""

    place: str
    text: str
    weight: float
    cosine: float


def run(request: Request) -> int:
    """Read, embed, look, tell. Exit code 2 where the file, the model or the options are wrong."""
    try:
        if not request.question.strip():
            raise TextError("question: expected some words, got none")
        if request.top < 1:
            raise TextError(f"--top: expected 1 or more, got {request.top}")
        texts = read_texts(request.file)
        encoder = load(request.model)
        if not isinstance(encoder, Encoder):
            kind = type(encoder).__name__
            raise FolderError(f"{request.model}: expected an Encoder, which gives vectors of texts, got a {kind}")
        with _progress(len(texts)) as advance:
            found = find(request.question, texts, encoder, advance)[: request.top]
    except ERRORS as error:
        print(f"regard: {error}", file=sys.stderr)
        return 2
    print(json.dumps([asdict(own) for own in found], ensure_ascii=False) if request.as_json else _text(found))
    return 0


def find(
    question: str, texts: list[Passage], encoder: Encoder, progress: Callable[[int], None] | None = None
) -> list[Found]:
    """All texts, those first that answer the question best."""
    keys = encoder.embed([own.text for own in texts], progress=progress)  # (texts, size)
    query = encoder.embed(question)[None]  # (1, size)
    looks = weights(query, keys, score=Cosine(TEMPERATURE))[0].tolist()
    cosines = Cosine()(query, keys)[0].tolist()
    found = [Found(own.place, own.text, look, cosine) for own, look, cosine in zip(texts, looks, cosines, strict=True)]
    return sorted(found, key=lambda own: -own.cosine)


def _text(found: list[Found]) -> str:
    width = shutil.get_terminal_size().columns
    lines = []
    for own in found:
        head = f"{own.weight:6.1%}  cos {own.cosine:.2f}  {own.place}"
        body = "".join(letter if letter.isprintable() else " " for letter in " ".join(own.text.split()))
        room = max(width - 8, 20)
        lines += [head, "        " + (body if len(body) <= room else body[: room - 1] + "…")]
    return "\n".join(lines)


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr where somebody watches."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading", total=total)
        yield lambda count: bar.advance(task, count)
