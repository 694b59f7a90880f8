"""What the operations of PyTorch do to the axes of their operands: a row of RULES each.

A rule gets the axes of the first tensor, the arguments after it, and the shape of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from regard.view.axes import (
    Axes,
    Axis,
    Factor,
    axis_size,
    cut,
    fresh,
    is_projected,
    projected,
    reshaped,
    roots,
    size_of,
    twin,
    unfolded,
)

__all__ = ["RULES", "broadcast", "is_complete", "is_copied", "multiplied", "other_axes", "projection", "reduced"]


def broadcast(shape: Sequence[int], operands: Sequence[Axes]) -> Axes:
    """The axes of a result with one element for each of the operands', the first operand deciding."""
    made: list[Axis] = []
    taken: set[Factor] = set()
    for place, size in enumerate(shape):
        axis: Axis = ()
        for axes in operands:
            index = place - len(shape) + len(axes)
            if index >= 0 and (not axis or is_copied(axis)) and axes[index] and axis_size(axes[index]) == size:
                axis = axes[index]
        # Queries and keys of one sequence, added in all pairs: the same factor on two axes.
        axis = tuple(twin(factor) if factor in taken and size_of(factor) > 1 else factor for factor in axis)
        taken.update(axis)
        made.append(axis)
    return tuple(made)


def is_complete(axes: Axes, shape: Sequence[int]) -> bool:
    """Whether no other operand can tell more of a result's axes."""
    if len(axes) != len(shape):
        return False
    pairs = zip(axes, shape, strict=True)
    return all(axis and axis_size(axis) == size and not is_copied(axis) for axis, size in pairs)


def is_copied(axis: Axis) -> bool:
    """Whether an axis has copies of one place."""
    return any(root.expanded for root in roots(axis))


def _positive(dim: int, rank: int) -> int:
    return dim + rank if dim < 0 else dim


def _view(axes: Axes, arguments: Sequence[Any], shape: Sequence[int]) -> Axes:
    return reshaped(axes, shape)


def _permute(axes: Axes, arguments: Sequence[Any], shape: Sequence[int]) -> Axes:
    return tuple(axes[dim] for dim in arguments[0])


def _transpose(axes: Axes, arguments: Sequence[Any], shape: Sequence[int]) -> Axes:
    made = list(axes)
    one, other = (_positive(dim, len(axes)) for dim in (arguments or (0, -1))[:2])
    if made:
        made[one], made[other] = made[other], made[one]
    return tuple(made)


def _unsqueeze(axes: Axes, arguments: Sequence[Any], shape: Sequence[int]) -> Axes:
    place = _positive(arguments[0], len(axes) + 1)
    return (*axes[:place], (), *axes[place:])


def _squeeze(axes: Axes, arguments: Sequence[Any], shape: Sequence[int]) -> Axes:
    given = arguments[0] if arguments else range(len(axes))
    dims = {_positive(dim, len(axes)) for dim in ([given] if isinstance(given, int) else given)}
    return tuple(axis for place, axis in enumerate(axes) if place not in dims or axis_size(axis) != 1)


def _expand(axes: Axes, arguments: Sequence[Any], shape: Sequence[int]) -> Axes:
    new = len(shape) - len(axes)
    axes = ((),) * new + axes
    pairs = zip(axes, shape, strict=True)
    return tuple(axis if axis_size(axis) == size else fresh(size, expanded=True) for axis, size in pairs)


def _slice(axes: Axes, arguments: Sequence[Any], shape: Sequence[int]) -> Axes:
    given = [*arguments, *(0, None, None, 1)[len(arguments) :]]
    dim, start, step = _positive(given[0], len(axes)), given[1], given[3]
    size, axis = shape[dim], axes[dim]
    whole = axis_size(axis)
    if size == whole:
        return axes
    first = 0 if start is None else max(0, start + whole if start < 0 else start)
    if step == 1 and len(axis) == 1:
        axis = (cut(axis[0], first, size),)
    else:
        axis = fresh(size, *roots(axis), projected=any(map(is_projected, axis)))
    return (*axes[:dim], axis, *axes[dim + 1 :])


def _select(axes: Axes, arguments: Sequence[Any], shape: Sequence[int]) -> Axes:
    dim = _positive(arguments[0], len(axes))
    return axes[:dim] + axes[dim + 1 :]


def reduced(axes: Axes, arguments: Sequence[Any], shape: Sequence[int]) -> Axes:
    """A sum, a mean, a maximum along axes."""
    given = arguments[0] if arguments else None
    dims = given if isinstance(given, (list, tuple)) and given else range(len(axes)) if given is None else [given]
    places = {_positive(dim, len(axes)) for dim in dims if isinstance(dim, int)}
    if len(shape) == len(axes):
        return tuple(() if place in places else axis for place, axis in enumerate(axes))
    return tuple(axis for place, axis in enumerate(axes) if place not in places)


def _repeat(axes: Axes, arguments: Sequence[Any], shape: Sequence[int]) -> Axes:
    axes = ((),) * (len(shape) - len(axes)) + axes
    pairs = zip(axes, shape, strict=True)
    return tuple(axis if axis_size(axis) == size else fresh(size, *roots(axis), expanded=True) for axis, size in pairs)


def _gathered(axes: Axes, arguments: Sequence[Any], shape: Sequence[int]) -> Axes:
    """Places chosen by numbers, strides or sorting: an axis of another size, or along which was gathered, is opaque."""
    if len(shape) != len(axes):
        return tuple(fresh(size, *(root for axis in axes for root in roots(axis)), opaque=True) for size in shape)
    dim = arguments[0] if arguments and isinstance(arguments[0], int) else None
    if arguments and isinstance(arguments[0], (list, tuple)):  # one axis by a list of numbers, the others as they are
        indexed = [place for place, index in enumerate(arguments[0]) if isinstance(index, Tensor)]
        dim = indexed[0] if len(indexed) == 1 else None
    chosen = None if dim is None else _positive(dim, len(axes))
    made = []
    for place, (axis, size) in enumerate(zip(axes, shape, strict=True)):
        kept = axis_size(axis) == size and place != chosen and chosen is not None
        flags = {"opaque": True, "projected": any(map(is_projected, axis))}
        made.append(axis if kept else fresh(size, *roots(axis), **flags))
    return tuple(made)


def _padded(axes: Axes, arguments: Sequence[Any], shape: Sequence[int]) -> Axes:
    made = list(axes)
    for place, (before, after) in enumerate(zip(arguments[0][::2], arguments[0][1::2], strict=True)):
        dim = len(axes) - 1 - place
        if not before and not after:
            continue
        axis = made[dim]
        if len(axis) != 1:
            made[dim] = fresh(shape[dim], *roots(axis), opaque=True)
            continue
        inner = (cut(axis[0], max(-before, 0), axis_size(axis) + min(before, 0) + min(after, 0)),)
        parts = [fresh(before) if before > 0 else None, inner, fresh(after) if after > 0 else None]
        made[dim] = (tuple(run for part in parts if part for run in part[0]),)
    return tuple(made)


def _convolved(axes: Axes, arguments: Sequence[Any], shape: Sequence[int]) -> Axes:
    """(batch, channels, …): the channels are outputs of a learned matrix."""
    made = [axes[0], fresh(shape[1], projected=True)]
    for place in range(2, len(shape)):
        same = axis_size(axes[place]) == shape[place]
        made.append(axes[place] if same else fresh(shape[place], *roots(axes[place])))
    return tuple(made)


def multiplied(learned_left: bool, learned_right: bool) -> Callable[[Axes, Axes], Axes]:
    """The axes of (batch, n, k) × (batch, k, m), or without a batch, one of which may be a learned matrix."""

    def make(left: Axes, right: Axes) -> Axes:
        batch, rows, columns = left[:-2], left[-2], right[-1]
        if batch and (is_copied(batch[0]) or learned_left) and not learned_right:
            batch = right[:-2]
        if learned_right:
            return (*batch, unfolded(rows), projected(columns))
        if learned_left:
            return (*batch, projected(rows), unfolded(columns))
        return (*batch, rows, tuple(twin(factor) if factor in rows else factor for factor in columns))

    return make


def projection(size: int) -> Callable[[Axes], Axes]:
    """The axes of a product with a learned matrix, (…, k) → (…, size)."""
    return lambda axes: (*map(unfolded, axes[:-1]), fresh(size, projected=True))


def _as_complex(axes: Axes, arguments: Sequence[Any], shape: Sequence[int]) -> Axes:
    return axes[:-1]


def _as_real(axes: Axes, arguments: Sequence[Any], shape: Sequence[int]) -> Axes:
    return (*axes, fresh(2))


Rule = Callable[[Axes, Sequence[Any], Sequence[int]], Axes]
RULES: dict[Any, Rule] = {
    "view": _view,
    "_unsafe_view": _view,
    "reshape": _view,
    "_reshape_alias": _view,
    "permute": _permute,
    "transpose": _transpose,
    "t": _transpose,
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "expand": _expand,
    "slice": _slice,
    "select": _select,
    "sum": reduced,
    "mean": reduced,
    "amax": reduced,
    "max": reduced,
    "logsumexp": reduced,
    "repeat": _repeat,
    "gather": _gathered,
    "index_select": _gathered,
    "index": _gathered,
    "as_strided": _gathered,
    "unfold": _gathered,
    "constant_pad_nd": _padded,
    "convolution": _convolved,
    "view_as_complex": _as_complex,  # rotary positions as complex numbers
    "view_as_real": _as_real,
}


def other_axes(axes: Axes, shape: Sequence[int]) -> Axes:
    """After an operation without a rule: axes of the same size stay, the others are new."""
    sizes = tuple(map(axis_size, axes))
    if sizes == tuple(shape):
        return axes
    parents = [root for axis in axes for root in roots(axis)]
    if len(shape) != len(axes):
        return tuple(fresh(size, *parents, opaque=True) for size in shape)
    pairs = zip(axes, sizes, shape, strict=True)
    return tuple(axis if size == new else fresh(new, *roots(axis)) for axis, size, new in pairs)
