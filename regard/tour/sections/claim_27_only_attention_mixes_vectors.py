"""Claim 27: in a block only attention mixes vectors; layer norm and MLP act on each alone."""

from collections.abc import Callable
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from regard import Block, FeedForward, MultiHead
from regard.models.packing import SequenceInfo
from regard.tour.section import Control, Criteria, Exercise, Measured, Numbers, Passage, Section, Slider, Text
from regard.view.chart import Chart, Heat, Panel

PLAIN = """
class Block(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.attention = MultiHead(size, heads)
        self.mlp = nn.Sequential(nn.Linear(size, 4 * size), nn.ReLU(), nn.Linear(4 * size, size))
        self.norm_1, self.norm_2 = nn.LayerNorm(size), nn.LayerNorm(size)

    def forward(self, x, mask=None):
        x = self.norm_1(x + self.attention(x, mask))  # vectors meet
        return self.norm_2(x + self.mlp(x))  # each vector alone


place = 3
block = Block(16, 4)
x = torch.randn(1, 8, 16)  # 8 vectors
changed = x.clone()
changed[:, place] = torch.randn(16)  # one of them is another
only_itself = torch.eye(8) > 0  # a mask with which attention is cut
moved = (block(changed) - block(x)).abs()[0]  # (8, 16)
moved_cut = (block(changed, only_itself) - block(x, only_itself)).abs()[0]
others = torch.arange(8) != place
whole, cut = (int((m[others] != 0).sum()) for m in (moved, moved_cut))  # numbers of other vectors that change
"""

SHORT = """
import regard

mixer, mlp = regard.MultiHead(16, 4, bias=False), regard.FeedForward(16, 64, "relu")
ours = regard.Block(mixer, mlp, pre_norm=False)
W = block.attention
mixer.in_proj[0].weight.data = torch.cat([W.W_q.weight, W.W_k.weight, W.W_v.weight])
mixer.out_proj.weight = W.W_o.weight
mlp.in_proj.load_state_dict(block.mlp[0].state_dict())
mlp.out_proj.load_state_dict(block.mlp[2].state_dict())
torch.testing.assert_close(ours(x), block(x))
"""

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


def make_block(mixer: nn.Module, pre_norm: bool) -> Block:
    """A block with an MLP of the usual size."""
    return Block(mixer, FeedForward(SIZE, 4 * SIZE), pre_norm=pre_norm)


def run(norm: Part | None = None) -> Measured:
    """Change one vector: before layer norm alone, the MLP alone, and blocks with and without attention."""
    alone = {"norm": norm or nn.LayerNorm(SIZE), "mlp": FeedForward(SIZE, 4 * SIZE)}
    cut = [make_block(Cut(), pre_norm) for pre_norm in (False, True)]
    whole = [make_block(MultiHead(SIZE, heads=3), pre_norm) for pre_norm in (False, True)]
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
    yield numbers.identity(
        max(*numbers.others_cut, numbers.others_norm, numbers.others_mlp) == 0,
        "Without attention no number of another vector may change, not in a bit: {others_cut[0]:.0%} do in the notes' "
        "block with attention cut, {others_cut[1]:.0%} in one with the norms before the parts, {others_norm:.0%} "
        "under the normalisation alone and {others_mlp:.0%} under the MLP alone.",
        "没有注意力时，其他向量的数连一个比特都不应改变：笔记中的块切断注意力后有 {others_cut[0]:.0%} 改变，归一化在前"
        "的块有 "
        "{others_cut[1]:.0%}，单独的归一化有 {others_norm:.0%}，单独的 MLP 有 {others_mlp:.0%}。",
    )
    yield numbers.identity(
        min(*numbers.others_whole, numbers.itself) > 0.99,
        "With attention every output must depend on every input: {others_whole[0]:.1%} and {others_whole[1]:.1%} of "
        "the numbers of the other vectors change, and of the changed vector itself at least {itself:.1%}.",
        "有注意力时每个输出都应取决于每个输入：其他向量的数有 {others_whole[0]:.1%} 和 {others_whole[1]:.1%} 改变；被"
        "改动的向量自身至少有 {itself:.1%} 改变。",
    )


def draw(cell: SimpleNamespace) -> Chart:
    """How far each number moves."""
    titles = (Text("with attention", "有注意力"), Text("attention cut", "切断注意力"))
    largest, rows = max(cell.moved.max().item(), cell.moved_cut.max().item()), Text("vector", "向量")
    return Chart(
        [
            Panel([Heat(moved, largest=largest / 4)], x=Text("feature", "特征"), y=rows, title=title)
            for moved, title in zip((cell.moved.detach(), cell.moved_cut.detach()), titles, strict=True)
        ],
        caption=Text(
            f"How far each number of the output moves when vector {cell.place} is replaced, in the same shades.",
            f"把第 {cell.place} 个向量换掉时，块的输出中每个数移动了多少，深浅一致。",
        ),
    )


SECTION = Section(
    number=27,
    notes=(Passage("004", 103, 105), Passage("004", 114, 114)),
    title=Text("In a block only attention mixes vectors", "块中只有注意力让向量交互"),
    claim=Text(
        "Self-attention is the only place of a block in which vectors interact, and makes every output depend on every "
        "input; layer normalisation and the MLP treat each vector independently.",
        "在一个块里，向量只在自注意力层发生交互，经过它每个输出都取决于每个输入；层归一化和 MLP 则逐个向量独立进行。",
    ),
    idea=Text(
        "A block adds two things to each vector: what attention brings from the others, and what an MLP makes of the "
        "vector itself; after each it is normalised. In the code, only the matrix product with the weights joins two "
        "places of the sequence. So change one vector, and see which others notice, with attention and with attention "
        "cut.",
        "块给每个向量加上两样东西：注意力从其他向量带来的，和 MLP 由该向量自身算出的；每次之后做归一化。在代码中，只有"
        "与权重的矩阵乘法把序列的两个位置联系起来。所以改动一个向量，看哪些其他向量有所察觉：有注意力时，以及切断注意"
        "力时。",
    ),
    formula=r"z_i = \mathrm{norm}\!\left(x_i + \sum_j a_{ij}\, v_j\right), \qquad "
    r"y_i = \mathrm{norm}\!\left(z_i + \mathrm{MLP}(z_i)\right)",
    plain=PLAIN,
    short=SHORT,
    uses=(25,),
    show=draw,
    controls=(Control("place = 3", Text("the vector that is replaced", "被换掉的向量"), Slider(0, 7, 1, whole=True)),),
    exercises=(
        Exercise(
            ("only_itself = torch.eye(8) > 0", "only_itself = torch.ones(8, 8).tril() > 0"),
            Text(
                "Let each vector look at itself and at those before it: how many numbers of other vectors change?",
                "让每个向量看自己和之前的向量：其他向量有多少个数改变？",
            ),
            Text(
                "{now.cut} of 112; where each looks at itself alone {was.cut}, and where all look at all {was.whole}.",
                "112 个中有 {now.cut} 个；各自只看自己时为 {was.cut} 个，互相都看时为 {was.whole} 个。",
            ),
        ),
        Exercise(
            (
                "self.norm_1, self.norm_2 = nn.LayerNorm(size), nn.LayerNorm(size)",
                "self.norm_1, self.norm_2 = nn.LayerNorm((8, size)), nn.LayerNorm(size)",
            ),
            Text(
                "Normalise over all eight vectors at once: is attention still the only place where they meet?",
                "对全部八个向量一起归一化：注意力还是它们唯一的交互之处吗？",
            ),
            Text(
                "With attention cut, {now.cut} of 112 numbers of other vectors change; with the notes' norm {was.cut}.",
                "切断注意力后，其他向量的 112 个数中有 {now.cut} 个改变；用笔记中的归一化则为 {was.cut} 个。",
            ),
        ),
    ),
    meanings={
        "others_cut": Text(
            "share of other vectors' numbers that differ in any bit, attention cut: norms after the parts, and before",
            "切断注意力时其他向量的数中有任何一个比特不同的比例：归一化在后、在前",
        ),
        "others_whole": Text("the same with attention", "同上，有注意力"),
        "others_norm": Text("the same for layer norm alone", "同上，只有层归一化"),
        "others_mlp": Text("the same for the MLP alone", "同上，只有 MLP"),
        "itself": Text(
            "share of the changed vector's own numbers that differ, at least", "被改动的向量自身改变的最小比例"
        ),
    },
    deciding="others_cut",
    run=run,
    judge=judge,
)
