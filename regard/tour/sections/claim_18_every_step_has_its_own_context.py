"""Claim 18: every step of the decoder compares its state with all hidden states, and gets its own context."""

from collections.abc import Iterable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

import regard
from regard.data.fetching import fetch
from regard.data.pairs import Pair, read_aligned_pairs
from regard.data.split import part
from regard.data.words import split
from regard.models.alignment import Alignment, Links, align
from regard.models.model import Model
from regard.models.seq2seq import Seq2Seq
from regard.tour import cache
from regard.tour.learning import fit_task
from regard.tour.section import Criteria, Exercise, Measured, Need, Numbers, Passage, Section, Text
from regard.tour.translators import REHEARSAL, SHORT, Training, needed, translator, unseen
from regard.training.metrics import alignment_error_rate
from regard.training.options import TranslateOptions
from regard.training.task import Tokenizers
from regard.training.tasks.translate import prepare
from regard.view.chart import Bars, Chart, Heat, Panel

PLAIN = """
source = torch.randint(1, 11, (100, 8))  # strings that the model has not seen
count, places = source.shape
states, lengths = encoder(source), torch.full((count,), places)
written = torch.zeros(count, 1, dtype=torch.long)  # 0 begins
for step in range(places):  # the decoder reads what it has written itself
    logits, maps = decoder(written, states, lengths)  # (100, step + 1, 11), (100, step + 1, 8)
    written = torch.cat([written, logits[:, -1:].argmax(-1)], 1)

contexts = maps @ states  # (100, 8, 32): one for every step
moved = maps.diff(dim=1).abs().sum(-1).mean() / 2  # of the weight, from one step to the next
right = (written[:, 1:] == 11 - source).float().mean()
aligned = (maps.argmax(-1) == torch.arange(places)).float().mean()  # digit t is written at step t
"""

SHORT_CELL = """
import regard

score = regard.Additive(query_size=32, key_size=32, hidden_size=32)
score.query_weight.data = decoder.attention.W_q.weight.data
score.key_weight.data = decoder.attention.W_k.weight.data
score.value_weight.data = decoder.attention.w_v.weight.data[0]
context, weights = regard.attend(states[:, -1:], states, states, score=score, need_weights=True)  # of the first step
torch.testing.assert_close(weights, maps[:, :1])
torch.testing.assert_close(context, contexts[:, :1])
"""


def run(training: Training = SHORT) -> Measured:
    """What each translator looks at while it writes, against the words that belong together."""
    pairs = unseen(training.pairs)
    languages = Text("English, looked at", "英语（被看的词）"), Text("French, looks", "法语（正在写的词）")
    return compare(pairs, (aligned(seed, training, pairs) for seed in training.seeds), languages)


def compare(
    pairs: Sequence[Pair], alignments_of_seeds: Iterable[list[Alignment]], languages: tuple[Text, Text]
) -> Measured:
    """The alignments of every seed against the known ones; `languages` are the names of the picture's axes."""
    gold = [pair.alignment or frozenset() for pair in pairs]
    moved, errors = [], []
    for alignments in alignments_of_seeds:
        moved.append(float(torch.stack([shift(alignment.weights) for alignment in alignments]).mean()))
        errors.append(alignment_error_rate([alignment.links for alignment in alignments], gold))
    numbers = Numbers(
        moved=moved,
        errors=errors,
        spread=torch.tensor(errors).std(),
        diagonal=alignment_error_rate([diagonal(pair) for pair in pairs], gold),
        sentences=len(pairs),
    )
    sizes = [len(alignment.source) for alignment in alignments]
    chosen = sizes.index(max(size for size in sizes if size < 12))
    return numbers, draw_alignment(alignments[chosen], gold[chosen], numbers, languages)


def aligned(seed: int, training: Training, pairs: Sequence[Pair]) -> list[Alignment]:
    """The alignments of the right translations by one translator."""
    model = translator("additive", seed, training.steps)
    return align(model, [pair.source for pair in pairs], [pair.target for pair in pairs])


# The same on real text: Greek verses and their English, with the links that people have made.
VERSES = "bible-alignments"
VERSE_STEPS, VERSE_SEEDS = 4_000, range(3)  # 18 epochs, of 0.23 s a step on one core: a quarter of an hour for a seed
VERSE_OPTIONS = {
    "size": 128,
    "hidden_size": 192,
    "vocab_size": 3_000,
    "lowercase": True,
    "batch": 2_048,
    "dropout": 0.3,
}


def run_on_verses(steps: int = VERSE_STEPS, seeds: Sequence[int] = VERSE_SEEDS, **options: Any) -> Measured:
    """What translators of verses look at, in the tenth of them that none has learned from.

    The Greek has no punctuation: where an English comma looks counts as an error, and the diagonal's comma as well.
    """
    pairs = [pair for pair in read_aligned_pairs(fetch(VERSES)) if part(pair.source) != "train"]
    languages = Text("Greek, looked at", "希腊语，被查看"), Text("English, looks", "英语，在查看")
    models = (verse_translator(seed, steps, **options) for seed in seeds)
    return compare(pairs, (align_in_parts(model, pairs) for model in models), languages)


def align_in_parts(model: Seq2Seq, pairs: Sequence[Pair], size: int = 64) -> list[Alignment]:
    """The alignments of the right translations, of so many at once: of all of them, the logits alone are a gigabyte."""
    parts = (pairs[start : start + size] for start in range(0, len(pairs), size))
    return [
        alignment for rows in parts for alignment in align(model, [p.source for p in rows], [p.target for p in rows])
    ]


def verse_translator(seed: int, steps: int, **options: Any) -> Seq2Seq:
    """A translator with additive attention that has learned from the other verses, as `regard train` would teach it."""
    settings: dict[str, Any] = VERSE_OPTIONS | options
    data = str(fetch(VERSES) / "pairs.tsv")

    def learn() -> Model:
        task = prepare(TranslateOptions(data=data, seed=seed, **settings), Tokenizers())
        return fit_task(task, steps=steps, learning_rate=2e-3, seed=seed)

    model = regard.load(cache.model_folder(f"verses-{seed}-{steps}", learn, settings))
    assert isinstance(model, Seq2Seq)
    return model


def shift(weights: Tensor) -> Tensor:
    """How much of the weight (target words, source words) moves from one word to the next, on average."""
    return weights.diff(dim=0).abs().sum(-1).mean() / 2


def diagonal(pair: Pair) -> Links:
    """Every word of the target with the word of the source at the same share of the sentence."""
    n, m = len(split(pair.target)), len(split(pair.source))
    return frozenset((round(word * (m - 1) / max(n - 1, 1)), word) for word in range(n))


def judge(numbers: Numbers) -> Criteria:
    """Another look for another word; and a better one than going along the sentence."""
    yield numbers.criterion(
        min(numbers.moved) > 0.5,
        "If every step has a context of its own, more than half of the weight must move from one word to the next, in "
        "every seed: {moved} of it does.",
        "若每一步都有自己的上下文，那么在每个种子下，从一个词到下一个词应有一半以上的权重移动：实际为 {moved}。",
    )
    yield numbers.criterion(
        max(numbers.errors) + numbers.spread < numbers.diagonal,
        "If a step weighs the parts of the input that matter for it, it must find the words that belong together "
        "better than going along the diagonal does, in every seed and by more than the spread: error rates {errors} ± "
        "{spread}, the diagonal's {diagonal}, on {sentences} unseen sentences.",
        "若每一步重视的是输入中与之相关的部分，那么在每个种子下它都应比沿对角线走更准确地找到对应的词，且差距大于种子"
        "间的波动：错误率为 {errors} ± {spread}，对角线为 {diagonal}，共 {sentences} 个未见句子。",
    )


def draw_alignment(alignment: Alignment, gold: Links, numbers: Numbers, languages: tuple[Text, Text]) -> Chart:
    """One sentence with the last seed, and the error rates of all seeds."""
    heat = Heat(
        alignment.weights,
        rows=alignment.target,
        columns=alignment.source,
        marked=[(target, source) for source, target in sorted(gold)],
    )
    names = [Text(f"seed {seed}", f"种子 {seed}") for seed in range(len(numbers.errors))]
    bars = Bars([*names, Text("diagonal", "对角线")], [*numbers.errors, numbers.diagonal], colour="attention")
    return Chart(
        [
            Panel([heat], x=languages[0], y=languages[1], share=1.4),
            Panel([bars], y=Text("alignment error rate", "对齐错误率")),
        ],
        caption=Text(
            "Left: the weights of one unseen sentence; frames are words that belong together. Right: how often looks "
            "and frames disagree, for each seed and for the diagonal.",
            "左：一个未见句子的权重；方框为相互对应的词。右：所看之处与方框不一致的比例，每个种子一个，另有对角线。",
        ),
        height=300,
    )


def draw(cell: SimpleNamespace) -> Chart:
    """The weights and the contexts of one string."""
    written = [str(digit) for digit in cell.written[0, 1:].tolist()]
    weights = Heat(cell.maps[0].detach(), rows=written, columns=[str(digit) for digit in cell.source[0].tolist()])
    contexts = cell.contexts[0].detach()
    alike = Heat(torch.nn.functional.cosine_similarity(contexts[:, None], contexts, dim=-1).clamp(min=0))
    return Chart(
        [
            Panel(
                [weights], x=Text("digit that was read", "读到的数字"), y=Text("digit that is written", "写出的数字")
            ),
            Panel([alike], x=Text("context of step", "第几步的上下文"), y=Text("context of step", "第几步的上下文")),
        ],
        caption=Text(
            "Left: where each step looks in one string. Right: how alike the contexts of two steps are, by their "
            "cosine.",
            "左：每一步查看一串数字的何处。右：两步的上下文有多相似（余弦）。",
        ),
    )


SECTION = Section(
    number=18,
    notes=(Passage("004", 16, 27), Passage("001", 54, 54)),
    title=Text("Every step of the decoder has its own context", "解码的每一步有自己的上下文"),
    claim=Text(
        "At each step the decoder's state is compared with all hidden states of the encoder, softmax makes weights of "
        "it, and a new context comes out; so at each step the context weighs different parts of the input.",
        "每一步都把解码器的状态与编码器的各个隐藏状态比较，经 softmax 得到权重和新的上下文向量；因此每个时间步的上下文"
        "重视输入序列的不同部分。",
    ),
    idea=Text(
        "The weights of all steps are a matrix, the alignment: a row for each word that is written, a column for each "
        "word that was read. If a step has a context of its own, neighbouring rows differ. The grammar that made the "
        "sentences knows which words belong together, so the rows can be marked, and compared with the plainest "
        "guess: the diagonal.",
        "所有步的权重构成一个矩阵，即对齐：写出的每个词一行，读到的每个词一列。若每一步有自己的上下文，相邻两行就不"
        "同。生成句子的语法知道哪些词相互对应，所以可以判断各行看得对不对，并与最简单的猜测（对角线）比较。",
    ),
    formula=r"\alpha_{ti} = \mathrm{softmax}_i\left(a(s_{t-1}, h_i)\right), \qquad c_t = \sum_i \alpha_{ti} h_i",
    plain=PLAIN,
    short=SHORT_CELL,
    uses=(17,),
    show=draw,
    exercises=(
        Exercise(
            ("source = torch.randint(1, 11, (100, 8))", "source = torch.randint(1, 11, (100, 10))"),
            Text("Strings that are longer than those of the training.", "比训练时更长的数字串。"),
            Text(
                "{now.right:.1%} of the digits are right, instead of {was.right:.1%}; a step looks at its digit most "
                "in {now.aligned:.1%}, instead of {was.aligned:.1%}.",
                "写对 {now.right:.1%} 的数字，原来为 {was.right:.1%}；{now.aligned:.1%} 的步最看重自己的那个数字，原来"
                "为 {was.aligned:.1%}。",
            ),
        ),
        Exercise(
            ("source = torch.randint(1, 11, (100, 8))", "source = torch.randint(1, 11, (100, 1)).expand(-1, 8)"),
            Text("Eight times the same digit: does the look still move?", "八个相同的数字：所看之处还移动吗？"),
            Text(
                "{now.moved:.2f} of the weight moves from step to step; before, {was.moved:.2f}.",
                "每步移动 {now.moved:.2f} 的权重；原来为 {was.moved:.2f}。",
            ),
        ),
    ),
    meanings={
        "errors": Text("alignment error rate, for each seed", "对齐错误率，逐个种子"),
        "spread": Text("its standard deviation over the seeds", "其在种子间的标准差"),
        "diagonal": Text("error rate of the diagonal", "对角线的错误率"),
        "moved": Text(
            "weight that moves from one word to the next, for each seed", "从一个词到下一个词移动的权重，逐个种子"
        ),
        "sentences": Text("unseen sentences", "未见过的句子数"),
    },
    deciding="errors",
    run=run,
    judge=judge,
    full=run_on_verses,
    rehearsal=partial(run, REHEARSAL),
    needs=needed(["additive"], SHORT),
    full_needs=tuple(Need(verse_translator, (seed, VERSE_STEPS)) for seed in VERSE_SEEDS),
)
