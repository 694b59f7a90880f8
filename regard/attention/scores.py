"""Scores: how well a key answers a query. Each is an nn.Module, score(query, key) → (…, n, m).

A score has two halves, so that what belongs to one row is computed once per row and not once per pair:

    score(query, key) = pairs(project_query(query), project_key(key))

and, where it is a dot product in disguise, a third method says so: `as_dot` gives vectors whose plain dot product is
the score up to a constant of the row, which softmax does not see. Such scores run on PyTorch's fused attention. A
fourth, `average`, is for scores whose weighted average can be had without looking at every pair.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.arguments import check_positive, check_size, shape_text
from regard.attention.additive import additive_scores
from regard.attention.layout import HALVES, layout_of

__all__ = ["Additive", "Bilinear", "Cosine", "Dot", "Score"]


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

    # Whether pairs() may give −inf to pairs that no mask forbids, so that a row can end up with nothing to attend to.
    may_exclude = True
    # Whether as_dot() has an answer, at least for some numbers.
    is_dot = False
    # The same of average().
    is_short = False

    def check(self, query: Tensor, key: Tensor) -> None:
        """Raise ValueError or TypeError, naming the argument, where the sizes do not fit this score."""
        self.check_query(query)
        self.check_key(query, key)

    def check_query(self, query: Tensor) -> None:
        """The half of `check` that keys do not matter to: it is made for projected keys as well."""

    def check_key(self, query: Tensor, key: Tensor) -> None:
        """The half of `check` that is about keys which are not projected yet."""

    def project_query(self, query: Tensor) -> Tensor:
        """(…, n, query size) → (…, n, inner size)."""
        return query

    def project_key(self, key: Tensor) -> Tensor:
        """(…, m, key size) → (…, m, inner size). Do it once, then pass the result with `score.projected`."""
        return key

    def pairs(self, query: Tensor, key: Tensor) -> Tensor:
        """The scores of projected rows, (…, n, inner size) × (…, m, inner size) → (…, n, m). May be called on parts."""
        raise NotImplementedError(f"{type(self).__name__} must define pairs(query, key)")

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float] | None:
        """Projected rows as (query, key, scale) with scale · query · key = score + a constant of the row, or None."""
        return None

    def average(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor | None:
        """The output for projected rows where nothing is masked and no gradient is wanted, if there is a short way.

        All are (B, R, rows, size), and so is the output; None: take the long way, through the scores.
        """
        return None

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        frame = layout_of(query, key)
        self.check(query, key)
        working = torch.promote_types(query.dtype, torch.float32)  # half precision is computed in float32
        rows, keys = self.project_query(query.to(working)), self.project_key(key.to(working))
        return frame.unfold(self.pairs(frame.spread(rows), frame.spread(keys))).to(query.dtype)

    @property
    def projected(self) -> Score:
        """This score for keys that went through `project_key` already: keys of many decoding steps, projected once.

        keys = score.project_key(encoded)
        context = attend(state, keys, encoded, score=score.projected)
        """
        return _Projected(self)


class _Projected(Score):
    def __init__(self, score: Score) -> None:
        super().__init__()
        self.score = score
        self.may_exclude, self.is_dot, self.is_short = score.may_exclude, score.is_dot, score.is_short

    def check_query(self, query: Tensor) -> None:
        self.score.check_query(query)

    def check_key(self, query: Tensor, key: Tensor) -> None:
        inner = self.score.project_query(query[..., :0, :]).shape[-1]
        _require_size("key", key, inner, "the size of projected keys")

    def project_query(self, query: Tensor) -> Tensor:
        return self.score.project_query(query)

    def pairs(self, query: Tensor, key: Tensor) -> Tensor:
        return self.score.pairs(query, key)

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float] | None:
        return self.score.as_dot(query, key)

    def average(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor | None:
        return self.score.average(query, key, value)


def _require_size(name: str, tensor: Tensor, size: int, why: str) -> None:
    if tensor.shape[-1] != size:
        raise ValueError(f"{name}: expected last dimension {size} ({why}), got shape {shape_text(tensor)}")


def _require_like(query: Tensor, parameter: Tensor) -> None:
    """Parameters of another dtype or device than the query are a mistake that broadcasting would hide."""
    if parameter.dtype != query.dtype and not torch.is_autocast_enabled(query.device.type):
        raise TypeError(f"query: expected dtype {parameter.dtype} like the score's parameters, got {query.dtype}")
    if parameter.device != query.device:
        raise ValueError(f"query: expected device {parameter.device} like the score's parameters, got {query.device}")


def _linear(rows: Tensor, weight: Tensor) -> Tensor:
    # Half-precision rows arrive here as float32, so that sums are kept in float32; the weight follows them.
    return functional.linear(rows, weight.to(rows.dtype))


class Dot(Score):
    """scale · q·k, with scale = 1/√d unless given; softcap s bends it to s·tanh(score/s), before bias and mask.

    >>> import regard, torch
    >>> query, key = torch.eye(2), torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    >>> regard.Dot(scale=1.0)(query, key)  # (2, 2) × (3, 2) → (2, 3)
    tensor([[1., 0., 1.],
            [0., 2., 1.]])
    """

    may_exclude = False

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

    def check_key(self, query: Tensor, key: Tensor) -> None:
        _require_size("key", key, query.shape[-1], "the query's, which a dot product needs")

    def pairs(self, query: Tensor, key: Tensor) -> Tensor:
        scores = (query * self._scale(query)) @ key.transpose(-2, -1)
        return scores if self.softcap is None else self.softcap * torch.tanh(scores / self.softcap)

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
        return query, key, self._scale(query)

    def _scale(self, query: Tensor) -> float:
        return 1 / math.sqrt(max(query.shape[-1], 1)) if self.scale is None else self.scale


class LogPositive(nn.Module):
    """A positive number or vector. Fixed, it is exactly what was given; learnable, it is the exp of a parameter."""

    def __init__(self, name: str, number: Tensor, learnable: bool) -> None:
        super().__init__()
        self.learnable = learnable
        self.name = f"log_{name}" if learnable else name
        if learnable:
            self.register_parameter(self.name, nn.Parameter(number.log().to(torch.get_default_dtype())))
        else:
            self.register_buffer(self.name, number)

    def forward(self) -> Tensor:
        stored: Tensor = getattr(self, self.name)
        # exp would lose digits in half precision, in which a whole model may be kept
        return stored.to(torch.promote_types(stored.dtype, torch.float32)).exp() if self.learnable else stored


class Cosine(Score):
    """cos(q, k) / temperature; a zero vector has cosine 0 with everything. A learnable temperature stays positive.

    >>> import regard, torch
    >>> query, key = torch.eye(2), torch.tensor([[3.0, 0.0], [0.0, -2.0], [1.0, 1.0]])
    >>> regard.Cosine()(query, key)  # (2, 2) × (3, 2) → (2, 3)
    tensor([[ 1.0000,  0.0000,  0.7071],
            [ 0.0000, -1.0000,  0.7071]])
    """

    may_exclude = False
    is_dot = True

    def __init__(self, temperature: float = 1.0, learnable: bool = False) -> None:
        super().__init__()
        number = torch.tensor(check_positive("temperature", temperature), dtype=torch.float64, device="cpu")
        self._temperature = LogPositive("temperature", number, learnable)

    @property
    def temperature(self) -> Tensor:
        temperature: Tensor = self._temperature()
        return temperature

    def extra_repr(self) -> str:
        return f"temperature={self.temperature.item():.4g}, learnable={self._temperature.learnable}"

    def check_key(self, query: Tensor, key: Tensor) -> None:
        _require_size("key", key, query.shape[-1], "the query's, which a cosine needs")

    def project_query(self, query: Tensor) -> Tensor:
        return _unit(query) / self.temperature.to(query)

    def project_key(self, key: Tensor) -> Tensor:
        return _unit(key)

    def pairs(self, query: Tensor, key: Tensor) -> Tensor:
        return query @ key.transpose(-2, -1)

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
        return query, key, 1.0


def _unit(rows: Tensor) -> Tensor:
    """Rows of length 1; zero rows stay zero. Dividing by the largest entry first keeps squares from overflow."""
    largest = rows.detach().abs().amax(-1, keepdim=True) if rows.shape[-1] else rows.new_ones(*rows.shape[:-1], 1)
    rows = rows / largest.masked_fill(largest == 0, 1)
    squares = (rows * rows).sum(-1, keepdim=True)
    return rows * squares.masked_fill(squares == 0, 1).rsqrt()


class Bilinear(Score):
    """qᵀ W k, for queries and keys of different sizes.

    >>> import regard, torch
    >>> score = regard.Bilinear(query_size=3, key_size=5)
    >>> score(torch.randn(2, 3), torch.randn(7, 5)).shape
    torch.Size([2, 7])
    """

    may_exclude = False
    is_dot = True

    def __init__(self, query_size: int, key_size: int) -> None:
        super().__init__()
        query_size, key_size = check_size("query_size", query_size), check_size("key_size", key_size)
        # Entries of standard normal queries and keys then score with variance 1, like the scaled dot product.
        self.weight = nn.Parameter(torch.randn(query_size, key_size) / math.sqrt(query_size * key_size))

    def extra_repr(self) -> str:
        return f"query_size={self.weight.shape[0]}, key_size={self.weight.shape[1]}"

    def check_query(self, query: Tensor) -> None:
        _require_size("query", query, self.weight.shape[0], "the score's query_size")
        _require_like(query, self.weight)

    def check_key(self, query: Tensor, key: Tensor) -> None:
        _require_size("key", key, self.weight.shape[1], "the score's key_size")

    def project_key(self, key: Tensor) -> Tensor:
        _require_size("key", key, self.weight.shape[1], "the score's key_size")
        return _linear(key, self.weight)  # (…, m, query size)

    def pairs(self, query: Tensor, key: Tensor) -> Tensor:
        return query @ key.transpose(-2, -1)

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
        return query, key, 1.0


class Additive(Score):
    """w_vᵀ tanh(W_q q + W_k k), without biases: queries and keys of different sizes meet in `hidden_size` units.

    >>> import regard, torch
    >>> score = regard.Additive(query_size=20, key_size=2, hidden_size=8)
    >>> score(torch.randn(2, 1, 20), torch.randn(2, 10, 2)).shape
    torch.Size([2, 1, 10])
    """

    may_exclude = False

    def __init__(self, query_size: int, key_size: int, hidden_size: int) -> None:
        super().__init__()
        hidden_size = check_size("hidden_size", hidden_size)
        query_size, key_size = check_size("query_size", query_size), check_size("key_size", key_size)
        self.query_weight = nn.Parameter(torch.empty(hidden_size, query_size))
        self.key_weight = nn.Parameter(torch.empty(hidden_size, key_size))
        self.value_weight = nn.Parameter(torch.empty(hidden_size))
        for weight in (self.query_weight, self.key_weight):
            nn.init.xavier_uniform_(weight)
        nn.init.uniform_(self.value_weight, -1 / math.sqrt(hidden_size), 1 / math.sqrt(hidden_size))

    def extra_repr(self) -> str:
        hidden, query = self.query_weight.shape
        return f"query_size={query}, key_size={self.key_weight.shape[1]}, hidden_size={hidden}"

    def check_query(self, query: Tensor) -> None:
        _require_size("query", query, self.query_weight.shape[1], "the score's query_size")
        _require_like(query, self.query_weight)

    def check_key(self, query: Tensor, key: Tensor) -> None:
        _require_size("key", key, self.key_weight.shape[1], "the score's key_size")

    def project_query(self, query: Tensor) -> Tensor:
        return _linear(query, self.query_weight)

    def project_key(self, key: Tensor) -> Tensor:
        _require_size("key", key, self.key_weight.shape[1], "the score's key_size")
        return _linear(key, self.key_weight)

    def pairs(self, query: Tensor, key: Tensor) -> Tensor:
        return additive_scores(query, key, self.value_weight.to(query.dtype))


class _Custom(Score):
    """Any nn.Module that maps (…, n, query size), (…, m, key size) to scores (…, n, m), row by row and key by key."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def pairs(self, query: Tensor, key: Tensor) -> Tensor:
        # Rows are float32 where the caller's are half precision; a module in half precision gets them as the caller's.
        own = next((each.dtype for each in self.module.parameters() if each.dtype in HALVES), query.dtype)
        scores = self.module(query.to(own), key.to(own))
        expected = (*query.shape[:-1], key.shape[-2])
        if not isinstance(scores, Tensor) or tuple(scores.shape) != expected:
            got = shape_text(scores) if isinstance(scores, Tensor) else type(scores).__name__
            raise ValueError(f"score: expected scores of shape {expected}, got {got}")
        return scores.to(query.dtype)


def require_score(score: nn.Module | None) -> Score:
    """Any nn.Module as a Score; None is Dot()."""
    if score is None:
        return Dot()
    if isinstance(score, Score):
        return score
    if isinstance(score, nn.Module):
        return _Custom(score)
    raise TypeError(f"score: expected an nn.Module such as Dot(), Additive(…), Kernel(…), got {type(score).__name__}")
