"""What the tour says around its sections, in both languages."""

from regard.tour.section import Outcome, Passage, Text

OUTCOMES = {
    Outcome.HELD: Text("held", "成立"),
    Outcome.PARTLY: Text("partly", "部分成立"),
    Outcome.DID_NOT_HOLD: Text("did not hold", "不成立"),
    Outcome.BY_DEFINITION: Text("true by definition", "由定义成立"),
    Outcome.IMPRECISE: Text("imprecise", "不够准确"),
    Outcome.NOT_TESTABLE: Text("not testable here", "此处无法检验"),
    Outcome.FAILED: Text("failed", "运行失败"),
}
KINDS = {
    "measured": Text("measured", "测量"),
    "definition": Text("by definition", "定义"),
    "correction": Text("correction", "更正"),
    "untestable": Text("not tested", "未检验"),
}
LANGUAGE_NAMES = Text("English", "中文")
LANGUAGE_CODES = Text("en", "zh-Hans")

TITLE = Text("A tour of attention", "注意力机制之旅")
COURSE = Text("Attention in plain PyTorch, from the first line to the last", "用 PyTorch 从头写注意力机制")
LEAD = Text(
    "Course notes on attention make claims, and lack the code. Here is the code, a few lines for each claim; it is "
    "run, "
    "measured and drawn, and the verdict is computed from the numbers. All of it is one formula, with other scores, "
    "other "
    "masks and other normalisers:",
    "注意力机制的课程笔记里有许多论断，但缺少代码。这里给出代码，每条论断只有几行；代码被运行、测量、画成图，结论由数"
    "字算出。"
    "从头到尾只有一个公式，换的只是评分函数、掩蔽和归一化方式：",
)
FORMULA = r"o_i = \sum_j \mathrm{normalize}_j\left(\mathrm{score}(q_i, k_j)\ \mathrm{restricted\ by\ mask}\right) v_j"
CONTENTS = Text("Claims and verdicts", "论断与结论")
CHAPTERS = Text("Chapters", "章节")
CLAIM = Text("claim", "论断")
VERDICT = Text("verdict", "结论")
NUMBER = Text("number", "数值")
MEANING = Text("what it is", "含义")
NOTES_CLAIM = Text("What the notes claim.", "笔记的论断。")
BEYOND = Text("beyond the notes", "笔记之外")
PASSAGE = Text("The passage", "原文")
PLAIN = Text("The code the notes lack", "笔记缺少的代码")
WITH_REGARD = Text("The same with regard", "用 regard 写同样的计算")
MEASURED = Text("What was measured", "测量结果")
NUMBERS = Text("All numbers", "全部数字")
DATA = Text("The numbers behind the picture", "图中的数据")
EXERCISES = Text("Exercises", "练习")
EXERCISE = Text("Exercise.", "练习。")
CHANGED = Text("instead of:", "原来是：")
ANSWER = Text("What comes out", "看答案")
MEASURING = Text("The code that measures", "测量所用的代码")
NOTEBOOK = Text("notebook", "笔记本")
SCRIPT = Text("script", "脚本")
LABORATORY = Text("laboratory", "实验室")
IN_LABORATORY = Text("open in the laboratory", "在实验室中打开")
SOURCE = Text("source", "源代码")
PREVIOUS = Text("previous", "上一条")
NEXT = Text("next", "下一条")
PENDING = Text("is being run …", "正在运行……")
COPY = Text("copy", "复制")
THEME = Text("light or dark", "浅色或深色")
MENU = Text("contents", "目录")
SEARCH = Text("search", "搜索")
RESET = Text("reset", "重置")
GLOSSARY = Text("Glossary", "术语表")
COVERAGE = Text("Every line of the notes", "笔记的每一行")
NOT_A_CLAIM = Text("not a claim", "不是论断")
FORGOTTEN = Text("not treated", "未处理")
COLON = Text(": ", "：")
MET = Text("met", "满足")
NOT_MET = Text("not met", "不满足")
SKIP = Text("Skip to the claims", "跳到论断")
PAGE = Text("Page: ", "页面：")
CACHED = Text("cached", "已有")

# English, Chinese, and the claim that explains it.
TERMS = (
    ("attention pooling", "注意力汇聚", 3),
    ("query, key, value", "查询、键、值", 31),
    ("voluntary and involuntary cue", "随意线索与不随意线索", 1),
    ("kernel", "核", 10),
    ("width, bandwidth", "带宽", 8),
    ("attention weight", "注意力权重", 6),
    ("scoring function", "评分函数", 13),
    ("additive attention", "加性注意力", 13),
    ("scaled dot-product attention", "缩放点积注意力", 14),
    ("cosine similarity", "余弦相似度", 20),
    ("mask, masked softmax", "掩蔽、掩蔽 softmax", 12),
    ("valid length", "有效长度", 12),
    ("batch matrix multiplication", "批量矩阵乘法", 11),
    ("encoder, decoder", "编码器、解码器", 17),
    ("context vector", "上下文向量", 18),
    ("alignment", "对齐", 18),
    ("self-attention", "自注意力", 21),
    ("positional encoding", "位置编码", 23),
    ("permutation equivariance", "置换同变性", 23),
    ("masked self-attention", "掩蔽自注意力", 24),
    ("multi-head attention", "多头注意力", 25),
    ("residual connection", "残差连接", 37),
    ("layer normalisation", "层归一化", 28),
    ("batch normalisation", "批量归一化", 28),
    ("pretraining, fine-tuning", "预训练、微调", 29),
    ("Vision Transformer (ViT)", "视觉 Transformer（ViT）", 30),
)


def notes(passages: tuple[Passage, ...]) -> Text:
    """Where the notes make a claim."""
    if not passages:
        return BEYOND
    files: dict[str, list[str]] = {}
    for file, first, last in passages:
        files.setdefault(file, []).append(str(first) if first == last else f"{first}–{last}")
    english = "; ".join(f"notes {file}, lines {', '.join(lines)}" for file, lines in files.items())
    return Text(english, "；".join(f"笔记 {file} 第 {'、'.join(lines)} 行" for file, lines in files.items()))


def seconds(elapsed: float) -> Text:
    """How long something took."""
    return Text(f"{elapsed:.1f} s", f"{elapsed:.1f} 秒")


def count(outcome: Outcome, times: int) -> Text:
    """How many claims ended like this."""
    return Text(f"{times} {OUTCOMES[outcome].en}", f"{times} 条{OUTCOMES[outcome].zh}")


def made_by(versions: dict[str, str], elapsed: float) -> Text:
    """The last line of the page."""
    with_ = ", ".join(f"{name} {number}" for name, number in versions.items())
    return Text(
        f"Made by regard tour in {seconds(elapsed).en} with {with_}. The same numbers for a program to read:",
        f"由 regard tour 生成，用时 {seconds(elapsed).zh}；{with_}。同样的数字，供程序读取：",
    )
