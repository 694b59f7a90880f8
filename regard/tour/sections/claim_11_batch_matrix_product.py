"""Claim 11: the batch matrix product multiplies matrix by matrix, and attention is one of them."""

from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor

import regard
from regard.tour.section import Criteria, Measured, Numbers, Section, Text
from regard.view import pictures


def run() -> Measured:
    """Multiply a batch at once, and number by number."""
    left = torch.randn(2, 3, 5, dtype=torch.float64)  # (batch, n, m)
    right = torch.randn(2, 5, 7, dtype=torch.float64)  # (batch, m, p)
    product = torch.bmm(left, right)

    loop = torch.zeros(2, 3, 7, dtype=torch.float64)
    for b in range(2):
        for i in range(3):
            for k in range(7):
                for j in range(5):
                    loop[b, i, k] += left[b, i, j] * right[b, j, k]

    # The outputs of a batch of attention are such a product, of weights and values.
    query = torch.randn(2, 3, 4, dtype=torch.float64)
    key = torch.randn(2, 5, 4, dtype=torch.float64)
    averages = torch.bmm(regard.weights(query, key), right)

    numbers = Numbers(
        shape=tuple(product.shape),
        loop=(product - loop).abs().max(),
        attend=(averages - regard.attend(query, key, right)).abs().max(),
    )
    return numbers, partial(draw, left, right, product)


def judge(numbers: Numbers) -> Criteria:
    """The same to rounding."""
    yield numbers.criterion(
        numbers.shape == (2, 3, 7) and numbers.loop <= 1e-12,
        "(2, 3, 5) × (2, 5, 7) must have the shape (2, 3, 7) and equal the loop over batch, rows, columns and inner "
        "dimension to 10⁻¹²: the shape is {shape}, the difference {loop}.",
        "(2, 3, 5) × (2, 5, 7) 的形状应为 (2, 3, 7)，且与逐元素循环的结果一致到 10⁻¹²：形状为 {shape}，相差 {loop}。",
    )
    yield numbers.criterion(
        numbers.attend <= 1e-12,
        "The batch product of weights and values must be what attend returns, to 10⁻¹²: they differ by {attend}.",
        "权重与值的批量乘积应等于 attend 的输出，误差不超过 10⁻¹²：两者相差 {attend}。",
    )


def draw(left: Tensor, right: Tensor, product: Tensor) -> Figure:
    """Each matrix of the batch in a row of its own: left × right = product."""
    figure = pictures.figure(height=3.4)
    panels = figure.subplots(2, 3, width_ratios=[5, 7, 7])
    for batch, row in enumerate(panels):
        for axes, matrix, sign in zip(row, (left, right, product), ("", "×", "="), strict=True):
            pictures.signed(axes, matrix[batch], largest=float(matrix.abs().max()))
            axes.text(-0.09, 0.5, sign, transform=axes.transAxes, ha="right", va="center", fontsize=15)
            axes.set_xlabel(" × ".join(map(str, matrix.shape[1:])))
        row[0].set_ylabel(f"batch {batch}")
    return figure


SECTION = Section(
    number=11,
    notes=("002",),
    title=Text("A batch of matrix products at once", "批量矩阵乘法"),
    claim=Text(
        "Batch matrix multiplication turns (b, n, m) and (b, m, p) into (b, n, p): each matrix of the one batch times "
        "its partner in the other.",
        "批量矩阵乘法把 (b, n, m) 与 (b, m, p) 变成 (b, n, p)：两个批量中的矩阵两两相乘。",
    ),
    idea=Text(
        "Weights (b, n, m) times values (b, m, p) are the outputs (b, n, p): that is the whole second half of "
        "attention. The sizes here are different primes, so that no two of them can be swapped unnoticed.",
        "权重 (b, n, m) 乘以值 (b, m, p) 得到输出 (b, n, p)：注意力的后半部分就是这一步。这里各维大小取互不相同的素数，"
        "任何两维弄反了都会被发现。",
    ),
    formula="Z[b, i, k] = Σⱼ X[b, i, j] · Y[b, j, k]",
    caption=Text(
        "Two rows, one per matrix of the batch: a 3 × 5 matrix times a 5 × 7 matrix gives a 3 × 7 matrix. Red is "
        "positive, blue negative.",
        "两行，每行对应批量中的一个矩阵：3 × 5 矩阵乘 5 × 7 矩阵得到 3 × 7 矩阵。红色为正，蓝色为负。",
    ),
    meanings={
        "shape": Text("shape of (2, 3, 5) × (2, 5, 7)", "(2, 3, 5) × (2, 5, 7) 的形状"),
        "loop": Text("largest |batch product − loop|", "批量乘积与循环的最大差"),
        "attend": Text("largest |weights × values − attend|", "权重 × 值与 attend 的最大差"),
    },
    deciding="loop",
    run=run,
    judge=judge,
)
