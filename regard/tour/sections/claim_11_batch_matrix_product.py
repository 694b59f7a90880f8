"""Claim 11: batch matrix multiplication, and that attention ends in one."""

from types import SimpleNamespace

import torch
from torch import Tensor

from regard import attend, weights
from regard.tour.section import Criteria, Exercise, Measured, Numbers, Passage, Section, Text
from regard.view.chart import Chart, Heat, Panel

PLAIN = """
batch, n, m, p = 2, 3, 5, 7  # different primes: no two of them can be swapped unnoticed
queries, keys = torch.randn(batch, n, 11), torch.randn(batch, m, 11)
values = torch.rand(batch, m, p)

weights = torch.softmax(torch.bmm(queries, keys.transpose(1, 2)) / math.sqrt(11), -1)  # (batch, n, m)
output = torch.bmm(weights, values)  # (batch, n, m) × (batch, m, p) → (batch, n, p)

loop = torch.zeros(batch, n, p)
for b in range(batch):
    for i in range(n):
        for k in range(p):
            for j in range(m):
                loop[b, i, k] += weights[b, i, j] * values[b, j, k]
difference = (output - loop).abs().max()
"""

SHORT = """
import regard

torch.testing.assert_close(regard.attend(queries, keys, values), output)
"""


def product_by_loop(left: Tensor, right: Tensor) -> Tensor:
    """(b, n, m) × (b, m, p) → (b, n, p), number by number."""
    product = left.new_zeros(*left.shape[:2], right.shape[2])
    for b, i, k in torch.cartesian_prod(*map(torch.arange, product.shape)).tolist():
        for j in range(left.shape[2]):
            product[b, i, k] += left[b, i, j] * right[b, j, k]
    return product


def run() -> Measured:
    """Multiply batches of several shapes at once and number by number, and attend with them."""
    right_shapes, by_loop, by_attend = 0, [], []
    shapes = ((2, 3, 5, 7), (1, 7, 2, 3), (5, 2, 3, 1))
    for b, n, m, p in shapes:
        query, key, right = (torch.randn(b, rows, size).double() for rows, size in ((n, 11), (m, 11), (m, p)))
        left = weights(query, key)  # (b, n, m)
        product = torch.bmm(left, right)
        right_shapes += product.shape == (b, n, p)
        by_loop.append((product - product_by_loop(left, right)).abs().max())
        by_attend.append((product - attend(query, key, right)).abs().max())
    return Numbers(shapes=len(shapes), right_shapes=right_shapes, loop=max(by_loop), attend=max(by_attend)), None


def judge(numbers: Numbers) -> Criteria:
    """The same to rounding."""
    yield numbers.identity(
        numbers.right_shapes == numbers.shapes and numbers.loop <= 1e-12,
        "(b, n, m) × (b, m, p) must have the shape (b, n, p) and equal the loop over all its numbers to 10⁻¹²: the "
        "shape is right for {right_shapes} of {shapes} batches, and the largest difference {loop}.",
        "(b, n, m) × (b, m, p) 的形状应为 (b, n, p)，且与逐个数的循环一致到 10⁻¹²：{shapes} 个批量中形状正确的有 "
        "{right_shapes} 个，最大差为 {loop}。",
    )
    yield numbers.identity(
        numbers.attend <= 1e-12,
        "The batch product of weights and values must be the output of attention, to 10⁻¹²: they differ by {attend}.",
        "权重与值的批量乘积应等于注意力的输出，误差不超过 10⁻¹²：两者相差 {attend}。",
    )


def draw(cell: SimpleNamespace) -> Chart:
    """Each matrix of the batch in a row of its own: weights, values, output."""
    panels = []
    for b in range(len(cell.output)):
        for matrix, name in (
            (cell.weights, Text("weights", "权重")),
            (cell.values, Text("× values", "× 值")),
            (cell.output, Text("= output", "= 输出")),
        ):
            size = f"{matrix.shape[1]} × {matrix.shape[2]}"
            title = Text(f"{name.en}, {size}", f"{name.zh}，{size}")
            panels.append(Panel([Heat(matrix[b], largest=1.0)], title=title, share=matrix.shape[2]))
    return Chart(
        panels,
        columns=3,
        caption=Text(
            "Two rows, one for each matrix of the batch: weights times values are outputs.",
            "两行，每行对应批量中的一个矩阵：权重乘以值就是输出。",
        ),
    )


SECTION = Section(
    number=11,
    notes=(Passage("002", 14, 16),),
    title=Text("A batch of matrix products at once", "批量矩阵乘法"),
    claim=Text(
        "Batch matrix multiplication multiplies two batches matrix by matrix; the notes' text has only the heading, "
        "beside two pictures.",
        "批量矩阵乘法把两个批量中的矩阵两两相乘；笔记的文字只有标题，另有两张图片。",
    ),
    idea=Text(
        "A batch of b matrices is a tensor (b, n, m), and each is multiplied with its partner in (b, m, p). The two "
        "halves of attention are such products: queries times keys are the scores, weights times values the outputs. "
        "The cell computes the second one also by a loop over every number.",
        "b 个矩阵构成张量 (b, n, m)，每一个都与 (b, m, p) 中对应的矩阵相乘。注意力的前后两半都是这样的乘积：查询乘键得"
        "到评分，权重乘值得到输出。代码里还用循环逐个数地计算了后者。",
    ),
    formula=r"Z_{b,i,k} = \sum_j X_{b,i,j}\, Y_{b,j,k}",
    plain=PLAIN,
    short=SHORT,
    show=draw,
    exercises=(
        Exercise(
            ("output = torch.bmm(weights, values)", "output = weights @ values"),
            Text("Does @ multiply matrix by matrix, too?", "运算符 @ 也是逐个矩阵相乘吗？"),
            Text(
                "Its largest difference from the loop is {now.difference:.2g}; that of bmm was {was.difference:.2g}.",
                "与循环的最大差为 {now.difference:.2g}；bmm 的为 {was.difference:.2g}。",
            ),
        ),
        Exercise(
            ("output = torch.bmm(weights, values)", "output = weights @ values[0]"),
            Text(
                "Now every sequence reads the values of the first: what does the loop say?",
                "现在每个序列都读第一个序列的值：循环会怎么说？",
            ),
            Text(
                "The largest difference from the loop is {now.difference:.2g} instead of {was.difference:.2g}.",
                "与循环的最大差为 {now.difference:.2g}，原来为 {was.difference:.2g}。",
            ),
        ),
    ),
    meanings={
        "shapes": Text("batches multiplied", "相乘的批量数"),
        "right_shapes": Text("products with the shape (b, n, p)", "形状为 (b, n, p) 的乘积数"),
        "loop": Text("largest |batch product − loop|", "批量乘积与循环的最大差"),
        "attend": Text("largest |weights × values − attend|", "权重 × 值与 attend 的最大差"),
    },
    deciding="loop",
    run=run,
    judge=judge,
)
