"""Claim 27: in a block only attention mixes vectors; layer norm and MLP act on each alone."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard import Block, FeedForward, MultiHead
from regard.models.packing import SequenceInfo
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, maps, section
from regard.view.chart import Chart

say = Content(__file__)

COUNT, PLACE, SIZE = 11, 4, 24
Part = Callable[[Tensor], Tensor]  # (1, COUNT, SIZE) → the same


class Cut(nn.Module):
    """Takes the place of attention, and adds nothing to any vector."""

    def mix(self, rows: Tensor, info: SequenceInfo, past: object) -> tuple[Tensor, None]:
        """Zeros, and nothing to remember."""
        return torch.zeros_like(rows), None


@torch.no_grad()
def reached(part: Part) -> tuple[float, float]:
    """One vector is changed: the shares of its own numbers, and of those of the others, that differ in any bit."""
    rows = torch.randn(1, COUNT, SIZE)
    changed = rows.clone()
    changed[:, PLACE] = torch.randn(SIZE)
    differs = (part(rows) != part(changed))[0].float()  # (COUNT, SIZE)
    others = torch.arange(COUNT) != PLACE
    return differs[PLACE].mean().item(), differs[others].mean().item()


def run(norm: Part | None = None) -> Measured:
    """Change one vector: before layer norm alone, the MLP alone, and blocks with and without attention."""
    alone = {"norm": norm or nn.LayerNorm(SIZE), "mlp": FeedForward(SIZE, 4 * SIZE)}
    cut = [Block(Cut(), FeedForward(SIZE, 4 * SIZE), pre_norm=first) for first in (False, True)]
    whole = [Block(MultiHead(SIZE, heads=3), FeedForward(SIZE, 4 * SIZE), pre_norm=first) for first in (False, True)]
    shares = torch.tensor([reached(part) for part in (*alone.values(), *cut, *whole)])  # (6, itself or others)
    return Numbers(
        others_cut=shares[2:4, 1],
        others_whole=shares[4:, 1],
        others_norm=shares[0, 1],
        others_mlp=shares[1, 1],
        itself=shares[:, 0].min(),
    ), None


def judge(numbers: Numbers) -> Criteria:
    """Without attention nothing reaches another vector; with it everything does."""
    yield numbers.identity(max(*numbers.others_cut, numbers.others_norm, numbers.others_mlp) == 0, say("nothing mixes"))
    yield numbers.identity(min(*numbers.others_whole, numbers.itself) > 0.99, say("everything mixes"))


def draw(cell: Cell) -> Chart:
    """How far each number moves."""
    moved = {say("with attention"): cell.moved.detach(), say("attention cut"): cell.moved_cut.detach()}
    largest = max(values.max().item() for values in moved.values())
    return Chart(maps(moved, say("feature"), say("vector"), largest=largest / 4), say("cell", place=cell.place))


SECTION = section(say, draw, judge, run)
