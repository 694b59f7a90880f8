"""Claim 37: attention and MLP have residual connections around them."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard import FeedForward, MultiHead
from regard.tour.learning import descend
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, by_seed, grid, section, seeded, single
from regard.view.chart import Chart, Line, Panel

say = Content(__file__)

SIZE, HEADS, LENGTH, SYMBOLS = 16, 2, 8, 8
DEPTHS = (1, 3, 6)
KINDS = ((say("with the connections"), "attention"), (say("without"), "pooled"))
Norm = Callable[[int], nn.Module]


class Layer(nn.Module):
    """The notes' block, with `residual` times what came in added to what attention and the MLP make of it."""

    def __init__(self, residual: float, norm: Norm) -> None:
        super().__init__()
        self.residual = residual
        self.attention, self.mlp = MultiHead(SIZE, HEADS), FeedForward(SIZE, 4 * SIZE, "relu")
        self.norms = nn.ModuleList(norm(SIZE) for _ in range(2))

    def forward(self, rows: Tensor) -> Tensor:
        for part, norm in zip((self.attention, self.mlp), self.norms, strict=True):
            rows = norm(self.residual * rows + part(rows))
        return rows


class Stack(nn.Module):
    """Blocks, of which every place has to name the symbol before it: symbols (batch, n) → logits (batch, n, SYMBOLS).

    longest: the largest n · norm: of the blocks
    """

    def __init__(self, depth: int, residual: float = 1.0, longest: int = LENGTH, norm: Norm = nn.LayerNorm) -> None:
        super().__init__()
        self.symbols, self.positions = nn.Embedding(SYMBOLS, SIZE), nn.Parameter(torch.randn(longest, SIZE))
        self.layers = nn.Sequential(*(Layer(residual, norm) for _ in range(depth)))
        self.answer = nn.Linear(SIZE, SYMBOLS)

    def embed(self, symbols: Tensor) -> Tensor:
        """What the first layer gets."""
        rows: Tensor = self.symbols(symbols) + self.positions[: symbols.shape[1]]
        return rows

    def loss(self, symbols: Tensor, output: Tensor | None = None) -> Tensor:
        """By what the last layer has put out, unless that is given."""
        logits = self.answer(self.layers(self.embed(symbols)) if output is None else output)[:, 1:]
        return functional.cross_entropy(logits.flatten(0, 1), symbols[:, :-1].flatten())


def run(
    seeds: Sequence[int] = range(3), steps: int = 60, depths: Sequence[int] = DEPTHS, residual: float = 1.0
) -> Measured:
    """Stacks of blocks with and without the connections: the gradient that arrives, and what they learn."""

    def gradient_left(stack: Stack) -> Tensor:
        symbols = torch.randint(SYMBOLS, (32, LENGTH))
        rows = stack.embed(symbols)
        output = stack.layers(rows)
        inner, outer = torch.autograd.grad(stack.loss(symbols, output), [rows, output])
        left: Tensor = inner.norm() / outer.norm()  # of the gradients at the input of the stack, and at its output
        return left

    def trained_loss(stack: Stack) -> Tensor:
        descend(stack.parameters(), lambda: stack.loss(torch.randint(SYMBOLS, (32, LENGTH))), steps, 4e-3, fused=True)
        with torch.no_grad():
            return stack.loss(torch.randint(SYMBOLS, (256, LENGTH)))

    def of_stack(measured: Callable[[Stack], Tensor], factor: float, depth: int) -> Tensor:
        return seeded(lambda: measured(Stack(depth, factor)), seeds)

    # (with or without, depths, seeds) each
    gradients, losses = grid(of_stack, (gradient_left, trained_loss), (residual, 0.0), depths)
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
    panels: list[Panel] = []
    for values, title in zip((gradients, losses), (say("gradient at the input"), say("loss")), strict=True):
        marks = [mark for part, kind in zip(values, KINDS, strict=True) for mark in by_seed(depths, part, *kind)]
        panels.append(Panel(marks, x=say("blocks"), title=title, y_log=not panels))
    return numbers, Chart(panels, say("measurement"))


def judge(numbers: Numbers) -> Criteria:
    """A deep stack must learn better with the connections than without."""
    yield numbers.criterion(numbers.gain > numbers.spread, say("deep stacks"))


def draw(cell: Cell) -> Chart:
    """The gradient on its way down."""
    places, norms = range(cell.depth + 1), (cell.grads_with, cell.grads_without)
    lines = [Line(places, norm, label, colour) for norm, (label, colour) in zip(norms, KINDS, strict=True)]
    gradient = say("norm of the gradient")
    return single(say("cell"), *lines, x=say("after block"), y=gradient, y_log=True, height=220)


SECTION = section(say, draw, judge, run, full=(range(5), 400, (1, 2, 4, 8, 16)), rehearsal=(range(2), 2, (1, 2)))
