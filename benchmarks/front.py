"""What both READMEs show of what was measured: a few rows of the benchmarks, in a user's words, and a result."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path

from benchmarks.measure import Figures, Row
from benchmarks.measured import replace_between, table
from regard import files

ROOT = Path(__file__).parent.parent
FRONTS = {"en": ROOT / "README.md", "zh": ROOT / "README.zh.md"}
HEADS = {"en": ("work", "against", "result"), "zh": ("工作", "相比", "结果")}
RESULTS = {  # of a ratio of times, of one where regard does more than its peer, and of a row without figures
    "en": ("{}× as fast", "{}× the time", "not measured yet"),
    "zh": ("{} 倍速度", "{} 倍时间", "尚未测量"),
}
# The rows that matter to users: what the work is called, and against what it is measured.
LINES = {
    "models/embed": {
        "en": ("sentences to vectors, with MiniLM", "sentence-transformers"),
        "zh": ("句子变成向量（MiniLM）", "sentence-transformers"),
    },
    "generation/stories15M": {
        "en": ("text from a Llama of 15 million parameters", "transformers"),
        "zh": ("用 1500 万参数的 Llama 写文本", "transformers"),
    },
    "models/ragged": {
        "en": ("a batch of texts of different lengths through an encoder", "PyTorch's `nn.TransformerEncoder`"),
        "zh": ("让长短不一的一批文本通过编码器", "PyTorch 的 `nn.TransformerEncoder`"),
    },
    "kernel/million": {
        "en": ("kernel regression: a million predictions from a million rows", "–"),
        "zh": ("核回归：由一百万行数据作一百万个预测", "–"),
    },
    "seeing/capture": {
        "en": ("attention weights of every layer, with MiniLM", "transformers, `output_attentions=True`"),
        "zh": ("取出每一层的注意力权重（MiniLM）", "transformers，`output_attentions=True`"),
    },
}


def refresh(word: str, content: Mapping[str, str]) -> None:
    """Put what `make word` has made, by language, between its marks in both READMEs."""
    for language, path in FRONTS.items():
        files.write(path, replace_between(path.read_text(encoding="utf-8"), word, f"\n{content[language]}\n"))


def tables(rows: Mapping[str, Row], done: Mapping[str, Figures]) -> dict[str, str]:
    """The table of each language, of what was measured."""
    return {
        language: table(
            HEADS[language],
            [(*words[language], _result(rows[name], done.get(name), language)) for name, words in LINES.items()],
        )
        for language in FRONTS
    }


def _result(row: Row, figures: Figures | None, language: str) -> str:
    faster, longer, missing = RESULTS[language]
    if figures is None:
        return missing
    number = statistics.median(row.numbers(figures))
    if row.limit is not None or "peer" not in figures:
        return row.amount(number)
    return (faster if row.at_most is None else longer).format(f"{number:.2g}" if number < 100 else f"{number:.0f}")
