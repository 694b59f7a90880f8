"""Claim 31: query → key → value is a search engine."""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

import regard
from regard.data.fetching import fetch
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, Section, show
from regard.tour.sections.claim_19_where_on_looks import pretrained
from regard.view.chart import Bars, Chart, Heat, Panel

say = Content(__file__)

TEMPERATURE = 0.05


class Entry(NamedTuple):
    """A document, and two questions that it answers: in other words, and in words of its own."""

    document: str
    other_words: str
    same_words: str


def read_entries(text: str) -> tuple[Entry, ...]:
    """Two lines for each: the document, and its questions with | between them."""
    lines = text.strip().splitlines()
    pairs = zip(lines[::2], lines[1::2], strict=True)
    return tuple(Entry(document, *map(str.strip, questions.split("|"))) for document, questions in pairs)


ENGLISH, CHINESE = read_entries(say.data["English"]), read_entries(say.data["Chinese"])
LIBRARIES = {"en": ENGLISH, "zh": CHINESE}
Embed = Callable[[Sequence[str]], Tensor]  # texts → vectors (texts, size)


@cache
def encoder(language: str) -> regard.Encoder:
    """MiniLM for English, installed as a package or fetched; m3e-small for Chinese, fetched."""
    minilm = pretrained() if language == "en" else None
    model = minilm or regard.load(fetch("MiniLM" if language == "en" else "m3e-small"))
    assert isinstance(model, regard.Encoder)
    return model


def terms(text: str) -> list[str]:
    """Words; of Chinese, pairs of neighbouring characters."""
    runs = re.findall(r"[\u4e00-\u9fff]+", text)
    chinese = [first + second for run in runs for first, second in pairwise(run)]
    return re.findall(r"[a-z0-9]+", text.lower()) + chinese


def bm25(questions: Sequence[str], documents: Sequence[str], k: float = 1.5, b: float = 0.75) -> Tensor:
    """The scores (questions, documents) of the formula that search engines rank by."""
    counts = [Counter(terms(document)) for document in documents]
    mean = sum(map(Counter.total, counts)) / len(counts)
    scores = torch.zeros(len(questions), len(documents))
    for row, question in enumerate(questions):
        for term in terms(question):
            having = sum(term in count for count in counts)
            rarity = math.log(1 + (len(counts) - having + 0.5) / (having + 0.5))
            for column, count in enumerate(counts):
                often = count[term] / (count[term] + k * (1 - b + b * count.total() / mean))
                scores[row, column] += rarity * often * (k + 1)
    return scores


def reciprocal_ranks(scores: Tensor) -> Tensor:
    """1/rank of the right document of each question, which is that of its own number; equals share their ranks."""
    right = scores.diagonal()[:, None]
    return 1 / (1 + (scores > right).sum(-1) + ((scores == right).sum(-1) - 1) / 2)


def search(entries: Sequence[Entry], questions: Sequence[str], embed: Embed) -> tuple[Tensor, Tensor]:
    """Questions are queries, vectors of documents are keys, and the values say which document it is.

    → 1/rank of the right document (by attention or by BM25, questions), and the weights (questions, documents)
    """
    documents = [entry.document for entry in entries]
    query, key, value = embed(questions), embed(documents), torch.eye(len(documents))
    weights = regard.attend(query, key, value, score=regard.Cosine(TEMPERATURE))
    return torch.stack([reciprocal_ranks(weights), reciprocal_ranks(bm25(questions, documents))]), weights


@torch.no_grad()
def measure(encoders: Mapping[str, Embed]) -> Measured:
    """Search both libraries with both kinds of questions."""
    searches = [
        search(entries, [getattr(entry, kind) for entry in entries], encoders[language])
        for language, entries in LIBRARIES.items()
        for kind in ("other_words", "same_words")
    ]
    ranks = torch.stack([ranks for ranks, _ in searches], 1)
    ranked = ranks.unflatten(1, (2, 2))  # (ways, languages, kinds, questions)
    gain = (ranked[0] - ranked[1]).flatten(1)  # (languages, questions of both kinds)
    numbers = Numbers(
        documents=len(ENGLISH),
        questions=gain.shape[1],
        first_en=(ranked[0, 0] == 1).sum(),
        first_zh=(ranked[0, 1] == 1).sum(),
        words_first_en=(ranked[1, 0] == 1).sum(),
        words_first_zh=(ranked[1, 1] == 1).sum(),
        reciprocal_en=ranked[0, 0].mean(-1),
        words_reciprocal_en=ranked[1, 0].mean(-1),
        reciprocal_zh=ranked[0, 1].mean(-1),
        words_reciprocal_zh=ranked[1, 1].mean(-1),
        gains=gain.mean(1),
        errors=gain.std(1) / gain.shape[1] ** 0.5,
        weight=torch.stack([weights.diagonal().mean() for _, weights in searches]).mean(),
    )
    # Mean of 1/rank by language and kind; and the weights of the Chinese questions in other words.
    names = [say(f"{language}, {kind} words") for language in ("English", "Chinese") for kind in ("other", "same")]
    attention, words = ranked.mean(-1).flatten(1)
    bars = [Bars(names, attention, say("attention"), "attention"), Bars(names, words, "BM25", "truth")]
    heat = Heat(searches[2][1], largest=1.0, rows=[entry.other_words for entry in CHINESE])
    panels = [
        Panel(bars, y=say("mean of 1/rank"), y_limits=(0.0, 1.05)),
        Panel([heat], x=say("document (key)"), title=say("Chinese, other words"), share=1.4),
    ]
    return numbers, Chart(panels, columns=1, height=210, caption=say("measurement"))


def run() -> Measured:
    """With real encoders."""
    return measure({language: encoder(language).embed for language in LIBRARIES})


def letters(texts: Sequence[str]) -> Tensor:
    """Vectors that count letters: no encoder, for rehearsals."""
    counts = [torch.tensor([text.count(letter) for letter in "aeiorstn的一是在"]) for text in texts]
    return torch.stack(counts) + 0.1


def rehearse() -> Measured:
    """Without weights."""
    return measure(dict.fromkeys(LIBRARIES, letters))


def judge(numbers: Numbers) -> Criteria:
    """The right one first for most, and no worse than a search engine's formula."""
    yield numbers.criterion(min(numbers.first_en, numbers.first_zh) > 0.8 * numbers.questions, say("first"))
    for index, (code, language) in enumerate((("en", say("English")), ("zh", say("Chinese")))):
        names = ("words_first", "reciprocal", "words_reciprocal")
        values: dict[str, Any] = {name: show(getattr(numbers, f"{name}_{code}")) for name in names}
        values |= {"language": language, "gain": numbers.gains[index], "error": numbers.errors[index]}
        yield numbers.criterion(values["gain"] > -2 * values["error"], say("no worse than BM25"), **values)


def draw(cell: Cell) -> Chart:
    """The weights of the question over the pages."""
    question = ("an animal that talks", "something hot to drink", "a fast journey")[cell.question]
    bars = Bars(list(map(say, cell.titles)), cell.weights[cell.question], colour="attention")
    panel = Panel([bars], y=say("weight"), title=say(question), y_limits=(0.0, 1.0))
    return Chart([panel], height=210, caption=say("cell"))


SECTION = Section(**say.fields, show=draw, run=run, rehearsal=rehearse, judge=judge)
