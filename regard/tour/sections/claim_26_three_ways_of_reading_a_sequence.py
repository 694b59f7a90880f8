"""Claim 26: recurrence is far but serial, convolution parallel but near, attention both, at the price of memory."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard import MultiHead, attend
from regard.measure import least_seconds, peak_memory
from regard.tour.learning import descend
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, Section
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


def questions(distance: int, count: int) -> tuple[Tensor, Tensor]:
    """Sequences (count, distance + 1) that begin with a symbol to be remembered, and that symbol."""
    words = torch.randint(SYMBOLS, SYMBOLS + FILLERS, (count, distance + 1))
    words[:, 0] = torch.randint(SYMBOLS, (count,))
    return words, words[:, 0]


def recalled(make: Make, seed: int, steps: int) -> list[float]:
    """The share of new questions answered right at each distance, after training on all of them in turn."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Embedding(SYMBOLS + FILLERS, SIZE), make(), nn.Linear(SIZE, SYMBOLS))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, fused=True)
    for step in range(steps):
        words, wanted = questions(DISTANCES[step % len(DISTANCES)], 32)
        descend(optimizer, functional.cross_entropy(model(words)[:, -1], wanted))
    shares = []
    with torch.no_grad():
        for distance in DISTANCES:
            words, wanted = questions(distance, 256)
            shares.append(float((model(words)[:, -1].argmax(-1) == wanted).float().mean()))
    return shares


@torch.no_grad()
def reading_times(models: Sequence[nn.Module], rounds: int = 15) -> Tensor:
    """Seconds for as many vectors in sequences of each length, (models, lengths)."""
    columns = []
    for length in LENGTHS:
        rows = torch.randn(TOKENS // length, length, SIZE)
        columns.append(least_seconds(*(partial(model, rows) for model in models), rounds=rounds))
    return torch.tensor(columns).T


def slope(times: Tensor) -> Tensor:
    """By which power of the length the times grow: 1 where they are proportional to it, 0 where they stay."""
    x = torch.tensor(LENGTHS).log()
    x = x - x.mean()
    return (times.log() * x).sum(-1) / x.square().sum()


@torch.no_grad()
def megabytes(attention: Make) -> list[float]:
    """The memory for one long sequence: recurrent, convolution, attention with its weights kept, and not kept."""
    rows = torch.randn(1, LONG, SIZE)
    works: list[Callable[[], object]] = [partial(make(), rows) for make in (Recurrent, Convolutions, attention)]
    works[2] = partial(attend, rows, rows, rows, need_weights=True)
    works.append(partial(attend, rows, rows, rows))
    return [max(peak_memory(work), 4e-6 * rows.numel()) for work in works]  # the output at least


def run(seeds: Sequence[int] = range(3), steps: int = 150, attention: Make = SelfAttention) -> Measured:
    """Teach each to recall, then see what time and memory they take as sequences get longer."""
    kinds = (Recurrent, Convolutions, attention, DEEP)
    shares = torch.tensor(
        [[recalled(make, seed, steps) for seed in seeds] for make in kinds]
    )  # (kinds, seeds, distances)
    times, memory, mean = reading_times([make() for make in kinds]), megabytes(attention), shares.mean(1)
    numbers = Numbers(
        far=mean[:, -1],
        spreads=shares[:, :, -1].std(1),
        distances=DISTANCES,
        recurrent=mean[0],
        convolution=mean[1],
        attention=mean[2],
        slopes=slope(times)[:3],
        lengths=LENGTHS,
        megabytes=memory,
        price=memory[2] / memory[1],
        price_streamed=memory[3] / memory[1],
        guessing=1 / SYMBOLS,
    )
    recall, reading = [], []
    for name, colour, share, seconds in zip(NAMES, COLOURS, mean, times, strict=True):
        recall.append(Line(DISTANCES, share, name, colour, dots=True))
        reading.append(Line(LENGTHS, 1e3 * seconds, name, colour, dots=True))
    panels = [
        Panel(recall, x=say("distance"), y=say("share recalled"), y_limits=(0, 1.05)),
        Panel(reading, x=say("length"), y=say("ms for 256 vectors"), x_log=True, y_log=True),
    ]
    return numbers, Chart(panels, caption=say("measurement"))


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
    titles = (say("operations that wait for one another"), say("inputs that the last output depends on"))
    return Chart(
        [
            Panel([Bars(NAMES[:3], heights, colour="attention")], title=title)
            for heights, title in zip((cell.chains, cell.reach), titles, strict=True)
        ],
        caption=say("cell", n=cell.n),
        height=220,
    )


SECTION = Section(
    **say.fields, show=draw, run=run, full=partial(run, range(5), 600), rehearsal=partial(run, range(2), 5), judge=judge
)
