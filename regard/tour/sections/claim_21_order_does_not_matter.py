"""Claim 21: attention makes no use of order, so it works on data other than sequences."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

import regard
from regard.data.images import digits
from regard.tour.learning import descend
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, Section
from regard.view.chart import Bars, Chart, Heat, Panel

say = Content(__file__)

SEEDS = 3


@torch.no_grad()
def largest_change(read: Callable[[Tensor, Tensor, Tensor], Tensor], seed: int) -> float:
    """How far outputs move when keys and values change places together."""
    torch.manual_seed(seed)
    query, key, value = torch.randn(5, 7).double(), torch.randn(64, 7).double(), torch.randn(64, 3).double()
    order = torch.randperm(64)
    change: Tensor = read(query, key[order], value[order]) - read(query, key, value)
    return float(change.abs().max())


def read_in_order(query: Tensor, key: Tensor, value: Tensor, reader: nn.GRU) -> Tensor:
    """What a recurrent network has read at the end."""
    last: Tensor = reader(torch.cat([key, value], -1))[1]
    return last


class PatchReader(nn.Module):
    """Four learned queries over the patches of an image, each with its place; attention or an average of them all."""

    def __init__(self, attends: bool) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(4 + 16, 32), nn.ReLU(), nn.Linear(32, 32))
        self.queries = nn.Parameter(torch.randn(4, 32))
        self.key, self.classify = nn.Linear(32, 32), nn.Linear(4 * 32, 10)
        self.attends = attends

    def forward(self, patches: Tensor) -> Tensor:
        rows = self.embed(patches)  # (batch, 16, 32)
        if self.attends:
            pooled = regard.attend(self.queries.expand(len(rows), 4, 32), self.key(rows), rows)
        else:
            pooled = rows.mean(1, keepdim=True).expand(-1, 4, -1)
        logits: Tensor = self.classify(pooled.flatten(1))
        return logits


def patches_of(images: Tensor) -> Tensor:
    """(n, 8, 8) → (n, 16, 20): the four pixels of each patch, and where it stands."""
    pixels = images.unfold(1, 2, 2).unfold(2, 2, 2).reshape(len(images), 16, 4)
    return torch.cat([pixels, torch.eye(16).expand(len(images), 16, 16)], -1)


def accuracy(attends: bool, seed: int, steps: int) -> tuple[float, float]:
    """On digits that it has not seen; and the share of answers that change when their patches are shuffled."""
    torch.manual_seed(seed)
    images, labels = digits()
    patches = patches_of(images[:, 0] / 255)
    order = torch.randperm(len(labels))
    train, test = order[:-500], order[-500:]
    model = PatchReader(attends)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        chosen = train[torch.randint(len(train), (128,))]
        loss = functional.cross_entropy(model(patches[chosen]), labels[chosen])
        descend(optimizer, loss)
    with torch.no_grad():
        answer = model(patches[test]).argmax(-1)
        other = model(patches[test][:, torch.randperm(16)]).argmax(-1)
    return float((answer == labels[test]).double().mean()), float((other != answer).double().mean())


def measure(steps: int = 200, readers: dict[str, Callable[..., Tensor]] | None = None) -> Measured:
    """Shuffle under five scores, and learn to read digits from their patches. readers: instead of these scores."""
    sized = regard.Bilinear(7, 7).double(), regard.Additive(7, 7, 11).double()
    scores = (regard.Dot(), regard.Cosine(), regard.Kernel(), *sized)
    readers = readers or {str(score): partial(regard.attend, score=score) for score in scores}
    gru = partial(read_in_order, reader=nn.GRU(10, 3).double())
    attending, averaging = (
        torch.tensor([accuracy(attends, seed, steps) for seed in range(SEEDS)]) for attends in (True, False)
    )
    numbers = Numbers(
        moved=max(largest_change(read, seed) for read in readers.values() for seed in range(SEEDS)),
        recurrent_moved=min(largest_change(gru, seed) for seed in range(SEEDS)),
        correct=attending[:, 0].mean(),
        correct_spread=attending[:, 0].std(),
        averaged=averaging[:, 0].mean(),
        averaged_spread=averaging[:, 0].std(),
        answers_changed=attending[:, 1].max(),
        chance=0.1,
    )
    names = [say("attention"), say("average pooling"), say("guessing")]
    heights = [numbers.correct, numbers.averaged, numbers.chance]
    bars = Bars(names, heights, spread=[numbers.correct_spread, numbers.averaged_spread, 0.0], colour="attention")
    return numbers, Chart([Panel([bars], y=say("share right"))], height=200, caption=say("measurement"))


def judge(numbers: Numbers) -> Criteria:
    """A sum does not depend on the order of its terms; whether it works on images has to be seen."""
    yield numbers.identity(numbers.moved <= 1e-12 < numbers.recurrent_moved, say("shuffled"))
    yield numbers.criterion(
        numbers.correct - 2 * numbers.correct_spread > 0.8 and numbers.answers_changed == 0, say("no sequence")
    )


def draw(cell: Cell) -> Chart:
    """The image, its pixels in the order in which they are read, and what attention makes of them."""
    images = (
        (cell.image, say("64 pixels")),
        (cell.values[cell.order].reshape(8, 8), say("as they are read")),
        (cell.shuffled.reshape(36, 36), say("asked for at 1,296 places")),
    )
    return Chart(
        [Panel([Heat(values, largest=1.0, colour="truth")], title=title) for values, title in images],
        height=160,
        caption=say("cell"),
    )


SECTION = Section(**say.fields, show=draw, run=measure, rehearsal=partial(measure, 20), judge=judge)
