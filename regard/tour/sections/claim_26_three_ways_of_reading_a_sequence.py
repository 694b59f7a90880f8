"""Claim 26: recurrence is far but serial, convolution parallel but near, attention both, at the price of memory."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard import MultiHead, attend
from regard.measure import least_seconds, peak_memory
from regard.tour.learning import descend, share_right
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, grid, section
from regard.view.chart import Bars, Chart, Line, Panel

say = Content(__file__)

SIZE, SYMBOLS, FILLERS = 32, 8, 8  # symbols 0–7 are to be remembered, 8–15 to be passed over
DISTANCES = (3, 6, 12, 24, 48)
LENGTHS, TOKENS = (4, 16, 64, 256), 256  # so many vectors are read as sequences of each length
LONG = 4_096  # vectors of the sequence whose memory is measured
NAMES = (say("recurrent"), say("convolution"), say("self-attention"), say("deeper convolution"))
COLOURS = ("truth", "pooled", "attention", "other")


class Recurrent(nn.Module):
    """A GRU: rows (batch, n, SIZE) → the same."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.GRU(SIZE, SIZE, batch_first=True)

    def forward(self, rows: Tensor) -> Tensor:
        output: Tensor = self.net(rows)[0]
        return output


class Convolutions(nn.Module):
    """Layers of convolutions of three places, with residuals; each sees places that lie `dilation` apart."""

    def __init__(self, dilations: Sequence[int] = (1, 1)) -> None:
        super().__init__()
        self.nets = nn.ModuleList(nn.Conv1d(SIZE, SIZE, 3, dilation=dilation) for dilation in dilations)
        self.dilations = dilations

    def forward(self, rows: Tensor) -> Tensor:
        columns = rows.transpose(1, 2)
        for net, dilation in zip(self.nets, self.dilations, strict=True):
            columns = columns + functional.relu(net(functional.pad(columns, (2 * dilation, 0))))
        return columns.transpose(1, 2)


class SelfAttention(nn.Module):
    """One layer of attention, with a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.net = MultiHead(SIZE, 2)

    def forward(self, rows: Tensor) -> Tensor:
        output: Tensor = rows + self.net(rows)
        return output


DEEP = partial(Convolutions, (1, 2, 4, 8, 16))  # which sees 62 places back
Make = Callable[[], nn.Module]


def recalled(make: Make, seed: int, steps: int) -> list[float]:
    """The share of new questions answered right at each distance, after training on all of them in turn."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Embedding(SYMBOLS + FILLERS, SIZE), make(), nn.Linear(SIZE, SYMBOLS))
    distances = cycle(DISTANCES)

    def answers(distance: int, count: int) -> tuple[Tensor, Tensor]:
        """To sequences that begin with a symbol to be remembered, and that symbol."""
        words = torch.randint(SYMBOLS, SYMBOLS + FILLERS, (count, distance + 1))
        words[:, 0] = torch.randint(SYMBOLS, (count,))
        return model(words)[:, -1], words[:, 0]

    def loss() -> Tensor:
        return functional.cross_entropy(*answers(next(distances), 32))

    descend(model.parameters(), loss, steps, 5e-3, fused=True)
    with torch.no_grad():
        return [share_right(*answers(distance, 256)) for distance in DISTANCES]


@torch.no_grad()
def costs(models: Sequence[nn.Module]) -> tuple[Tensor, list[float]]:
    """Seconds for as many vectors in sequences of each length, (models, lengths). And the megabytes for one long
    sequence: recurrent, convolution, attention with its weights kept, and not kept."""
    times = []
    for length in LENGTHS:
        rows = torch.randn(TOKENS // length, length, SIZE)
        times.append(least_seconds(*(partial(model, rows) for model in models), rounds=15))
    rows = torch.randn(1, LONG, SIZE)
    attention = partial(attend, rows, rows, rows)
    works = partial(Recurrent(), rows), partial(Convolutions(), rows), partial(attention, need_weights=True), attention
    return torch.tensor(times).T, [max(peak_memory(work), 4e-6 * rows.numel()) for work in works]  # at least the output


def run(seeds: Sequence[int] = range(3), steps: int = 150, attention: Make = SelfAttention) -> Measured:
    """Teach each to recall, then see what time and memory they take as sequences get longer."""
    kinds = (Recurrent, Convolutions, attention, DEEP)
    shares = grid(partial(recalled, steps=steps), kinds, seeds)  # (kinds, seeds, distances)
    (times, memory), mean = costs([make() for make in kinds]), shares.mean(1)
    # By which power of the length the times grow: 1 where they are proportional to it, 0 where they stay
    powers = torch.tensor(LENGTHS).log()
    away = powers - powers.mean()
    slopes = (times.log() * away).sum(-1) / away.square().sum()
    numbers = Numbers(
        far=mean[:, -1],
        spreads=shares[:, :, -1].std(1),
        distances=DISTANCES,
        **dict(zip(("recurrent", "convolution", "attention"), mean, strict=False)),
        slopes=slopes[:3],
        lengths=LENGTHS,
        megabytes=memory,
        price=memory[2] / memory[1],
        price_streamed=memory[3] / memory[1],
        guessing=1 / SYMBOLS,
    )
    recall, reading = (
        [Line(x, row, name, colour, dots=True) for row, name, colour in zip(rows, NAMES, COLOURS, strict=True)]
        for x, rows in ((DISTANCES, mean), (LENGTHS, 1e3 * times))
    )
    left = Panel(recall, say("distance"), say("share recalled"), y_limits=(0, 1.05))
    right = Panel(reading, say("length"), say("ms for 256 vectors"), x_log=True, y_log=True)
    return numbers, Chart([left, right], say("measurement"))


def judge(numbers: Numbers) -> Criteria:
    """The statements of the notes, one by one."""
    yield numbers.criterion(numbers.far[2] > 0.9, say("attention recalls"))
    yield numbers.criterion(numbers.slopes[2] < 1 / 3, say("attention is parallel"))
    yield numbers.criterion(numbers.price > 10, say("attention takes memory"))
    yield numbers.criterion(numbers.far[0] > 0.9, say("recurrence recalls"))
    yield numbers.criterion(numbers.slopes[0] > 1 / 3, say("recurrence is not parallel"))
    yield numbers.criterion(numbers.slopes[1] < 1 / 3, say("convolution is parallel"))
    yield numbers.criterion(numbers.far[1] < 2 * numbers.guessing, say("convolution does not reach"))
    yield numbers.correction(numbers.far[3] > 0.9, say("deep convolution reaches"))
    yield numbers.correction(numbers.price_streamed < 10, say("weights not kept"))


def draw(cell: Cell) -> Chart:
    """The chains of operations, and the inputs that are reached."""
    chains, reach = (Bars(NAMES[:3], heights, colour="attention") for heights in (cell.chains, cell.reach))
    left = Panel([chains], title=say("operations that wait for one another"))
    right = Panel([reach], title=say("inputs that the last output depends on"))
    return Chart([left, right], say("cell", n=cell.n), height=220)


SECTION = section(say, draw, judge, run, full=(range(5), 600), rehearsal=(range(2), 5))
