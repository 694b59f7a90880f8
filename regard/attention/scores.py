"""Scores: how well a key answers a query. Each is an nn.Module, score(query, key) → (…, n, m).

A score has two halves, so that what belongs to one row is computed once per row and not once per pair:

    score(query, key) = pairs(project_query(query), project_key(key))

Two more methods are for scores that have a faster way. `as_dot`, where the score reduces to a dot product,
gives vectors whose dot product is the score up to a constant of the row, to which softmax is invariant: such scores run
on PyTorch's fused attention. `average` is for scores whose weighted average can be had without visiting every pair.

`Additive` is in additive.py, `Kernel` in kernels.py, `Separable` in separable.py, other modules as scores in mods.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.arguments import check_positive, check_size, shape_text
from regard.attention.layout import HALVES, Layout, check_layout
from regard.attention.tracing import is_traced

Indices = tuple[Tensor, Tensor, Tensor, Tensor]  # b and h (B, R), q_idx (n,), kv_idx (m,)


class Score(nn.Module):
    """Subclass it: give `pairs`, and what else the score has.

    >>> import regard, torch
    >>> class Nearest(regard.Score):
    ...     def pairs(self, query, key):  # (…, n, d) × (…, m, d) → (…, n, m)
    ...         return -torch.cdist(query, key, p=1)
    >>> query, key = torch.tensor([[0.0]]), torch.tensor([[0.0], [1.0], [5.0]])
    >>> regard.weights(query, key, score=Nearest())
    tensor([[0.7275, 0.2676, 0.0049]])
    """

    may_exclude = True  # whether pairs() may give −inf without a mask, so that a row can have nothing to attend to
    is_dot = False  # whether as_dot() has an answer, at least for some numbers
    has_average = False  # the same of average()
    dot_is_exact = True  # whether as_dot() gives the score itself, and not up to a constant of the row
    has_positions = False  # whether modify() changes anything
    same_size = ""  # why keys have to be of the query's size, where they have to

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "project_key" in vars(cls):
            setattr(cls, "project_key", _remembering(cls.project_key))  # noqa: B010

    def check(self, query: Tensor, key: Tensor) -> None:
        """Raise ValueError or TypeError, naming the argument, where the sizes do not fit this score."""
        self.check_query(query)
        self.check_key(query, key)

    def check_query(self, query: Tensor) -> None:
        """The half of `check` that does not depend on the keys, which may be projected already."""

    def check_key(self, query: Tensor, key: Tensor) -> None:
        """The half of `check` for keys that are not projected yet."""
        if self.same_size:
            check_features("key", key, query.shape[-1], self.same_size)

    def project_query(self, query: Tensor) -> Tensor:
        """(…, n, query size) → (…, n, inner size)."""
        return query

    def project_key(self, key: Tensor) -> Tensor:
        """(…, m, key size) → (…, m, inner size). Do it once, then pass the result with `score.projected`."""
        return key

    def pairs(self, query: Tensor, key: Tensor) -> Tensor:
        """The scores of projected rows, (…, n, inner size) × (…, m, inner size) → (…, n, m). Called tile by tile."""
        raise NotImplementedError(f"{type(self).__name__} must define pairs(query, key)")

    def modify(self, scores: Tensor, indices: Indices) -> Tensor:
        """The scores (B, R, n, m) of a tile, where they depend on positions; `indices` are `Layout.indices` of it."""
        return scores

    def modified(self, score_mod: Callable[..., Tensor]) -> Score:
        """This score, whose numbers go through FlexAttention's score_mod(score, b, h, q_idx, kv_idx).

        h is the index in dimension −3 of the query, b that in the dimensions in front of it, as if they were one.

        >>> import regard, torch
        >>> rows = torch.zeros(3, 2)
        >>> score = regard.Dot().modified(lambda score, b, h, q_idx, kv_idx: score - (q_idx - kv_idx).abs())
        >>> score(rows, rows)
        tensor([[ 0., -1., -2.],
                [-1.,  0., -1.],
                [-2., -1.,  0.]])
        """
        from regard.attention.mods import Modified  # which imports this module

        return Modified(self, score_mod)

    def captured(self, layout: Layout) -> list[Tensor]:
        """The tensors that `pairs` and `modify` read besides parameters, buffers and arguments."""
        return []

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float] | None:
        """Projected rows as (query, key, scale) with scale · query · key = score + a constant of the row, or None."""
        return None

    def average(
        self, query: Tensor, key: Tensor, value: Tensor, *, causal: bool = False, visible: Tensor | None = None
    ) -> Tensor | None:
        """The output for projected rows, all (B, R, rows, size), without the scores of all pairs; not while traced.

        causal: key j is visible to rows i ≥ j. visible: which keys may be attended, boolean (B or 1, R or 1, 1, m).
        None where that cannot be done, does not pay, or the numbers do not allow it: then the scores are computed.
        """
        return None

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        layout = check_layout(query, key)
        self.check(query, key)
        dtype = torch.promote_types(query.dtype, torch.float32)  # half precision is computed in float32
        rows, keys = self.project_query(query.to(dtype)), self.project_key(key.to(dtype))
        scores = self.pairs(layout.spread(rows), layout.spread(keys))
        if self.has_positions:
            scores = self.modify(scores, layout.indices(layout.whole))
        return layout.unfold(scores).to(query.dtype)

    @property
    def projected(self) -> Score:
        """This score for keys that went through `project_key` already: keys of many decoding steps, projected once.

        keys = score.project_key(encoded)
        context = attend(state, keys, encoded, score=score.projected)
        """
        return _Projected(self)


# The last keys that a score projected, and what became of them.
_last_keys: WeakKeyDictionary[Score, tuple[ref[Tensor], ref[Tensor]]] = WeakKeyDictionary()


def _remembering(project: Callable[[Any, Tensor], Tensor]) -> Callable[[Any, Tensor], Tensor]:
    """project_key, which remembers the keys that it was given, so that `projected` can tell them from its own."""

    @wraps(project)
    def project_key(self: Score, key: Tensor) -> Tensor:
        keys = project(self, key)
        if not is_traced(key) and not (self in _last_keys and _last_keys[self][1]() is key):
            _last_keys[self] = ref(key), ref(keys)
        return keys

    return project_key


class _Projected(Score):
    """Another score in everything but what it does with keys."""

    def __init__(self, score: Score) -> None:
        super().__init__()
        self.score = score
        # As entries of its own: nn.Module takes long to find others, and a decoder asks for each at every step.
        self.__dict__.update((name, getattr(score, name)) for name in _DELEGATED)
        self._inner_sizes: dict[int, int] = {}  # of projected keys, by the size of queries

    def check_key(self, query: Tensor, key: Tensor) -> None:
        size = query.shape[-1]
        if size not in self._inner_sizes:
            self._inner_sizes[size] = self.score.project_query(query[..., :0, :]).shape[-1]
        check_features("key", key, self._inner_sizes[size], "the size of projected keys")
        if torch.compiler.is_compiling():
            return
        owner = getattr(self.score.project_key, "__self__", self.score)  # it may be a score that this one is made of
        last = _last_keys.get(owner)
        if last is not None and last[0]() is key is not last[1]():
            raise ValueError("key: expected keys that went through project_key, got those that it was given")


_DELEGATED = [
    name
    for name in vars(Score)
    if not name.startswith("_")
    and name not in ("check", "check_key", "project_key", "forward", "projected", "modified")
]


# ------------------------------------------------------------------------------------------------ what scores share


def check_features(name: str, tensor: Tensor, size: int, why: str) -> None:
    """The size of the last dimension."""
    if tensor.shape[-1] != size:
        raise ValueError(f"{name}: expected last dimension {size} ({why}), got shape {shape_text(tensor)}")


def check_parameter(query: Tensor, parameter: Tensor) -> None:
    """Parameters of another dtype or device than the query are a mistake that broadcasting would hide."""
    if parameter.dtype != query.dtype and not torch.is_autocast_enabled(query.device.type):
        raise TypeError(f"query: expected dtype {parameter.dtype} like the score's parameters, got {query.dtype}")
    if parameter.device != query.device:
        raise ValueError(f"query: expected device {parameter.device} like the score's parameters, got {query.device}")


def in_dtype_of(module: Callable[..., Any], *rows: Tensor) -> Any:
    """module(*rows). Half-precision rows arrive here as float32; a module in half precision gets them back as that."""
    parameters = module.parameters() if isinstance(module, nn.Module) else ()
    dtype = next((parameter.dtype for parameter in parameters if parameter.dtype in HALVES), rows[0].dtype)
    return module(*(tensor.to(dtype) for tensor in rows))


def linear(rows: Tensor, weight: Tensor) -> Tensor:
    """rows · weightᵀ. Half-precision rows arrive here as float32, so that sums are in float32; the weight follows."""
    return functional.linear(rows, weight.to(rows.dtype))


class LogPositive(nn.Module):
    """A positive number or vector. Fixed, it is exactly what was given; learnable, it is the exp of a parameter.

    Its numbers are checked on the CPU, and then are where PyTorch makes tensors: `with torch.device("meta")` too.
    """

    def __init__(self, name: str, number: Tensor, learnable: bool) -> None:
        super().__init__()
        self.learnable = learnable
        self.name = f"log_{name}" if learnable else name
        device = torch.get_default_device()
        if learnable:
            self.register_parameter(self.name, nn.Parameter(number.log().to(device, torch.get_default_dtype())))
        else:
            self.register_buffer(self.name, number.to(device))

    def extra_repr(self) -> str:
        numbers: Tensor = self()
        values = "meta" if numbers.is_meta else numbers.tolist()
        return f"{values}, learnable={self.learnable}"

    def forward(self) -> Tensor:
        stored: Tensor = getattr(self, self.name)
        # exp would lose digits in half precision, in which a whole model may be kept
        return stored.to(torch.promote_types(stored.dtype, torch.float32)).exp() if self.learnable else stored


# ------------------------------------------------------------------------------------------------------- the scores


class Dot(Score):
    """scale · q·k, optionally capped.

    scale: defaults to 1/√d. softcap: bends the score to softcap · tanh(score / softcap), before bias and mask.

    >>> import regard, torch
    >>> query, key = torch.eye(2), torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    >>> regard.Dot(scale=1.0)(query, key)  # (2, 2) × (3, 2) → (2, 3)
    tensor([[1., 0., 1.],
            [0., 2., 1.]])
    """

    may_exclude = False
    same_size = "the query's, which a dot product needs"

    def __init__(self, scale: float | None = None, softcap: float | None = None) -> None:
        super().__init__()
        if scale is not None and (isinstance(scale, bool) or not isinstance(scale, int | float)):
            raise TypeError(f"scale: expected a number or None, got {type(scale).__name__}")
        if scale is not None and not math.isfinite(scale):
            raise ValueError(f"scale: expected a finite number, got {scale}")
        self.scale = scale
        self.softcap = None if softcap is None else check_positive("softcap", softcap)
        self.is_dot = softcap is None

    def extra_repr(self) -> str:
        return f"scale={self.scale}, softcap={self.softcap}"

    def pairs(self, query: Tensor, key: Tensor) -> Tensor:
        scores = (query * self.scale_of(query)) @ key.transpose(-2, -1)
        return scores if self.softcap is None else self.softcap * torch.tanh(scores / self.softcap)

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
        return query, key, self.scale_of(query)

    def scale_of(self, query: Tensor) -> float:
        """1/√d unless another was given."""
        return 1 / math.sqrt(max(query.shape[-1], 1)) if self.scale is None else self.scale


DEFAULT = Dot()  # it holds nothing that could be changed by a call


class _PlainDot(Score):
    """A score that is the dot product of its projected rows."""

    may_exclude = False
    is_dot = True

    def pairs(self, query: Tensor, key: Tensor) -> Tensor:
        return query @ key.transpose(-2, -1)

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
        return query, key, 1.0


class Cosine(_PlainDot):
    """cos(q, k) / temperature; a zero vector has cosine 0 with everything.

    temperature: a positive number. learnable: whether it is a parameter, which then stays positive.

    >>> import regard, torch
    >>> query, key = torch.eye(2), torch.tensor([[3.0, 0.0], [0.0, -2.0], [1.0, 1.0]])
    >>> regard.Cosine()(query, key)  # (2, 2) × (3, 2) → (2, 3)
    tensor([[ 1.0000,  0.0000,  0.7071],
            [ 0.0000, -1.0000,  0.7071]])
    """

    same_size = "the query's, which a cosine needs"

    def __init__(self, temperature: float = 1.0, learnable: bool = False) -> None:
        super().__init__()
        number = torch.tensor(check_positive("temperature", temperature), dtype=torch.float64, device="cpu")
        self._temperature = LogPositive("temperature", number, learnable)

    @property
    def temperature(self) -> Tensor:
        temperature: Tensor = self._temperature()
        return temperature

    def project_query(self, query: Tensor) -> Tensor:
        return _normalize_rows(query) / self.temperature.to(query)

    def project_key(self, key: Tensor) -> Tensor:
        return _normalize_rows(key)


def _normalize_rows(rows: Tensor) -> Tensor:
    """Rows of length 1; zero rows stay zero. Dividing by the largest entry first keeps squares from overflow."""
    largest = rows.detach().abs().amax(-1, keepdim=True) if rows.shape[-1] else rows.new_ones(*rows.shape[:-1], 1)
    rows = rows / largest.masked_fill(largest == 0, 1)
    squares = (rows * rows).sum(-1, keepdim=True)
    return rows * squares.masked_fill(squares == 0, 1).rsqrt()


class Bilinear(_PlainDot):
    """qᵀ W k, with a learned W (query_size, key_size): for queries and keys of different sizes.

    >>> import regard, torch
    >>> score = regard.Bilinear(query_size=3, key_size=5)
    >>> score(torch.randn(2, 3), torch.randn(7, 5)).shape
    torch.Size([2, 7])
    """

    def __init__(self, query_size: int, key_size: int) -> None:
        super().__init__()
        query_size, key_size = check_size("query_size", query_size), check_size("key_size", key_size)
        # Entries of standard normal queries and keys then score with variance 1, like the scaled dot product.
        self.weight = nn.Parameter(torch.randn(query_size, key_size) / math.sqrt(query_size * key_size))

    def extra_repr(self) -> str:
        return f"query_size={self.weight.shape[0]}, key_size={self.weight.shape[1]}"

    def check_query(self, query: Tensor) -> None:
        check_features("query", query, self.weight.shape[0], "the score's query_size")
        check_parameter(query, self.weight)

    def check_key(self, query: Tensor, key: Tensor) -> None:
        check_features("key", key, self.weight.shape[1], "the score's key_size")

    def project_key(self, key: Tensor) -> Tensor:
        check_features("key", key, self.weight.shape[1], "the score's key_size")
        return linear(key, self.weight)  # (…, m, query size)
