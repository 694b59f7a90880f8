"""Claim 31: query → key → value is a search engine."""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from sklearn.feature_extraction.text import CountVectorizer
from torch import Tensor

import regard
from regard.data.fetching import fetch
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, section, show, single
from regard.tour.sections.claim_19_where_on_looks import pretrained
from regard.view.chart import Bars, Chart, Heat, Panel

say = Content(__file__)

TEMPERATURE = 0.05


class Entry(NamedTuple):
    """A document, and two questions that it answers: in other words, and in words of its own."""

    document: str
    other_words: str
    same_words: str


LIBRARIES: dict[str, list[Entry]] = {}
for code, language in (("en", "English"), ("zh", "Chinese")):
    lines = iter(say.data[language].splitlines())  # two for each: the document, and its questions with | between them
    LIBRARIES[code] = [Entry(document, *map(str.strip, next(lines).split("|"))) for document in lines]
Embed = Callable[[Sequence[str]], Tensor]  # texts → vectors (texts, size)


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
    vectorizer = CountVectorizer(analyzer=terms)
    counts = torch.from_numpy(vectorizer.fit_transform(documents).toarray()).double()  # (documents, terms)
    asked = torch.from_numpy(vectorizer.transform(questions).toarray()).double()
    having, lengths = (counts > 0).sum(0), counts.sum(1, keepdim=True)
    rarity = torch.log(1 + (len(counts) - having + 0.5) / (having + 0.5))
    often = counts / (counts + k * (1 - b + b * lengths / lengths.mean()))
    return ((k + 1) * asked @ (rarity * often).T).float()


def search(entries: Sequence[Entry], questions: Sequence[str], embed: Embed) -> tuple[Tensor, Tensor]:
    """Questions are queries, vectors of documents are keys, and the values say which document it is.

    → 1/rank of the right document (by attention or by BM25, questions), and the weights (questions, documents)
    """
    documents = [entry.document for entry in entries]
    query, key, value = embed(questions), embed(documents), torch.eye(len(documents))
    weights = regard.attend(query, key, value, score=regard.Cosine(TEMPERATURE))
    scores = torch.stack([weights, bm25(questions, documents)])
    right = scores.diagonal(dim1=-2, dim2=-1)[..., None]  # of the document with the question's number
    # Equals share their ranks.
    return 1 / (1 + (scores > right).sum(-1) + ((scores == right).sum(-1) - 1) / 2), weights


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
    by_language: dict[str, Tensor] = {}
    for way, both in zip(("", "words_"), ranked, strict=True):
        for code, of_language in zip(LIBRARIES, both, strict=True):
            by_language[f"{way}first_{code}"] = (of_language == 1).sum()
            by_language[f"{way}reciprocal_{code}"] = of_language.mean(-1)
    numbers = Numbers(
        **by_language,
        documents=len(LIBRARIES["en"]),
        questions=gain.shape[1],
        gains=gain.mean(1),
        errors=gain.std(1) / gain.shape[1] ** 0.5,
        weight=torch.stack([weights.diagonal().mean() for _, weights in searches]).mean(),
    )
    # Mean of 1/rank by language and kind; and the weights of the Chinese questions in other words.
    names = [say(f"{language}, {kind} words") for language in ("English", "Chinese") for kind in ("other", "same")]
    attention, words = ranked.mean(-1).flatten(1)
    bars = [Bars(names, attention, say("attention"), "attention"), Bars(names, words, "BM25", "truth")]
    heat = Heat(searches[2][1], largest=1.0, rows=[entry.other_words for entry in LIBRARIES["zh"]])
    top = Panel(bars, y=say("mean of 1/rank"), y_limits=(0.0, 1.05))
    bottom = Panel([heat], say("document (key)"), title=say("Chinese, other words"), share=1.4)
    return numbers, Chart([top, bottom], say("measurement"), height=210, columns=1)


def rehearse() -> Measured:
    """Without encoders: with vectors that count letters."""

    def letters(texts: Sequence[str]) -> Tensor:
        return 0.1 + torch.tensor([[text.count(letter) for letter in "aeiorstn的一是在"] for text in texts])

    return measure(dict.fromkeys(LIBRARIES, letters))


def judge(numbers: Numbers) -> Criteria:
    """The right one first for most, and no worse than a search engine's formula."""
    yield numbers.criterion(min(numbers.first_en, numbers.first_zh) > 0.8 * numbers.questions, say("first"))
    for index, (code, name) in enumerate((("en", say("English")), ("zh", say("Chinese")))):
        names = ("words_first", "reciprocal", "words_reciprocal")
        values: dict[str, Any] = {name: show(getattr(numbers, f"{name}_{code}")) for name in names}
        values |= {"language": name, "gain": numbers.gains[index], "error": numbers.errors[index]}
        yield numbers.criterion(values["gain"] > -2 * values["error"], say("no worse than BM25"), **values)


def draw(cell: Cell) -> Chart:
    """The weights of the question over the pages."""
    question = ("an animal that talks", "something hot to drink", "a fast journey")[cell.question]
    bars = Bars(list(map(say, cell.titles)), cell.weights[cell.question], colour="attention")
    return single(say("cell"), bars, y=say("weight"), title=say(question), y_limits=(0.0, 1.0), height=210)


SECTION = section(
    say, draw, judge, lambda: measure({code: encoder(code).embed for code in LIBRARIES}), rehearsal=rehearse
)
