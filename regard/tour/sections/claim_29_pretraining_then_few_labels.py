"""Claim 29: pretraining on much text, then fine-tuning to a task."""

from collections.abc import Sequence
from copy import deepcopy
from functools import cache, partial
from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from regard import LanguageModel
from regard.data.grammar import corpus
from regard.data.grammar.lexicon import NOUNS
from regard.data.words import split
from regard.tour.section import Criteria, Exercise, Measured, Numbers, Passage, Section, Text, points
from regard.view.chart import Band, Chart, Heat, Line, Mark, Panel

PLAIN = """
class TinyGPT(nn.Module):
    def __init__(self, size=32, heads=4, depth=2):
        super().__init__()
        self.letters, self.next = nn.Embedding(128, size), nn.Linear(size, 128)
        self.blocks = nn.ModuleList(Block(size, heads) for _ in range(depth))

    def forward(self, ids):  # (batch, n) → logits of the letter after each one (batch, n, 128)
        x = self.letters(ids) + positional_encoding(ids.shape[1], 32)
        for block in self.blocks:
            x = block(x, causal_mask(ids.shape[1]))
        return self.next(x)


text = "the cat sees the dog. the dog sees the bird. the bird sees the cat. "
windows = torch.tensor(list(2 * text.encode())).unfold(0, 25, 2)  # 25 letters in a row, from every second on
gpt = TinyGPT()
optimizer = torch.optim.Adam(gpt.parameters(), lr=3e-3)
for step in range(100):
    loss = F.cross_entropy(gpt(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
written = "the bird "
for _ in range(40):
    written += chr(gpt(torch.tensor([list(written.encode()[-24:])]))[0, -1].argmax())
"""

SHORT = """
import regard
from regard.models.packing import SequenceInfo

ids = windows[:3]
x = gpt.letters(ids) + positional_encoding(25, 32)
for block in gpt.blocks:
    W, mixer, mlp = block.attention, regard.MultiHead(32, 4, bias=False), regard.FeedForward(32, 128, "relu")
    mixer.in_proj[0].weight.data = torch.cat([W.W_q.weight, W.W_k.weight, W.W_v.weight])
    mixer.out_proj.weight = W.W_o.weight
    mlp.in_proj.load_state_dict(block.mlp[0].state_dict())
    mlp.out_proj.load_state_dict(block.mlp[2].state_dict())
    ours = regard.Block(mixer, mlp, pre_norm=False)
    ours.mixer_norm, ours.feed_forward_norm = block.norm_1, block.norm_2
    x = ours(x, SequenceInfo(mask=regard.causal()))
torch.testing.assert_close(gpt.next(x), gpt(ids), rtol=1e-4, atol=1e-4)
"""

KINDS = ("animal", "person", "place", "thing")  # of the first noun of a sentence: the task
WORDS, LABELS = 8, (16, 48, 144)


class Sentences(NamedTuple):
    """The first WORDS words of each, (count, WORDS), and its class, −1 where it has none."""

    words: Tensor
    classes: Tensor

    def choose(self, rows: Tensor) -> "Sentences":
        """Some of them."""
        return Sentences(self.words[rows], self.classes[rows])


@cache
def sentences() -> tuple[Sentences, Sentences]:
    """The embedded grammar's that are long enough, to learn from and to be tested with."""
    whole_texts = [split(pair.source) for pair in corpus("fr", 7_000).train]
    texts = list(dict.fromkeys(tuple(text[:WORDS]) for text in whole_texts if len(text) >= WORDS))  # each once
    numbers = {word: number for number, word in enumerate(sorted({word for text in texts for word in text}))}
    kinds = {form: noun.kinds.split()[0] for noun in NOUNS for form in (noun.english, noun.english_plural)}
    first = [next((kinds[word] for word in text if word in kinds), "") for text in texts]
    classes = torch.tensor([KINDS.index(kind) if kind in KINDS else -1 for kind in first])
    whole = Sentences(torch.tensor([[numbers[word] for word in text] for text in texts]), classes)
    held_out = torch.arange(len(texts)) >= len(texts) * 5 // 6
    return whole.choose(~held_out), whole.choose(held_out & (classes >= 0))


def pretrain(model: LanguageModel, steps: int) -> LanguageModel:
    """Let it predict the next word of sentences, whose classes it does not get."""
    text, _ = sentences()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, fused=True)
    for _ in range(steps):
        batch = text.choose(torch.randint(len(text.words), (32,)))
        loss = functional.cross_entropy(model(batch.words)[:, :-1].flatten(0, 1), batch.words[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def tuned_accuracy(model: LanguageModel, labelled: Sentences, steps: int) -> float:
    """Fine-tune a copy on these labels; the share of the test's sentences that it then gets right."""
    model, (_, test) = deepcopy(model), sentences()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, fused=True)
    for _ in range(steps):
        batch = labelled.choose(torch.randint(len(labelled.words), (32,)))
        loss = functional.cross_entropy(model.class_logits(batch.words), batch.classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float((model.class_logits(test.words).argmax(-1) == test.classes).float().mean())


def run(seeds: Sequence[int] = range(3), pretrain_steps: int = 300, tune_steps: int = 40) -> Measured:
    """A language model that has read and one that has not, fine-tuned on the same few labels."""
    text, test = sentences()
    labelled = text.choose(text.classes >= 0)
    accuracies = torch.zeros(2, len(seeds), len(LABELS))  # (pretrained or not, seeds, label counts)
    for row, seed in enumerate(seeds):
        torch.manual_seed(seed)
        scratch = LanguageModel(int(text.words.max()) + 1, 32, 1, 4, max_positions=WORDS, classes=len(KINDS))
        pretrained = pretrain(deepcopy(scratch), pretrain_steps)
        order = torch.randperm(len(labelled.words))
        for column, count in enumerate(LABELS):
            for kind, model in enumerate((pretrained, scratch)):
                torch.manual_seed(seed)
                accuracies[kind, row, column] = tuned_accuracy(model, labelled.choose(order[:count]), tune_steps)
    gaps = accuracies[0] - accuracies[1]
    numbers = Numbers(
        gap=gaps.mean(),
        spread=gaps.mean(1).std(),
        labels=LABELS,
        pretrained=accuracies[0].mean(0),
        scratch=accuracies[1].mean(0),
        gaps=gaps.mean(0),
        spreads=gaps.std(0),
        read=len(text.words),
        tested=len(test.words),
        seeds=len(seeds),
    )
    return numbers, draw_accuracies(accuracies)


def judge(numbers: Numbers) -> Criteria:
    """The pretrained model must be ahead by more than the spread."""
    gap = f"{points(numbers.gap)} ± {100 * numbers.spread:.1f}"
    each = [f"{points(gap)} ± {100 * spread:.1f}" for gap, spread in zip(numbers.gaps, numbers.spreads, strict=True)]
    yield numbers.criterion(
        numbers.gap > numbers.spread,
        "If pretraining helps the task, the model that has read {read} sentences must be ahead of the one that has "
        f"not, by more than the spread over {{seeds}} seeds: {gap} points on average; with {{labels}} labels "
        f"{', '.join(each)}; a difference within its ± is none.",
        "如果预训练有助于任务，读过 {read} 个句子的模型应领先于没有读过的，差距超过 {seeds} 个种子间的波动："
        f"平均 {gap} 个百分点；标签数为 {{labels}} 时分别为 {'、'.join(each)}；未超出 ± 的差距不算差距。",
    )


def draw_accuracies(accuracies: Tensor) -> Chart:
    """Accuracy (pretrained or not, seeds, label counts) by labels."""
    kinds = ((Text("pretrained", "经过预训练"), "attention"), (Text("from scratch", "从零开始"), "pooled"))
    marks: list[Mark] = []
    for by_seed, (label, colour) in zip(accuracies, kinds, strict=True):
        marks.append(Band(LABELS, by_seed.amin(0), by_seed.amax(0), colour=colour))
        marks.append(Line(LABELS, by_seed.mean(0), label, colour, dots=True))
    return Chart(
        [Panel(marks, x=Text("labelled sentences", "有标签的句子数"), y=Text("accuracy", "准确率"), y_limits=(0, 1))],
        caption=Text(
            "Accuracy on sentences set aside by the number of labels: mean and range of the seeds.",
            "留出句子上的准确率随标签数的变化：种子的均值与范围。",
        ),
    )


@torch.no_grad()
def draw(cell: SimpleNamespace) -> Chart:
    """What the tiny GPT looks at while it writes."""
    ids = torch.tensor([list(cell.written.encode()[:24])])
    x = cell.gpt.letters(ids) + cell.positional_encoding(24, 32)
    maps = cell.gpt.blocks[0].attention.weights(x, cell.causal_mask(24))[0]
    names = [chr(letter) if letter != 32 else "␣" for letter in ids[0].tolist()]
    return Chart(
        [
            Panel([Heat(weights, names, names)], title=Text(f"head {h}", f"第 {h} 个头"))
            for h, weights in enumerate(maps[:2], 1)
        ],
        caption=Text(
            f"It wrote “{cell.written}”. Above, what two heads of its first block look at in the first 24 letters.",
            f"它写出了“{cell.written}”。上图：第一个块的两个头在前 24 个字母中所看之处。",
        ),
    )


SECTION = Section(
    number=29,
    notes=(Passage("004", 118, 120),),
    title=Text("Pretraining, then fine-tuning", "先预训练，再微调"),
    claim=Text(
        "Transfer learning: pretrain a Transformer language model on a large amount of text, then fine-tune it to the "
        "task at hand.",
        "迁移学习：先用大量文本预训练一个基于 Transformer 的语言模型，再按自己的任务微调。",
    ),
    idea=Text(
        "Text is plentiful, labels are few. A model that has learned to predict the next word knows which words are "
        "used alike, and what is learned from one label may go for its kin. So a small language model reads sentences "
        "of the embedded grammar, and then learns from few labels what the first noun of a sentence names; the same "
        "model without the reading is what it is compared with.",
        "文本多，标签少。学会预测下一个词的模型知道哪些词用法相近，从一个带标签的词学到的，也可能适用于用法相近的词。"
        "所以让一个小"
        "语言模型读内置语法的句子，再用少量标签学习句中第一个名词指的是什么；对照的是没有读过的同一个模型。",
    ),
    formula=r"\min_\theta -\sum_t \log p_\theta(x_{t+1} \mid x_1 \ldots x_t) \quad \rightarrow \quad "
    r"\min_{\theta, w} -\sum_i \log p_{\theta, w}(y_i \mid x^{(i)})",
    plain=PLAIN,
    short=SHORT,
    uses=(27, 23, 24),
    show=draw,
    exercises=(
        Exercise(
            ('written = "the bird "', 'written = "the dog "'),
            Text("Let it begin with another word: what does it write?", "换一个开头：它写出什么？"),
            Text("“{now.written}”; before “{was.written}”.", "“{now.written}”；原来是“{was.written}”。"),
        ),
        Exercise(
            ("for step in range(100):", "for step in range(20):"),
            Text("A fifth of the training: what does it write?", "只训练五分之一：它写出什么？"),
            Text(
                "“{now.written}”, at a loss of {now.loss:.2f}; before “{was.written}”, at {was.loss:.2f}.",
                "“{now.written}”，损失 {now.loss:.2f}；原来是“{was.written}”，损失 {was.loss:.2f}。",
            ),
        ),
    ),
    meanings={
        "gap": Text(
            "pretrained − from scratch, mean of all label counts", "预训练与从零开始的准确率之差，各标签数的均值"
        ),
        "spread": Text("its standard deviation over the seeds", "其在种子间的标准差"),
        "labels": Text("labelled sentences", "有标签的句子数"),
        "pretrained": Text("accuracy after pretraining, by labels", "预训练后的准确率，按标签数"),
        "scratch": Text("accuracy from scratch", "从零开始的准确率"),
        "gaps": Text("their difference", "两者之差"),
        "spreads": Text("standard deviation of the difference over the seeds", "差在种子间的标准差"),
        "read": Text("sentences to read", "预训练的句子数"),
        "tested": Text("sentences of the test", "测试句子数"),
        "seeds": Text("seeds", "种子数"),
    },
    deciding="gap",
    run=run,
    full=partial(run, range(5), 3_000, 100),
    rehearsal=partial(run, range(2), 2, 2),
    judge=judge,
)
