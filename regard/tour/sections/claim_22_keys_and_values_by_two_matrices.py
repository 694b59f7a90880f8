"""Claim 22: keys and values by two learned matrices; several queries at once."""

from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor

import regard
from regard.tour.section import Criteria, Measured, Numbers, Section, Text
from regard.view import pictures


def run() -> Measured:
    """One layer, 13 input vectors of 7 numbers, 5 queries of 11."""
    layer = regard.Attention(source_size=7, key_size=11, value_size=3).double()
    query, source = torch.randn(5, 11).double() * 2, torch.randn(13, 7).double()
    output = layer(query, source).detach()
    alone = torch.cat([layer(one[None], source) for one in query]).detach()

    weights = []
    for change in (None, layer.value, layer.key):  # as it is, other values, other keys
        if change is not None:
            torch.nn.init.normal_(change.weight)
        with regard.capture(layer) as maps:
            layer(query, source)
        weights.append(maps[0].weights[0, 0].detach())  # (queries, inputs)

    first, other_values, other_keys = weights
    itself = torch.eye(len(first)).bool()
    distances = torch.cdist(first, first, p=1)[~itself]
    numbers = Numbers(
        together=(output - alone).abs().max(),
        sums=(first.sum(-1) - 1).abs().max(),
        apart=distances.min(),
        value_moved=(other_values - first).abs().max(),
        key_moved=(other_keys - first).abs().max(),
    )
    return numbers, partial(draw, first, output)


def judge(numbers: Numbers) -> Criteria:
    """The same at once as one by one; a distribution for each query; and each matrix for its own purpose."""
    yield numbers.criterion(
        numbers.together <= 1e-12,
        "All queries at once must give what each gives alone, to 1e-12: they differ by {together} at most.",
        "一次算所有查询应与逐个计算相同，误差 1e-12 以内：最大相差 {together}。",
    )
    yield numbers.criterion(
        numbers.sums <= 1e-12 and numbers.apart > 0.01,
        "Each query must have a distribution of its own: sums are off 1 by {sums} at most, and two queries differ by "
        "{apart} at least.",
        "每个查询应有自己的概率分布：各行之和与 1 最多相差 {sums}，两个查询至少相差 {apart}。",
    )
    yield numbers.criterion(
        numbers.value_moved == 0 and numbers.key_moved > 0.01,
        "Keys alone must decide about the weights: another key matrix moves them by {key_moved}, another value matrix "
        "by {value_moved}.",
        "权重应只由键决定：换一个键矩阵，权重变化 {key_moved}；换一个值矩阵，变化 {value_moved}。",
    )


def draw(weights: Tensor, output: Tensor) -> Figure:
    """The distribution of each query, and its answer."""
    figure = pictures.figure(2.6)
    left, right = figure.subplots(1, 2, width_ratios=(13, 3.4))
    pictures.heat(left, weights, digits=2)
    left.set(xlabel="input (looked at)", ylabel="query (looks)", title="a distribution for each query")
    pictures.signed(right, output, float(output.abs().max()))
    right.set(title="its output", xlabel="3 numbers", aspect="auto")
    return figure


SECTION = Section(
    number=22,
    notes=("004",),
    title=Text("Keys and values by two matrices", "由两个矩阵得到键和值"),
    claim=Text(
        "Input vectors serve two purposes, so two learned matrices make a key and a value of each: keys give the "
        "similarities, values the output. A set of queries gives each query a distribution of its own.",
        "输入向量有两种用途，因此用两个可学习的矩阵把它分解为键和值：用键计算相似度，用值计算输出。有一组查询时，每个"
        "查询各自生成一个概率分布。",
    ),
    idea=Text(
        "What makes an input worth looking at need not be what it has to say: with two matrices, a layer learns the "
        "two apart. Queries do not see each other, so that asking all of them at once, as one matrix product, is only "
        "faster. The weights below are captured from the running layer.",
        "一个输入为什么值得看，与它要说什么，不必是一回事：有了两个矩阵，层就可以分别学习。查询之间互不相见，所以把它"
        "们合成一次矩阵乘法只是更快而已。下面的权重是从运行中的层里取出来的。",
    ),
    formula="K = X W_k,     V = X W_v,     Y = softmax(Q Kᵀ / √d) V",
    caption=Text(
        "The weights of five queries over thirteen inputs, each row a different distribution, and the five outputs of "
        "three numbers.",
        "五个查询对十三个输入的权重，每行是一个不同的分布；右边是五个输出，各三个数。",
    ),
    meanings={
        "together": Text(
            "largest difference, all queries at once − one by one", "一次算所有查询与逐个计算之差的最大值"
        ),
        "sums": Text("largest |sum of a row of weights − 1|", "|权重行之和 − 1| 的最大值"),
        "apart": Text("least distance of two queries' weights, Σ|α − β|", "两个查询的权重间的最小距离 Σ|α − β|"),
        "value_moved": Text("change of the weights when the value matrix changes", "改变值矩阵时权重的变化"),
        "key_moved": Text("change of the weights when the key matrix changes", "改变键矩阵时权重的变化"),
    },
    deciding="together",
    run=run,
    judge=judge,
)
