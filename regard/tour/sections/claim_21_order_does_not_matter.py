"""Claim 21: attention makes no use of order, so it works on data other than sequences."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

import regard
from regard.data.images import digits
from regard.tour.learning import descend, share_right
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, grid, maps, section, single, with_spread
from regard.view.chart import Bars, Chart

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


def accuracy(attends: bool, seed: int, steps: int) -> tuple[float, float]:
    """Four learned queries over the patches of an image, each with its place, or an average of them all: the share of
    unseen digits that are read right, and of answers that change when their patches are shuffled."""
    torch.manual_seed(seed)
    images, labels = digits()
    # (n, 8, 8) → (n, 16, 20): the four pixels of each patch, and where it stands
    pixels = (images[:, 0] / 255).unfold(1, 2, 2).unfold(2, 2, 2).reshape(len(images), 16, 4)
    patches = torch.cat([pixels, torch.eye(16).expand(len(images), 16, 16)], -1)
    order = torch.randperm(len(labels))
    train, test = order[:-500], order[-500:]
    embed = nn.Sequential(nn.Linear(4 + 16, 32), nn.ReLU(), nn.Linear(32, 32))
    queries = nn.Parameter(torch.randn(4, 32))
    key, classify = nn.Linear(32, 32), nn.Linear(4 * 32, 10)

    def answer(patches: Tensor) -> Tensor:
        rows: Tensor = embed(patches)  # (batch, 16, 32)
        asked = queries.expand(len(rows), 4, 32)
        pooled = regard.attend(asked, key(rows), rows) if attends else rows.mean(1, keepdim=True).expand(-1, 4, -1)
        logits: Tensor = classify(pooled.flatten(1))
        return logits

    def loss() -> Tensor:
        chosen = train[torch.randint(len(train), (128,))]
        return functional.cross_entropy(answer(patches[chosen]), labels[chosen])

    descend([queries, *nn.ModuleList([embed, key, classify]).parameters()], loss, steps, 1e-2)
    with torch.no_grad():
        logits = answer(patches[test])
        other = answer(patches[test][:, torch.randperm(16)])
    changed = (other.argmax(-1) != logits.argmax(-1)).double().mean()
    return share_right(logits, labels[test]), float(changed)


def measure(steps: int = 200, readers: dict[str, Callable[..., Tensor]] | None = None) -> Measured:
    """Shuffle under five scores, and learn to read digits from their patches. readers: instead of these scores."""
    sized = regard.Bilinear(7, 7).double(), regard.Additive(7, 7, 11).double()
    scores = (regard.Dot(), regard.Cosine(), regard.Kernel(), *sized)
    readers = readers or {str(score): partial(regard.attend, score=score) for score in scores}
    gru = nn.GRU(10, 3).double()  # which reads in order; what counts is its last state
    recurrent = [largest_change(lambda q, k, v: gru(torch.cat([k, v], -1))[1], seed) for seed in range(SEEDS)]
    # (seeds, right or changed)
    attending, averaging = grid(partial(accuracy, steps=steps), (True, False), range(SEEDS))
    numbers = Numbers(
        moved=max(largest_change(read, seed) for read in readers.values() for seed in range(SEEDS)),
        recurrent_moved=min(recurrent),
        **with_spread(correct=attending[:, 0], averaged=averaging[:, 0]),
        answers_changed=attending[:, 1].max(),
        chance=0.1,
    )
    names = [say("attention"), say("average pooling"), say("guessing")]
    heights = [numbers.correct, numbers.averaged, numbers.chance]
    bars = Bars(names, heights, spread=[numbers.correct_spread, numbers.averaged_spread, 0.0], colour="attention")
    return numbers, single(say("measurement"), bars, y=say("share right"), height=200)


def judge(numbers: Numbers) -> Criteria:
    """A sum does not depend on the order of its terms; whether it works on images has to be seen."""
    yield numbers.identity(numbers.moved <= 1e-12 < numbers.recurrent_moved, say("shuffled"))
    yield numbers.criterion(
        numbers.correct - 2 * numbers.correct_spread > 0.8 and numbers.answers_changed == 0, say("no sequence")
    )


def draw(cell: Cell) -> Chart:
    """The image, its pixels in the order in which they are read, and what attention makes of them."""
    images = {
        say("64 pixels"): cell.image,
        say("as they are read"): cell.values[cell.order].reshape(8, 8),
        say("asked for at 1,296 places"): cell.shuffled.reshape(36, 36),
    }
    return Chart(maps(images, largest=1.0, colour="truth"), say("cell"), height=160)


SECTION = section(say, draw, judge, measure, rehearsal=[20])
