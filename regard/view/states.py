"""What is known of a tensor of a running model: its axes, and how far it is on the way from scores to an average."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from regard.view import axes as ax
from regard.view.axes import Axes, Axis

__all__ = ["Product", "State", "Weights"]


class Product:
    """Scores: a product of two tensors, neither of them learned.

    state: what is known of it · left, right: the operands (leading, n, size) and (leading, size, m), if they are wanted
    """

    def __init__(self, module: nn.Module | None, shape: Sequence[int], state: State | None = None) -> None:
        self.module, self.shape, self.state = module, tuple(shape), state
        self.left: Tensor | None = None
        self.right: Tensor | None = None
        self.used = self.averaged = False  # whether weights were made of it, and values averaged by them

    @property
    def axes(self) -> tuple[Axis, Axis, Axis]:
        """Leading factors, rows and columns."""
        axes = () if self.state is None else self.state.axes
        return tuple(factor for axis in axes[:-2] for factor in axis), axes[-2], axes[-1]


class Weights:
    """What may turn out to be attention weights, when it is multiplied with values.

    axes: of the weights as they came out of a softmax · normalized: the axis along which they add up to 1; None: they
    need not · scores, product: what they were made of, as far as known
    """

    def __init__(self, scores: Tensor | None, product: Product | None) -> None:
        self.scores, self.product = scores, product
        self.axes: Axes = ()
        self.nested: Tensor | None = None  # the weights, if they are a nested tensor
        self.normalized: Axis | None = None
        self.module: nn.Module | None = None
        self.reported = self.averaged = False
        self.delivered: Any = None  # what the observer made of the complete call


class State:
    """What is known of a tensor: its axes, and its stage on the way from scores to an average.

    stage: "scores" (record: the Product) · "exp", "total", "log", "lse", "weights", "weighted", "summed" (the Weights,
    in the making or complete) · "mixed" (several of them) · "output" (those that averaged it) · "noise" · "": none
    learned: it is a parameter (2), or a view of one (1), which may be of vectors that are learned
    before: weights, and their axes, without dropout or values

    Axes are found out when they are asked for: `make` does so from those of the `parents`, or returns None, if it needs
    those of the `others` as well. Most are not asked for.
    """

    __slots__ = ("_axes", "_make", "_others", "_parents", "_shape", "before", "learned", "record", "reference", "stage")

    def __init__(
        self,
        axes: Axes | None,
        stage: str = "",
        record: Any = None,
        learned: int = 0,
        before: tuple[Tensor, Axes] | None = None,
        *,
        parents: Sequence[State] = (),
        make: Callable[..., Axes | None] | None = None,
        others: Sequence[State] = (),
        shape: Sequence[int] = (),
    ) -> None:
        self._shape = shape
        self._axes, self._parents, self._make, self._others = axes, parents, make, others
        self.stage, self.record, self.learned, self.before = stage, record, learned, before
        self.reference: weakref.ref[Tensor] | None = None

    @property
    def axes(self) -> Axes:
        """Where the axes come from."""
        if self._axes is None:
            self._find()
        assert self._axes is not None
        return self._axes

    def _find(self) -> None:
        """Without recursion, for hundreds of operations may lie between a tensor and one whose axes are known."""
        waiting = [self]
        while waiting:
            state = waiting[-1]
            unknown = [parent for parent in state._parents if parent._axes is None]
            if unknown:
                waiting += unknown
            elif state._axes is not None:
                waiting.pop()
            else:
                assert state._make is not None
                try:
                    state._axes = state._make(*(parent._axes for parent in state._parents))
                except (IndexError, ValueError):  # a form of an operation that its rule does not know
                    state._axes = tuple(ax.fresh(size, opaque=True) for size in state._shape)
                if state._axes is None:
                    state._parents, state._others = (*state._parents, *state._others), ()
                else:
                    state._parents, state._others, state._make = (), (), None
