"""What was measured as Markdown, in English and Chinese, between marks of docs/tables.md and its twin."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import duration
from experiments.tables.models import MODELS
from experiments.trial import replace_between, table

Figures = Mapping[str, Any]

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGES = (DOCS / "tables.md", DOCS / "tables.zh.md")
BANDED = ("regard, degree 0", "regard, degree 1")

CHINESE = {
    "table": "表",
    "from": "来源",
    "y": "y",
    "features": "特征",
    "rows": "行数",
    "date": "日期",
    "category": "类别",
    "regard, degree 0": "regard，0 次",
    "regard, degree 1": "regard，1 次",
    "boosting": "提升树",
    "not there": "未安装",
    "inside 95 %, degree 0": "95% 区间内，0 次",
    "inside 95 %, degree 1": "95% 区间内，1 次",
    "band / spread of y, degree 0": "置信带宽度 / y 的标准差，0 次",
    "band / spread of y, degree 1": "置信带宽度 / y 的标准差，1 次",
    "Held-out R²: mean ± standard deviation of {splits} splits, best in bold.": (
        "留出数据的 R²：{splits} 次划分的均值 ± 标准差，最好的用粗体。"
    ),
    "Time of the processor to fit and predict, the median; “>”: the peer was stopped.": (
        "拟合加预测的处理器时间，取中位数；“>” 表示对比方法被中止。"
    ),
    "Share of held-out values inside the 95 % prediction interval, and mean width of the curve's 95 % band.": (
        "留出值落在 95% 预测区间内的比例，以及曲线 95% 置信带的平均宽度。"
    ),
    "Machine: {machine}. Versions: {versions}.": "机器：{machine}。版本：{versions}。",
}


def with_tables(page: Path, measured: Figures) -> str:
    """The text of a page, with the tables between its marks."""
    translate = CHINESE.get if ".zh" in page.name else None
    content = tables(measured, lambda text: translate(text, text) if translate else text)
    return replace_between(page.read_text(encoding="utf-8"), "tables", content)


def tables(measured: Figures, say: Callable[[str], str]) -> str:
    """All of it; `say` translates."""
    names: dict[str, Figures] = measured["tables"]
    models = [model for model in MODELS if any(model in figures["models"] for figures in names.values())]
    head = [say("table"), *(_title(model, names, say) for model in models)]
    scores = [[name, *_scores(figures["models"], models)] for name, figures in names.items()]
    times = [[name, *_times(figures["models"], models, measured["limit"])] for name, figures in names.items()]
    bands = [[name, *_bands(figures["models"])] for name, figures in names.items()]
    inside = [say(f"inside 95 %, degree {degree}") for degree in (0, 1)]
    widths = [say(f"band / spread of y, degree {degree}") for degree in (0, 1)]
    return "\n\n".join(
        [
            table(
                [say(word) for word in ("table", "from", "y", "features", "rows")],
                [_description(name, figures, say) for name, figures in names.items()],
            ),
            say("Held-out R²: mean ± standard deviation of {splits} splits, best in bold.").format(**measured),
            table(head, scores),
            say("Time of the processor to fit and predict, the median; “>”: the peer was stopped."),
            table(head, times),
            say(
                "Share of held-out values inside the 95 % prediction interval, and mean width of the curve's 95 % band."
            ),
            table([say("table"), *inside, *widths], bands),
            say("Machine: {machine}. Versions: {versions}.").format(**measured),
        ]
    )


def _title(model: str, names: Mapping[str, Figures], say: Callable[[str], str]) -> str:
    outcomes = [figures["models"][model] for figures in names.values() if model in figures["models"]]
    nowhere = all(outcome.get("absent") == "not there" for outcome in outcomes)
    return f"{say(model)} ({say('not there')})" if nowhere else say(model)


def _description(name: str, figures: Figures, say: Callable[[str], str]) -> list[str]:
    features = [
        feature if kind == "number" else f"{feature} ({say(kind)})" for feature, kind in figures["features"].items()
    ]
    return [name, figures["source"], figures["y"], ", ".join(features), f"{figures['rows']:,}"]


def _scores(outcomes: Figures, models: Sequence[str]) -> list[str]:
    """The best, as far as it is shown, in bold."""
    splits = {model: outcome["r2"] for model, outcome in outcomes.items() if "r2" in outcome}
    means = {model: statistics.mean(scores) for model, scores in splits.items()}
    digits = 3 if max(means.values()) < 0.99 else 4
    shown = {model: f"{mean:.{digits}f}" for model, mean in means.items()}
    best = shown[max(means, key=lambda model: means[model])]

    def cell(model: str) -> str:
        text = f"{shown[model]} ± {statistics.stdev(splits[model]):.{digits}f}"
        return f"**{text}**" if shown[model] == best else text

    return [cell(model) if model in splits else "–" for model in models]


def _times(outcomes: Figures, models: Sequence[str], limit: float) -> list[str]:
    def cell(outcome: Figures) -> str:
        if "seconds" in outcome:
            return duration(outcome["seconds"])
        return f"> {limit:.0f} s" if outcome.get("absent") == "slow" else "–"

    return [cell(outcomes.get(model, {})) for model in models]


def _bands(outcomes: Figures) -> list[str]:
    inside = [f"{100 * statistics.mean(outcomes[model]['inside']):.1f} %" for model in BANDED]
    return [*inside, *(f"{statistics.mean(outcomes[model]['band']):.2f}" for model in BANDED)]
