"""The learning rate at each step: a warm-up, then constant, a cosine down to 0, or the inverse root of the step."""

from __future__ import annotations

import math

__all__ = ["rate"]


def rate(step: int, *, schedule: str, highest: float, warmup: int, steps: int) -> float:
    """For the change number `step`, which counts from 1."""
    if step < warmup:
        return highest * step / warmup
    if schedule == "constant":
        return highest
    if schedule == "inverse-root":
        return highest * math.sqrt(max(warmup, 1) / max(step, 1))
    done = (step - warmup) / max(steps - warmup, 1)
    return highest * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
