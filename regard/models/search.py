"""The search engine of the notes: the question is a query, every text has a key, and is a value.

    weight_j = softmax_j( cos(question, text_j) / temperature )

The vectors are those of an Encoder; the texts with the largest weights are the answer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from regard.attention import Cosine, weights
from regard.data.texts import TextError, read_texts
from regard.models.encoder import Encoder
from regard.models.folders import load
from regard.models.tensors import FolderError

TEMPERATURE = 0.05  # a cosine that is this much larger weighs e times as much


@dataclass(frozen=True)
class Match:
    """A text, where it stands (file:line), and how well it answers."""

    place: str
    text: str
    weight: float
    cosine: float


def search(
    path: Path,
    question: str,
    model: Path,
    *,
    top: int = 5,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Match]:
    """The texts that answer a question best, the best first.

    path: a text file, whose lines are searched, or a folder, whose files' paragraphs are. model: the folder of an
    Encoder. progress: is called with how many texts have been read, and how many there are.
    """
    if not question.strip():
        raise TextError("question: expected some words, got none")
    if top < 1:
        raise ValueError(f"top: expected 1 or more, got {top}")
    texts = read_texts(path)
    encoder = load(model)
    if not isinstance(encoder, Encoder):
        kind = type(encoder).__name__
        raise FolderError(f"{model}: expected an Encoder, which gives vectors of texts, got a {kind}")
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        progress(done, len(texts))

    keys = encoder.embed([text.text for text in texts], progress=advance)  # (texts, size)
    query = encoder.embed(question)[None]  # (1, size)
    shares = weights(query, keys, score=Cosine(TEMPERATURE))[0].tolist()
    cosines = Cosine()(query, keys)[0].tolist()
    matches = [
        Match(text.place, text.text, share, cosine) for text, share, cosine in zip(texts, shares, cosines, strict=True)
    ]
    return sorted(matches, key=lambda match: -match.cosine)[:top]
