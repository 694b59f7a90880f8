"""What is known of a tensor of a running model: its axes, and its stage on the way from scores to an average."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from regard.view import axes as ax
from regard.view.axes import Axes, Axis


@dataclass(eq=False)
class Product:
    """Scores: a product of two tensors, neither of them learned.

    state: what is known of it · left, right: the operands (leading, n, size) and (leading, size, m), if they are wanted
    used, averaged: whether weights were made of it, and values averaged by them
    """

    module: nn.Module | None
    shape: Sequence[int]
    state: State | None = None
    left: Tensor | None = None
    right: Tensor | None = None
    used: bool = False
    averaged: bool = False

    @property
    def axes(self) -> tuple[Axis, Axis, Axis]:
        """Leading factors, rows and columns."""
        axes = () if self.state is None else self.state.axes
        return ax.flat(axes[:-2]), axes[-2], axes[-1]


@dataclass(eq=False)
class Weights:
    """What may turn out to be attention weights, when it is multiplied with values.

    scores, product: what they were made of, as far as known · normalized: the axis along which they add up to 1; None:
    they need not · axes: of the weights as they came out of a softmax · nested: the weights, if they are a nested
    tensor · delivered: what the observer made of the complete call
    """

    scores: Tensor | None
    product: Product | None
    normalized: Axis | None = None
    axes: Axes = ()
    module: nn.Module | None = None
    nested: Tensor | None = None
    reported: bool = False
    averaged: bool = False
    delivered: Any = None


@dataclass(eq=False, slots=True)
class State:
    """What is known of a tensor: its axes, and its stage on the way from scores to an average.

    stage: "scores" (record: the Product) · "exp", "total", "log", "lse", "weights", "weighted", "summed" (the Weights,
    in the making or complete) · "mixed" (several of them) · "output" (those that averaged it) · "noise" · "": none
    learned: it is a parameter (2), or a view of one (1), which may be of vectors that are learned
    before: weights, and their axes, without dropout or values

    Axes are found out when they are asked for: `make` does so from those of the `parents`, or returns None, if it needs
    those of the `others` as well. Most are not asked for.
    """

    _axes: Axes | None
    stage: str = ""
    record: Any = None
    learned: int = 0
    before: tuple[Tensor, Axes] | None = None
    parents: Sequence[State] = ()
    make: Callable[..., Axes | None] | None = None
    others: Sequence[State] = ()
    shape: Sequence[int] = ()
    reference: weakref.ref[Tensor] | None = None

    def mixed(self, contracted: int | None = None) -> tuple[str, Any]:
        """Stage and record after a product with a learned matrix: weights of several heads are combined by it, if the
        axis that is summed up is not that of the keys. contracted: its place; None: there are several."""
        record = self.record
        if self.stage != "weights" or (record.product is None and record.normalized is None):
            return "", None
        positions = record.product.axes[1:] if record.normalized is None else [record.normalized]
        if record.product is None and any(map(ax.is_projected, ax.flat(positions))):  # classes, codes, experts
            return "", None
        gone = contracted is not None and ax.solid(self.axes[contracted]) in map(ax.solid, positions)
        return ("", None) if gone else ("mixed", [record])

    @property
    def axes(self) -> Axes:
        """Where the axes come from. Without recursion, for hundreds of operations may lie between a tensor and one
        whose axes are known."""
        waiting = [self]
        while self._axes is None:
            state = waiting[-1]
            unknown = [parent for parent in state.parents if parent._axes is None]
            if unknown:
                waiting += unknown
            elif state._axes is not None:
                waiting.pop()
            else:
                assert state.make is not None
                try:
                    state._axes = state.make(*(parent._axes for parent in state.parents))
                except (IndexError, ValueError):  # a form of an operation that its rule does not know
                    state._axes = tuple(ax.fresh(size, opaque=True) for size in state.shape)
                if state._axes is None:
                    state.parents, state.others = (*state.parents, *state.others), ()
                else:
                    state.parents, state.others, state.make = (), (), None
        return self._axes
