"""Masks made of tensors: keep, drop and bias, of dense ones (…, n or 1, m or 1); and biases that depend on how far a
key is from a query, ALiBi's and T5's learned table:

    bias_ij = vector[j − i − offset]        one number for each relative position, per head

n queries and m keys have n + m − 1 relative positions, so nothing (n × m) is ever made: the bias of a tile is cut from
the vector, and its gradient is summed along diagonals.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor
from torch.nn import functional

from regard.arguments import check_not_nested, check_size, shape_text
from regard.attention.layout import Layout, Tile
from regard.attention.masks import BoundMask, Mask
from regard.attention.position_masks import Align, Offset
from regard.attention.tracing import is_traced

Buckets = Callable[[Tensor], Tensor]
SHORT = 64  # so many rows are one piece, however few keys they have


def keep(tensor: Tensor) -> Mask:
    """True where a key may be attended. Shape (…, n or 1, m or 1).

    >>> import regard, torch
    >>> mask = regard.keep(torch.tensor([[True, False, True, True]]))
    >>> regard.weights(torch.zeros(1, 2), torch.zeros(4, 2), mask=mask)
    tensor([[0.3333, 0.0000, 0.3333, 0.3333]])
    """
    return _Dense("keep", tensor)


def drop(tensor: Tensor) -> Mask:
    """True where a key must not be attended. Shape (…, n or 1, m or 1).

    >>> import regard, torch
    >>> mask = regard.drop(torch.tensor([[True, False, True, True]]))
    >>> regard.weights(torch.zeros(1, 2), torch.zeros(4, 2), mask=mask)
    tensor([[0., 1., 0., 0.]])
    """
    return _Dense("drop", tensor)


def bias(tensor: Tensor) -> Mask:
    """Added to the scores; −inf forbids. Shape (…, n or 1, m or 1). Gradients flow into it.

    >>> import regard, torch
    >>> mask = regard.bias(torch.tensor([[0.0, 1.0, float("-inf")]]))
    >>> regard.weights(torch.zeros(1, 2), torch.zeros(3, 2), mask=mask)
    tensor([[0.2689, 0.7311, 0.0000]])
    """
    return _Dense("bias", tensor)


class _Dense(Mask):
    """keep, drop or bias of a tensor (…, n or 1, m or 1)."""

    def __init__(self, name: str, tensor: Tensor) -> None:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name}: expected a torch.Tensor (…, n or 1, m or 1), got {type(tensor).__name__}")
        check_not_nested(name, tensor, "(…, n or 1, m or 1)")
        if tensor.dim() < 2:
            raise ValueError(
                f"{name}: expected at least two dimensions (…, n or 1, m or 1), got shape {shape_text(tensor)}; "
                "a mask over keys alone is t[..., None, :]"
            )
        if name == "bias" and not tensor.is_floating_point():
            came = f"dtype {tensor.dtype}; for booleans use keep or drop"
            raise TypeError(f"{name}: expected a floating-point tensor, got {came}")
        if name != "bias" and tensor.dtype != torch.bool:
            raise TypeError(f"{name}: expected a boolean tensor, got dtype {tensor.dtype}")
        self.name, self.tensor, self.sources = name, tensor, (tensor,)

    def __repr__(self) -> str:
        return f"{self.name}({shape_text(self.tensor)})"

    @property
    def has_bias(self) -> bool:
        return self.name == "bias"

    def __invert__(self) -> Mask:
        opposite = {"keep": "drop", "drop": "keep"}.get(self.name)
        return super().__invert__() if opposite is None else _Dense(opposite, self.tensor)

    def bind(self, layout: Layout) -> BoundMask:
        tensor, batch = self.tensor, layout.batch
        if tensor.device != layout.device:
            raise ValueError(f"{self.name}: expected device {layout.device} like query, got {tensor.device}")
        lead = (1,) * (len(batch) + 2 - tensor.dim()) + tuple(tensor.shape[:-2])
        # Compared by ==: `in` does not see that a size which the compiler leaves open is the same.
        sizes = zip(tensor.shape[-2:], (layout.n, layout.m), strict=True)
        if any(size != 1 and size != wanted for size, wanted in sizes):
            problem = f"for {layout.n} queries and {layout.m} keys"
        elif len(lead) > len(batch) or any(a != 1 and a != b for a, b in zip(lead, batch, strict=True)):
            problem = f"with leading dimensions that broadcast to {batch}"
        else:
            return _BoundDense(self.name, layout.fold(layout.select(tensor, rows=True)))
        expected = f"shape (…, {layout.n} or 1, {layout.m} or 1) {problem}"
        raise ValueError(f"{self.name}: expected {expected}, got {shape_text(tensor)}")


class _BoundDense(BoundMask):
    """The tensor folded, (B or 1, R or 1, n or 1, m or 1)."""

    def __init__(self, name: str, tensor: Tensor) -> None:
        if not is_traced(tensor) and tensor.stride(0) == 0:
            tensor = tensor[:1]  # one for all of the batch, and so is its gradient
        self.name, self.tensor, self.tensors = name, tensor, (tensor,)
        self.by_row = tensor.shape[-2] > 1
        self.learned = tensor.requires_grad

    def block(self, tile: Tile) -> Tensor:
        """The tensor's part for a tile; dimensions of size 1 stay as they are."""
        return _block(self.tensor, tile)

    def allowed(self, tile: Tile) -> Tensor | None:
        if self.name == "bias":
            return self.block(tile).detach() != -torch.inf if self._may_forbid() else None
        block = self.block(tile)
        return ~block if self.name == "drop" else block

    def bias(self, tile: Tile) -> Tensor | None:
        if self.name != "bias":
            return None
        block = self.block(tile)
        return block.masked_fill(block.detach() == -torch.inf, 0.0) if self._may_forbid() else block

    def _may_forbid(self) -> bool:
        return is_traced(self.tensor) or self._forbids

    @cached_property
    def _forbids(self) -> bool:
        """Whether a bias holds −inf. If not, which is the rule, its tiles are used as they are."""
        numbers = self.tensor.detach()
        return bool(numbers.numel()) and not bool(numbers.amin() > -torch.inf)  # beside NaN there may be a −inf

    def reached(self, tile: Tile) -> Tensor | None:
        if self.name == "bias" and not self._may_forbid():
            return None
        block = self.block(tile).detach()
        if self.name == "bias":  # nothing as large as the block is made on the way
            return block.amax(-2, keepdim=True) != -torch.inf
        return ~block.all(-2, keepdim=True) if self.name == "drop" else block.any(-2, keepdim=True)

    def add_gradient(self, tile: Tile, grad: Tensor, sums: Sequence[Tensor | None]) -> None:
        (total,) = sums
        if total is not None:  # in place: the gradient of a slice would be as large as the whole, for every tile
            block = _block(total, tile)
            block += grad.sum_to_size(block.shape)


def _block(tensor: Tensor, tile: Tile) -> Tensor:
    parts = (tile.batch, slice(None), tile.rows, tile.keys)
    return tensor[tuple(part if size > 1 else slice(None) for part, size in zip(parts, tensor.shape, strict=True))]


# -------------------------------------------------------------------------------------- biases of relative positions


def alibi(slopes: Tensor | Sequence[float] | float, offset: int | None = None, align: Align | None = None) -> Mask:
    """The farther a key, the lower its score: −slope · |j − (i + offset)| is added to that of query i and key j.

    slopes: one number, or one per head, (heads,); gradients flow into a tensor
    offset, align: as for `causal`

    >>> import regard, torch
    >>> rows = torch.zeros(3, 2)
    >>> regard.weights(rows, rows, mask=regard.alibi(1.0))
    tensor([[0.6652, 0.2447, 0.0900],
            [0.2119, 0.5761, 0.2119],
            [0.0900, 0.2447, 0.6652]])
    """
    try:
        tensor = torch.as_tensor(slopes)
    except (TypeError, ValueError, RuntimeError) as error:
        came = f"{type(slopes).__name__} ({error})"
        raise TypeError(f"alibi: expected slopes, a number or one per head, got {came}") from error
    if tensor.dtype == torch.bool or tensor.is_complex():
        raise TypeError(f"alibi: expected slopes that are numbers, got dtype {tensor.dtype}")
    if tensor.dim() > 1:
        raise ValueError(f"alibi: expected one slope or slopes (heads,), got shape {shape_text(tensor)}")
    return _Relative("alibi", tensor, Offset("alibi", offset, align), _alibi_vector)


def relative(table: Tensor, bucket: Buckets, offset: int | None = None, align: Align | None = None) -> Mask:
    """One number per distance: table[bucket(j − i − offset), head] is added to the score of query i and key j.

    table: (buckets, heads), as the weight of T5's Embedding, or (buckets, 1); gradients flow into it
    bucket: maps relative positions, a LongTensor (key − query), to rows of the table, a LongTensor of the same shape;
        `t5_buckets()` is T5's
    offset, align: as for `causal`

    >>> import regard, torch
    >>> table = torch.tensor([[0.0], [1.0]])  # key − query: 0 or less, more than 0
    >>> rows = torch.zeros(3, 2)
    >>> regard.weights(rows, rows, mask=regard.relative(table, lambda steps: (steps > 0).long()))
    tensor([[0.1554, 0.4223, 0.4223],
            [0.2119, 0.2119, 0.5761],
            [0.3333, 0.3333, 0.3333]])
    """
    if not isinstance(table, Tensor) or not table.is_floating_point():
        came = f"dtype {table.dtype}" if isinstance(table, Tensor) else type(table).__name__
        raise TypeError(f"relative: expected a floating-point tensor (buckets, heads), got {came}")
    if table.dim() != 2:
        raise ValueError(f"relative: expected a table (buckets, heads), got shape {shape_text(table)}")
    if not callable(bucket):
        raise TypeError(
            f"relative: expected bucket to be a function of relative positions, got {type(bucket).__name__}"
        )
    return _Relative("relative", table, Offset("relative", offset, align), partial(_table_vector, bucket))


def t5_buckets(buckets: int = 32, distance: int = 128, bidirectional: bool = True) -> Buckets:
    """T5's function from relative positions to buckets: near ones have one each, far ones share, beyond `distance` one.

    buckets: how many there are in all
    bidirectional: whether half of them are for keys behind the query, as in an encoder; else those are all in bucket 0

    >>> import regard, torch
    >>> regard.t5_buckets()(torch.tensor([-1000, -10, -9, -1, 0, 1, 10, 1000]))
    tensor([15,  8,  8,  1,  0, 17, 24, 31])
    """
    least = 4 if bidirectional else 2
    if check_size("buckets", buckets) < least:
        raise ValueError(f"buckets: expected {least} or more, got {buckets}")
    function = _T5Buckets(buckets // 2 if bidirectional else buckets, check_size("distance", distance), bidirectional)
    if distance <= function.side // 2:
        raise ValueError(f"distance: expected more than {function.side // 2}, the exact ones, got {distance}")
    return function


@dataclass(frozen=True)
class _T5Buckets:
    side: int  # how many there are for either side of the query
    distance: int
    bidirectional: bool

    def __call__(self, steps: Tensor) -> Tensor:
        exact = self.side // 2  # distances below have a bucket each, those beyond are spread by their logarithm
        far = steps.abs() if self.bidirectional else (-steps).clamp(min=0)
        share = (far.clamp(min=exact).float() / exact).log() / math.log(self.distance / exact)
        coarse = (exact + (share * (self.side - exact)).long()).clamp(max=self.side - 1)
        buckets = torch.where(far < exact, far, coarse)
        return buckets + (steps > 0) * self.side if self.bidirectional else buckets


class _Relative(Mask):
    """A bias made of one vector over the relative positions, per head.

    vector: makes it of the source, (relative positions,) → (heads or 1, relative positions).
    """

    has_bias = True

    def __init__(self, name: str, source: Tensor, offset: Offset, vector: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.name, self.source, self.offset, self.vector, self.sources = name, source, offset, vector, (source,)

    def __repr__(self) -> str:
        return f"{self.name}({shape_text(self.source)}, {self.offset})"

    def bind(self, layout: Layout) -> BoundMask:
        if self.source.device != layout.device:
            raise ValueError(f"{self.name}: expected device {layout.device} like query, got {self.source.device}")
        first = 1 - layout.n - self.offset.of(layout)  # of the last query and the first key
        steps = torch.arange(max(layout.n + layout.m - 1, 0), device=layout.device) + first
        vector = self.vector(self.source, steps)
        heads = layout.batch[-1] if layout.batch else 1
        if vector.shape[0] != 1 and vector.shape[0] != heads:
            raise ValueError(f"{self.name}: expected numbers for {heads} heads or for 1, got {vector.shape[0]}")
        vector = functional.pad(vector, (0, 1))  # see `_BoundRelative.block`
        vector = layout.select(vector[:, None], rows=False) if layout.batch else vector  # (heads, 1, n + m)
        return _BoundRelative(layout.fold(vector), layout)


def _alibi_vector(slopes: Tensor, steps: Tensor) -> Tensor:
    dtype = torch.promote_types(slopes.dtype, torch.float32)
    return -slopes.to(dtype).reshape(-1, 1) * steps.abs().to(dtype)


def _table_vector(bucket: Buckets, table: Tensor, steps: Tensor) -> Tensor:
    rows = bucket(steps)
    if not isinstance(rows, Tensor) or rows.shape != steps.shape or rows.dtype not in (torch.int64, torch.int32):
        came = f"{shape_text(rows)} of {rows.dtype}" if isinstance(rows, Tensor) else type(rows).__name__
        raise ValueError(f"bucket: expected a LongTensor {shape_text(steps)}, one for each position, got {came}")
    if not is_traced(rows) and rows.numel():
        low, high = (int(end) for end in rows.aminmax())
        if low < 0 or high >= len(table):
            expected = f"numbers from 0 to {len(table) - 1}, the rows of the table"
            raise ValueError(f"bucket: expected {expected}, got {low if low < 0 else high}")
    return table.index_select(0, rows).T


class _BoundRelative(_BoundDense):
    """The vectors, folded, (B, R or 1, 1, n + m): from the last query and the first key on, and one entry to spare."""

    def __init__(self, vector: Tensor, layout: Layout) -> None:
        super().__init__("bias", vector)
        self.by_row, self.layout = True, layout

    add_gradient = BoundMask.add_gradient  # the vector is small

    def block(self, tile: Tile) -> Tensor:
        vector = self.tensor[tile.batch] if self.tensor.shape[0] > 1 else self.tensor  # (B or 1, R or 1, 1, n + m − 1)
        if self.layout.positions is not None:
            rows, keys = self.layout.query_indices(tile.rows), torch.arange(tile.keys.start, tile.keys.stop)
            return vector.squeeze(-2)[..., keys.to(rows.device) - rows[:, None] + (self.layout.n - 1)]
        rows, keys = tile.rows.stop - tile.rows.start, tile.keys.stop - tile.keys.start
        if not rows:
            return vector.new_zeros(1, 1, 0, keys)
        if is_traced(vector) or rows <= max(keys, SHORT):
            return self._diagonals(vector, tile.rows.stop, rows, tile.keys.start, keys)
        # A square at a time: the copies of more rows would be longer than they are wide.
        ends = [*range(tile.rows.start + max(keys, SHORT), tile.rows.stop, max(keys, SHORT)), tile.rows.stop]
        starts = [tile.rows.start, *ends[:-1]]
        squares = zip(starts, ends, strict=True)
        return torch.cat([self._diagonals(vector, b, b - a, tile.keys.start, keys) for a, b in squares], -2)

    def _diagonals(self, vector: Tensor, stop: int, rows: int, first_key: int, keys: int) -> Tensor:
        """The last `rows` rows before `stop`, (B or 1, R or 1, rows, keys).

        `rows` copies, one behind the other, read in steps that are one shorter than a copy: each row begins one entry
        earlier than the row above. No index for each pair, and the gradient is a sum over rows.
        """
        start, width = first_key - stop + self.layout.n, rows + keys - 1
        copies = vector[..., start : start + width + 1].expand(-1, -1, rows, -1).flatten(2)
        shifted: Tensor = copies[..., rows - 1 : rows - 1 + rows * width].unflatten(2, (rows, width))
        return shifted[..., :keys]
