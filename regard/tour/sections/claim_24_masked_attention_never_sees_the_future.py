"""Claim 24: masked self-attention never sees the future."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import torch
from torch import Tensor

import regard
from regard.tour.cells import run_plain
from regard.tour.section import Criteria, Exercise, Measured, Numbers, Passage, Section, Text
from regard.view.chart import Chart, Heat, Panel

SEEDS, SIZE, WORDS = 3, 24, 31

PLAIN = """
def causal_mask(n):  # (n, n): row i may look at columns 0 … i
    return torch.ones(n, n).tril().bool()


n, now = 16, 9
layer = SelfAttention(24)
x = torch.randn(n, 24)
y = x.clone()
y[now:] = torch.randn(n - now, 24)  # from here on, another future

with torch.no_grad():
    scores = layer.W_q(x) @ layer.W_k(x).T / math.sqrt(24)
    weights = torch.softmax(scores.masked_fill(~causal_mask(n), -torch.inf), -1)
    output = weights @ layer.W_v(x)
    masked = layer(x, causal_mask(n)) != layer(y, causal_mask(n))  # (n, 24): in which numbers do they differ?
    unmasked = layer(x) != layer(y)
past_masked, past_unmasked = masked[:now].sum(), unmasked[:now].sum()
"""

SHORT = """
import regard

q, k, v = layer.W_q(x), layer.W_k(x), layer.W_v(x)
torch.testing.assert_close(regard.attend(q, k, v, mask=regard.causal()).detach(), output)
"""

Model = Callable[[Tensor], Tensor]  # rows (1, n, size), or ids (1, n), to outputs (1, n, …)


def cell_layer() -> Model:
    """The plain cell's layer with its mask."""
    variables = run_plain(SECTION)
    layer, causal_mask = variables["layer"], variables["causal_mask"]
    return lambda rows: layer(rows[0], causal_mask(rows.shape[1]))[None]


def models(mask: regard.Mask) -> dict[str, tuple[Model, bool]]:
    """Everything that is masked, and whether it reads words."""
    text = regard.LanguageModel(vocab_size=WORDS, size=SIZE, layers=3, heads=3).eval()
    heads = regard.MultiHead(size=SIZE, heads=3)
    additive = regard.MultiHead(size=SIZE, heads=3, score="additive")
    return {
        "cell": (cell_layer(), False),
        "heads": (partial(heads, mask=mask), False),
        "additive": (partial(additive, mask=mask), False),
        "language model": (text, True),
    }


@torch.no_grad()
def changed(model: Model, words: bool, n: int) -> Tensor:
    """(n,): which outputs change in any bit when all inputs of the second half are others."""
    first, other = (torch.randint(WORDS, (1, n)) if words else torch.randn(1, n, SIZE) for _ in range(2))
    second = first.clone()
    second[:, n // 2 :] = other[:, n // 2 :]
    return (model(first) != model(second)).any(-1)[0]


def measure(mask: regard.Mask | None = None) -> Measured:
    """Change the future of short and long inputs. mask: instead of the causal one."""
    past, future, unmasked, tried = 0, [], [], 0
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        chosen = models(regard.causal() if mask is None else mask)
        open_layer = regard.MultiHead(size=SIZE, heads=3)
        for n in (16, 300):
            for model, words in chosen.values():
                moved = changed(model, words, n)
                past, tried = past + int(moved[: n // 2].sum()), tried + n // 2
                future.append(moved[n // 2 :].double().mean())
            unmasked.append(changed(open_layer, False, n)[: n // 2].double().mean())
    return Numbers(
        models=len(chosen),
        tried=tried,
        past_changed=past,
        future_changed=torch.stack(future).min(),
        open_changed=torch.stack(unmasked).min(),
    ), None


def run() -> Measured:
    """Three seeds."""
    return measure()


def judge(numbers: Numbers) -> Criteria:
    """Not one bit of the past, by a test that could have seen it."""
    yield numbers.criterion(
        numbers.past_changed == 0 and numbers.future_changed > 0.9 and numbers.open_changed > 0.9,
        "When the second half of the inputs is changed, no output of the first half may change, not in a bit: of "
        "{tried}, by {models} models, {past_changed} do. (The test sees changes: at least {future_changed:.1%} of the "
        "later outputs change, and without a mask at least {open_changed:.1%} of the earlier ones.)",
        "改变后一半输入时，前一半的输出连一个比特都不应改变：{models} 种模型的 {tried} 个输出中有 {past_changed} 个改"
        "变。"
        "（检验能看到变化：后一半的输出至少有 {future_changed:.1%} 改变，不加掩蔽时前一半至少有 {open_changed:.1%} 改"
        "变。）",
    )


def draw(cell: SimpleNamespace) -> Chart:
    """The weights, and for each token whether its output changed."""
    panels = [
        Panel([Heat(cell.weights)], x=Text("key", "键"), y=Text("query", "查询"), title=Text("weights", "权重")),
        Panel([Heat(cell.masked)], x=Text("feature", "特征"), title=Text("changed, masked", "改变，有掩蔽"), share=1.5),
        Panel(
            [Heat(cell.unmasked)], x=Text("feature", "特征"), title=Text("changed, no mask", "改变，无掩蔽"), share=1.5
        ),
    ]
    return Chart(
        panels,
        caption=Text(
            "Left, the masked weights of sixteen tokens. Then, for each token and feature, whether the output changed "
            f"when the tokens from {cell.now} on did.",
            f"左：十六个词元的掩蔽权重。另两图：第 {cell.now} 个及以后的词元改变时，各词元、各特征的输出是否改变。",
        ),
    )


SECTION = Section(
    number=24,
    notes=(Passage("004", 75, 81),),
    title=Text("Masked attention never sees the future", "掩蔽自注意力看不到未来"),
    claim=Text(
        "To keep the model from information of future steps, the weights are masked: scores of later steps are set to "
        "minus infinity, so that softmax gives them the weight 0.",
        "为防止模型知道未来时间步的信息，要给权重加上掩蔽：把之后各步的评分设为负无穷大，softmax 之后其权重就是 0。",
    ),
    idea=Text(
        "A model that learns to write the next word must not see it. A weight of exactly 0 is not a small weight: "
        "whatever the future holds, nothing of it may reach the past. So all later inputs are changed, and the "
        "earlier outputs are compared bit by bit.",
        "学习写下一个词的模型不能看到这个词。恰好为 0 的权重不是“很小”的权重：无论未来是什么，都不得影响过去。所以这里"
        "改变之后的全部输入，再逐位比较之前的输出。",
    ),
    formula=(
        r"\alpha_{ij} = \mathrm{softmax}_j(s_{ij} + m_{ij}), \qquad "
        r"m_{ij} = -\infty \;\; (j > i), \quad 0 \;\; (j \le i)"
    ),
    plain=PLAIN,
    short=SHORT,
    uses=(22,),
    show=draw,
    exercises=(
        Exercise(
            ("return torch.ones(n, n).tril().bool()", "return torch.ones(n, n).tril(1).bool()"),
            Text("A mask that is wrong by one: who sees the future?", "掩蔽错开了一个位置：谁看到了未来？"),
            Text(
                "{now.past_masked} numbers of the past change; with the right mask {was.past_masked}.",
                "过去的输出中有 {now.past_masked} 个数改变；掩蔽正确时为 {was.past_masked} 个。",
            ),
        ),
        Exercise(
            ("return torch.ones(n, n).tril().bool()", "return torch.ones(n, n).triu().bool()"),
            Text("Only the future may be seen: what changes?", "只许看未来：什么会改变？"),
            Text(
                "{now.past_masked} numbers before the change differ; without any mask {now.past_unmasked}.",
                "改动之前的输出中有 {now.past_masked} 个数不同；完全不加掩蔽时为 {now.past_unmasked} 个。",
            ),
        ),
    ),
    meanings={
        "models": Text("models with a causal mask", "带因果掩蔽的模型数"),
        "tried": Text("outputs before the change", "改动之前的输出数"),
        "past_changed": Text("earlier outputs that differ in any bit", "改动之前的输出中，有任何一个比特不同的个数"),
        "future_changed": Text("least share of later outputs that differ", "之后的输出中不同的最小比例"),
        "open_changed": Text(
            "least share of earlier outputs that differ, no mask", "无掩蔽时之前的输出中不同的最小比例"
        ),
    },
    deciding="past_changed",
    run=run,
    judge=judge,
)
