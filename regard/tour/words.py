"""What the tour says around its sections, in both languages."""

from regard.tour.section import Outcome, Text

OUTCOMES = {
    Outcome.HELD: Text("held", "成立"),
    Outcome.PARTLY: Text("partly", "部分成立"),
    Outcome.DID_NOT_HOLD: Text("did not hold", "不成立"),
    Outcome.FAILED: Text("failed", "运行失败"),
}
LANGUAGE_NAMES = Text("English", "中文")
LANGUAGE_CODES = Text("en", "zh-Hans")

TITLE = Text("A tour of attention", "注意力机制之旅")
LEAD = Text(
    "Course notes on attention make claims. Here each of them is run: the code, the picture, the numbers, "
    "and a verdict that is computed from the numbers and never written by hand. "
    "All of it is one formula, with other scores, other masks and other normalisers:",
    "注意力机制的课程笔记里有许多论断。这里把它们逐条跑一遍：代码、图、数字，以及由数字算出（而不是手写）的结论。"
    "从头到尾只有一个公式，换的只是评分函数、掩码和归一化方式：",
)
FORMULA = "output = Σⱼ normalizeⱼ( score(query, keyⱼ) restricted by mask ) · valueⱼ"
CONTENTS = Text("Claims and verdicts", "论断与结论")
CLAIM = Text("claim", "论断")
VERDICT = Text("verdict", "结论")
NUMBER = Text("number", "数值")
MEANING = Text("what it is", "含义")
THE_NOTES_SAY = Text("The notes say", "笔记的说法")
CODE = Text("The code that ran", "实际运行的代码")
NOTEBOOK = Text("as a notebook", "笔记本文件")
MEASURED = Text("Measured", "测得的数字")
WHY = Text("Why", "依据")
MET = Text("met", "满足")
NOT_MET = Text("not met", "不满足")
SKIP = Text("Skip to the claims", "跳到论断")
PAGE = Text("Page: ", "页面：")
CACHED = Text("cached", "已有")


def notes(names: tuple[str, ...]) -> Text:
    """Which sets of notes a claim is from."""
    return Text(f"notes {', '.join(names)}", f"笔记 {'、'.join(names)}")


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
