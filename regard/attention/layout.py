"""How the shapes of one call fit together, and the one layout in which every engine works.

Legend, here and in the whole room:
    batch    the broadcast leading dimensions of the scores, e.g. (sentences, heads)
    n, m     how many queries, how many keys
    (B, R)   batch folded to two dimensions. B counts what has its own keys, R the query heads that share them: with
             H query heads over G key heads, head h reads key head h // (H // G), so B = … · G and R = H // G.
    tile     a block of the folded scores (B, R, n, m)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from regard.arguments import check_tensor
from regard.attention.tracing import is_traced

HALVES = (torch.float16, torch.bfloat16)  # computed in float32


class Tile(NamedTuple):
    """A block of the folded scores (B, R, n, m): a range of B, all of R, a range of rows, a range of keys."""

    batch: slice
    rows: slice
    keys: slice

    def clip(self, start: int, stop: int) -> slice:
        """The part of its keys from `start` up to `stop`; empty where there is none."""
        start = max(self.keys.start, min(start, self.keys.stop))
        return slice(start, max(start, min(self.keys.stop, stop)))

    @property
    def at_rows(self) -> tuple[slice, slice, slice]:
        """Where its rows are in (B, R, n, size)."""
        return self.batch, slice(None), self.rows

    @property
    def at_keys(self) -> tuple[slice, slice, slice]:
        """Where its keys are in (B, R, m, size)."""
        return self.batch, slice(None), self.keys

    @classmethod
    def whole(cls, batch: int, n: int, m: int) -> Tile:
        """All of the scores."""
        # Not cls(…): sizes that the compiler leaves open would be fixed by slices among the arguments of a class.
        return cls._make((slice(0, batch), slice(0, n), slice(0, m)))


@dataclass(eq=False)
class Layout:
    """The shapes of one call, and which of its rows and heads are computed. Not to be changed: layouts are shared."""

    batch: tuple[int, ...]
    n: int
    m: int
    group: int  # how many query heads share a key head; 1 where heads are not grouped
    device: torch.device
    positions: Sequence[int] | None = None  # of the rows that are computed, among the n queries; None for all
    heads: Tensor | None = None  # the heads that are computed; None for all

    rows: int = field(init=False)  # how many rows are computed
    lead: tuple[int, ...] = field(init=False)  # the leading dimensions of the result
    sharing: int = field(init=False)  # R: query heads that share their keys
    folded: tuple[int, int] = field(init=False)  # (B, R)

    def __post_init__(self) -> None:
        self.rows = self.n if self.positions is None else len(self.positions)
        self.lead = self.batch if self.heads is None else (*self.batch[:-1], len(self.heads))
        if self.group > 1 and self.heads is None:
            self.sharing = self.group
        else:  # where heads are chosen, each is given keys of its own
            # max: R is a divisor, also where there are no heads
            self.sharing = max(self.lead[-1], 1) if len(self.lead) > 1 else 1
        front = (*self.lead[:-1], self.lead[-1] // self.sharing) if self.lead else ()
        self.folded = math.prod(front), self.sharing

    @property
    def whole(self) -> Tile:
        """All of the scores that are computed, as one tile."""
        return Tile.whole(self.folded[0], self.rows, self.m)

    def select(self, tensor: Tensor, *, rows: bool) -> Tensor:
        """The chosen heads of (…, heads, n, d) and, with rows=True, its chosen rows; dimensions of size 1 stay."""
        if self.heads is not None and tensor.dim() > 2 and tensor.shape[-3] > 1:
            grouped = tensor.shape[-3] != self.batch[-1]
            tensor = tensor.index_select(-3, self.heads // self.group if grouped else self.heads)
        if rows and self.positions is not None and tensor.shape[-2] == self.n:
            tensor = tensor.index_select(-2, torch.tensor(self.positions, device=tensor.device, dtype=torch.long))
        return tensor

    def fold(self, tensor: Tensor) -> Tensor:
        """(…, a, b) → (B, R or 1, a, b). The last two dimensions are not expanded: a mask stays as small as it is."""
        last_two = tensor.shape[-2:]
        lead = (1,) * (len(self.lead) + 2 - tensor.dim()) + tuple(tensor.shape[:-2])
        if not lead:
            return tensor[None, None]
        # The last of lead becomes (key heads, sharing heads): H → (H/R, R), G → (G, 1), 1 → (1, 1).
        sharing = self.sharing if lead[-1] == self.lead[-1] else 1
        tensor = tensor.reshape(*lead[:-1], lead[-1] // sharing, sharing, *last_two)
        front = (*self.lead[:-1], self.lead[-1] // self.sharing)
        return tensor.expand(*front, sharing, *last_two).reshape(math.prod(front), sharing, *last_two)

    def spread(self, tensor: Tensor) -> Tensor:
        """(…, a, b) → (B, R, a, b), without a copy where strides allow."""
        if tensor.dim() == 4 and tuple(tensor.shape[:2]) == self.folded == self.lead:
            return tensor  # (batch, heads, a, b) is that
        return self.fold(tensor).expand(*self.folded, -1, -1)

    def query_indices(self, rows: slice) -> Tensor:
        """The positions of these rows among the n queries."""
        if self.positions is None:
            return torch.arange(rows.start, rows.stop, device=self.device)
        return torch.tensor(self.positions[rows], dtype=torch.long, device=self.device)

    def indices(self, tile: Tile) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Which scores of the whole a tile holds, as FlexAttention counts them: b, h (B, R), q_idx (n,), kv_idx (m,).

        h is the index in dimension −3, b that in the dimensions in front of it, as if they were one.
        """
        key_heads = max(self.lead[-1] // self.sharing, 1) if self.lead else 1
        folded = torch.arange(tile.batch.start, tile.batch.stop, device=self.device)[:, None]
        heads = torch.arange(self.sharing, device=self.device)
        if key_heads != 1:
            heads = folded % key_heads * self.sharing + heads  # (B, R)
        batch, heads = torch.broadcast_tensors(folded // key_heads, heads)
        if self.heads is not None:
            heads = self.heads[heads]
        keys = torch.arange(tile.keys.start, tile.keys.stop, device=self.device)
        return batch, heads, self.query_indices(tile.rows), keys

    def unfold(self, tensor: Tensor) -> Tensor:
        """(B, R, a, b) → (*lead, a, b)."""
        if self.lead == self.folded:
            return tensor
        return tensor.reshape(*self.lead, *tensor.shape[-2:])


def prepare(rows: Tensor) -> Tensor:
    """The rows in the precision and memory layout in which they are computed.

    Half precision becomes float32, so that sums are kept in float32 (and no CPU meets a bfloat16 kernel). The last
    dimension gets stride 1, because other strides would change the last bits of a result.
    """
    rows = rows.float() if rows.dtype in HALVES else rows
    # Not contiguous(), to which the strides of dimensions of size 1 do not matter, though they do to a product.
    return rows if rows.stride(-1) == 1 else rows.clone(memory_format=torch.contiguous_format)


def check_layout(query: Tensor, key: Tensor, *value: Tensor) -> Layout:
    """Check query, key and, if there is one, value against each other; messages name the argument at fault."""
    check_tensor("query", query, "of shape (…, n, query size)")
    given = dict(zip(("key", "value"), (key, *value), strict=False))
    for name, tensor in given.items():
        check_tensor(name, tensor, f"of shape (…, m, {name} size)")
        if tensor.dtype != query.dtype:
            raise TypeError(f"{name}: expected dtype {query.dtype} like query, got {tensor.dtype}")
        if tensor.device != query.device:
            raise ValueError(f"{name}: expected device {query.device} like query, got {tensor.device}")
    make = _make_layout if is_traced(query) else remembered_layout
    return make(query.device, query.shape, *(tensor.shape for tensor in given.values()))


def _make_layout(
    device: torch.device, query: tuple[int, ...], key: tuple[int, ...], value: tuple[int, ...] | None = None
) -> Layout:
    """The layout of these shapes; they alone decide it, so that a decoder's steps can share one."""
    query, key, value = tuple(query), tuple(key), None if value is None else tuple(value)
    n, m = query[-2], key[-2]
    if value is not None and value[-2] != m:
        raise ValueError(f"value: expected one value per key, {m} of them in dimension -2, got {tuple(value)}")
    given = {"key": key} if value is None else {"key": key, "value": value}
    heads = query[-3] if len(query) > 2 else 1
    counts = {name: _count_heads(name, shape, heads) for name, shape in given.items()}
    grouped = {count for count in counts.values() if count not in (1, heads) and heads > 1}
    if len(grouped) > 1:
        raise ValueError(f"value: expected as many heads as key has ({counts['key']}), got {counts['value']}")
    group = heads // grouped.pop() if grouped else 1
    leads = {"query": query[:-2]}
    for name, shape in given.items():
        lead = shape[:-2]
        leads[name] = (*lead[:-1], heads) if group > 1 and lead and lead[-1] != 1 else lead
    return Layout(_broadcast(leads), n, m, group, device)


remembered_layout = functools.lru_cache(maxsize=256)(_make_layout)


def _count_heads(name: str, shape: tuple[int, ...], query_heads: int) -> int:
    """The heads of key or value: 1 and `query_heads` broadcast, a divisor of `query_heads` is grouped."""
    heads = shape[-3] if len(shape) > 2 else 1
    if heads == 1 or query_heads in (1, heads):
        return heads
    if not heads or query_heads % heads:
        raise ValueError(
            f"{name}: dimension -3 must be 1, {query_heads} or a divisor of the query's {query_heads} heads, "
            f"got shape {shape}"
        )
    return heads


def _broadcast(leads: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
    """The leading dimensions joined. Written out: numpy's cannot be traced, torch's imports sympy (half a second)."""
    batch: tuple[int, ...] = ()
    names: list[str] = []
    for name, lead in leads.items():
        width = max(len(batch), len(lead))
        ones = [(1,) * (width - len(sizes)) + sizes for sizes in (batch, lead)]
        joined = []
        for old, new in zip(*ones, strict=True):
            if old != new and old != 1 and new != 1:
                raise ValueError(
                    f"{name}: leading dimensions {lead} do not broadcast with {batch}, those of {' and '.join(names)}"
                )
            joined.append(new if old == 1 else old)
        batch = tuple(joined)
        names.append(name)
    return batch
