"""Training: one loop for every task, whose steps are never lost. `regard.train` is its front door."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.training.run import Trained, train

__all__ = ["Trained", "train"]

if not TYPE_CHECKING:  # options are read for `regard train --help`, which must not wait for torch

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'regard.training' has no attribute {name!r}")
        from regard.training import run

        return getattr(run, name)
