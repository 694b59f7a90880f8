"""Measuring: two functions in turn, in one process, and the ratio of their medians. Times do not travel, ratios do."""

from __future__ import annotations

from dataclasses import dataclass

from regard.measure import Work, median_seconds


@dataclass(frozen=True)
class Row:
    """One line of the table: what was done, against what, what came out, and what had to."""

    work: str
    against: str
    peer: str
    ours: str
    result: str
    bar: str
    met: bool


def compare(work: str, against: str, peer: Work, ours: Work, at_least: float, repeats: int) -> Row:
    """Median of interleaved repeats, after one warm-up of each; the result is how many times faster ours is."""
    slow, fast = median_seconds(peer, ours, rounds=repeats)
    ratio = slow / fast
    shown = (milliseconds(slow), milliseconds(fast), f"{ratio:.2f}×", f"≥ {at_least}×")
    return Row(work, against, *shown, ratio >= at_least)


def milliseconds(seconds: float) -> str:
    """A time as the page shows it."""
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
