"""Claim 9: w can be a vector, with the inner product in place of the product."""

from collections.abc import Callable
from types import SimpleNamespace

import torch
from torch import Tensor

from regard.tour.section import Criteria, Exercise, Measured, Numbers, Passage, Section, Text
from regard.view.chart import Bars, Chart, Heat, Panel

PLAIN = """
points = 5 * torch.rand(100, 2)  # two features
heights = 2 * torch.sin(points[:, 0] + points[:, 1]) + 0.3 * torch.randn(100)
apart = points[:, None] - points  # (100 queries, 100 samples, 2)


def inner_product(w):  # <w, x - x_i> in the place of w (x - x_i), as the notes say
    return -((apart @ w) ** 2) / 2


def each_feature(w):  # or one w for each feature, and all of them summed up
    return -((apart * w) ** 2).sum(-1) / 2


learned, errors = {}, {}
for score in (inner_product, each_feature):
    w = torch.tensor([1.0, 0.5], requires_grad=True)
    optimizer = torch.optim.Adam([w], lr=0.1)
    for step in range(100):
        weights = torch.softmax(score(w).masked_fill(torch.eye(100) > 0, -torch.inf), -1)
        loss = ((weights @ heights - heights) ** 2).mean()  # every sample from the others
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    learned[score.__name__], errors[score.__name__] = w.detach(), loss.item()
"""

SHORT = """
import regard

others = regard.drop(torch.eye(100) > 0)
along = points @ learned["inner_product"][:, None]  # (100, 1): an inner product leaves one feature
ours = regard.attend(along, along, heights[:, None], score=regard.Kernel("gaussian"), mask=others)[:, 0]
scores = inner_product(learned["inner_product"]).masked_fill(torch.eye(100) > 0, -torch.inf)
torch.testing.assert_close(ours, torch.softmax(scores, -1) @ heights, rtol=1e-4, atol=1e-4)
widths = 1 / learned["each_feature"].abs()
ours = regard.attend(points, points, heights[:, None], score=regard.Kernel("gaussian", widths), mask=others)[:, 0]
scores = each_feature(learned["each_feature"]).masked_fill(torch.eye(100) > 0, -torch.inf)
torch.testing.assert_close(ours, torch.softmax(scores, -1) @ heights, rtol=1e-4, atol=1e-4)
"""

Surface = Callable[[Tensor], Tensor]  # (…, 2) → (…)
Score = Callable[[Tensor, Tensor], Tensor]  # differences (…, 2), w (…, 2) → (…)

SCORES: dict[str, Score] = {
    "one w": lambda apart, w: -(apart.square().sum(-1) * w[..., 0].square()) / 2,
    "inner product": lambda apart, w: -(apart * w).sum(-1).square() / 2,
    "each feature": lambda apart, w: -(apart * w).square().sum(-1) / 2,
}
NAMES = (Text("one w", "一个 w"), Text("inner product", "内积"), Text("each feature", "每个特征一个 w"))
STARTS = torch.tensor([[1.0, 0.2], [0.5, 0.9], [-0.2, 1.0], [0.9, -0.5]])  # directions from which w sets out


def one_direction(points: Tensor) -> Tensor:
    """Depends on x₁ + x₂ alone."""
    return 2 * (points[..., 0] + points[..., 1]).sin()


def both_features(points: Tensor) -> Tensor:
    """Depends on each of the features, and on neither through one direction."""
    return 2 * points[..., 0].sin() + 2 * points[..., 1].cos()


def fit(score: Score, points: Tensor, heights: Tensor, steps: int) -> Tensor:
    """The w (seeds, 2) that predicts every sample best from the others, by gradient from several starts."""
    apart = points[:, :, None] - points[:, None]  # (seeds, n, n, 2)
    hidden = torch.eye(points.shape[1]) > 0
    w = STARTS[:, None].repeat(1, len(points), 1).requires_grad_()  # (starts, seeds, 2)
    optimizer = torch.optim.Adam([w], lr=0.05)
    for _ in range(steps):
        weights = torch.softmax(score(apart, w[:, :, None, None]).masked_fill(hidden, -torch.inf), -1)
        losses = ((weights @ heights[..., None])[..., 0] - heights).square().mean(-1)  # (starts, seeds)
        optimizer.zero_grad()
        losses.sum().backward()
        optimizer.step()
    return w.detach()[losses.argmin(0), torch.arange(len(points))]


def errors(surface: Surface, seeds: int, steps: int) -> Tensor:
    """Mean squared errors on new samples (scores, seeds), against the surface without noise."""
    points, new = 5 * torch.rand(seeds, 100, 2), 5 * torch.rand(seeds, 300, 2)
    heights = surface(points) + 0.3 * torch.randn(seeds, 100)
    measured = []
    for score in SCORES.values():
        w = fit(score, points, heights, steps)
        weights = torch.softmax(score(new[:, :, None] - points[:, None], w[:, None, None]), -1)  # (seeds, 300, 100)
        measured.append(((weights @ heights[..., None])[..., 0] - surface(new)).square().mean(-1))
    return torch.stack(measured)


def measure(
    direction: Surface = one_direction, both: Surface = both_features, seeds: int = 3, steps: int = 150
) -> Measured:
    """Three scores, fitted to data that depend on one direction, and to data that depend on both features."""
    torch.manual_seed(0)
    first, second = errors(direction, seeds, steps), errors(both, seeds, steps)
    numbers = Numbers(
        direction=first.mean(1),
        direction_spread=first.std(1),
        both=second.mean(1),
        both_spread=second.std(1),
        direction_gain=(first[0] - first[1]).mean(),
        direction_gain_spread=(first[0] - first[1]).std(),
        both_loss=(second[1] - second[2]).mean(),
        both_loss_spread=(second[1] - second[2]).std(),
        seeds=seeds,
    )
    titles = Text("y depends on x₁ + x₂", "y 取决于 x₁ + x₂"), Text("y depends on x₁ and on x₂", "y 取决于 x₁ 和 x₂")
    panels = [
        Panel([Bars(NAMES, found.mean(1), spread=found.std(1), colour="attention")], title=title)
        for found, title in zip((first, second), titles, strict=True)
    ]
    caption = Text(
        "Mean squared error on new samples of the fitted scores, for two kinds of data; whiskers: spread over the "
        "seeds.",
        "拟合后各评分在新样本上的均方误差，两种数据；误差线为种子间的波动。",
    )
    return numbers, Chart(panels, caption, height=220)


def judge(numbers: Numbers) -> Criteria:
    """The extension pays where one direction counts; an inner product has no other direction."""
    yield numbers.criterion(
        numbers.direction_gain > numbers.direction_gain_spread,
        "A vector w with the inner product must be an extension that pays: where y depends on one direction of the "
        "features, its error on new samples must be below that of a single w, beyond the spread of the difference "
        "over {seeds} seeds. It is {direction[1]} against {direction[0]}; difference {direction_gain} ± "
        "{direction_gain_spread}.",
        "w 为向量、用内积，应是有益的拓展：当 y 取决于特征的一个方向时，它在新样本上的误差应低于单个 w，且超出 "
        "{seeds} 个种子间差值的波动。测得 {direction[1]}，单个 w 为 {direction[0]}；相差 {direction_gain} ± "
        "{direction_gain_spread}。",
    )
    yield numbers.correction(
        numbers.both_loss > numbers.both_loss_spread,
        "⟨w, x − xᵢ⟩ is 0 for all that lies across w, however far away. If that is a limit, then where y depends on "
        "both features the inner product must do worse than one w for each feature, beyond the spread: its error is "
        "{both[1]} against {both[2]}, difference {both_loss} ± {both_loss_spread}; that of a single w is {both[0]}.",
        "凡与 w 垂直的差，无论多远，⟨w, x − xᵢ⟩ 都是 0。如果这是一种局限，那么当 y 取决于两个特征时，内积的误差应高于"
        "每个特征一个 w，且超出波动：测得 {both[1]} 与 {both[2]}，相差 {both_loss} ± {both_loss_spread}；单个 w 为 "
        "{both[0]}。",
    )


def draw(cell: SimpleNamespace) -> Chart:
    """How much a sample counts by its place, for a query in the middle, with the learned w."""
    side = torch.linspace(0, 5, 26)
    away = torch.stack(torch.meshgrid(side.flip(0), side, indexing="ij"), -1).flip(-1) - 2.5  # (26, 26, 2): x₁, x₂
    across = [str(index // 5) if index % 5 == 0 else "" for index in range(26)]
    seen = {
        NAMES[1]: SCORES["inner product"](away, cell.learned["inner_product"]).exp(),
        NAMES[2]: SCORES["each feature"](away, cell.learned["each_feature"]).exp(),
    }
    panels = [
        Panel([Heat(kernel, across[::-1], across, largest=1.0)], x="x₁", y="x₂", title=title)
        for title, kernel in seen.items()
    ]
    caption = Text(
        "How much a sample counts, by its place, for a query in the middle, with the w that each score has learned.",
        "查询在正中时，各位置的样本所占的份量，w 为每种评分学到的值。",
    )
    return Chart(panels, caption)


SECTION = Section(
    number=9,
    notes=(Passage("000", 67, 69),),
    title=Text("w can be a vector", "w 可以是向量"),
    claim=Text(
        "The learnable w, a single number so far, can be extended to several dimensions: w becomes a vector, and the "
        "inner product takes the place of the product.",
        "可学习的 w 目前是标量，也可以拓展到多维：w 变成向量，用内积代替乘法。",
    ),
    idea=Text(
        "With two features, x − xᵢ is a vector, and there are two ways to let a vector w act on it. The inner product "
        "gives one number, the distance along w, so that a query looks at a whole strip; one w for each feature keeps "
        "both distances, so that it looks at an ellipse. Which is better is a matter of what y depends on, so both "
        "are fitted to two kinds of data.",
        "有两个特征时，x − xᵢ 是向量，向量 w 作用于它有两种方式。内积给出一个数，即沿 w 方向的距离，于是查询看的是整条"
        "带；每个特征一个 w 则保留两个距离，看的是一个椭圆。哪个更好取决于 y 由什么决定，所以两者都在两种数据上拟合。",
    ),
    formula=r"-\frac12 \langle w, x - x_i \rangle^2 \qquad\qquad "
    r"-\frac12 \sum_k \left(w_k (x_k - x_{ik})\right)^2",
    plain=PLAIN,
    short=SHORT,
    show=draw,
    exercises=(
        Exercise(
            (
                "heights = 2 * torch.sin(points[:, 0] + points[:, 1]) + 0.3 * torch.randn(100)",
                "heights = 2 * torch.sin(points[:, 0]) + 2 * torch.cos(points[:, 1]) + 0.3 * torch.randn(100)",
            ),
            Text(
                "Now y depends on each of the features: which score has the smaller error?",
                "现在 y 取决于每个特征：哪种评分的误差更小？",
            ),
            Text(
                "Inner product {now.errors[inner_product]:.3f}, a w for each feature {now.errors[each_feature]:.3f}; "
                "before {was.errors[inner_product]:.3f} and {was.errors[each_feature]:.3f}.",
                "内积 {now.errors[inner_product]:.3f}，每个特征一个 w {now.errors[each_feature]:.3f}；之前为 "
                "{was.errors[inner_product]:.3f} 和 {was.errors[each_feature]:.3f}。",
            ),
        ),
        Exercise(
            (
                "heights = 2 * torch.sin(points[:, 0] + points[:, 1]) + 0.3 * torch.randn(100)",
                "heights = 2 * torch.sin(points[:, 0]) + 0.3 * torch.randn(100)",
            ),
            Text(
                "y depends on the first feature alone: what are the two w now?",
                "y 只取决于第一个特征：两个 w 现在是多少？",
            ),
            Text(
                "For each feature: {now.learned[each_feature][0]:.2f} and {now.learned[each_feature][1]:.2f}; before "
                "{was.learned[each_feature][0]:.2f} and {was.learned[each_feature][1]:.2f}.",
                "每个特征一个 w 时：{now.learned[each_feature][0]:.2f} 和 {now.learned[each_feature][1]:.2f}；之前为 "
                "{was.learned[each_feature][0]:.2f} 和 {was.learned[each_feature][1]:.2f}。",
            ),
        ),
    ),
    meanings={
        "direction": Text(
            "error where y depends on one direction: one w, inner product, a w for each feature",
            "y 取决于一个方向时的误差：一个 w、内积、每个特征一个 w",
        ),
        "direction_spread": Text("their standard deviations over the seeds", "其在种子间的标准差"),
        "both": Text("the same where y depends on both features", "y 取决于两个特征时的误差，次序同上"),
        "both_spread": Text("their standard deviations over the seeds", "其在种子间的标准差"),
        "direction_gain": Text("one w less inner product, first data", "第一种数据：一个 w 的误差 − 内积的误差"),
        "direction_gain_spread": Text("standard deviation of that over the seeds", "其在种子间的标准差"),
        "both_loss": Text(
            "inner product less a w for each feature, second data", "第二种数据：内积的误差 − 每个特征一个 w 的误差"
        ),
        "both_loss_spread": Text("standard deviation of that over the seeds", "其在种子间的标准差"),
        "seeds": Text("seeds tried", "种子总数"),
    },
    deciding="direction_gain",
    run=measure,
    rehearsal=lambda: measure(seeds=2, steps=10),
    judge=judge,
)
