"""The course of a run: how many steps it has, the learning rate of each, and the moving average of the weights."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from regard import files
from regard.models.model import Model
from regard.models.tensors import read_json
from regard.training.options import Options
from regard.training.processes import local_shards

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
        done, begin, end = 0.0, start, None  # from a step on, and when all will be done
        for after, steps in [*(revision for revision in self.revisions if revision[0] <= step), (step, None)]:
            now = max(after, start)
            if end is not None and now > begin:
                done = min(1.0, done + (1 - done) * (now - begin) / max(end - begin, 1))
            begin, end = now, steps
        return done

    def is_due(self, step: int, *, early: bool = False) -> bool:
        """Whether the number of steps is to be planned anew after this step.

        early: whether steps are so slow that FIRST of them would take much of the time. Then the first plan is made of
        few of them, and revised more often.
        """
        if self.minutes is None:
            return False
        if not self.revisions:
            return early or step >= FIRST
        after, steps = self.revisions[-1]
        least = 2 * FIRST if after >= FIRST else 1
        return steps - after >= least and step >= after + max(1, (steps - after) // 2)

    def warmup(self, step: int, most: int) -> int:
        """The steps of the warm-up, as far as the plan was known before a step: of a short run a fifth."""
        known = [steps for after, steps in self.revisions if after < step]
        return min(most, known[-1] // 5) if self.minutes is not None and known else most

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
        content = read_json(folder / PLAN)
        minutes = float(content["minutes"])
        revisions = [(int(after), int(steps)) for after, steps in content["revisions"]]
    except (ValueError, KeyError, TypeError, OverflowError):  # none yet, or damaged: it is planned anew
        return Plan(options.minutes)
    if minutes != options.minutes:  # what was planned for later holds no longer
        return Plan(options.minutes, [revision for revision in revisions if revision[0] < step])
    return Plan(minutes, revisions)


def learning_rate(step: int, options: Options, plan: Plan) -> float:
    """The rate of a step, counted from 1: a linear warm-up, then constant, 1 / √step, or down to 0 at the end."""
    peak, warmup = options.learning_rate, plan.warmup(step, options.warmup)
    if step < warmup:
        return peak * step / warmup
    if options.schedule == "constant":
        return peak
    if options.schedule == "inverse-root":
        return peak * math.sqrt(max(warmup, 1) / max(step, 1))
    progress = plan.progress(step, warmup)
    return peak * (1 - progress if options.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * progress)))


class Average:
    """average ← decay · average + (1 − decay) · weights, after each step: smoother than the weights of any one step.

    The first steps count less: until step n there are about n / 10 steps in it. A decay of 0 keeps nothing.
    """

    def __init__(self, model: Model, decay: float) -> None:
        self.decay = decay
        trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        self.parameters = trained if decay else {}
        self.tensors = {name: parameter.detach().clone() for name, parameter in self.parameters.items()}

    def update(self, step: int) -> None:
        """Take the weights after a step into the average."""
        if self.tensors:
            weight = 1 - min(self.decay, step / (step + 10))
            torch._foreach_lerp_(local_shards(self.tensors.values()), local_shards(self.parameters.values()), weight)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within this block the model has the averaged weights."""
        if not self.tensors:
            yield
            return
        targets = local_shards(self.parameters.values())
        weights = [tensor.clone() for tensor in targets]
        torch._foreach_copy_(targets, local_shards(self.tensors.values()))
        try:
            yield
        finally:
            torch._foreach_copy_(targets, weights)
