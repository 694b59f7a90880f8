"""Kernels as scores: score = log K(‖(q − k) / width‖), so that softmax over the keys is Nadaraya–Watson regression.

A kernel is one row of KERNELS: log K as a function of the distance u ≥ 0 measured in widths, up to a constant (to
which softmax is invariant), and whether it is compact, that is, 0 from u = 1 on.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.arguments import shape_text
from regard.attention.scores import LogPositive, Score
from regard.attention.sums_1d import average_1d
from regard.attention.tracing import in_transform, is_traced, needs_grad


@dataclass(frozen=True)
class LogKernel:
    """A row of the table."""

    log: Callable[[Tensor], Tensor]
    compact: bool
    edge: bool = False  # whether u = 1 itself still belongs to a compact kernel


KERNELS: dict[str, LogKernel] = {
    "gaussian": LogKernel(lambda u: u.square() * -0.5, compact=False),
    "laplace": LogKernel(lambda u: -u, compact=False),
    "constant": LogKernel(lambda u: u.clamp(max=1) * 0, compact=False),
    "boxcar": LogKernel(lambda u: u * 0, compact=True, edge=True),
    "triangular": LogKernel(lambda u: torch.log1p(-u), compact=True),
    "epanechnikov": LogKernel(lambda u: torch.log1p(-u.square()), compact=True),
    "biweight": LogKernel(lambda u: 2 * torch.log1p(-u.square()), compact=True),
    "triweight": LogKernel(lambda u: 3 * torch.log1p(-u.square()), compact=True),
    "tricube": LogKernel(lambda u: 3 * torch.log1p(-u.pow(3)), compact=True),
    "cosine": LogKernel(lambda u: torch.log(torch.cos(math.pi / 2 * u)), compact=True),
}


class Kernel(Score):
    """log K(‖(q − k) / width‖); −inf outside a compact kernel's reach.

    name: gaussian, laplace, constant, boxcar, triangular, epanechnikov, biweight, triweight, tricube or cosine. width:
    one positive number, or one per feature. learnable: whether the width is a parameter; it is kept as its logarithm,
    so that no step of an optimiser can make it negative.

    >>> import regard, torch
    >>> query, key = torch.tensor([[0.0], [2.0]]), torch.tensor([[0.0], [1.0], [2.0]])
    >>> regard.weights(query, key, score=regard.Kernel("gaussian", width=1.0))  # (2, 1) × (3, 1) → (2, 3)
    tensor([[0.5741, 0.3482, 0.0777],
            [0.0777, 0.3482, 0.5741]])
    """

    dot_is_exact = False  # for the Gaussian it leaves out ½‖q‖²
    same_size = "the query's features"

    def __init__(self, name: str = "gaussian", width: float | Sequence[float] | Tensor = 1.0, learnable: bool = False):
        super().__init__()
        if not isinstance(name, str) or name not in KERNELS:
            raise ValueError(f"name: expected one of {', '.join(KERNELS)}, got {name!r}")
        self.name = name
        # The others exclude too what is so far away that its distance is infinite in float32.
        self.may_exclude = name != "constant"
        self.is_dot = name == "gaussian"
        self.has_average = name in ("gaussian", "laplace")
        self._width = LogPositive("width", _check_widths(width), learnable)

    @property
    def width(self) -> Tensor:
        """The width, or the widths of the features."""
        width: Tensor = self._width()
        return width

    def extra_repr(self) -> str:
        return repr(self.name)

    def check_query(self, query: Tensor) -> None:
        widths = self.width
        if widths.dim() and len(widths) != query.shape[-1]:
            raise ValueError(f"query: expected {len(widths)} features, one per width, got shape {shape_text(query)}")

    def pairs(self, query: Tensor, key: Tensor) -> Tensor:
        if self.is_dot and not is_traced(query, key):
            scores = self._scores_of_few(query, key)
            if scores is not None:
                return scores
            # A score that grows with the square of the distance would be noise in float32 for a query far away.
            query, key = query.double(), key.double()
        differences = query.numel() * key.shape[-2]
        if self.is_dot and (in_transform() or (not is_traced(query, key) and differences <= FEW_DIFFERENCES)):
            # As it is written: cdist has no derivatives but the first, and that backwards only.
            return ((query.unsqueeze(-2) - key.unsqueeze(-3)) / self.width.to(query)).square().sum(-1) / -2
        # One width divides the distance, which is exact where rows are near each other and far from 0. One per feature
        # has to divide the rows: in float64, in which they keep the digits by which they differ.
        kernel, width = KERNELS[self.name], self.width.to(query)
        if width.dim():
            width = self.width.to(query.device, torch.float64)
            distance, width = _distance(query / width, key / width), torch.ones_like(width[0])
        else:
            distance = _distance(query, key)
        if not kernel.compact and not self._width.learnable:
            return kernel.log(distance / width)
        # The log is taken where it is finite. Elsewhere 0 stands in, so that no gradient is ever infinite or 0 · inf.
        widths_away = (distance / width).detach()
        outside = widths_away == torch.inf
        if kernel.compact:
            outside = widths_away > 1 if kernel.edge else widths_away >= 1
        scores = kernel.log(distance.masked_fill(outside, 0) / width)
        return scores.masked_fill(outside, -torch.inf) if self.may_exclude else scores

    def _scores_of_few(self, query: Tensor, key: Tensor) -> Tensor | None:
        """Of a few queries without gradients, in float32 from differences; None where it would lose digits."""
        if not 0 < query.shape[-2] < FEW or not key.numel() or query.dtype != torch.float32 or self.width.dim():
            return None
        if needs_grad(query, key, self.width):
            return None
        scores = _squared_distance(query, key).mul_(-0.5 / float(self.width) ** 2)
        return scores if bool(scores.amin() >= LOWEST_SCORE) else None

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float] | None:
        """Gaussian only: −½‖q − k‖² = q·k − ½‖k‖² − ½‖q‖², and the last is a constant of the row.

        The squares cancel, so the result is as exact as the largest of them allows. Rows are centred first; where
        float32 would still lose digits, dot products are taken in float64, and where that does not do, as differences.
        For a few queries differences cost less than to prepare the keys.
        """
        if query.shape[-2] < FEW:
            return None
        # The queries' centre: that of the keys would move with every key that a mask hides, and with it the last bits.
        centre = query.detach().double().mean(tuple(range(query.dim() - 1)))
        width = self.width.to(centre)
        rows, keys = (query - centre) / width, (key - centre) / width
        largest = max(float(points.detach().square().sum(-1).max()) for points in (rows, keys))
        exact = largest * torch.finfo(query.dtype).eps <= _TOLERANCE[query.dtype]
        if not exact and (query.dtype == torch.float64 or not largest <= _LARGEST_IN_DOUBLE):
            return None
        keys = torch.cat([keys, keys.square().sum(-1, keepdim=True) / -2], -1)
        rows = torch.cat([rows, rows.new_ones(*rows.shape[:-1], 1)], -1)
        return (rows.to(query.dtype), keys.to(query.dtype), 1.0) if exact else (rows, keys, 1.0)

    def average(
        self, query: Tensor, key: Tensor, value: Tensor, *, causal: bool = False, visible: Tensor | None = None
    ) -> Tensor | None:
        """One feature, and so many pairs that sorting pays; without a mask and without gradients."""
        restricted = causal or visible is not None
        if restricted or query.shape[-1] != 1 or not self.has_average or needs_grad(query, key, value, self.width):
            return None
        return average_1d(self.name, query, key, value, float(self.width))


FEW_DIFFERENCES = 1 << 11  # so many numbers may be made for all pairs and features
FEW = 8  # queries: to prepare the keys for a dot product takes about as many passes over them
LOWEST_SCORE = -128  # whose rounding to float32 stays around _TOLERANCE
IN_CACHE = 1 << 16  # numbers that are computed at a time
# How much a score may be off by cancellation, and the largest squared norm that keeps a float64 score within 1e-6.
_TOLERANCE = {torch.float32: 4e-6, torch.float64: 1e-12}
_LARGEST_IN_DOUBLE = 1e9


def _distance(query: Tensor, key: Tensor) -> Tensor:
    """‖q − k‖, from the differences themselves (exact for near rows far from 0), with gradient 0 where it is 0."""
    if query.shape[-1] == 1:
        return (query - key.transpose(-2, -1)).abs()
    if query.shape[-1] == 0:
        return query @ key.transpose(-2, -1)  # zeros, of which autograd knows where they come from
    return torch.cdist(query, key, compute_mode="donot_use_mm_for_euclid_dist")


def _squared_distance(query: Tensor, key: Tensor) -> Tensor:
    """‖q − k‖² for a few queries, without gradients. PyTorch's cdist sums up many squares less exactly."""
    if query.shape[-1] < 32 or query.shape[:-2] != key.shape[:-2]:
        return _distance(query, key).square_()
    step = max(1, IN_CACHE * key.shape[-2] // (key.numel() * query.shape[-2]))
    # Repeated for a whole part of the keys: subtracting a short row from each key would take three times as long.
    rows = query.unsqueeze(-2).expand(*query.shape[:-1], min(step, key.shape[-2]), -1).contiguous()
    ones, memory = query.new_ones(query.shape[-1]), torch.empty_like(rows)  # the same for all parts: it stays in cache
    squares = []
    for part in key.unsqueeze(-3).split(step, -2):
        here = (..., slice(part.shape[-2]), slice(None))
        squares.append(torch.sub(part, rows[here], out=memory[here]).square_() @ ones)  # (…, n, step)
    return torch.cat(squares, -1)


def _check_widths(width: float | Sequence[float] | Tensor) -> Tensor:
    if isinstance(width, bool):
        raise TypeError("width: expected a number or one per feature, got bool")
    without_numbers = isinstance(width, Tensor) and width.is_meta
    if without_numbers and torch.get_default_device().type != "meta":
        raise ValueError("width: expected numbers on a device that holds them, got device meta")
    try:
        device = "meta" if without_numbers else "cpu"
        widths = torch.as_tensor(width, dtype=torch.float64, device=device).detach()
    except (TypeError, ValueError) as error:
        raise TypeError(f"width: expected a number or one per feature, got {type(width).__name__}") from error
    if widths.dim() > 1 or widths.numel() == 0:
        raise ValueError(f"width: expected a number or one per feature, got shape {shape_text(widths)}")
    if without_numbers:
        return widths
    wrong = widths[~((widths > 0) & widths.isfinite())]
    if len(wrong):
        raise ValueError(f"width: expected positive, finite widths, got {wrong[0].item()}")
    return widths.clone()
