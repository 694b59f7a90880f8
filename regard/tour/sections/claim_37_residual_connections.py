"""Claim 37: attention and MLP have residual connections around them."""

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard import FeedForward, MultiHead
from regard.tour.section import Control, Criteria, Exercise, Measured, Numbers, Passage, Section, Slider, Text
from regard.view.chart import Band, Chart, Line, Mark, Panel

PLAIN = """
class BlockWithout(Block):  # the block of before, without x + …
    def forward(self, x, mask=None):
        return self.norm_2(self.mlp(self.norm_1(self.attention(x, mask))))


def gradients(kind, depth):
    blocks = [kind(16, 4) for _ in range(depth)]
    rows = [torch.randn(8, 10, 16, requires_grad=True)]  # 8 sequences of 10 vectors
    for block in blocks:
        rows.append(block(rows[-1]))
        rows[-1].retain_grad()
    (rows[-1] * torch.randn(8, 10, 16)).sum().backward()  # any loss would do
    return [float(row.grad.norm()) for row in rows], rows[-1].detach()


depth = 12
grads_with, rows_with = gradients(Block, depth)  # grads[i]: gradient at the output of block i
grads_without, rows_without = gradients(BlockWithout, depth)
left_with, left_without = grads_with[0] / grads_with[-1], grads_without[0] / grads_without[-1]
apart_with, apart_without = (rows.std(1).mean().item() for rows in (rows_with, rows_without))  # between vectors
"""

SHORT = """
import regard

block, mixer, mlp = Block(16, 4), regard.MultiHead(16, 4, bias=False), regard.FeedForward(16, 64, "relu")
queries_keys_values = (block.attention.W_q, block.attention.W_k, block.attention.W_v)
mixer.in_proj[0].weight.data = torch.cat([matrix.weight for matrix in queries_keys_values])
mixer.out_proj.weight = block.attention.W_o.weight
mlp.in_proj.load_state_dict(block.mlp[0].state_dict())
mlp.out_proj.load_state_dict(block.mlp[2].state_dict())
ours = regard.Block(mixer, mlp, pre_norm=False)  # regard's blocks have the connections
torch.testing.assert_close(ours(rows_with), block(rows_with))
"""

SIZE, HEADS, LENGTH, SYMBOLS = 16, 2, 8, 8
DEPTHS = (1, 3, 6)


class Layer(nn.Module):
    """The notes' block, with `residual` times what came in added to what attention and the MLP make of it."""

    def __init__(self, residual: float) -> None:
        super().__init__()
        self.residual = residual
        self.attention, self.mlp = MultiHead(SIZE, HEADS), FeedForward(SIZE, 4 * SIZE, "relu")
        self.norms = nn.ModuleList(nn.LayerNorm(SIZE) for _ in range(2))

    def forward(self, rows: Tensor) -> Tensor:
        for part, norm in zip((self.attention, self.mlp), self.norms, strict=True):
            rows = norm(self.residual * rows + part(rows))
        return rows


class Stack(nn.Module):
    """Symbols (batch, LENGTH) → logits (batch, LENGTH, SYMBOLS)."""

    def __init__(self, depth: int, residual: float) -> None:
        super().__init__()
        self.symbols, self.positions = nn.Embedding(SYMBOLS, SIZE), nn.Parameter(torch.randn(LENGTH, SIZE))
        self.layers = nn.Sequential(*(Layer(residual) for _ in range(depth)))
        self.answer = nn.Linear(SIZE, SYMBOLS)

    def embed(self, symbols: Tensor) -> Tensor:
        """What the first layer gets."""
        rows: Tensor = self.symbols(symbols) + self.positions
        return rows

    def loss(self, rows: Tensor, symbols: Tensor) -> Tensor:
        """Every place has to name the symbol before it."""
        logits = self.answer(rows)[:, 1:]
        return functional.cross_entropy(logits.flatten(0, 1), symbols[:, :-1].flatten())


def gradient_left(depth: int, residual: float) -> float:
    """Before training: the gradient at the input of the stack, as a share of that at its output."""
    stack, symbols = Stack(depth, residual), torch.randint(SYMBOLS, (32, LENGTH))
    rows = stack.embed(symbols)
    output = stack.layers(rows)
    inner, outer = torch.autograd.grad(stack.loss(output, symbols), [rows, output])
    return float(inner.norm() / outer.norm())


def trained_loss(depth: int, residual: float, steps: int) -> float:
    """On new symbols, after training."""
    stack = Stack(depth, residual)
    optimizer = torch.optim.Adam(stack.parameters(), lr=4e-3, fused=True)
    for _ in range(steps):
        symbols = torch.randint(SYMBOLS, (32, LENGTH))
        optimizer.zero_grad()
        stack.loss(stack.layers(stack.embed(symbols)), symbols).backward()
        optimizer.step()
    with torch.no_grad():
        symbols = torch.randint(SYMBOLS, (256, LENGTH))
        return float(stack.loss(stack.layers(stack.embed(symbols)), symbols))


def run(
    seeds: Sequence[int] = range(3), steps: int = 60, depths: Sequence[int] = DEPTHS, residual: float = 1.0
) -> Measured:
    """Stacks of blocks with and without the connections: the gradient that arrives, and what they learn."""
    measured = torch.zeros(2, 2, len(depths), len(seeds))  # (gradient or loss, with or without, depths, seeds)
    for column, seed in enumerate(seeds):
        for row, depth in enumerate(depths):
            for kind, factor in enumerate((residual, 0.0)):
                torch.manual_seed(seed)
                measured[0, kind, row, column] = gradient_left(depth, factor)
                torch.manual_seed(seed)
                measured[1, kind, row, column] = trained_loss(depth, factor, steps)
    gradients, losses = measured
    gains = losses[1, -1] - losses[0, -1]  # at the largest depth
    numbers = Numbers(
        gain=gains.mean(),
        spread=gains.std(),
        depths=depths,
        losses_with=losses[0].mean(-1),
        losses_without=losses[1].mean(-1),
        gradients_with=gradients[0].mean(-1),
        gradients_without=gradients[1].mean(-1),
        seeds=len(seeds),
    )
    return numbers, draw_depths(depths, measured)


def judge(numbers: Numbers) -> Criteria:
    """A deep stack must learn better with the connections than without."""
    yield numbers.criterion(
        numbers.gain > numbers.spread,
        "If deep stacks need the connections, one of {depths[-1]} must lose less with them than without, by more "
        "than the spread over {seeds} seeds: {losses_with[-1]} with and {losses_without[-1]} without, a difference of "
        "{gain} ± {spread}. With {depths} blocks: {losses_with} with, {losses_without} without.",
        "如果深的堆叠需要残差连接，{depths[-1]} 个块时有连接的损失应比没有的小，差距超过 {seeds} 个种子间的波动：有连"
        "接时为 "
        "{losses_with[-1]}，没有时为 {losses_without[-1]}，相差 {gain} ± {spread}。块数为 {depths} 时：有 "
        "{losses_with}，没有 {losses_without}。",
    )


WITH, WITHOUT = Text("with the connections", "有残差连接"), Text("without", "没有")


def draw_depths(depths: Sequence[int], measured: Tensor) -> Chart:
    """Gradient and loss by depth."""
    panels: list[Panel] = []
    for values, title in zip(
        measured, (Text("gradient at the input", "到达输入的梯度"), Text("loss", "损失")), strict=True
    ):
        marks: list[Mark] = []
        for by_depth, label, colour in zip(values, (WITH, WITHOUT), ("attention", "pooled"), strict=True):
            marks.append(Band(depths, by_depth.amin(-1), by_depth.amax(-1), colour=colour))
            marks.append(Line(depths, by_depth.mean(-1), label, colour, dots=True))
        panels.append(Panel(marks, x=Text("blocks", "块数"), title=title, y_log=not panels))
    return Chart(
        panels,
        caption=Text(
            "By the number of blocks: the gradient at the input before training, as a share of that at the output; "
            "and the loss after training. Mean and range of the seeds.",
            "随块数的变化：训练前输入处的梯度与输出处之比；训练后的损失。种子的均值与范围。",
        ),
    )


def draw(cell: SimpleNamespace) -> Chart:
    """The gradient on its way down."""
    places = range(cell.depth + 1)
    return Chart(
        [
            Panel(
                [Line(places, cell.grads_with, WITH, "attention"), Line(places, cell.grads_without, WITHOUT, "pooled")],
                x=Text("after block", "第几个块之后"),
                y=Text("norm of the gradient", "梯度的范数"),
                y_log=True,
            )
        ],
        caption=Text(
            "The gradient of a loss at the last output, at the output of every block before it; 0 is the input.",
            "最后输出处的损失，在此前每个块的输出处的梯度；0 为输入。",
        ),
        height=220,
    )


SECTION = Section(
    number=37,
    notes=(Passage("004", 105, 105), Passage("004", 112, 116)),
    title=Text("Residual connections", "残差连接"),
    claim=Text(
        "In a block a residual connection follows self-attention (usually there is one around the MLP too), then comes "
        "the normalisation; a Transformer is a sequence of such blocks.",
        "块中自注意力之后接残差连接（通常 MLP 也有一个），然后是归一化；Transformer 就是一串这样的块。",
    ),
    idea=Text(
        "x + attention(x): a vector stays what it is, and attention only adds to it. Without the x, everything that a "
        "later block knows of a place has gone through all averages before it, and the gradient has to come back the "
        "same way. The notes give no reason for the connection, so the test asks what deep stacks do without it.",
        "x + attention(x)：向量保持原样，注意力只在其上添加。没有 x 时，后面的块对某个位置的所知都要经过前面的每一次平"
        "均，梯度也要原路返回。笔记没有说明为何要有这一连接，所以这里检验没有它时深的网络会怎样。",
    ),
    formula=r"z = \mathrm{norm}(x + \mathrm{attention}(x)), \qquad y = \mathrm{norm}(z + \mathrm{MLP}(z))",
    plain=PLAIN,
    short=SHORT,
    uses=(27,),
    show=draw,
    controls=(Control("depth = 12", Text("blocks", "块数"), Slider(1, 16, 1, whole=True)),),
    exercises=(
        Exercise(
            ("depth = 12", "depth = 2"),
            Text("With two blocks, how much of the gradient is left?", "只有两个块时，梯度还剩多少？"),
            Text(
                "{now.left_with:.2f} with the connections and {now.left_without:.2f} without; with twelve blocks "
                "{was.left_with:.2f} and {was.left_without:.2f}.",
                "有连接时 {now.left_with:.2f}，没有时 {now.left_without:.2f}；十二个块时为 {was.left_with:.2f} 和 "
                "{was.left_without:.2f}。",
            ),
        ),
        Exercise(
            (
                "return self.norm_2(self.mlp(self.norm_1(self.attention(x, mask))))",
                "return self.norm_2(self.mlp(self.norm_1(x + self.attention(x, mask))))",
            ),
            Text(
                "Put the connection around attention back, not the one around the MLP: how different are the ten "
                "vectors of a sequence in the end?",
                "只恢复注意力周围的连接，不恢复 MLP 的：最后同一序列的十个向量相差多少？",
            ),
            Text(
                "Their standard deviation is {now.apart_without:.2g}; without both it was {was.apart_without:.2g}, "
                "with both {was.apart_with:.2g}.",
                "它们的标准差为 {now.apart_without:.2g}；两个都没有时为 {was.apart_without:.2g}，都有时为 "
                "{was.apart_with:.2g}。",
            ),
        ),
    ),
    meanings={
        "gain": Text(
            "loss without − loss with the connections, at the largest depth", "最大深度下没有与有连接的损失之差"
        ),
        "spread": Text("its standard deviation over the seeds", "其在种子间的标准差"),
        "depths": Text("blocks", "块数"),
        "losses_with": Text("loss with the connections, by depth", "有连接时的损失，按深度"),
        "losses_without": Text("loss without", "没有连接时的损失"),
        "gradients_with": Text(
            "gradient at the input over that at the output, before training, with",
            "训练前输入处与输出处的梯度之比，有连接",
        ),
        "gradients_without": Text("the same without", "同上，没有连接"),
        "seeds": Text("seeds", "种子数"),
    },
    deciding="gain",
    run=run,
    full=partial(run, range(5), 400, (1, 2, 4, 8, 16)),
    rehearsal=partial(run, range(2), 2, (1, 2)),
    judge=judge,
)
