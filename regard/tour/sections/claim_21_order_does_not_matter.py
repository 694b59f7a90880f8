"""Claim 21: attention does not use the order of its inputs; it works on sets, images and whatever else."""

from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import regard
from regard.data.digits import digits
from regard.tour.section import Criteria, Measured, Numbers, Section, Text
from regard.view import pictures

SIDE = 8  # of the small image
FINE = 40  # of the large one that is asked for


@torch.no_grad()
def run() -> Measured:
    """Shuffle keys and values together: numbers, then the pixels of an image."""
    query, key, value = torch.randn(5, 7), torch.randn(64, 7), torch.randn(64, 3)
    query, key, value = query.double(), key.double(), value.double()
    order = torch.randperm(64)
    sized = regard.Bilinear(7, 7), regard.Additive(7, 7, 11)
    changes = []
    for score in (regard.Dot(), regard.Cosine(), regard.Kernel(), *sized):
        before = regard.attend(query, key, value, score=score.double())
        after = regard.attend(query, key[order], value[order], score=score)
        changes.append(after - before)

    # An image is a set of pixels too: each is a position (key) and a brightness (value).
    image = digits().train.pixels[0, 0].double() / 255
    coarse = torch.cartesian_prod(*[torch.linspace(0, 1, SIDE, dtype=torch.float64)] * 2)
    fine = torch.cartesian_prod(*[torch.linspace(0, 1, FINE, dtype=torch.float64)] * 2)
    near, pixels = regard.Kernel("gaussian", width=0.06), image.reshape(-1, 1)
    enlarged = regard.attend(fine, coarse, pixels, score=near)
    shuffled = regard.attend(fine, coarse[order], pixels[order], score=near)

    recurrent = nn.GRU(3, 3).double()
    (_, last), (_, other_last) = recurrent(value), recurrent(value[order])
    numbers = Numbers(
        moved=max(float(change.abs().max()) for change in changes),
        image_moved=(enlarged - shuffled).abs().max(),
        recurrent_moved=(last - other_last).abs().max(),
    )
    return numbers, partial(draw, image, pixels[order], shuffled)


def judge(numbers: Numbers) -> Criteria:
    """Equal to rounding, where something that reads in order is not."""
    yield numbers.criterion(
        numbers.moved <= 1e-12,
        "Outputs must stay the same to 1e-12, for every score: they change by {moved} at most.",
        "对每种评分函数，输出的变化都应在 1e-12 以内：实际最大为 {moved}。",
    )
    yield numbers.criterion(
        numbers.image_moved <= 1e-12,
        "So must the image: no pixel changes by more than {image_moved}.",
        "图像也应如此：像素的变化最大为 {image_moved}。",
    )
    yield numbers.criterion(
        numbers.recurrent_moved > 1e-3,
        "That must be worth saying: the output of a GRU changes by {recurrent_moved}.",
        "这一点应当值得一提：GRU 的输出变化为 {recurrent_moved}。",
    )


def draw(image: Tensor, pixels: Tensor, enlarged: Tensor) -> Figure:
    """The image, its pixels in the order in which they are read, and what attention makes of them."""
    figure = pictures.figure(2.5)
    titles = ("64 pixels", "in the order they are read", "asked for at 40 × 40 places")
    images = (image, pixels.reshape(SIDE, SIDE), enlarged.reshape(FINE, FINE))
    for axes, title, values in zip(figure.subplots(1, 3), titles, images, strict=True):
        pictures.heat(axes, values.clamp(min=1e-9), largest=float(image.max()))
        axes.set(xticks=[], yticks=[], title=title, aspect="equal")
    return figure


SECTION = Section(
    number=21,
    notes=("004",),
    title=Text("The order of keys does not matter", "键的顺序无关紧要"),
    claim=Text(
        "The attention mechanism does not use the fact that its input is a sequence, so it can be applied to other "
        "kinds of data.",
        "注意力机制实际上并没有用到输入是一个序列这一事实，所以可以应用于其他类型的数据。",
    ),
    idea=Text(
        "A sum does not depend on the order of its terms: as long as keys and values are shuffled together, the "
        "weighted average is the same. What it averages may then be a set, a graph, the pixels of an image. The image "
        "here is given as 64 pairs of place and brightness, shuffled; attention by distance enlarges it all the same.",
        "求和与各项的顺序无关：只要键和值一起打乱，加权平均就不变。于是被平均的可以是集合、图，也可以是图像的像素。这"
        "里的图像以 64 对（位置，亮度）给出，并且打乱了顺序；按距离分配注意力，仍然把它放大了。",
    ),
    formula="Σⱼ softmaxⱼ(score(q, kⱼ)) vⱼ = Σⱼ softmaxⱼ(score(q, k_π(ⱼ))) v_π(ⱼ)",
    caption=Text(
        "A handwritten digit of 8 × 8 pixels, the same pixels in random order, and the image that attention computes "
        "from these at 40 × 40 places: the digit, smooth and whole.",
        "8 × 8 像素的手写数字、同样的像素打乱顺序、注意力由后者在 40 × 40 个位置上算出的图像：数字平滑而完整。",
    ),
    meanings={
        "moved": Text("largest change of an output, over five scores", "五种评分函数下输出的最大变化"),
        "image_moved": Text("largest change of a pixel of the image", "图像像素的最大变化"),
        "recurrent_moved": Text("for comparison: largest change of a GRU's output", "对照：GRU 输出的最大变化"),
    },
    deciding="moved",
    run=run,
    judge=judge,
)
