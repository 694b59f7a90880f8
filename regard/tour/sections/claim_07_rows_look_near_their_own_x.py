"""Claim 7: row i of the map holds the weights for query i, dark near its own x."""

from itertools import pairwise
from types import SimpleNamespace

import torch

import regard
from regard.data import curve
from regard.tour.section import Control, Criteria, Exercise, Measured, Numbers, Passage, Section, Slider, Text
from regard.view.chart import Band, Chart, Dots, Heat, Line, Mark, Panel

PLAIN = """
width = 0.5
row = 30

distance = (x_i[:, None] - x_i).abs()  # (50 queries, 50 samples): the x of every sample is asked for
heat = torch.softmax(-((distance / width) ** 2) / 2, -1)  # row i: what query i gives; column j: what sample j gets
predicted = heat @ y_i  # row i is all that the prediction at x_i needs

within = distance <= width
near = (heat * within).sum(-1).mean()  # the share of a row's weight within one width of its own x
share = within.float().mean()  # the share of the samples that lie there
darkest = heat.max()
"""

SHORT = """
import regard

ours = regard.weights(x_i[:, None], x_i[:, None], score=regard.Kernel("gaussian", width))
torch.testing.assert_close(ours, heat)
"""

WIDTHS = (0.1, 0.3, 1.0)
SEEDS = 5


def measure(kernel: str = "gaussian") -> Measured:
    """Where the weights of 50 queries lie, at three widths, for five draws of the samples."""
    near, share, effective, largest, off = torch.zeros(5, SEEDS, len(WIDTHS)).double()
    for seed in range(SEEDS):
        x, y = curve.samples(50, seed)  # sorted by x
        for column, width in enumerate(WIDTHS):
            score = regard.Kernel(kernel, width)
            weights = regard.weights(x, x, score=score)  # (50 queries, 50 samples)
            within = (x - x.T).abs() <= width
            near[seed, column] = (weights * within).sum(1).mean()
            share[seed, column] = within.double().mean()
            effective[seed, column] = (1 / weights.square().sum(1)).mean()
            largest[seed, column] = weights.amax(1).mean()
            off[seed, column] = (weights @ y - regard.attend(x, x, y, score=score)).abs().max()
    return Numbers(
        widths=WIDTHS,
        near=near.mean(0),
        share=share.mean(0),
        gain=(near - share).mean(0),
        spread=(near - share).std(0),
        effective=effective.mean(0),
        largest=largest.mean(0),
        off_prediction=off.max(),
        seeds=SEEDS,
    ), None


def judge(numbers: Numbers) -> Criteria:
    """Rows make the predictions; they are dark near their own x; and a window can be told by its colours."""
    yield numbers.identity(
        numbers.off_prediction <= 1e-12,
        "Row i must be what the prediction at xᵢ is made of, to 10⁻¹²: row · y is {off_prediction} away from it at "
        "most.",
        "第 i 行应正是 xᵢ 处预测所用的权重，误差不超过 10⁻¹²：该行与 y 的加权和同预测最多相差 {off_prediction}。",
    )
    yield numbers.criterion(
        all(gain > 2 * spread for gain, spread in zip(numbers.gain, numbers.spread, strict=True)),
        "Dark near its own x: within one width of it a row must have more of its weight than there are samples, by "
        "more than twice the spread, at each of the widths {widths}. It has {near} of its weight there, and {share} "
        "of the samples; spread of the difference {spread}.",
        "在自身 x 附近颜色深：一行落在自身 x 一个带宽之内的权重比例应高于那里的样本比例，且超出两倍波动，对带宽 "
        "{widths} 都应如此。测得权重比例 {near}，样本比例 {share}；两者之差的波动为 {spread}。",
    )
    yield numbers.criterion(
        all(few < many for few, many in pairwise(numbers.effective))
        and all(dark > pale for dark, pale in pairwise(numbers.largest)),
        "A broad pale row means even weights, a narrow dark one concentrated weights: from width to width the "
        "effective number of samples must rise and the largest weight fall. They are {effective} and {largest}.",
        "一行颜色浅而宽，说明权重均匀；窄而深，说明权重集中：带宽依次增大时，有效样本数应上升，最大权重应下降。测得 "
        "{effective} 和 {largest}。",
    )


def draw(cell: SimpleNamespace) -> Chart:
    """The map, and one of its rows against x."""
    places, row = cell.x_i, cell.heat[cell.row]
    low, high = float(places[cell.row] - cell.width), float(places[cell.row] + cell.width)
    marks: list[Mark] = [
        Band(
            [low, high],
            [0, 0],
            [float(row.max())] * 2,
            Text("one width around its x", "自身 x 左右各一个带宽"),
            "truth",
        ),
        Line(places, row, Text(f"row {cell.row}", f"第 {cell.row} 行"), "attention"),
        Dots(places, row, colour="attention"),
    ]
    caption = Text(
        f"The weights of 50 queries over 50 samples, sorted by x, at width {cell.width:g}, and row {cell.row} alone.",
        f"五十个查询对五十个样本（按 x 排序）的权重，带宽 {cell.width:g}；以及第 {cell.row} 行随 x 的变化。",
    )
    heat = Heat(cell.heat, marked=[(cell.row, cell.row)])
    return Chart(
        [
            Panel([heat], x=Text("sample j", "样本 j"), y=Text("query i", "查询 i")),
            Panel(marks, x=Text("x of the samples", "样本的 x"), y=Text("weight", "权重"), x_limits=(-0.1, 5.1)),
        ],
        caption,
    )


SECTION = Section(
    number=7,
    notes=(Passage("000", 103, 124),),
    title=Text("Each row looks near its own x", "每一行的权重集中在自身 x 附近"),
    claim=Text(
        "Row i of the map has the weights that the query x = xᵢ gives to every sample, column j those given to sample "
        "j; the darker, the larger. Read across, the coloured range of a row is its window: broad and even, or small "
        "and dark around the queried x.",
        "权重图的第 i 行是查询 x = xᵢ 分给每个样本的权重，第 j 列是分给第 j 个样本的权重，颜色越深权重越大。横着看，一"
        "行上有颜色的范围就是窗口：范围大而均匀，或者小而深，集中在所查询的 x 周围。",
    ),
    idea=Text(
        "Ask for the x of every sample, and the weights become a square matrix, here as shades. Its rows each sum to "
        "1; its columns do not. With samples sorted by x, near means near the diagonal, and the breadth of the band "
        "is how far a query looks.",
        "逐个查询每个样本的 x，权重就排成一个方阵，这里用深浅表示。每行之和为 1，每列则不然。样本按 x 排序后，邻近就是"
        "靠近对角线，带的宽窄就是查询看多远。",
    ),
    formula=r"A_{ij} = \frac{K(x_i - x_j)}{\sum_k K(x_i - x_k)}, \qquad f(x_i) = \sum_j A_{ij}\, y_j",
    plain=PLAIN,
    short=SHORT,
    uses=(3,),
    show=draw,
    controls=(
        Control("width = 0.5", Text("width", "带宽"), Slider(0.02, 5, log=True)),
        Control("row = 30", Text("row", "行"), Slider(0, 49, 1, whole=True)),
    ),
    exercises=(
        Exercise(
            ("width = 0.5", "width = 5.0"),
            Text("A very broad window: how dark is the darkest weight now?", "窗口非常宽：现在最大的权重是多少？"),
            Text(
                "{now.darkest:.3f}; it was {was.darkest:.3f}. Equal weights would be 0.020.",
                "{now.darkest:.3f}，原来为 {was.darkest:.3f}。权重全部相等时为 0.020。",
            ),
        ),
        Exercise(
            ("distance = (x_i[:, None] - x_i).abs()", "distance = (x_i.flip(0)[:, None] - x_i).abs()"),
            Text(
                "Ask in the reverse order: what happens to the share of the weight within one width?",
                "按相反的顺序查询：落在一个带宽之内的权重比例会怎样？",
            ),
            Text(
                "It is {now.near:.3f}, before {was.near:.3f}: the rows are the same ones in another order.",
                "为 {now.near:.3f}，原来为 {was.near:.3f}：还是同样的行，只是换了顺序。",
            ),
        ),
    ),
    meanings={
        "widths": Text("widths tried", "试过的带宽"),
        "near": Text("share of a row's weight within one width of its x", "每行权重落在自身 x 一个带宽内的比例"),
        "share": Text("share of the samples within one width", "一个带宽内的样本比例"),
        "gain": Text("the first less the second", "前者减后者"),
        "spread": Text("standard deviation of that over the seeds", "其在种子间的标准差"),
        "effective": Text("effective number of samples of a row", "一行的有效样本数"),
        "largest": Text("largest weight of a row", "一行中最大的权重"),
        "off_prediction": Text("largest |row i · y − prediction at xᵢ|", "|第 i 行 · y − xᵢ 处的预测| 的最大值"),
        "seeds": Text("seeds tried", "种子总数"),
    },
    deciding="near",
    run=measure,
    judge=judge,
    laboratory="#/curve?kernel=gaussian&bandwidth=0.5",
)
