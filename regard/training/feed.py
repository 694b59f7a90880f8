"""The batches of a run, in order: each process makes its own share, here or ahead of time in worker processes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from regard.data.batches import Position
from regard.training.folder import RunError
from regard.training.processes import World
from regard.training.task import Batch, Task

AHEAD = 4  # steps that each worker process prepares ahead
StepRows = tuple[int, list[list[int]], Position]  # the number of a step, the rows of its batches, where they end


@dataclass(frozen=True)
class StepData:
    """What a process computes in one step: its share of each batch; and where the run stands in its data after it."""

    shares: list[tuple[Batch, bool]]  # whether it counts: where there is no row for this process, some example does not
    after: Position


def step_data(task: Task, world: World, step: int, position: Position) -> Iterator[StepData]:
    """The data of each step after `step`, without end; `position` is where the run stands in its data."""
    rows, maker, workers = _Rows(task, step, position), _Maker(task, world), task.options.workers
    if not workers:
        yield from map(maker.__getitem__, rows)
        return
    try:  # without a batch size: the maker returns whole steps
        yield from DataLoader(
            maker, None, sampler=rows, num_workers=workers, prefetch_factor=AHEAD, worker_init_fn=_ignore_signals
        )
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        reason = str(error).splitlines()[0]
        raise RunError(f"a process that prepares batches has died: {reason}; go on with --resume") from error


def random_seed(seed: int, step: int, rank: int) -> int:
    """Seeds far apart for neighbouring steps and ranks."""
    return (seed * 1_000_003 + step * 7_919 + rank * 104_729 + 12_345) * 2 % (1 << 62)


class _Rows(Sampler[StepRows]):
    """The rows of each step: a function of the seed and the step, whoever asks."""

    def __init__(self, task: Task, step: int, position: Position) -> None:
        self.task, self.step, self.position = task, step, position

    def __iter__(self) -> Iterator[StepRows]:
        step, following = self.step, self.task.batches.following(self.position)
        while True:
            batches = [next(following) for _ in range(self.task.options.accumulate)]
            yield step, [rows for rows, _ in batches], batches[-1][1]
            step += 1


class _Maker(Dataset[StepData]):
    """Makes the data of a step from its rows."""

    def __init__(self, task: Task, world: World) -> None:
        self.task, self.rank, self.size = task, world.rank, world.size

    def __getitem__(self, rows_of_step: StepRows) -> StepData:
        step, batches, after = rows_of_step
        generator = torch.Generator().manual_seed(random_seed(self.task.options.seed, step, 0))
        shares = []
        for rows in batches:
            counts = self.rank < len(rows)
            share = slice(self.rank, None, self.size) if counts else slice(0, 1)
            shares.append((self.task.batch(rows, share, generator), counts))
        return StepData(shares, after)


def _ignore_signals(worker: int) -> None:
    """Ctrl-C goes to all processes of a terminal, and the one that trains has to save first."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
