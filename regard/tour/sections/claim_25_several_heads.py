"""Claim 25: splitting the input over several heads raises the expressive power."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import product
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard import attend
from regard.data.grammar import corpus
from regard.data.words import split
from regard.tour.section import Choice, Control, Criteria, Exercise, Measured, Numbers, Passage, Section, Text, show
from regard.view.chart import Band, Chart, Heat, Line, Mark, Panel

PLAIN = """
class MultiHead(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.heads = heads
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(size, size, bias=False) for _ in range(4))

    def split(self, x):  # (batch, n, size) → (batch, heads, n, size / heads)
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def weights(self, x, mask=None):
        queries, keys = self.split(self.W_q(x)), self.split(self.W_k(x))
        scores = queries @ keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])  # (batch, heads, n, n)
        return torch.softmax(scores if mask is None else scores.masked_fill(~mask, -torch.inf), -1)

    def forward(self, x, mask=None):
        outputs = self.weights(x, mask) @ self.split(self.W_v(x))  # each head alone
        return self.W_o(outputs.transpose(1, 2).flatten(2))  # side by side again, and mixed


heads = 4
layer = MultiHead(16, heads)
parameters = sum(matrix.numel() for matrix in layer.parameters())
x = 3 * torch.randn(1, 7, 16)  # 7 vectors
maps, output = layer.weights(x)[0], layer(x)  # (heads, 7, 7), (1, 7, 16)
largest = maps.max().item()
"""

SHORT = """
import regard

ours = regard.MultiHead(16, heads, bias=False)
ours.in_proj[0].weight.data = torch.cat([layer.W_q.weight, layer.W_k.weight, layer.W_v.weight])
ours.out_proj.weight = layer.W_o.weight
torch.testing.assert_close(ours(x), output)
"""

HEADS = (1, 2, 4, 8)
SIZE, LENGTH = 32, 8
BACK = (1, 3, 6)  # the first task: name the symbols so many places back
Batch = tuple[Tensor, Tensor]  # symbols (count, LENGTH) and what is asked for (count, answers)
Sample = Callable[[int, bool], Batch]  # so many of the training's, or of those set aside


class Readers(nn.Module):
    """One layer of attention from the last place over all, once for each seed with positions added to the vectors, and
    once with positions in queries and keys alone; all are trained side by side.

    Shapes: models = 2 · seeds, those without positions in the values first.
    """

    def __init__(self, symbols: int, classes: int, heads: int, head_size: int, seeds: Sequence[int]) -> None:
        super().__init__()
        self.heads, inner = heads, heads * head_size
        shapes = [(symbols, SIZE), (LENGTH, SIZE), *[(SIZE, inner)] * 3, (inner, SIZE), (SIZE, classes)]
        generators = [torch.Generator().manual_seed(seed) for seed in (*seeds, *seeds)]
        models = [[torch.randn(shape, generator=generator) for shape in shapes] for generator in generators]
        scales = [1.0, 1.0, *[SIZE**-0.5] * 3, inner**-0.5, SIZE**-0.5]
        self.tensors = nn.ParameterList(
            scale * torch.stack(tensors) for scale, tensors in zip(scales, zip(*models, strict=True), strict=True)
        )
        self.added = torch.tensor([0.0, 1.0]).repeat_interleave(len(seeds))[:, None, None, None]

    def forward(self, symbols: Tensor) -> Tensor:
        """symbols (count, LENGTH) → logits (models, count, classes)."""
        vectors, positions, to_query, to_key, to_value, mix, answer = self.tensors
        rows = vectors[:, symbols]  # (models, count, LENGTH, SIZE)
        placed, values = rows + positions[:, None], rows + self.added * positions[:, None]
        query = self._project(placed[:, :, -1:], to_query)
        output = attend(query, self._project(placed, to_key), self._project(values, to_value))
        logits: Tensor = output.flatten(2) @ mix @ answer
        return logits

    def _project(self, rows: Tensor, matrix: Tensor) -> Tensor:
        """(models, count, n, SIZE) → (models, count, heads, n, head size)."""
        projected = (rows.flatten(1, 2) @ matrix).view(*rows.shape[:3], self.heads, -1)
        return projected.transpose(2, 3)


def places(count: int, held_out: bool) -> Batch:
    """Random symbols; asked for are those at three places, so that three have to be looked up at once."""
    symbols = torch.randint(4, (count, LENGTH))
    return symbols, torch.stack([symbols[:, -1 - back] for back in BACK], 1)


@cache
def windows() -> Tensor:
    """Every LENGTH + 1 words in a row of the embedded grammar's sentences."""
    words = [word for pair in corpus("fr", 4_000).train for word in [*split(pair.source), "."]]
    numbers = {word: number for number, word in enumerate(sorted(set(words)))}
    return torch.tensor([numbers[word] for word in words]).unfold(0, LENGTH + 1, 1)


def words(count: int, held_out: bool) -> Batch:
    """Words of sentences; asked for is the next one."""
    rows = windows()[-4_000:] if held_out else windows()[:-4_000]
    chosen = rows[torch.randint(len(rows), (count,))]
    return chosen[:, :-1], chosen[:, -1:]


def trained_loss(sample: Sample, heads: int, seeds: Sequence[int], steps: int, head_size: int | None = None) -> Tensor:
    """Nats per answer on what was set aside, after training: (values without or with positions, seeds)."""
    answers = sample(1, False)[1]
    kinds = 4 if sample is places else int(windows().max()) + 1
    models = Readers(kinds, answers.shape[1] * kinds, heads, head_size or SIZE // heads, seeds)

    def losses(count: int, held_out: bool) -> Tensor:
        symbols, answers = sample(count, held_out)
        logits = models(symbols).unflatten(-1, (answers.shape[1], kinds))  # (models, count, answers, kinds)
        wanted = answers.expand(logits.shape[:-1])
        each = functional.cross_entropy(logits.flatten(0, -2), wanted.flatten(), reduction="none")
        return each.view(len(logits), -1).mean(1)

    torch.manual_seed(0)
    optimizer = torch.optim.Adam(models.parameters(), lr=1e-2, fused=True)
    for _ in range(steps):
        optimizer.zero_grad()
        losses(64, False).sum().backward()
        optimizer.step()
    with torch.no_grad():
        return losses(2_000, True).view(2, len(seeds))


def run(seeds: Sequence[int] = range(5), steps: int = 150, heads: Sequence[int] = HEADS) -> Measured:
    """1, 2, 4 and 8 heads on both tasks, with both kinds of positions."""
    losses = torch.stack(
        [torch.stack([trained_loss(sample, count, seeds, steps) for count in heads]) for sample in (places, words)]
    ).transpose(1, 2)  # (tasks, positions, heads, seeds)
    gains = (losses[:, :, 0] - losses[:, :, -1]).flatten(0, 1)  # (tasks · positions, seeds)
    mean = losses.mean(-1).flatten(0, 1)
    numbers = Numbers(
        gains=gains.mean(1),
        spreads=gains.std(1),
        heads=heads,
        places_scores=mean[0],
        places_added=mean[1],
        words_scores=mean[2],
        words_added=mean[3],
        seeds=len(seeds),
    )
    return numbers, draw_losses(heads, losses)


KINDS = (
    Text("positions in queries and keys alone", "位置只进入查询和键"),
    Text("positions added to the vectors", "位置加在向量上"),
)
TASKS = (Text("three places at once", "同时查三个位置"), Text("the next word", "下一个词"))


def judge(numbers: Numbers) -> Criteria:
    """Many heads must lose less than one, by more than the spread, on each task with each kind of positions."""
    rows = zip(product(TASKS, KINDS), numbers.gains, numbers.spreads, strict=True)
    for (task, kind), gain, spread in rows:
        difference = f"{show(gain)} ± {show(spread)}"
        yield numbers.criterion(
            gain > spread,
            f"{task.en.capitalize()}, {kind.en}: {{heads[-1]}} heads must lose less than {{heads[0]}}, by more than "
            f"the spread over {{seeds}} seeds; the difference is {difference}.",
            f"{task.zh}，{kind.zh}：{{heads[-1]}} 个头的损失应比 {{heads[0]}} 个头小，差距超过 {{seeds}} 个种子间的波"
            f"动；实际之差为 {difference}。",
        )


def draw_losses(heads: Sequence[int], losses: Tensor) -> Chart:
    """Losses (tasks, positions, heads, seeds) by heads."""
    panels = []
    for task, title in zip(losses, TASKS, strict=True):
        marks: list[Mark] = []
        for by_heads, label, colour in zip(task, KINDS, ("attention", "truth"), strict=True):
            marks.append(Band(heads, by_heads.amin(-1), by_heads.amax(-1), colour=colour))
            marks.append(Line(heads, by_heads.mean(-1), label, colour, dots=True))
        panels.append(Panel(marks, x=Text("heads", "头数"), y=Text("loss", "损失"), title=title))
    return Chart(
        panels,
        caption=Text(
            "Loss on what was set aside, by the number of heads, at equal parameters: mean and range of the seeds.",
            "留出数据上的损失随头数的变化，参数量相同：种子的均值与范围。",
        ),
    )


def draw(cell: SimpleNamespace) -> Chart:
    """The map of each head."""
    largest, shown = cell.largest, cell.maps[:8]
    names = [Text(f"head {number}", f"第 {number} 个头") for number in range(1, len(shown) + 1)]
    return Chart(
        [Panel([Heat(weights, largest=largest)], title=name) for weights, name in zip(shown, names, strict=True)],
        columns=min(len(shown), 4),
        caption=Text(
            "What each head looks at: row i has the weights of vector i over all seven, in the same shades. The "
            "matrices are not trained.",
            "每个头所看之处：第 i 行是第 i 个向量对七个向量的权重，深浅一致。矩阵未经训练。",
        ),
    )


SECTION = Section(
    number=25,
    notes=(Passage("004", 85, 85),),
    title=Text("Several heads raise the expressive power", "多头增强表示能力"),
    claim=Text(
        "When the input vectors are split into several parts, and these are processed independently by self-attention "
        "layers side by side, the model can express more.",
        "把输入向量切成几份，交给几个并列的自注意力层各自处理，模型的表示能力就会增加。",
    ),
    idea=Text(
        "A head gives one average: what it takes from two places arrives as one mixture. Several heads give several "
        "averages side by side, each narrower, so that the number of parameters stays the same; split are its "
        "queries, keys and values, as is usual, and not the input itself. So the same layer is "
        "trained with 1, 2, 4 and 8 heads, on a task that asks for three places at once and on sentences; positions "
        "are either added to the vectors, so that also the values tell where they come from, or in queries and keys "
        "alone.",
        "一个头给出一个平均：从两处取来的东西混在一起。多个头并列给出多个平均，每个更窄，所以参数量不变；这里按通常做"
        "法，切分的不是输入本身，而是它的查询、键和值。因此用 "
        "1、2、4、8 个头训练同一个层，一项任务要求同时查三个位置，另一项是预测句子的下一个词；位置编码或者加在向量上，"
        "使值也带有来处，或者只进入查询和键。",
    ),
    formula=r"\mathrm{head}_h = \mathrm{softmax}\!\left(\frac{X W_q^h (X W_k^h)^T}{\sqrt{D_Q}}\right) X W_v^h, \qquad "
    r"Y = [\mathrm{head}_1 \ldots \mathrm{head}_H]\, W_o",
    plain=PLAIN,
    short=SHORT,
    show=draw,
    controls=(Control("heads = 4", Text("heads", "头数"), Choice((1, 2, 4, 8))),),
    exercises=(
        Exercise(
            ("heads = 4", "heads = 1"),
            Text("With a single head, how many parameters does the layer have?", "只用一个头时，这一层有多少参数？"),
            Text(
                "{now.parameters}, and {was.parameters} with 4 heads. It makes {now.layer.heads} map of weights "
                "instead of {was.layer.heads}.",
                "{now.parameters} 个，4 个头时为 {was.parameters} 个。权重图有 {now.layer.heads} 张，原来有 "
                "{was.layer.heads} 张。",
            ),
        ),
        Exercise(
            (
                "scores = queries @ keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])",
                "scores = queries @ keys.transpose(-2, -1)",
            ),
            Text("Without the scaling, how large is the largest weight?", "不缩放时，最大的权重是多少？"),
            Text(
                "{now.largest:.2f}; with it {was.largest:.2f}.",
                "{now.largest:.2f}；缩放时为 {was.largest:.2f}。",
            ),
        ),
    ),
    meanings={
        "gains": Text(
            "loss of 1 head − loss of 8: three places (positions in queries and keys, added), next word (the same)",
            "1 个头与 8 个头的损失之差：三个位置（位置进入查询和键、加在向量上），下一个词（同前）",
        ),
        "spreads": Text("standard deviation of these over the seeds", "以上各差在种子间的标准差"),
        "heads": Text("heads", "头数"),
        "places_scores": Text(
            "loss by heads: three places, positions in queries and keys alone", "损失：三个位置，位置只进入查询和键"
        ),
        "places_added": Text("the same, positions added", "同上，位置加在向量上"),
        "words_scores": Text(
            "loss by heads: next word, positions in queries and keys alone", "损失：下一个词，位置只进入查询和键"
        ),
        "words_added": Text("the same, positions added", "同上，位置加在向量上"),
        "seeds": Text("seeds", "种子数"),
    },
    deciding="gains",
    run=run,
    full=partial(run, range(5), 1_000),
    rehearsal=partial(run, range(2), 5),
    judge=judge,
)
