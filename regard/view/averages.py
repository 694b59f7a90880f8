"""The way of a tensor from scores to an average, and its end: the product of weights with values.

    product → scores → exp, softmax → weights → weighted values → their sum

There the axes tell which are batch, heads, queries and keys. The one along which the weights are summed up enumerates
keys, the other one of the product queries. Heads enumerate outputs of a learned matrix; where nothing does, they are
the last of several leading axes, as PyTorch's own attention has it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from regard.attention.observers import AttentionCall
from regard.view import axes as ax
from regard.view.axes import Axes, Axis, arrange, axis_size, solid


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
        gone = contracted is not None and solid(self.axes[contracted]) in map(solid, positions)
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


@dataclass(eq=False)
class Average:
    """The product of weights with values, or the sum of weighted values.

    record: how the weights came about · weights, axes: they themselves, without dropout · contracted: the axis that is
    summed up · free: that of the queries · leading: all others · values: (batch, m, size), in the order of the weights'
    batch; None: not known · size: the axis of the output · flipped: whether the values are (batch, size, m) · alone:
    whether the operation does nothing else, such as adding what came before
    """

    within: ClassVar[str] = ""
    record: Weights
    weights: Tensor
    axes: Axes
    contracted: Axis
    free: Axis
    leading: Axis
    values: Tensor | None
    size: Axis
    flipped: bool = False
    alone: bool = True

    def __post_init__(self) -> None:
        record, free = self.record, self.free
        queries = tuple(factor for factor in free if not ax.is_projected(factor)) or free
        rest = (*self.leading, *(factor for factor in free if factor not in queries))
        heads = tuple(factor for factor in rest if ax.is_projected(factor))
        if not heads and self.values is not None:  # by rank
            taken = {*queries, *self.contracted, *(record.normalized or ())}
            axes = [axis for axis in record.axes if not any(factor in taken for factor in axis)]
            single = [axis for axis in axes if axis_size(axis) == 1]
            if not queries and single:  # one query, whose axis nobody has named
                axes.remove(single[-1])
            heads = axes[-1] if len(axes) > 1 else ()
        self.batch, self.heads = tuple(factor for factor in rest if factor not in heads), heads
        self.queries = queries

    @property
    def tensors(self) -> list[Tensor]:
        """What the output is made of."""
        return [tensor for tensor in (self.weights, self.values) if tensor is not None]

    @property
    def is_attention(self) -> bool:
        """Whether values are averaged: the weights add up to 1 along the axis, or are made of two tensors' scores."""
        record = self.record
        if record.module is None:
            return False
        if record.normalized is not None and _part_of(self.contracted, record.normalized):
            # Along outputs of a learned matrix: a router, a code book, classes.
            return record.product is not None or not any(map(ax.is_projected, self.contracted))
        # A softmax along another axis, or none: along one of the scores' two, which enumerates positions.
        if record.product is None or solid(self.contracted) not in map(solid, record.product.axes[1:]):
            return False
        return record.normalized is not None or not any(map(ax.is_projected, self.contracted))

    @property
    def problem(self) -> str | None:
        """Why it is no map."""
        record = self.record
        if record.reported and not record.averaged:
            return "its weights are combined with others"
        if any(map(ax.is_opaque, (*self.queries, *self.contracted))):
            return "its queries or keys are gathered or folded, so that their positions are not known"
        if record.normalized is not None and self._sinks > 1:
            return "its weights are used in parts"
        return None

    @property
    def _sinks(self) -> int:
        """How many of the places along which the weights add up are not multiplied with values."""
        normalized = self.record.normalized
        if normalized is None or not _part_of(self.contracted, normalized):
            return 0
        return axis_size(normalized) - axis_size(self.contracted)

    def call(self, module: nn.Module | None, result: Tensor, axes: Axes, operands: bool) -> AttentionCall:
        """The call, with weights (batch, heads, n, m). operands: with the rest as well. result: the output."""
        record = self.record
        known = self.arranged(self.weights, self.axes)
        sink = (1 - known.sum(-1)).clamp(min=0) if self._sinks else None
        scores = None if record.scores is None else self.arranged(record.scores, record.axes)
        query, key = self._scored() if operands else (None, None)
        related = ax.related(self.queries, self.contracted) if self.queries and self.contracted else None
        if self.queries and all(map(ax.is_projected, (*self.queries, *self.contracted))):
            related = True  # channels, which attend to each other
        value = output = None
        if operands and self.values is not None:
            # Not before an edit asks for it: autograd does not see a view that is made while an operation runs.
            values = self.values.mT if self.flipped else _matrix(self.values)
            value = ax.regroup(values, self.leading, self.batch, self.heads)
            value = value.repeat_interleave(axis_size(self.heads) // value.shape[1], 1)  # (batch, heads, m, size)
            whole = (self.batch, self.heads, self.queries, self.size)
            output = arrange(result, axes, whole) if self.alone else known.to(value.dtype) @ value
        return AttentionCall(
            module,
            known[..., :0] if query is None else query,
            known.mT[..., :0] if key is None else key,
            cross=None if related is None else not related,
            known=known,
            value=value,
            output=output,
            scores=scores,
            sink=sink,
            positions=ax.positions(self.queries),
            key_positions=ax.positions(self.contracted),
        )

    def back(self, output: Tensor, result: Tensor, axes: Axes) -> Tensor:
        """An output (batch, heads, n, size) in the shape of the model's."""
        return ax.restore(output, axes, (self.batch, self.heads, self.queries, self.size), result.shape)

    def arranged(self, tensor: Tensor, axes: Axes) -> Tensor:
        """Weights, or what belongs to them, as (batch, heads, n, m), without what is a sink's."""
        whole = self.record.normalized is not None and solid(self.record.normalized) in map(solid, axes)
        columns = self.record.normalized if whole and self._sinks and self.record.normalized else self.contracted
        arranged = arrange(tensor, axes, (self.batch, self.heads, self.queries, columns))
        if columns is self.contracted:
            return arranged
        return arranged.narrow(-1, _places(columns).index(_places(self.contracted)[0]), axis_size(self.contracted))

    def _scored(self) -> tuple[Tensor | None, Tensor | None]:
        """The queries and the keys (batch, heads, n or m, size) whose product the scores are, where that is plain."""
        product: Product | None = self.record.product
        if product is None or product.left is None or product.right is None:
            return None, None
        leading, rows, columns = map(solid, product.axes)
        if leading != solid(self.leading) or {rows, columns} != {solid(self.queries), solid(self.contracted)}:
            return None, None
        factors = (product.left, _matrix(product.right).mT)
        one, other = (ax.regroup(factor, self.leading, self.batch, self.heads) for factor in factors)
        return (one, other) if rows == solid(self.queries) else (other, one)


def combined(one: State, other: State) -> list[Weights]:
    """The weights of two factors, where weights are multiplied with weights, or such a product with anything."""
    weights = ("weights", "mixed")
    if not (one.stage in weights and other.stage in weights) and "mixed" not in (one.stage, other.stage):
        return []
    records = [state.record for state in (one, other) if state.stage in (*weights, "output") and state.record]
    return [record for part in records for record in (part if isinstance(part, list) else [part])]


def _matrix(tensor: Tensor) -> Tensor:
    """A vector as a matrix of one column."""
    return tensor if tensor.dim() > 1 else tensor[:, None]


def _part_of(contracted: Axis, normalized: Axis) -> bool:
    """Whether one axis is the other, or a piece of it."""
    contracted, normalized = solid(contracted), solid(normalized)
    if contracted == normalized:
        return True
    if len(contracted) != 1 or len(normalized) != 1:
        return False
    return {*_places(contracted)} <= {*_places(normalized)}


def _places(axis: Axis) -> list[tuple[ax.Root, int]]:
    """The places of an axis of one factor."""
    return [(root, start + step) for root, start, length in solid(axis)[0] for step in range(length)]
