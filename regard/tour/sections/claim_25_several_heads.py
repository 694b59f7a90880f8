"""Claim 25: splitting the input over several heads raises the expressive power."""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import product

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard import attend
from regard.data.grammar import corpus
from regard.data.words import split
from regard.tour.learning import descend
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, Text, by_seed, grid, maps, section, show
from regard.view.chart import Chart, Panel

say = Content(__file__)

HEADS = (1, 2, 4, 8)
SIZE, LENGTH = 32, 8
KINDS = (say("positions in queries and keys alone"), say("positions added to the vectors"))
TASKS = (say("three places at once"), say("the next word"))
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
        return (rows.flatten(1, 2) @ matrix).view(*rows.shape[:3], self.heads, -1).transpose(2, 3)


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
        losses = functional.cross_entropy(logits.flatten(0, -2), wanted.flatten(), reduction="none")
        return losses.view(len(logits), -1).mean(1)

    torch.manual_seed(0)
    descend(models.parameters(), lambda: losses(64, False), steps, 1e-2, fused=True)
    with torch.no_grad():
        return losses(2_000, True).view(2, len(seeds))


def run(seeds: Sequence[int] = range(5), steps: int = 150, heads: Sequence[int] = HEADS) -> Measured:
    """1, 2, 4 and 8 heads on both tasks, with both kinds of positions."""
    losses = grid(lambda sample, count: trained_loss(sample, count, seeds, steps), (places, words), heads)
    losses = losses.transpose(1, 2)  # (tasks, positions, heads, seeds)
    gains = (losses[:, :, 0] - losses[:, :, -1]).flatten(0, 1)  # (tasks · positions, seeds)
    mean = losses.mean(-1).flatten(0, 1)
    numbers = Numbers(
        gains=gains.mean(1),
        spreads=gains.std(1),
        heads=heads,
        **dict(zip(("places_scores", "places_added", "words_scores", "words_added"), mean, strict=True)),
        seeds=len(seeds),
    )
    panels = []
    for task, title in zip(losses, TASKS, strict=True):
        kinds = zip(task, KINDS, ("attention", "truth"), strict=True)
        marks = [mark for by_heads, label, colour in kinds for mark in by_seed(heads, by_heads, label, colour)]
        panels.append(Panel(marks, say("heads"), say("loss"), title))
    return numbers, Chart(panels, say("measurement"))


def judge(numbers: Numbers) -> Criteria:
    """Many heads must lose less than one, by more than the spread, on each task with each kind of positions."""
    for (task, kind), gain, spread in zip(product(TASKS, KINDS), numbers.gains, numbers.spreads, strict=True):
        where = Text(task.en.capitalize(), task.zh)
        difference = f"{show(gain)} ± {show(spread)}"
        yield numbers.criterion(gain > spread, say("more heads"), task=where, positions=kind, difference=difference)


def draw(cell: Cell) -> Chart:
    """The map of each head."""
    heads = {say("head {number}", number=number): weights for number, weights in enumerate(cell.maps[:8], 1)}
    return Chart(maps(heads, largest=cell.largest), say("cell"), columns=min(len(heads), 4))


SECTION = section(say, draw, judge, run, full=(range(5), 1_000), rehearsal=(range(2), 5))
