"""What others wrote as it stands: FlexAttention's functions as a mask, `visible(mask_mod)`, and as a score,
`score.modified(score_mod)`; and any nn.Module as a score.

    mask_mod(b, h, q_idx, kv_idx) → whether the query may attend to the key
    score_mod(score, b, h, q_idx, kv_idx) → another score

These are written for one pair, whose indices are tensors without dimensions. torch.vmap calls them for all pairs of a
tile at once, so that nothing (n × m) is made for the whole; whatever tensors they capture get gradients.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.arguments import shape_text
from regard.attention import tiling
from regard.attention.layout import Layout, Tile
from regard.attention.masks import BoundMask, Mask
from regard.attention.position_masks import RangeMask
from regard.attention.scores import DEFAULT, Indices, Score, in_dtype_of
from regard.attention.tracing import captured_tensors, is_traced

Function = Callable[..., Tensor]
GROUPS = 256  # of rows, for each of which it is known which keys they see: a group for each tile of a long sequence


def visible(mask_mod: Function) -> Mask:
    """The mask of FlexAttention's mask_mod(b, h, q_idx, kv_idx), which says whether a query may attend to a key.

    h is the index in dimension −3 of the query, b that in the dimensions in front of it, as if they were one; each is 0
    where there is none.

    >>> import regard, torch
    >>> rows, document = torch.zeros(4, 2), torch.tensor([0, 0, 1, 1])
    >>> mask = regard.visible(lambda b, h, q_idx, kv_idx: (document[q_idx] == document[kv_idx]) & (q_idx >= kv_idx))
    >>> regard.weights(rows, rows, mask=mask)
    tensor([[1.0000, 0.0000, 0.0000, 0.0000],
            [0.5000, 0.5000, 0.0000, 0.0000],
            [0.0000, 0.0000, 1.0000, 0.0000],
            [0.0000, 0.0000, 0.5000, 0.5000]])
    """
    return _Visible(_check_function("visible", mask_mod, "mask_mod(b, h, q_idx, kv_idx)"))


def _check_function(name: str, function: object, expected: str) -> Function:
    if not callable(function) or isinstance(function, (Tensor, Mask)):
        raise TypeError(f"{name}: expected a function {expected}, got {type(function).__name__}")
    return function


# ------------------------------------------------------------------------------------------------- all pairs of a tile


def _over_pairs(function: Function, indices: Indices, scores: Tensor | None = None) -> Tensor:
    """function([score,] b, h, q_idx, kv_idx) for every pair of a tile, (B, R, n, m)."""
    batch, heads, rows, keys = indices
    score = () if scores is None else (0,)
    same_heads = heads.stride(0) == 0  # so that what depends on h alone is computed once for all of B
    by_key = torch.vmap(function, (*score, None, None, None, 0))
    by_row = torch.vmap(by_key, (*score, None, None, 0, None))
    by_head = torch.vmap(by_row, (*score, None, 0, None, None))
    by_batch = torch.vmap(by_head, (*score, 0, None if same_heads else 0, None, None))
    with _IndexByTensors():
        arguments = (batch[:, 0], heads[0] if same_heads else heads, rows, keys)
        return by_batch(*arguments) if scores is None else by_batch(scores, *arguments)


class _IndexByTensors(TorchFunctionMode):
    """table[q_idx] gathers, where PyTorch would ask an index without dimensions for its value."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.__getitem__:
            table, index = args
            index = index if isinstance(index, tuple) else (index,)
            plain = all(isinstance(part, (Tensor, int)) or part == slice(None) for part in index)
            if plain and any(isinstance(part, Tensor) for part in index):
                parts = [torch.tensor(part, device=table.device) if isinstance(part, int) else part for part in index]
                return torch.ops.aten.index(table, [part if isinstance(part, Tensor) else None for part in parts])
        return func(*args, **(kwargs or {}))


def _has_no_numbers(layout: Layout) -> bool:
    """Whether what is computed from indices alone must not be looked at."""
    return is_traced(torch.empty(0, device=layout.device))


def _captured(function: Function, layout: Layout, *score: Tensor) -> list[Tensor]:
    """The tensors that the function reads beside its arguments; none while traced, where autograd sees them itself."""
    if not (layout.folded[0] and layout.rows and layout.m) or _has_no_numbers(layout):
        return []
    batch, heads, rows, keys = layout.indices(Tile(slice(0, 1), slice(0, 1), slice(0, 1)))
    return captured_tensors(function, *score, batch[0, 0], heads[0, 0], rows[0], keys[0])


# ---------------------------------------------------------------------------------------------------------------- masks


class _Visible(Mask):
    def __init__(self, function: Function) -> None:
        self.function = function

    def __repr__(self) -> str:
        return f"visible({getattr(self.function, '__name__', type(self.function).__name__)})"

    def bind(self, layout: Layout) -> BoundMask:
        return _BoundVisible(self.function, layout)


class _BoundVisible(RangeMask):
    by_row = True

    def __init__(self, function: Function, layout: Layout) -> None:
        self.function, self.layout = function, layout
        self.ragged = layout.folded[0] > 1
        self.tensors = tuple(_captured(function, layout))

    def allowed(self, tile: Tile) -> Tensor:
        indices = self.layout.indices(tile)
        if not all(part.numel() for part in indices):
            return torch.zeros(1, 1, 1, 1, dtype=torch.bool, device=self.layout.device)
        if not is_traced(indices[0]):
            batch, heads, rows, keys = indices
            part = tuple(slice(None if depends else 1) for depends in self._dependence)  # without copies
            indices = batch[part], heads[part], rows, keys
        with torch.no_grad():
            allowed = _over_pairs(self.function, indices)
        if allowed.dtype != torch.bool or allowed.dim() != 4:
            came = f"shape {tuple(allowed.shape[4:])} of {allowed.dtype}"
            raise TypeError(f"visible: expected mask_mod to return a boolean without dimensions, got {came}")
        return allowed

    def ranges(self, tile: Tile) -> tuple[slice, slice]:
        if _has_no_numbers(self.layout):
            return tile.keys, slice(0, -1)
        grain, ends, _ = self._scanned
        groups = slice(tile.rows.start // grain, -(-tile.rows.stop // grain))
        ends = ends[tile.batch if len(ends) > 1 else slice(None), groups]
        if not ends.numel():
            return slice(tile.keys.stop, 0), slice(0, tile.keys.stop)
        first, last, all_first, all_last = ends.unbind(-1)
        of_all = slice(int(all_first.max()), int(all_last.min()) + 1)
        return slice(int(first.min()), int(last.max()) + 1), of_all

    def reached(self, tile: Tile) -> Tensor:
        _, _, reached = self._scanned  # by any row at all
        return reached[tile.batch if len(reached) > 1 else slice(None), ..., tile.keys]

    @cached_property
    def _scanned(self) -> tuple[int, Tensor, Tensor]:
        """How many rows a group has; the ends of what each group sees, (B or 1, groups, 4); which keys any row sees.

        The ends are the first and the last key that any of its rows sees in any head, and the first and the last that
        all of them see in all heads, if there is no gap between.
        """
        (batch, sharing), n, m = self.layout.folded, self.layout.rows, self.layout.m
        if not (batch and n and m):
            return 1, torch.tensor([m, -1, 0, m - 1]).expand(1, n, 4), torch.zeros(1, 1, 1, m, dtype=torch.bool)
        by_batch, by_head = self._dependence
        step = max(1, tiling.STREAMED // (m * (batch if by_batch else 1) * (sharing if by_head else 1)))
        grain = min(step, -(-n // GROUPS))
        ends, reached = [], torch.zeros(1, 1, 1, m, dtype=torch.bool, device=self.layout.device)
        for start in range(0, n, step // grain * grain):
            rows = slice(start, min(start + step // grain * grain, n))
            allowed = self.allowed(Tile(slice(0, batch), rows, slice(0, m)))
            reached = reached | allowed.any(-2, keepdim=True)
            missing = -allowed.shape[2] % grain  # of the last group: filled with its last row, which changes nothing
            allowed = torch.cat([allowed, allowed[:, :, -1:].expand(-1, -1, missing, -1)], 2) if missing else allowed
            groups = allowed.unflatten(2, (-1, grain))  # (B or 1, R or 1, groups, grain, m)
            some, full = groups.amax((1, 3)), groups.amin((1, 3))
            (first, last), (all_first, all_last) = _first_and_last(some), _first_and_last(full)
            gap = full.sum(-1) != all_last - all_first + 1
            ends.append(torch.stack([first, last, all_first.masked_fill(gap, m), all_last.masked_fill(gap, -1)], -1))
        return grain, torch.cat(ends, 1), reached  # (B or 1, R or 1, 1, m)

    @cached_property
    def _dependence(self) -> tuple[bool, bool]:
        """Whether what may be attended differs within B and within R: what vmap did not map over is only expanded."""
        indices = self.layout.indices(Tile(slice(0, self.layout.folded[0]), slice(0, 1), slice(0, 1)))
        with torch.no_grad():
            allowed = _over_pairs(self.function, indices)
        return allowed.stride(0) != 0, allowed.stride(1) != 0


def _first_and_last(allowed: Tensor) -> tuple[Tensor, Tensor]:
    """Of the keys that are allowed, (…, m) → (…); m and −1 where none is."""
    keys, m = torch.arange(allowed.shape[-1], device=allowed.device), allowed.shape[-1]
    return torch.where(allowed, keys, m).amin(-1), torch.where(allowed, keys, -1).amax(-1)


# --------------------------------------------------------------------------------------------------------------- scores


class Modified(Score):
    """Another score, whose numbers go through FlexAttention's score_mod; made by `score.modified(score_mod)`."""

    has_positions = True

    def __init__(self, score: Score, score_mod: Function) -> None:
        super().__init__()
        self.score = score
        self.score_mod = _check_function("score_mod", score_mod, "score_mod(score, b, h, q_idx, kv_idx)")
        for name in ("check_query", "check_key", "project_query", "project_key", "pairs"):
            setattr(self, name, getattr(score, name))

    def extra_repr(self) -> str:
        shown = isinstance(self.score_mod, nn.Module)
        return "" if shown else f"score_mod={getattr(self.score_mod, '__name__', type(self.score_mod).__name__)}"

    def modify(self, scores: Tensor, indices: Indices) -> Tensor:
        scores = self.score.modify(scores, indices)
        if not scores.numel():
            return scores
        modified = _over_pairs(self.score_mod, indices, scores)
        if modified.shape != scores.shape:
            came = f"shape {tuple(modified.shape[4:])}"
            raise ValueError(f"score_mod: expected it to return a score without dimensions, got {came}")
        return modified.to(scores.dtype)

    def captured(self, layout: Layout) -> list[Tensor]:
        known = {id(tensor) for tensor in (*self.parameters(), *self.buffers())}
        score = torch.zeros((), device=layout.device)
        tensors = self.score.captured(layout) + _captured(self.score_mod, layout, score)
        return list({id(tensor): tensor for tensor in tensors if id(tensor) not in known}.values())


class Custom(Score):
    """Any nn.Module that maps (…, n, query size), (…, m, key size) to scores (…, n, m), row by row and key by key."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def pairs(self, query: Tensor, key: Tensor) -> Tensor:
        try:
            scores = in_dtype_of(self.module, query, key)
        except TypeError as error:  # among others, a module of one argument
            raise TypeError(f"{self._expected(query, key)}, got {error}") from error
        if not isinstance(scores, Tensor):
            raise ValueError(f"{self._expected(query, key)}, got {type(scores).__name__}")
        if scores.shape != (*query.shape[:-1], key.shape[-2]):
            raise ValueError(f"{self._expected(query, key)}, got shape {shape_text(scores)}")
        return scores.to(query.dtype)

    def _expected(self, query: Tensor, key: Tensor) -> str:
        scores = (*query.shape[:-1], key.shape[-2])
        return (
            f"score: expected {type(self.module).__name__} to map query {shape_text(query)} and key {shape_text(key)} "
            f"to scores {scores}, one number for each query and key"
        )


def require_score(score: nn.Module | None) -> Score:
    """Any nn.Module as a Score; None is Dot()."""
    if score is None:
        return DEFAULT
    if isinstance(score, Score):
        return score
    if isinstance(score, nn.Module):
        return Custom(score)
    raise TypeError(f"score: expected an nn.Module such as Dot(), Additive(…), Kernel(…), got {type(score).__name__}")
