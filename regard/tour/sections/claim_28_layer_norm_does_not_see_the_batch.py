"""Claim 28: layer norm rather than batch norm."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.tour.learning import descend
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, grid, maps, section, single
from regard.tour.sections.claim_37_residual_connections import SIZE, SYMBOLS, Norm, Stack
from regard.view.chart import Bars, Chart

say = Content(__file__)

LONGEST = 10
PLANS = ((1, 400), (4, 200), (32, 100))  # sequences in a batch, and steps
NAMES = (say("layer norm"), say("batch norm"))


class BatchNorm(nn.BatchNorm1d):
    """Batch norm of (batch, n, size): each feature over all vectors."""

    def forward(self, rows: Tensor) -> Tensor:
        return super().forward(rows.flatten(0, 1)).view(rows.shape)


def trained_loss(norm: Norm, plan: tuple[int, int], seed: int) -> Tensor:
    """At inference, on sequences of all lengths, after training with batches of this size and of any length."""
    torch.manual_seed(seed)
    batch, steps = plan
    model = Stack(1, longest=LONGEST, norm=norm)

    def loss(count: int, length: int) -> Tensor:
        return model.loss(torch.randint(SYMBOLS, (count, length)))

    descend(model.parameters(), lambda: loss(batch, int(torch.randint(3, LONGEST + 1, ()))), steps, 5e-3, fused=True)
    model.eval()
    with torch.no_grad():
        return torch.stack([loss(64, length) for length in range(3, LONGEST + 1)]).mean()


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
    # (layer or batch norm, batch sizes, seeds)
    losses = grid(trained_loss, (layer, BatchNorm), plans, seeds)
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
    names = [str(batch) for batch in numbers.batches]
    bars = [
        Bars(names, by_batch.mean(-1), name, colour, spread=by_batch.std(-1))
        for by_batch, name, colour in zip(losses, NAMES, ("attention", "pooled"), strict=True)
    ]
    return numbers, single(say("measurement"), *bars, x=say("sequences in a batch"), y=say("loss"), height=220)


def judge(numbers: Numbers) -> Criteria:
    """Each of the notes' reasons; and what batch norm does at inference."""
    yield numbers.identity(numbers.layer <= 1e-12 < numbers.training, say("batch"))
    yield numbers.criterion(numbers.gaps[0] > numbers.spreads[0], say("small batches"))
    yield numbers.identity(numbers.layer_longer <= 1e-12 < numbers.training_longer, say("sequences"))
    yield numbers.correction(numbers.inference <= 1e-12, say("inference"))


def draw(cell: Cell) -> Chart:
    """How far each number of the sample moves."""
    moved = {
        NAMES[0]: cell.layer,
        say("batch norm, training"): cell.training,
        say("batch norm, inference"): cell.inference,
    }
    return Chart(maps(moved, say("feature"), say("vector"), largest=2.0), say("cell", others=cell.others))


LONGER = ((1, 2_000), (2, 1_000), (4, 600), (32, 300))
SECTION = section(say, draw, judge, run, full=(range(5), LONGER), rehearsal=(range(2), ((1, 3), (4, 3))))
