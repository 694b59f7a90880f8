"""Claim 11: batch matrix multiplication, and that attention ends in one."""

import itertools

import torch

from regard import attend, weights
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, section
from regard.view.chart import Chart, Heat, Panel

say = Content(__file__)


def run() -> Measured:
    """Multiply batches of several shapes at once and number by number, and attend with them."""
    right_shapes, by_loop, by_attend = 0, [], []
    shapes = ((2, 3, 5, 7), (1, 7, 2, 3), (5, 2, 3, 1))
    for b, n, m, p in shapes:
        query, key, right = (torch.randn(b, rows, size).double() for rows, size in ((n, 11), (m, 11), (m, p)))
        left = weights(query, key)  # (b, n, m)
        product, summed = torch.bmm(left, right), left.new_zeros(b, n, p)
        for batch, i, j, k in itertools.product(range(b), range(n), range(m), range(p)):
            summed[batch, i, k] += left[batch, i, j] * right[batch, j, k]
        right_shapes += product.shape == (b, n, p)
        by_loop.append((product - summed).abs().max())
        by_attend.append((product - attend(query, key, right)).abs().max())
    return Numbers(shapes=len(shapes), right_shapes=right_shapes, loop=max(by_loop), attend=max(by_attend)), None


def judge(numbers: Numbers) -> Criteria:
    """The same to rounding."""
    yield numbers.identity(numbers.right_shapes == numbers.shapes and numbers.loop <= 1e-12, say("loop"))
    yield numbers.identity(numbers.attend <= 1e-12, say("attention"))


def draw(cell: Cell) -> Chart:
    """Each matrix of the batch in a row of its own: weights, values, output."""
    panels = []
    for b in range(len(cell.output)):
        for matrix, name in ((cell.weights, "weights"), (cell.values, "× values"), (cell.output, "= output")):
            size = f"{matrix.shape[1]} × {matrix.shape[2]}"
            title = say("{name}, {size}", name=say(name), size=size)
            panels.append(Panel([Heat(matrix[b], largest=1.0)], title=title, share=matrix.shape[2]))
    return Chart(panels, columns=3, caption=say("cell"))


SECTION = section(say, draw, judge, run)
