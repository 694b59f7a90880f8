"""The labels of the sections' pictures in Chinese. Sentences that are data, such as a translation, stay English."""

import re
import warnings
from functools import cache

from matplotlib.figure import Figure
from matplotlib.text import Text

from regard.tour.section import Drawing
from regard.view.fonts import families

# A number is written as #, in both languages.
LABELS = {
    "# and more": "# 及以上",
    "# images of five new classes": "五个新类别共 # 张图像",
    "# noisy samples": "# 个带噪样本",
    "# numbers": "# 个数",
    "# pixels": "# 个像素",
    "a distribution for each query": "每个查询一个分布",
    "a width for each feature: # and #": "每个特征一个带宽：# 和 #",
    "accuracy": "准确率",
    "additive": "加性",
    "additive attention": "加性注意力",
    "additive,\nas in textbooks": "加性，\n教科书写法",
    "all keys equal": "键全相同",
    "allowed": "允许的误差",
    "asked for at # × # places": "在 # × # 个位置上查询",
    "attention": "注意力",
    "attention cut": "切断注意力",
    "average pooling": "平均池化",
    "batch #": "批次 #",
    "batch #\nlength #": "批次 #\n长度 #",
    "batch norm": "批归一化",
    "bilinear": "双线性",
    "changed, masked": "改变之处，有掩码",
    "changed, no mask": "改变之处，无掩码",
    "convolution": "卷积",
    "cosine": "余弦",
    "distance from the query, in widths": "到查询的距离（以带宽计）",
    "distance of what is asked for": "所问之词的距离",
    "document: key (looked at)": "文档：键（被看）",
    "dot": "点积",
    "feature": "特征",
    "feature of the sample": "样本的特征",
    "frames: words that belong together": "方框：相互对应的词",
    "from # samples": "# 个样本",
    "from scratch": "从零开始",
    "gaussian": "高斯",
    "Gaussian kernel": "高斯核",
    "guessing": "猜测",
    "heads": "头数",
    "images to learn from": "训练图像数",
    "in the order they are read": "按读入的顺序",
    "input (looked at)": "输入（被看）",
    "its output": "它的输出",
    "key (looked at)": "键（被看）",
    "keys that differ": "键各不相同",
    "labelled texts": "有标签的文本数",
    "largest of # weights": "# 个权重中的最大者",
    "layer norm": "层归一化",
    "learned w": "学到的 w",
    "length #": "长度 #",
    "lengths #, #, #, #": "长度 #, #, #, #",
    "loss": "损失",
    "max pooling": "最大池化",
    "mean squared error": "均方误差",
    "megabytes": "兆字节",
    "milliseconds": "毫秒",
    "milliseconds to read it": "读完用时（毫秒）",
    "no attention": "无注意力",
    "no positions: difference": "无位置编码：差",
    "norm of the gradient": "梯度的范数",
    "number of samples": "样本数",
    "one common width: #": "共用一个带宽：#",
    "one vector for all": "只有一个向量",
    "place": "位置",
    "positional encoding": "位置编码",
    "pretrained": "预训练",
    "pretrained on text": "先在文本上预训练",
    "query (looks)": "查询（看）",
    "query i": "查询 i",
    "query i, the x of sample i": "查询 i，即样本 i 的 x",
    "question: query (looks)": "问题：查询（看）",
    "ratio of kernel sums": "核函数和之比",
    "recurrent": "循环网络",
    "refused": "拒绝",
    "row #, and one width around its x": "第 # 行，以及其 x 两侧一个带宽",
    "sample j": "样本 j",
    "sample j, sorted by x": "样本 j，按 x 排序",
    "samples in the batch": "批次中的样本数",
    "share recalled": "回忆正确的比例",
    "size d of the vectors": "向量长度 d",
    "the other eight": "其余八种",
    "their difference": "两者之差",
    "truth": "真实曲线",
    "truth, # sin x + x$^{#}$": "真实曲线，# sin x + x$^{#}$",
    "two ways to write it": "两种写法",
    "variance of the score": "评分的方差",
    "vector": "向量",
    "weight": "权重",
    "weights": "权重",
    "weights, masked": "权重，有掩码",
    "what each of # heads looks at": "# 个头各看哪里",
    "width #": "带宽 #",
    "width by leave-one-out": "留一法选带宽",
    "with attention": "有注意力",
    "with more and more samples": "样本越来越多",
    "with positions: difference": "有位置编码：差",
    "words in the sequence": "序列中的词数",
    "words of the English sentence": "英语句子的词数",
    "x of the samples": "样本的 x",
    "x₁, which decides y": "x₁，决定 y",
    "x₂, which does not": "x₂，与 y 无关",
}
NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")


def translate(label: str) -> str:
    """A label in Chinese; a text that is none of the labels stays as it is."""
    numbers = iter(NUMBER.findall(label))
    translation = LABELS.get(NUMBER.sub("#", label), label)
    return translation if translation == label else re.sub("#", lambda _: next(numbers), translation)


def in_chinese(drawing: Drawing) -> Drawing:
    """The same picture with Chinese labels, where the fonts of this system have their letters."""

    def draw() -> Figure:
        figure, family = drawing(), fonts()
        if family is not None:
            for axis in [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]:
                ticks = [label.get_text() for label in axis.get_ticklabels()]
                if any(translate(tick) != tick for tick in ticks):  # else the axis chooses its ticks by itself
                    axis.set_ticklabels([translate(tick) for tick in ticks])
            for text in figure.findobj(Text):
                text.set_text(translate(text.get_text()))
                text.set_fontfamily(family)
        return figure

    return draw


@cache
def fonts() -> list[str] | None:
    """The fonts to write the labels with, or None where a letter is in none of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return families(LABELS.values())
        except UserWarning:
            return None
