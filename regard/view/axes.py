"""Where the axes of a tensor come from: which are heads, which are positions, and of which sequence.

While a model runs, each operation says what the axes of its result are, given those of its operands. An axis is a tuple
of factors, the major one first, because a view may join several axes into one and take them apart again. A factor is a
tuple of runs (root, start, length), because sequences are cut and joined, as the cache of a decoder is; a root is an
axis where it first appeared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from torch import Tensor


@dataclass(eq=False, slots=True)
class Root:
    """An axis where it first appeared."""

    parents: tuple[Root, ...] = ()  # the roots that it was made of
    projected: bool = False  # it enumerates outputs of a learned matrix, as heads and head sizes do, and not positions
    opaque: bool = False  # it was gathered or folded, so that its places are not those of a sequence
    expanded: bool = False  # its places are copies of one
    chosen_of: Axis = ()  # the axis of which its places were chosen, by rank or number
    twin_of: Factor | None = None  # the factor that it stands for a second time in one tensor
    position: int = 0  # of its first place in its sequence, if that continues another root
    splits: dict[tuple[Factor, int], tuple[Factor, Factor]] | None = None


Run = tuple[Root, int, int]
Factor = tuple[Run, ...]
Axis = tuple[Factor, ...]
Axes = tuple[Axis, ...]


def size_of(factor: Factor) -> int:
    """How many places a factor has."""
    return factor[0][2] if len(factor) == 1 else sum(length for _, _, length in factor)


def axis_size(axis: Axis) -> int:
    """How many places an axis has."""
    return size_of(axis[0]) if len(axis) == 1 else math.prod(map(size_of, axis))


def fresh(size: int, *parents: Root, **flags: Any) -> Axis:
    """An axis that appears for the first time."""
    return (((Root(parents, **flags), 0, size),),)


def first_axes(tensor: Tensor) -> Axes:
    """The axes of a tensor that no operation has made under our eyes."""
    return tuple(fresh(size) for size in tensor.shape)


def projected(axis: Axis) -> Axis:
    """An axis of a learned matrix as one of its product."""
    return tuple(fresh(size_of(factor), projected=True)[0] for factor in axis)


def unfolded(axis: Axis) -> Axis:
    """The rows of a product with a learned matrix: whatever they were gathered from, now they are a sequence."""
    if not any(map(is_opaque, axis)):
        return axis
    return tuple(fresh(size_of(one), *roots((one,)))[0] if is_opaque(one) else one for one in axis)


def flat(axes: Sequence[Axis]) -> Axis:
    """All factors of axes."""
    return tuple(factor for axis in axes for factor in axis)


def roots(axis: Axis) -> list[Root]:
    """All roots of an axis."""
    return [root for factor in axis for root, _, _ in factor]


def twin(factor: Factor) -> Factor:
    """The same factor, for a second axis of one tensor."""
    root = Root(tuple(roots((factor,))), is_projected(factor), is_opaque(factor), twin_of=factor)
    return ((root, 0, size_of(factor)),)


def is_projected(factor: Factor) -> bool:
    """Whether a factor enumerates outputs of a learned matrix."""
    return any(root.projected for root, _, _ in factor)


def is_opaque(factor: Factor) -> bool:
    """Whether a factor's places are not those of a sequence."""
    return any(root.opaque for root, _, _ in factor)


def chosen_of(axis: Axis) -> Axis:
    """The axis of which the places of another were chosen; the same one, if they were not."""
    return (axis[0][0][0].chosen_of if len(axis) == 1 == len(axis[0]) else ()) or axis


def original(factor: Factor) -> Factor:
    """What a factor is a twin of, cut as the twin was cut."""
    pieces: list[Run] = []
    for root, start, length in factor:
        pieces += cut(original(root.twin_of), start, length) if root.twin_of else [(root, start, length)]
    return tuple(pieces)


def positions(axis: Axis) -> list[int] | None:
    """The positions of an axis' places in their sequence; None: it has no single sequence, or has it twice."""
    if len(axis) != 1:
        return None
    places = [root.position + start + step for root, start, length in original(axis[0]) for step in range(length)]
    return places if len({*places}) == len(places) else None


def related(one: Axis, other: Axis) -> bool:
    """Whether two axes enumerate places of one sequence, or one was made of the other."""
    return bool(_ancestors(one) & _ancestors(other))


def _ancestors(axis: Axis) -> set[Root]:
    known: set[Root] = set()
    waiting = [root for factor in axis for root, _, _ in original(factor)]
    while waiting:
        root = waiting.pop()
        if root not in known:
            known.add(root)
            waiting.extend(root.parents)
    return known


# --------------------------------------------------------------------------------------------------- cut, join, reshape


def cut(factor: Factor, start: int, length: int) -> Factor:
    """The places from start on of a factor."""
    pieces: list[Run] = []
    for root, first, count in factor:
        low, high = max(start, 0), min(start + length, count)
        if low < high:
            pieces.append((root, first + low, high - low))
        start -= count
    return tuple(pieces)


def joined(axes: Sequence[Axis], *, placed: bool) -> Axis:
    """Axes one behind the other. placed: what follows a sequence continues it, if it has no position yet."""
    if not placed:  # a column of one place, whose axis nobody has named
        axes = [axis or fresh(1) for axis in axes]
    if any(len(axis) != 1 for axis in axes):
        parents = roots(flat(axes))
        return fresh(sum(map(axis_size, axes)), *parents, opaque=any(root.opaque for root in parents))
    runs = tuple(run for axis in axes for run in axis[0])
    for (before, start, length), (root, first, _) in pairwise(runs) if placed else ():
        if root is not before and not root.position and root.twin_of is None:
            root.position = before.position + start + length - first
    return (runs,)


def counted(pieces: Sequence[Axis]) -> tuple[Factor, Axis] | None:
    """The factor that counts consecutive pieces of one axis, and what is left in each; None: they are not such."""
    first = pieces[0]
    if len(pieces) < 2 or not first or len(first[0]) != 1:
        return None
    root, start, length = first[0][0]
    for number, piece in enumerate(pieces):
        if piece != (((root, start + number * length, length),), *first[1:]):
            return None
    whole: Factor = ((root, start, length * len(pieces)),)
    if length == 1:
        return whole, first[1:]
    major, minor = _split(whole, len(pieces))
    return major, (minor, *first[1:])


def reshaped(axes: Axes, shape: Sequence[int]) -> Axes:
    """The axes of a view. Factors are taken apart where a new axis ends within them."""
    if 0 in shape:
        return tuple(map(fresh, shape))
    made: list[Axis] = []
    factors, sizes = list(flat(axes)), list(shape)
    while sizes:
        wanted = [sizes.pop(0)]
        group = [factors.pop(0)] if wanted == [1] and factors and size_of(factors[0]) == 1 else []
        have, want = 1, wanted[0]
        while have != want:
            if have < want and factors:
                group.append(factors.pop(0))
                have *= size_of(group[-1])
            elif have > want and sizes:
                wanted.append(sizes.pop(0))
                want *= wanted[-1]
            else:
                break
        # A size of 1 stays with the axis in front of it, as the single position of a decoder's step does.
        while factors and size_of(factors[0]) == 1 and sizes[:1] != [1]:
            group.append(factors.pop(0))
        made += [tuple(group)] if len(wanted) == 1 and have == want else _distributed(group, wanted)
    return tuple(made)


def _distributed(factors: Sequence[Factor], sizes: Sequence[int]) -> list[Axis]:
    """Factors as axes of these sizes; where a factor has to be split and cannot, all of them are new and opaque."""
    made: list[Axis] = []
    rest = list(factors)
    for size in sizes:
        axis = [rest.pop(0)] if size == 1 and rest and size_of(rest[0]) == 1 else []
        missing = size
        while missing > 1:
            if not rest:
                return [fresh(size, opaque=True) for size in sizes]
            factor = rest.pop(0)
            count = size_of(factor)
            if missing % count == 0:
                axis.append(factor)
                missing //= count
            elif count % missing == 0:
                major, minor = _split(factor, missing)
                axis.append(major)
                rest.insert(0, minor)
                missing = 1
            else:
                return [fresh(size, *roots(tuple(factors)), opaque=True) for size in sizes]
        made.append(tuple(axis))
    return [*made[:-1], made[-1] + tuple(factor for factor in rest if size_of(factor) == 1)]


def _split(factor: Factor, count: int) -> tuple[Factor, Factor]:
    """A factor as two, the first of `count` places; the same two whenever it is split so."""
    root = factor[0][0]
    splits = root.splits = {} if root.splits is None else root.splits
    if (factor, count) not in splits:
        flags = {"projected": is_projected(factor), "opaque": is_opaque(factor)}
        sizes = (count, size_of(factor) // count)
        major, minor = (fresh(size, *roots((factor,)), **flags)[0] for size in sizes)
        splits[factor, count] = major, minor
    return splits[factor, count]


def solid(axis: Axis) -> Axis:
    """An axis without factors of one place, which views move about as they like."""
    return tuple(factor for factor in axis if size_of(factor) != 1)


def arrange(tensor: Tensor, axes: Axes, groups: Sequence[Axis]) -> Tensor:
    """A tensor with one dimension for each group of factors."""
    factors = solid(flat(axes))
    order = [factors.index(factor) for factor in solid(flat(groups))]
    if sorted(order) != list(range(len(factors))):
        raise ValueError("its axes are mixed")
    apart = tensor.reshape([size_of(factor) for factor in factors])
    return apart.permute(order).reshape([axis_size(group) for group in groups])


def regroup(tensor: Tensor, leading: Axis, batch: Axis, heads: Axis) -> Tensor:
    """(leading, rows, size) → (batch, heads, rows, size), heads 1 where they are not among the leading factors."""
    rows, size = map(fresh, tensor.shape[-2:])
    groups = (tuple(factor for factor in group if factor in leading) for group in (batch, heads))
    return arrange(tensor, (leading, rows, size), (*groups, rows, size))


def restore(tensor: Tensor, axes: Axes, groups: Sequence[Axis], shape: Sequence[int]) -> Tensor:
    """The inverse of `arrange`: a tensor of this shape."""
    factors = solid(flat(axes))
    ordered = solid(flat(groups))
    apart = tensor.reshape([size_of(factor) for factor in ordered])
    return apart.permute([ordered.index(factor) for factor in factors]).reshape(shape)
