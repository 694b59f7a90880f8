"""What the operations of PyTorch do to the axes of their operands: a row of RULES each.

A rule gets the axes of the first tensor, the arguments after it by their names, and the shape of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from regard.view import axes as ax
from regard.view.axes import Axes, Axis, Factor

Given = Mapping[str, Any]
Rule = Callable[[Axes, Given, Sequence[int]], Axes]


def broadcast(shape: Sequence[int], operands: Sequence[Axes]) -> Axes:
    """The axes of a result with one element for each of the operands', the first operand deciding."""
    made: list[Axis] = []
    taken: set[Factor] = set()
    for place, size in enumerate(shape):
        axis: Axis = ()
        for axes in operands:
            index = place - len(shape) + len(axes)
            if index >= 0 and (not axis or is_copied(axis)) and axes[index] and ax.axis_size(axes[index]) == size:
                axis = axes[index]
        # Queries and keys of one sequence, added in all pairs: the same factor on two axes.
        axis = tuple(ax.twin(factor) if factor in taken and ax.size_of(factor) > 1 else factor for factor in axis)
        taken.update(axis)
        made.append(axis)
    return tuple(made)


def is_complete(axes: Axes, shape: Sequence[int]) -> bool:
    """Whether no other operand can tell more of a result's axes."""
    if len(axes) != len(shape):
        return False
    pairs = zip(axes, shape, strict=True)
    return all(axis and ax.axis_size(axis) == size and not is_copied(axis) for axis, size in pairs)


def is_copied(axis: Axis) -> bool:
    """Whether an axis has copies of one place."""
    return any(root.expanded for root in ax.roots(axis))


def _transpose(axes: Axes, given: Given, shape: Sequence[int]) -> Axes:
    made = list(axes)
    if made:
        one, other = given.get("dim0", 0), given.get("dim1", -1)
        made[one], made[other] = made[other], made[one]
    return tuple(made)


def _unsqueeze(axes: Axes, given: Given, shape: Sequence[int]) -> Axes:
    place = given["dim"] % (len(axes) + 1)
    return (*axes[:place], (), *axes[place:])


def _dims(given: Given, axes: Axes) -> set[int]:
    """The dimensions that an operation is given, negative ones from the end; all, if it is given none."""
    dims = given.get("dim")
    if isinstance(dims, int):
        dims = [dims]
    return {dim % (len(axes) or 1) for dim in dims or range(len(axes))}


def _squeeze(axes: Axes, given: Given, shape: Sequence[int]) -> Axes:
    dims = _dims(given, axes) if len(shape) < len(axes) else ()
    return tuple(axis for place, axis in enumerate(axes) if place not in dims or ax.axis_size(axis) != 1)


def _slice(axes: Axes, given: Given, shape: Sequence[int]) -> Axes:
    dim = given["dim"] % len(axes)
    size, axis, start = shape[dim], axes[dim], given["start"] or 0
    whole = ax.axis_size(axis)
    if size == whole:
        return axes
    first = max(0, start + whole if start < 0 else start)
    within = ax.axis_size(axis[1:]) if axis else 1  # places of the other factors for one of the first
    if given["step"] == 1 and axis and first % within == size % within == 0:
        axis = (ax.cut(axis[0], first // within, size // within), *axis[1:])
    else:
        axis = ax.fresh(size, *ax.roots(axis), projected=any(map(ax.is_projected, axis)))
    return (*axes[:dim], axis, *axes[dim + 1 :])


def _piece(axes: Axes, given: Given, shape: Sequence[int]) -> Axes:
    """One of the results of a split."""
    sizes, number = next(value for name, value in given.items() if name.startswith("split_size")), given["number"]
    start = sizes * number if isinstance(sizes, int) else sum(sizes[:number])
    return _slice(axes, {"dim": given["dim"], "start": start, "step": 1}, shape)


def _selected(axes: Axes, given: Given, shape: Sequence[int]) -> Axes:
    dim = given["dim"] % len(axes)
    return (*axes[:dim], *axes[dim + 1 :])


def concatenated(parts: Sequence[Axes], dim: int, *, placed: bool) -> Axes:
    """The axes of tensors that are put one behind the other. placed: positions continue along `dim`."""
    made = _counted(parts, dim)
    if made is None:
        made = _best_known(parts)
        made[dim] = ax.joined([axes[dim] for axes in parts], placed=placed)
    return tuple(made)


def stacked(parts: Sequence[Axes], dim: int) -> Axes:
    """The axes of tensors along a new one."""
    made = _counted([(*axes[:dim], (), *axes[dim:]) for axes in parts], dim)
    if made is None:
        made, sizes = _best_known(parts), [axes[-1] for axes in parts]
        # Rows (batch, n, size) of as many learned matrices, in front of all else: they are heads.
        apart = len({*map(ax.solid, sizes)}) == len(parts) and all(map(ax.is_projected, ax.flat(sizes)))
        made.insert(dim, ax.fresh(len(parts), projected=dim == 0 and len(made) > 2 and apart))
    return tuple(made)


def _best_known(parts: Sequence[Axes]) -> list[Axis]:
    """The axes that tensors share: of a sink, which is expanded to the shape of scores, the scores know them."""
    return [next((axis for axis in axes if axis and not is_copied(axis)), axes[0]) for axes in zip(*parts, strict=True)]


def _counted(parts: Sequence[Axes], dim: int) -> list[Axis] | None:
    """Where the parts are consecutive pieces along another axis, as heads that are split off and put along the batch,
    the factor that counts them has moved to this one; None: they are not."""
    made = list(parts[0])
    different = [place for place, axes in enumerate(zip(*parts, strict=True)) if len({*axes}) > 1]
    moved = ax.counted([axes[different[0]] for axes in parts]) if len(different) == 1 and different != [dim] else None
    if moved is None:
        return None
    made[dim], made[different[0]] = (moved[0], *made[dim]), moved[1]
    return made


def _copied(axes: Axes, shape: Sequence[int], *, related: bool = False) -> Axes:
    """Axes of which some get larger, by copies of one place. related: they still belong to what they were."""
    axes = ((),) * (len(shape) - len(axes)) + axes
    return tuple(
        axis if ax.axis_size(axis) == size else ax.fresh(size, *(ax.roots(axis) if related else ()), expanded=True)
        for axis, size in zip(axes, shape, strict=True)
    )


def reduced(axes: Axes, given: Given, shape: Sequence[int]) -> Axes:
    """A sum, a mean, a maximum along axes."""
    places = _dims(given, axes)
    if len(shape) == len(axes):
        return tuple(() if place in places else axis for place, axis in enumerate(axes))
    return tuple(axis for place, axis in enumerate(axes) if place not in places)


def _gathered(axes: Axes, given: Given, shape: Sequence[int]) -> Axes:
    """Places chosen by numbers, strides or sorting: an axis of another size, or along which was gathered, is opaque."""
    if len(shape) != len(axes):
        return tuple(ax.fresh(size, *ax.roots(ax.flat(axes)), opaque=True) for size in shape)
    dim = given.get("dim", given.get("dimension"))
    indexed = [place for place, index in enumerate(given.get("indices", ())) if isinstance(index, Tensor)]
    if len(indexed) == 1:  # one axis by a list of numbers, the others as they are
        dim = indexed[0]
    made = []
    for place, (axis, size) in enumerate(zip(axes, shape, strict=True)):
        kept = dim is not None and place != dim % len(axes) and ax.axis_size(axis) == size
        flags = {"opaque": True, "projected": any(map(ax.is_projected, axis)), "chosen_of": axis}
        made.append(axis if kept else ax.fresh(size, *ax.roots(axis), **flags))
    return tuple(made)


def placed(target: Axes, source: Axes, shape: Sequence[int]) -> Axes:
    """The axes of a matrix into which a tensor of its rank is put: chosen places go back where they were chosen."""
    if len(source) != len(shape):
        return target
    chosen = map(ax.chosen_of, source)
    pairs = zip(target, chosen, shape, strict=True)
    return tuple(other if other and ax.axis_size(other) == size else axis for axis, other, size in pairs)


def _padded(axes: Axes, given: Given, shape: Sequence[int]) -> Axes:
    made, pad = list(axes), given["pad"]
    for place, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        dim = len(axes) - 1 - place
        if not before and not after:
            continue
        axis = made[dim]
        if len(axis) != 1:
            made[dim] = ax.fresh(shape[dim], *ax.roots(axis), opaque=True)
            continue
        inner = (ax.cut(axis[0], max(-before, 0), ax.axis_size(axis) + min(before, 0) + min(after, 0)),)
        parts = [ax.fresh(before) if before > 0 else None, inner, ax.fresh(after) if after > 0 else None]
        made[dim] = (tuple(run for part in parts if part for run in part[0]),)
    return tuple(made)


def multiplied(learned_left: bool, learned_right: bool, weights_right: bool = False) -> Callable[[Axes, Axes], Axes]:
    """The axes of (batch, n, k) × (batch, k, m), or without a batch, one of which may be a learned matrix.

    weights_right: the second is weights, whose heads are those of the product, whatever the values' are
    """

    def make(left: Axes, right: Axes) -> Axes:
        batch, rows, columns = left[:-2], left[-2], right[-1]
        if batch and (is_copied(batch[0]) or learned_left or weights_right) and not learned_right:
            batch = right[:-2]
        if learned_right:
            return (*batch, ax.unfolded(rows), ax.projected(columns))
        if learned_left:
            return (*batch, ax.projected(rows), ax.unfolded(columns))
        return (*batch, rows, tuple(ax.twin(factor) if factor in rows else factor for factor in columns))

    return make


def other_axes(axes: Axes, shape: Sequence[int]) -> Axes:
    """After an operation without a rule: axes of the same size stay, the others are new."""
    sizes = tuple(map(ax.axis_size, axes))
    if sizes == tuple(shape):
        return axes
    if len(shape) != len(axes):
        return tuple(ax.fresh(size, *ax.roots(ax.flat(axes)), opaque=True) for size in shape)
    pairs = zip(axes, sizes, shape, strict=True)
    return tuple(axis if size == new else ax.fresh(new, *ax.roots(axis)) for axis, size, new in pairs)


RULES: dict[str, Rule] = {
    **dict.fromkeys(
        ("view", "_unsafe_view", "reshape", "_reshape_alias"), lambda axes, given, shape: ax.reshaped(axes, shape)
    ),
    "permute": lambda axes, given, shape: tuple(axes[dim] for dim in given["dims"]),
    **dict.fromkeys(("transpose", "t"), _transpose),
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "expand": lambda axes, given, shape: _copied(axes, shape),
    "repeat": lambda axes, given, shape: _copied(axes, shape, related=True),
    "slice": _slice,
    **dict.fromkeys(("split", "split_with_sizes"), _piece),
    **dict.fromkeys(("select", "unbind"), _selected),
    **dict.fromkeys(("sum", "mean", "amax", "max", "min", "logsumexp"), reduced),
    **dict.fromkeys(("gather", "index_select", "index", "as_strided", "unfold", "sort", "topk"), _gathered),
    "constant_pad_nd": _padded,
    # (batch, channels, …): the channels are outputs of a learned matrix.
    "convolution": lambda axes, given, shape: (
        axes[0],
        ax.fresh(shape[1], projected=True),
        *other_axes(axes[2:], shape[2:]),
    ),
    "view_as_complex": lambda axes, given, shape: axes[:-1],  # rotary positions as complex numbers
    "view_as_real": lambda axes, given, shape: (*axes, ax.fresh(2)),
}
