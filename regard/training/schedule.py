"""How many steps a run has, and the learning rate of each."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

from regard import files
from regard.training.options import Options

__all__ = ["PLAN", "Plan", "learning_rate", "read_plan"]

PLAN = "plan.json"
FIRST = 20  # steps after which the number of steps of a run of some minutes is planned for the first time


@dataclass
class Plan:
    """The number of steps of a run: given, or planned so that the run ends after some minutes.

    Such a plan is revised when half of the rest is done. Each revision is written to disk before the next step, and a
    run that resumes keeps to it: so the steps that it computes again are those that it had computed before.
    """

    minutes: float | None = None
    revisions: list[tuple[int, int]] = field(default_factory=list)  # (after this step, the number of steps), in order

    @property
    def steps(self) -> int | None:
        """How many steps the run will have; None if nothing is known yet."""
        return self.revisions[-1][1] if self.revisions else None

    def progress(self, step: int, start: int) -> float:
        """How far the run is after a step, from 0 at the step `start` to 1 at its end."""
        done, begin, end = 0.0, start, None
        for after, steps in self.revisions:
            if after > step:
                break
            done, begin, end = self._advance(done, begin, end, max(after, start)), max(after, start), steps
        return self._advance(done, begin, end, max(step, start))

    @staticmethod
    def _advance(done: float, begin: int, end: int | None, step: int) -> float:
        """What is done after a step, if `done` was done at `begin` and everything will be at `end`."""
        if end is None or step <= begin:
            return done
        return min(1.0, done + (1 - done) * (step - begin) / max(end - begin, 1))

    def is_due(self, step: int) -> bool:
        """Whether the number of steps is to be planned anew after this step."""
        if self.minutes is None:
            return False
        after, steps = self.revisions[-1] if self.revisions else (0, 2 * FIRST)
        return steps - after >= 2 * FIRST and step >= after + (steps - after) // 2

    def revise(self, step: int, seconds: float, limit: int | None) -> None:
        """Plan the rest of a run that has taken these seconds; it gets at most `limit` steps."""
        left = 60 * (self.minutes or 0) - seconds
        steps = step + max(0, round(left * step / max(seconds, 1e-9)))
        self.revisions.append((step, steps if limit is None else min(steps, limit)))

    def write(self, folder: Path) -> None:
        """Write plan.json, if there is anything that the options do not say."""
        if self.minutes is not None:
            files.write(folder / PLAN, json.dumps({"minutes": self.minutes, "revisions": self.revisions}) + "\n")


def read_plan(folder: Path, options: Options, step: int) -> Plan:
    """The plan of a run that starts, or resumes after a step."""
    if options.minutes is None:
        return Plan(None, [(0, options.steps)])
    try:
        content = json.loads((folder / PLAN).read_text(encoding="utf-8"))
        minutes, revisions = (
            float(content["minutes"]),
            [(int(after), int(steps)) for after, steps in content["revisions"]],
        )
    except (OSError, ValueError, KeyError, TypeError):  # none yet, or damaged: it is planned anew
        return Plan(options.minutes)
    if minutes != options.minutes:  # what was planned for later holds no longer
        return Plan(options.minutes, [revision for revision in revisions if revision[0] < step])
    return Plan(minutes, revisions)


def learning_rate(step: int, options: Options, plan: Plan) -> float:
    """The rate of a step, counted from 1: a linear warm-up, then constant, 1 / √step, or down to 0 at the end."""
    peak, warmup = options.learning_rate, options.warmup
    if step < warmup:
        return peak * step / warmup
    if options.schedule == "constant":
        return peak
    if options.schedule == "inverse-root":
        return peak * math.sqrt(max(warmup, 1) / max(step, 1))
    progress = plan.progress(step, warmup)
    return peak * (1 - progress if options.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * progress)))
