"""Claim 21: attention makes no use of order, so it works on data other than sequences."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn import functional

import regard
from regard.data.images import digits
from regard.tour.section import Control, Criteria, Exercise, Measured, Numbers, Passage, Section, Slider, Text
from regard.view.chart import Bars, Chart, Heat, Panel

SEEDS = 3

PLAIN = """
picture = "..####.. .#....#. #..##..# #..##..# #......# #.#..#.# .#.##.#. ..####.."
image = torch.tensor([[float(letter == "#") for letter in row] for row in picture.split()])  # (8, 8)
width = 0.06

coarse, fine = torch.linspace(0, 1, 8), torch.linspace(0, 1, 36)
keys = torch.cartesian_prod(coarse, coarse)  # (64, 2): where each pixel is
values = image.reshape(64, 1)  # how bright it is
queries = torch.cartesian_prod(fine, fine)  # (1296, 2): where we want to know


def look(queries, keys, values):
    weights = torch.softmax(-((torch.cdist(queries, keys) / width) ** 2) / 2, -1)  # (1296, 64)
    return weights @ values


order = torch.randperm(64)
in_order = look(queries, keys, values)
shuffled = look(queries, keys[order], values[order])
change = (shuffled - in_order).abs().max()
"""

SHORT = """
import regard

near = regard.Kernel("gaussian", width=width)
ours = regard.attend(queries, keys[order], values[order], score=near)
torch.testing.assert_close(ours, in_order, rtol=1e-4, atol=1e-5)
"""

# ------------------------------------------------------------------------------------------------------------ shuffling


@torch.no_grad()
def largest_change(read: Callable[[Tensor, Tensor, Tensor], Tensor], seed: int) -> float:
    """How far outputs move when keys and values change places together."""
    torch.manual_seed(seed)
    query, key, value = torch.randn(5, 7).double(), torch.randn(64, 7).double(), torch.randn(64, 3).double()
    order = torch.randperm(64)
    change: Tensor = read(query, key[order], value[order]) - read(query, key, value)
    return float(change.abs().max())


def read_in_order(query: Tensor, key: Tensor, value: Tensor, reader: nn.GRU) -> Tensor:
    """What a recurrent network has read at the end."""
    last: Tensor = reader(torch.cat([key, value], -1))[1]
    return last


# --------------------------------------------------------------------------------------------------------------- images


class PatchReader(nn.Module):
    """Four learned queries over the patches of an image, each with its place; attention or an average of them all."""

    def __init__(self, attends: bool) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(4 + 16, 32), nn.ReLU(), nn.Linear(32, 32))
        self.queries = nn.Parameter(torch.randn(4, 32))
        self.key, self.classify = nn.Linear(32, 32), nn.Linear(4 * 32, 10)
        self.attends = attends

    def forward(self, patches: Tensor) -> Tensor:
        rows = self.embed(patches)  # (batch, 16, 32)
        if self.attends:
            pooled = regard.attend(self.queries.expand(len(rows), 4, 32), self.key(rows), rows)
        else:
            pooled = rows.mean(1, keepdim=True).expand(-1, 4, -1)
        logits: Tensor = self.classify(pooled.flatten(1))
        return logits


def patches_of(images: Tensor) -> Tensor:
    """(n, 8, 8) → (n, 16, 20): the four pixels of each patch, and where it stands."""
    pixels = images.unfold(1, 2, 2).unfold(2, 2, 2).reshape(len(images), 16, 4)
    return torch.cat([pixels, torch.eye(16).expand(len(images), 16, 16)], -1)


def accuracy(attends: bool, seed: int, steps: int) -> tuple[float, float]:
    """On digits that it has not seen; and the share of answers that change when their patches are shuffled."""
    torch.manual_seed(seed)
    data = digits().train
    patches, labels = patches_of(data.pixels[:, 0] / 255), data.labels
    order = torch.randperm(len(labels))
    train, test = order[:-500], order[-500:]
    model = PatchReader(attends)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        chosen = train[torch.randint(len(train), (128,))]
        loss = functional.cross_entropy(model(patches[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        answer = model(patches[test]).argmax(-1)
        other = model(patches[test][:, torch.randperm(16)]).argmax(-1)
    return float((answer == labels[test]).double().mean()), float((other != answer).double().mean())


def measure(steps: int = 200, readers: dict[str, Callable[..., Tensor]] | None = None) -> Measured:
    """Shuffle under five scores, and learn to read digits from their patches. readers: instead of these scores."""
    sized = regard.Bilinear(7, 7).double(), regard.Additive(7, 7, 11).double()
    scores = (regard.Dot(), regard.Cosine(), regard.Kernel(), *sized)
    readers = readers or {str(score): partial(regard.attend, score=score) for score in scores}
    gru = partial(read_in_order, reader=nn.GRU(10, 3).double())
    attending, averaging = (
        torch.tensor([accuracy(attends, seed, steps) for seed in range(SEEDS)]) for attends in (True, False)
    )
    numbers = Numbers(
        moved=max(largest_change(read, seed) for read in readers.values() for seed in range(SEEDS)),
        recurrent_moved=min(largest_change(gru, seed) for seed in range(SEEDS)),
        correct=attending[:, 0].mean(),
        correct_spread=attending[:, 0].std(),
        averaged=averaging[:, 0].mean(),
        averaged_spread=averaging[:, 0].std(),
        answers_changed=attending[:, 1].max(),
        chance=0.1,
    )
    return numbers, draw_accuracy(numbers)


def run() -> Measured:
    """Three seeds."""
    return measure()


def judge(numbers: Numbers) -> Criteria:
    """A sum does not depend on the order of its terms; whether it works on images has to be seen."""
    yield numbers.identity(
        numbers.moved <= 1e-12 < numbers.recurrent_moved,
        "With keys and values shuffled together, outputs must stay the same to 10⁻¹²: they change by {moved} at most; "
        "those of a GRU, which reads in order, change by {recurrent_moved} at least.",
        "键和值一起打乱后，输出的变化应在 10⁻¹² 以内：实际最大为 {moved}；按顺序读的 GRU 的输出至少变化 "
        "{recurrent_moved}。",
    )
    yield numbers.criterion(
        numbers.correct - 2 * numbers.correct_spread > 0.8 and numbers.answers_changed == 0,
        "On data that are no sequence, sixteen patches of a digit, it must be right for more than 80 % of unseen "
        "digits, by more than twice the spread, in whatever order the patches come: {correct:.1%} ± "
        "{correct_spread:.1%}, with {answers_changed:.1%} of the answers changed by shuffling. Averaging all patches "
        "instead gives {averaged:.1%}; guessing {chance:.0%}.",
        "用在不是序列的数据上：由手写数字图像的十六个小块识别没见过的数字，无论小块的顺序如何，正确率都应超过 80%，且"
        "超出"
        "两倍的标准差：实际为 {correct:.1%} ± {correct_spread:.1%}，打乱后改变的回答占 {answers_changed:.1%}。改为对所"
        "有小块取平均则为 {averaged:.1%}；猜测为 {chance:.0%}。",
    )


def draw_accuracy(numbers: Numbers) -> Chart:
    """Attention, average, chance."""
    names = [Text("attention", "注意力"), Text("average pooling", "平均汇聚"), Text("guessing", "猜测")]
    heights = [numbers.correct, numbers.averaged, numbers.chance]
    spread = [numbers.correct_spread, numbers.averaged_spread, 0.0]
    panel = Panel([Bars(names, heights, spread=spread, colour="attention")], y=Text("share right", "正确率"))
    return Chart(
        [panel],
        height=200,
        caption=Text(
            "Unseen handwritten digits that are named rightly from sixteen patches of four pixels, each with its "
            "place.",
            "由十六个小块（各四个像素及其位置）正确识别的、没见过的手写数字所占比例。",
        ),
    )


def draw(cell: SimpleNamespace) -> Chart:
    """The image, its pixels in the order in which they are read, and what attention makes of them."""
    images = (
        (cell.image, Text("64 pixels", "64 个像素")),
        (cell.values[cell.order].reshape(8, 8), Text("as they are read", "读入的顺序")),
        (cell.shuffled.reshape(36, 36), Text("asked for at 1,296 places", "在 1296 个位置上查询")),
    )
    return Chart(
        [Panel([Heat(values, largest=1.0, colour="truth")], title=title) for values, title in images],
        height=160,
        caption=Text(
            "A picture of 8 × 8 pixels, the same pixels in random order, and what attention by distance answers from "
            "these at 36 × 36 places.",
            "8 × 8 像素的图、打乱顺序的同样像素、以及按距离的注意力由后者在 36 × 36 个位置上给出的回答。",
        ),
    )


SECTION = Section(
    number=21,
    notes=(Passage("004", 30, 30), Passage("001", 19, 19)),
    title=Text("The order of keys does not matter", "键的顺序无关紧要"),
    claim=Text(
        "The attention mechanism does not in fact use that its input is a sequence, so it can be applied to other "
        "types of data, such as images.",
        "注意力机制其实没有用到输入是序列这一点，所以也能用于其他类型的数据，例如图像。",
    ),
    idea=Text(
        "A sum does not depend on the order of its terms: as long as keys and values are shuffled together, the "
        "weighted average is the same. What it averages may then be a set, a graph or the pixels of an image. Here an "
        "image is a set of pairs, a place and a brightness, and attention by distance answers how bright it is in "
        "between.",
        "求和与各项的顺序无关：只要键和值一起打乱，加权平均就不变。于是被平均的可以是集合、图，也可以是图像的像素。这"
        "里的图像是一组（位置，亮度），按距离的注意力回答像素之间有多亮。",
    ),
    formula=(
        r"\sum_j \mathrm{softmax}_j\!\left(a(q, k_j)\right) v_j "
        r"= \sum_j \mathrm{softmax}_j\!\left(a(q, k_{\pi(j)})\right) v_{\pi(j)}"
    ),
    plain=PLAIN,
    short=SHORT,
    show=draw,
    controls=(Control("width = 0.06", Text("width of the kernel", "核的带宽"), Slider(0.02, 0.5, log=True)),),
    exercises=(
        Exercise(
            (
                "shuffled = look(queries, keys[order], values[order])",
                "shuffled = look(queries, keys, values[order])",
            ),
            Text("Shuffle the values, but not the keys: what changes?", "只打乱值，不打乱键：会有什么变化？"),
            Text(
                "Some place changes by {now.change:.2f}; shuffled together, the most was {was.change:.1g}.",
                "变化最大的位置变了 {now.change:.2f}；一起打乱时最大为 {was.change:.1g}。",
            ),
        ),
        Exercise(
            ("width = 0.06", "width = 0.3"),
            Text("A wider kernel: does the order begin to matter?", "核更宽：顺序开始有影响吗？"),
            Text(
                "The largest change is {now.change:.1g}; before {was.change:.1g}.",
                "最大的变化为 {now.change:.1g}；原来为 {was.change:.1g}。",
            ),
        ),
    ),
    meanings={
        "moved": Text("largest change of an output when shuffled, over five scores", "打乱后输出的最大变化，五种评分"),
        "recurrent_moved": Text("for comparison: least change of a GRU's output", "对照：GRU 输出的最小变化"),
        "correct": Text(
            "unseen digits read rightly from patches, mean of 3 seeds", "由小块正确识别的新数字，3 个种子的均值"
        ),
        "correct_spread": Text("its standard deviation", "其标准差"),
        "averaged": Text("the same with an average instead of attention", "同上，用平均代替注意力"),
        "averaged_spread": Text("its standard deviation", "其标准差"),
        "answers_changed": Text("share of answers changed by shuffling the patches", "打乱小块后改变的回答所占比例"),
        "chance": Text("share right by guessing", "猜测的正确率"),
    },
    deciding="moved",
    run=run,
    rehearsal=partial(measure, 20),
    judge=judge,
)
