"""Claim 24: masked self-attention never sees the future."""

from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor

import regard
from regard.tour.section import Criteria, Measured, Numbers, Section, Text
from regard.view import pictures

COUNT, NOW = 16, 9  # tokens; from this one on they are changed


def run() -> Measured:
    """Change all inputs from a moment on; compare the outputs before it, bit for bit."""
    layer = regard.MultiHead(size=24, heads=3)
    rows = torch.randn(1, COUNT, 24)
    changed = rows.clone()
    changed[:, NOW:] = torch.randn(1, COUNT - NOW, 24)
    masked = layer(rows, mask=regard.causal()) != layer(changed, mask=regard.causal())
    unmasked = layer(rows) != layer(changed)

    model = regard.LanguageModel(vocab_size=31, size=24, layers=3, heads=3).eval()
    words = torch.randint(31, (1, COUNT))
    others = words.clone()
    others[:, NOW:] = (words[:, NOW:] + 7) % 31
    logits = model(words) != model(others)

    with regard.capture(layer) as maps:
        layer(rows, mask=regard.causal())
    numbers = Numbers(
        past_changed=masked[:, :NOW].sum(),
        model_changed=logits[:, :NOW].sum(),
        future_changed=masked[:, NOW:].float().mean(),
        open_changed=unmasked[:, :NOW].float().mean(),
    )
    return numbers, partial(draw, maps[0].weights[0, 0].detach(), masked[0], unmasked[0])


def judge(numbers: Numbers) -> Criteria:
    """Not one bit of the past, where without the mask all of it changes."""
    yield numbers.criterion(
        numbers.past_changed == 0,
        "Not one number before the change may differ, not in a bit: {past_changed} do.",
        "改动之前的输出一个数、一位都不应不同：实际有 {past_changed} 个不同。",
    )
    yield numbers.criterion(
        numbers.model_changed == 0,
        "Nor in a whole language model: {model_changed} do.",
        "完整的语言模型也应如此：实际有 {model_changed} 个不同。",
    )
    yield numbers.criterion(
        numbers.future_changed > 0.99 and numbers.open_changed > 0.99,
        "The test must be able to tell: {future_changed:.1%} of the later numbers differ, and without the mask "
        "{open_changed:.1%} of the earlier ones.",
        "这一检验应当有分辨力：之后的输出有 {future_changed:.1%} 不同，不加掩码时之前的有 {open_changed:.1%} 不同。",
    )


def draw(weights: Tensor, masked: Tensor, unmasked: Tensor) -> Figure:
    """The weights, and for each place whether its output changed."""
    figure = pictures.figure(2.6)
    first, *others = figure.subplots(1, 3)
    pictures.heat(first, weights)
    first.set(xlabel="key (looked at)", ylabel="query (looks)", title="weights, masked", aspect="equal")
    first.set_xticks(range(0, COUNT, 5))
    first.set_yticks(range(0, COUNT, 5))
    for axes, differs, title in zip(others, (masked, unmasked), ("changed, masked", "changed, no mask"), strict=True):
        pictures.heat(axes, differs.double())
        axes.axhline(NOW - 0.5, color=pictures.TRUTH, linewidth=1.5)
        axes.set(title=title, xlabel="feature", xticks=[])
        axes.set_yticks(range(0, COUNT, 5))
    return figure


SECTION = Section(
    number=24,
    notes=("004",),
    title=Text("Masked attention never sees the future", "掩码自注意力看不到未来"),
    claim=Text(
        "To keep a model from knowing the future, the scores of later steps are set to minus infinity, so that softmax "
        "gives them the weight 0.",
        "为了防止模型知道未来时间步的信息，把之后各步的评分设为负无穷大，softmax 之后它们的权重就是 0。",
    ),
    idea=Text(
        "A weight of exactly 0 is not a small weight: whatever the future holds, nothing of it may reach the past, or "
        "a model could cheat while it learns and fail when it writes. So the comparison is not within rounding, but "
        "bit for bit.",
        "恰好为 0 的权重不是“很小”的权重：无论未来是什么，都不得影响过去，否则模型在学习时可以作弊，写作时就会失败。所"
        "以这里不是在舍入误差内比较，而是逐位比较。",
    ),
    formula=Text(
        "αᵢⱼ = softmaxⱼ(sᵢⱼ if j ≤ i else −∞) = 0 for all j > i",
        "αᵢⱼ = softmaxⱼ(j ≤ i 时为 sᵢⱼ，否则为 −∞) = 0，对所有 j > i",
    ),
    caption=Text(
        "Left, the weights of one head: nothing above the diagonal. Then, for each token and feature, whether the "
        "output changed when all tokens below the line did: with the mask none above it, without the mask all.",
        "左图：一个头的权重，对角线以上没有任何权重。另两图：横线以下的词元全部改变后，各词元、各特征的输出是否改变；"
        "有掩码时横线以上都没变，无掩码时全变了。",
    ),
    meanings={
        "past_changed": Text(
            "numbers before the change that differ in any bit, masked", "有掩码：改动之前的输出中有任何一位不同的个数"
        ),
        "model_changed": Text("the same for a whole language model of 3 layers", "同上，三层的完整语言模型"),
        "future_changed": Text("share of later numbers that differ, masked", "有掩码：之后的输出中不同的比例"),
        "open_changed": Text("share of earlier numbers that differ, no mask", "无掩码：之前的输出中不同的比例"),
    },
    deciding="past_changed",
    run=run,
    judge=judge,
)
