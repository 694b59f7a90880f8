"""How a campaign runs: the same check for many numbers, and for each number that fails, the command that repeats it."""

from collections.abc import Callable, Iterable

import torch

SHOWN = 10  # failures that are told in full; the rest are counted


def run(check: Callable[[int], None], seeds: Iterable[int]) -> None:
    """Run the check for every seed; what fails is collected, so that one campaign shows all that it found."""
    torch.set_num_threads(1)  # the cases are small: a second thread would only wait for the first
    failures, tried = [], 0
    for seed in seeds:
        tried += 1
        try:
            check(seed)
        except Exception as error:  # whatever it is, the other cases are still worth running
            replay = f"python -m tests.faults {check.__module__.rpartition('.')[2]}.{check.__name__} {seed}"
            failures.append(f"{replay}\n    {type(error).__name__}: {str(error).partition(chr(10))[0]}")
    assert tried, "a campaign without a case shows nothing"
    assert not failures, "\n".join([f"{len(failures)} of {tried} cases failed", *failures[:SHOWN]])
