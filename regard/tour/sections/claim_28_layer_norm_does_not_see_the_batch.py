"""Claim 28: layer norm rather than batch norm."""

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard import FeedForward, MultiHead
from regard.tour.section import Control, Criteria, Exercise, Measured, Numbers, Passage, Section, Slider, Text
from regard.view.chart import Bars, Chart, Heat, Panel

PLAIN = """
def normalize(x, mean, variance):
    return (x - mean) / torch.sqrt(variance + 1e-5)


def layer_norm(x):  # each vector over its features
    return normalize(x, x.mean(-1, keepdim=True), x.var(-1, unbiased=False, keepdim=True))


def batch_norm(x):  # each feature over all vectors of the batch
    return normalize(x, x.mean((0, 1)), x.var((0, 1), unbiased=False))


others = 3  # sequences that are in the batch besides
sample = torch.randn(1, 5, 8)  # a sequence of 5 vectors
batch = torch.cat([sample, 1 + 2 * torch.randn(others, 5, 8)])
kept = 1 + 2 * torch.randn(1000, 5, 8)  # seen in training: at inference batch norm has kept its mean and variance
kept_mean, kept_variance = kept.mean((0, 1)), kept.var((0, 1))

layer = (layer_norm(batch)[0] - layer_norm(sample)[0]).abs()  # how far the sample moves with the others beside it
training = (batch_norm(batch)[0] - batch_norm(sample)[0]).abs()
inference = (normalize(batch, kept_mean, kept_variance)[0] - normalize(sample, kept_mean, kept_variance)[0]).abs()
by_layer, by_training, by_inference = (moved.max().item() for moved in (layer, training, inference))
"""

SHORT = """
import regard

block = regard.Block(regard.MultiHead(8, 2), regard.FeedForward(8, 32))  # regard's blocks have layer norm
torch.testing.assert_close(block.mixer_norm(batch), layer_norm(batch))
"""

SIZE, SYMBOLS, LONGEST = 16, 8, 10
PLANS = ((1, 400), (4, 200), (32, 100))  # sequences in a batch, and steps
Norm = Callable[[int], nn.Module]


class BatchNorm(nn.BatchNorm1d):
    """Batch norm of (batch, n, size): each feature over all vectors."""

    def forward(self, rows: Tensor) -> Tensor:
        return super().forward(rows.flatten(0, 1)).view(rows.shape)


class Reader(nn.Module):
    """The notes' block with either norm: symbols (batch, n) → logits (batch, n, SYMBOLS)."""

    def __init__(self, norm: Norm) -> None:
        super().__init__()
        self.symbols, self.positions = nn.Embedding(SYMBOLS, SIZE), nn.Parameter(torch.randn(LONGEST, SIZE))
        self.attention, self.mlp = MultiHead(SIZE, 2), FeedForward(SIZE, 4 * SIZE, "relu")
        self.norms, self.answer = nn.ModuleList(norm(SIZE) for _ in range(2)), nn.Linear(SIZE, SYMBOLS)

    def loss(self, symbols: Tensor) -> Tensor:
        """Every place has to name the symbol before it."""
        rows = self.symbols(symbols) + self.positions[: symbols.shape[1]]
        for part, norm in zip((self.attention, self.mlp), self.norms, strict=True):
            rows = norm(rows + part(rows))
        return functional.cross_entropy(self.answer(rows)[:, 1:].flatten(0, 1), symbols[:, :-1].flatten())


def trained_loss(norm: Norm, batch: int, steps: int, seed: int) -> float:
    """At inference, on sequences of all lengths, after training with batches of this size and of any length."""
    torch.manual_seed(seed)
    model = Reader(norm)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, fused=True)
    for _ in range(steps):
        optimizer.zero_grad()
        model.loss(torch.randint(SYMBOLS, (batch, int(torch.randint(3, LONGEST + 1, ()))))).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        losses = [model.loss(torch.randint(SYMBOLS, (64, length))) for length in range(3, LONGEST + 1)]
    return float(torch.stack(losses).mean())


@torch.no_grad()
def moved(norm: Norm, training: bool, *, longer: bool = False) -> float:
    """How far a sequence moves at most when others, 1 to 32, are in its batch; or when it gets longer by as many."""
    module = norm(SIZE).double()
    for _ in range(20):  # so that there is something to keep
        module(1 + 2 * torch.randn(32, 7, SIZE).double())
    module.train(training)
    sample, others = torch.randn(1, 7, SIZE).double(), 1 + 2 * torch.randn(32, 7, SIZE).double()
    more = others[:, 0][None] if longer else others  # (1, 32, SIZE), or (32, 7, SIZE)
    alone, axis = module(sample), int(longer)
    together = [module(torch.cat([sample, more.narrow(axis, 0, count)], axis))[:1, :7] for count in (1, 3, 8, 32)]
    return max(float((output - alone).abs().max()) for output in together)


def run(
    seeds: Sequence[int] = range(3), plans: Sequence[tuple[int, int]] = PLANS, layer: Norm = nn.LayerNorm
) -> Measured:
    """The same sequence in other batches, then a small Transformer with each norm."""
    losses = torch.tensor(
        [[[trained_loss(norm, *plan, seed) for seed in seeds] for plan in plans] for norm in (layer, BatchNorm)]
    )  # (layer or batch norm, batch sizes, seeds)
    gaps = losses[1] - losses[0]
    numbers = Numbers(
        layer=max(moved(layer, True), moved(layer, False)),
        training=moved(BatchNorm, True),
        inference=moved(BatchNorm, False),
        layer_longer=moved(layer, True, longer=True),
        training_longer=moved(BatchNorm, True, longer=True),
        batches=[batch for batch, _ in plans],
        layer_losses=losses[0].mean(-1),
        batch_losses=losses[1].mean(-1),
        gaps=gaps.mean(-1),
        spreads=gaps.std(-1),
        seeds=len(seeds),
    )
    return numbers, draw_losses(numbers, losses)


def judge(numbers: Numbers) -> Criteria:
    """Each of the notes' reasons; and what batch norm does at inference."""
    yield numbers.identity(
        numbers.layer <= 1e-12 < numbers.training,
        "The batch: under layer norm a sequence must be the same in every batch, to 1e-12, and under batch norm, "
        "while training, it must not: it moves by {layer} and by {training}.",
        "批次：层归一化下，同一序列在任何批次中都应相同，误差 10⁻¹² 以内；训练时的批量归一化下则不同：最大变化分别为 "
        "{layer} 和 {training}。",
    )
    yield numbers.criterion(
        numbers.gaps[0] > numbers.spreads[0],
        "Small batches: trained with batches of {batches[0]}, a Transformer with batch norm must lose more, by more "
        "than the spread over {seeds} seeds: {batch_losses[0]} against {layer_losses[0]}, a difference of {gaps[0]} ± "
        "{spreads[0]}; with batches of {batches} it is {gaps} ± {spreads}, where below 0 batch norm loses less.",
        "小批次：用大小为 {batches[0]} 的批次训练时，批量归一化的 Transformer 损失应更大，差距超过 {seeds} 个种子间的波"
        "动：{batch_losses[0]} 与 {layer_losses[0]}，相差 {gaps[0]} ± {spreads[0]}（批次大小为 {batches} 时为 {gaps} "
        "± {spreads}，负数表示批量归一化损失更小）。",
    )
    yield numbers.identity(
        numbers.layer_longer <= 1e-12 < numbers.training_longer,
        "Sequences and self-attention: a norm that fits them takes each element alone, so that the others of its "
        "sequence, and how many there are, must not matter under layer norm, and must under batch norm while "
        "training: elements move by {layer_longer} and by {training_longer} when the sequence gets longer.",
        "序列与自注意力：与之相配的归一化逐个元素进行，所以层归一化下序列中其他元素及其个数应无影响，训练时的批量归一"
        "化下则有：序列变长时，元素的最大变化分别为 {layer_longer} 和 {training_longer}。",
    )
    yield numbers.correction(
        numbers.inference <= 1e-12,
        "At inference: there batch norm uses the mean and variance that it kept. If so it does not depend on the "
        "batch either, and the reason holds for training alone: the sequence moves by {inference}.",
        "推理时：批量归一化使用存下的均值和方差。若如此，它同样不依赖批次，这一理由只对训练成立：序列的最大变化为 "
        "{inference}。",
    )


NAMES = (Text("layer norm", "层归一化"), Text("batch norm", "批量归一化"))


def draw_losses(numbers: Numbers, losses: Tensor) -> Chart:
    """The loss of both by batch size."""
    names = [str(batch) for batch in numbers.batches]
    bars = [
        Bars(names, by_batch.mean(-1), name, colour, spread=by_batch.std(-1))
        for by_batch, name, colour in zip(losses, NAMES, ("attention", "pooled"), strict=True)
    ]
    return Chart(
        [Panel(bars, x=Text("sequences in a batch", "批次中的序列数"), y=Text("loss", "损失"))],
        caption=Text(
            "Loss at inference of a small Transformer with either norm, by the size of the batches it was trained "
            "with: mean and standard deviation over the seeds.",
            "两种归一化的小 Transformer 在推理时的损失，按训练时的批次大小：种子的均值与标准差。",
        ),
        height=220,
    )


def draw(cell: SimpleNamespace) -> Chart:
    """How far each number of the sample moves."""
    titles = (
        NAMES[0],
        Text("batch norm, training", "批量归一化，训练时"),
        Text("batch norm, inference", "批量归一化，推理时"),
    )
    maps = (cell.layer, cell.training, cell.inference)
    return Chart(
        [
            Panel([Heat(moved, largest=2.0)], x=Text("feature", "特征"), y=Text("vector", "向量"), title=title)
            for moved, title in zip(maps, titles, strict=True)
        ],
        caption=Text(
            f"How far each number of a normalised sequence moves when {cell.others} others are in its batch. "
            "The darkest shade is 2.",
            f"批次中另有 {cell.others} 个序列时，归一化后的序列的每个数移动了多少；最深为 2。",
        ),
    )


SECTION = Section(
    number=28,
    notes=(Passage("004", 107, 110),),
    title=Text("Layer norm rather than batch norm", "用层归一化而不用批量归一化"),
    claim=Text(
        "Layer norm is used, and not batch norm, because it does not depend on the size of the batch, which helps "
        "with inputs of variable size and with other batch sizes at inference, while batch norm may be unstable with "
        "small or uneven batches; because it suits sequences; and because, normalising each element, it goes together "
        "with self-attention more easily.",
        "用层归一化而不用批量归一化，理由是：它与批次大小无关，便于处理大小可变的输入，也便于推理时换用其他批次大小，"
        "而批量归一化遇到小的或大小不一的批次可能不稳定；它适合序列数据；它逐个元素归一化，更容易与自注意力配合。",
    ),
    idea=Text(
        "Both subtract a mean and divide by a standard deviation: layer norm over the features of one vector, batch "
        "norm over the vectors of a batch, feature by feature. So under batch norm, what a sequence becomes depends "
        "on who else is there, as long as mean and variance are those of the batch. At inference they are not: there "
        "batch norm uses averages that it kept in training.",
        "两者都减去均值、除以标准差：层归一化对一个向量的各特征，批量归一化逐个特征对一批向量。所以在批量归一化下，一"
        "个序列变成什么取决于同批还有谁，只要均值和方差取自该批次。推理时则不然：批量归一化使用训练时存下的平均值。",
    ),
    formula=r"\hat{x}_{btf} = \frac{x_{btf} - \mu}{\sqrt{\sigma^2 + \epsilon}}, \qquad "
    r"\mu_{\mathrm{layer}} = \frac{1}{F} \sum_f x_{btf}, \quad \mu_{\mathrm{batch}} = \frac{1}{BT} \sum_{b,t} x_{btf}",
    plain=PLAIN,
    short=SHORT,
    show=draw,
    controls=(
        Control("others = 3", Text("other sequences in the batch", "批次中的其他序列"), Slider(1, 31, 1, whole=True)),
    ),
    exercises=(
        Exercise(
            ("others = 3", "others = 31"),
            Text("With 31 other sequences, how far does the sample move?", "批次中另有 31 个序列时，样本移动多少？"),
            Text(
                "Under batch norm in training by up to {now.by_training:.2f}, with 3 others {was.by_training:.2f}; "
                "under layer norm by {now.by_layer:.2g}.",
                "训练时的批量归一化下最多 {now.by_training:.2f}，另有 3 个序列时为 {was.by_training:.2f}；层归一化下为 "
                "{now.by_layer:.2g}。",
            ),
        ),
        Exercise(
            (
                "batch = torch.cat([sample, 1 + 2 * torch.randn(others, 5, 8)])",
                "batch = torch.cat([sample, sample, sample])",
            ),
            Text(
                "Let the others be copies of the sample: does batch norm still depend on the batch?",
                "让其他序列都是该样本的副本：批量归一化还依赖批次吗？",
            ),
            Text(
                "The sample moves by up to {now.by_training:.2g}; with other sequences beside it "
                "{was.by_training:.2f}.",
                "样本最多移动 {now.by_training:.2g}；与其他序列同批时为 {was.by_training:.2f}。",
            ),
        ),
    ),
    meanings={
        "layer": Text(
            "largest change of a sequence over batches, layer norm", "层归一化：同一序列在各批次中的最大变化"
        ),
        "training": Text("the same, batch norm in training", "同上，训练时的批量归一化"),
        "inference": Text(
            "batch norm at inference: largest change of a sequence with its batch",
            "推理时的批量归一化：同一序列在各批次中的最大变化",
        ),
        "layer_longer": Text(
            "largest change of its elements when the sequence gets longer, layer norm",
            "序列变长时其元素的最大变化，层归一化",
        ),
        "training_longer": Text("the same, batch norm in training", "同上，训练时的批量归一化"),
        "batches": Text("sequences in a batch of training", "训练时批次中的序列数"),
        "layer_losses": Text("loss of the Transformer with layer norm, by batch size", "层归一化的 Transformer 的损失"),
        "batch_losses": Text("the same with batch norm", "同上，批量归一化"),
        "gaps": Text("batch norm's loss − layer norm's", "批量归一化与层归一化的损失之差"),
        "spreads": Text("standard deviation of these over the seeds", "以上各差在种子间的标准差"),
        "seeds": Text("seeds", "种子数"),
    },
    deciding="inference",
    run=run,
    full=partial(run, range(5), ((1, 2_000), (2, 1_000), (4, 600), (32, 300))),
    rehearsal=partial(run, range(2), ((1, 3), (4, 3))),
    judge=judge,
)
