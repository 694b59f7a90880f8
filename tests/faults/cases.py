"""Random calls of `attend`, each from one number: sizes 0 and 1 included, every score, every mask, four dtypes.

A case holds what the product gets (tensors, a score, a mask) and what the reference gets (which pairs are allowed, what
is added to their scores), drawn together but built apart.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

import regard
from regard import Additive, Bilinear, Cosine, Dot, Kernel, Mask, Score
from tests.faults import reference

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
SIZES = [1, 1, 2, 3, 5, 7, 11, 13, 17, 31]
LONG = [64, 127, 257, 300, 513, 1031]  # beyond the product's pieces of 256 rows, and its 2¹⁴ scores for a call
LARGEST = 300_000  # pairs times features, so that a case takes milliseconds


@dataclass
class Case:
    """One call. Tensors are leaves of the given dtype; `allowed` is dense, (*batch, n, m)."""

    query: Tensor
    key: Tensor
    value: Tensor
    score: Score
    masks: list[Mask]
    allowed: Tensor
    bias: Tensor | None = None
    score_name: str = ""
    mask_names: list[str] = field(default_factory=list)

    @property
    def mask(self) -> Mask | None:
        parts = self.masks if self.bias is None else [*self.masks, regard.bias(self.bias)]
        joined = parts[0] if parts else None
        for part in parts[1:]:
            joined = joined & part
        return joined

    @property
    def leaves(self) -> dict[str, Tensor]:
        """Everything that a gradient flows into, by name."""
        named = {"query": self.query, "key": self.key, "value": self.value, **dict(self.score.named_parameters())}
        return named if self.bias is None else {**named, "bias": self.bias}

    @property
    def heads(self) -> int:
        return self.allowed.shape[-3] if self.allowed.dim() > 2 else 1

    def terms(self, name: str) -> float:
        """How many pairs of query and key an entry of this leaf's gradient sums over, on average; at least 1."""
        rows = 1  # a parameter sums over all of them
        if name in ("query", "key", "value", "bias"):
            shape = self.leaves[name].shape
            rows = math.prod(shape if name == "bias" else shape[:-1])
        return max(1.0, self.allowed.sum().item() / max(rows, 1))

    def attend(self, **options: bool) -> Tensor | tuple[Tensor, Tensor]:
        return regard.attend(self.query, self.key, self.value, score=self.score, mask=self.mask, **options)

    def reference(self, leaves: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Output, weights and best scores in float64, as a function of the leaves in float64."""
        rest = dict(leaves)
        key, value = (spread(rest.pop(name), self.heads) for name in ("key", "value"))
        query, added = rest.pop("query"), rest.pop("bias", None)
        return reference.attend(query, key, value, self.score, rest, self.allowed, added)

    def __str__(self) -> str:
        shapes = ", ".join(f"{name} {tuple(leaf.shape)}" for name, leaf in self.leaves.items())
        score = f"{type(self.score).__name__}({self.score.extra_repr()})"
        return f"{score}, mask {' & '.join(self.mask_names) or None}, {shapes}, {self.query.dtype}"


def spread(rows: Tensor, heads: int) -> Tensor:
    """Grouped key heads repeated for the query heads that read them."""
    grouped = rows.dim() > 2 and rows.shape[-3] not in (0, 1) and heads > rows.shape[-3]
    return rows.repeat_interleave(heads // rows.shape[-3], -3) if grouped else rows


class Draw:
    """A source of random choices and tensors that one number determines."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)  # for the parameters of scores
        self.random = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.choice, self.chance = self.random.choice, lambda share: self.random.random() < share

    def size(self, zero: float = 0.03, long: float = 0.0) -> int:
        if self.chance(zero):
            return 0
        return self.choice(LONG if self.chance(long) else SIZES)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64)

    def integers(self, low: int, high: int, shape: tuple[int, ...]) -> Tensor:
        return torch.randint(low, high, shape, generator=self.generator)

    def booleans(self, shape: tuple[int, ...], share: float) -> Tensor:
        return torch.rand(shape, generator=self.generator) < share

    def layout(self, tensor: Tensor) -> Tensor:
        """The same numbers, sometimes with other strides."""
        if self.chance(0.2):
            return tensor.mT.contiguous().mT
        return tensor


# ------------------------------------------------------------------------------------------------------------- shapes


def draw_leads(draw: Draw) -> tuple[tuple[int, ...], ...]:
    """Leading dimensions of the scores, the query, the key and the value."""
    batch = tuple(draw.size(0.02) for _ in range(draw.choice([0, 1, 2, 2, 2, 3])))
    if batch and draw.chance(0.25):  # grouped heads
        groups, sharing = draw.choice([1, 2, 3]), draw.choice([2, 3, 5])
        batch = (*batch[:-1], groups * sharing)
        return batch, batch, (*batch[:-1], groups), (*batch[:-1], groups)
    if draw.chance(0.7):
        return batch, batch, batch, batch
    # Each of the three lacks some dimensions; those of the query stay, because lengths speak of its first one.
    lacking = [tuple(1 if draw.chance(0.4) else size for size in batch)[draw.choice([0, 0, 0, 1]) :] for _ in range(2)]
    return batch, batch, *lacking


# ------------------------------------------------------------------------------------------------------------- scores


def draw_kernel(draw: Draw, name: str, size: int) -> Kernel:
    learnable, by_feature = draw.chance(0.5), size > 0 and draw.chance(0.3)
    if name in reference.COMPACT:
        # Points lie on a grid (see `draw_points`) whose squared distances are multiples of 1/4. Half-way between two of
        # those no rounding can move a pair across the edge, where a boxcar jumps.
        widths = [math.sqrt(steps / 4 + 1 / 8) for steps in range(1, 8)]
        if size == 1 and not learnable and not by_feature:
            widths += [0.5, 1.0, 1.5]  # in one dimension a pair exactly on the edge is computed without any rounding
    else:
        widths = [0.5, 0.7, 1.0, 2.0]
    width = draw.choice(widths)
    if by_feature:
        return Kernel(name, [width * draw.choice([1.0, 2.0]) for _ in range(size)], learnable)
    return Kernel(name, width, learnable)


# name → the score for queries and keys of given sizes
SCORES: dict[str, Callable[[Draw, int, int], Score]] = {
    "dot": lambda draw, dq, dk: Dot(draw.choice([None, None, 0.3, 1.0])),
    "dot, capped": lambda draw, dq, dk: Dot(draw.choice([None, 0.5]), softcap=draw.choice([0.5, 2.0, 30.0])),
    "cosine": lambda draw, dq, dk: Cosine(draw.choice([0.1, 1.0]), draw.chance(0.5)),
    "bilinear": lambda draw, dq, dk: Bilinear(dq, dk),
    "additive": lambda draw, dq, dk: Additive(dq, dk, draw.choice([1, 2, 5, 8, 19, 33])),
    "gaussian": lambda draw, dq, dk: draw_kernel(draw, "gaussian", dq),
    "laplace": lambda draw, dq, dk: draw_kernel(draw, "laplace", dq),
    "constant": lambda draw, dq, dk: draw_kernel(draw, "constant", dq),
    **{name: lambda draw, dq, dk, name=name: draw_kernel(draw, name, dq) for name in reference.COMPACT},
}
# Half of the cases are for the four scores that models are made of.
MIXTURE = [*SCORES, *["dot", "dot, capped", "bilinear", "additive"] * (len(SCORES) // 4)]


def draw_points(draw: Draw, name: str, score: Score, dtype: torch.dtype, shapes: list[tuple[int, ...]]) -> list[Tensor]:
    """Queries and keys: normal, on a grid for compact kernels, and for the others sometimes far from 0, all or some."""
    if name in reference.COMPACT:
        steps = 1 if score.width.dim() else draw.choice([1, 2])  # a width of its own may halve a feature's
        return [draw.integers(-2 * steps, 2 * steps + 1, shape).double() / steps for shape in shapes]
    far = name in ("gaussian", "laplace") and dtype in (torch.float64, torch.float32) and draw.chance(0.3)
    centre, share = (draw.choice([10.0, 1000.0]), draw.choice([0.5, 1.0])) if far else (0.0, 1.0)
    return [draw.normal(*shape) + centre * draw.booleans((*shape[:-1], 1), share) for shape in shapes]


# -------------------------------------------------------------------------------------------------------------- masks


def draw_lengths(draw: Draw, batch: tuple[int, ...], n: int, m: int) -> tuple[Mask, Tensor]:
    by_row = draw.chance(0.4)
    counts = draw.integers(0, m + 1, (batch[0], n) if by_row else (batch[0],))
    dense = counts.reshape(batch[0], *[1] * (len(batch) - 1), n if by_row else 1, 1)
    own = counts.tolist() if draw.chance(0.2) and counts.numel() else counts
    return regard.lengths(own), torch.arange(m) < dense


def draw_band(draw: Draw, n: int, m: int) -> tuple[Mask, Tensor]:
    align = draw.choice(["start", "end", None])
    shift = {"start": 0, "end": m - n}.get(align)
    options = {"align": align} if align else {"offset": draw.random.randint(-n - 2, m + 2)}
    shift = options.get("offset", shift)
    behind = torch.arange(m) - torch.arange(n)[:, None] - shift  # how far key j is behind query i's place
    if draw.chance(0.6):
        return regard.causal(**options), behind <= 0
    left, right = (draw.choice([None, 0, 1, 2, 5, 100]) for _ in range(2))
    seen = (behind >= -(10**6 if left is None else left)) & (behind <= (10**6 if right is None else right))
    return regard.window(left, right, **options), seen


def draw_dense(draw: Draw, batch: tuple[int, ...], n: int, m: int) -> tuple[Mask, Tensor]:
    shown = draw.booleans(dense_shape(draw, batch, n, m), draw.choice([0.2, 0.5, 0.9, 1.0]))
    return (regard.drop(~shown), shown) if draw.chance(0.5) else (regard.keep(shown), shown)


def dense_shape(draw: Draw, batch: tuple[int, ...], n: int, m: int) -> tuple[int, ...]:
    full = [1 if draw.chance(0.2) else size for size in (*batch, n, m)]
    return tuple(full[draw.random.randint(0, len(batch)) :])


def draw_masks(draw: Draw, batch: tuple[int, ...], n: int, m: int) -> tuple[list[Mask], Tensor, list[str]]:
    """Up to three masks that restrict, some of them joined by |, and which pairs all of them allow."""
    masks, names, allowed = [], [], torch.ones(*batch, n, m, dtype=torch.bool)

    def one() -> tuple[Mask, Tensor]:
        kind = draw.choice(["lengths", "lengths", "band", "band", "dense"] if batch else ["band", "dense"])
        if kind == "lengths":
            return draw_lengths(draw, batch, n, m)
        return draw_band(draw, n, m) if kind == "band" else draw_dense(draw, batch, n, m)

    for _ in range(draw.choice([0, 0, 1, 1, 1, 2, 2, 3])):
        mask, seen = one()
        if draw.chance(0.15):
            other, also = one()
            mask, seen = mask | other, seen | also
        masks.append(mask)
        names.append(repr(mask))
        allowed = allowed & seen
    return masks, allowed, names


def draw_bias(draw: Draw, batch: tuple[int, ...], n: int, m: int, dtype: torch.dtype) -> Tensor:
    added = draw.normal(*dense_shape(draw, batch, n, m))
    if draw.chance(0.5):
        added = torch.where(draw.booleans(tuple(added.shape), 0.2), -torch.inf, added)
    return added.to(dtype if draw.chance(0.7) else draw.choice(DTYPES))


# --------------------------------------------------------------------------------------------------------------- cases


def draw_case(seed: int, *, dtype: torch.dtype | None = None, times: float = 1.0) -> Case:
    """The case of this number; queries and keys are multiplied by `times`."""
    draw = Draw(seed)
    own_dtype, name = draw.choice(DTYPES), draw.choice(MIXTURE)
    dtype = dtype or own_dtype
    batch, *leads = draw_leads(draw)
    learnt = name in ("bilinear", "additive")
    dq = draw.choice([1, 2, 3, 5]) if name in reference.COMPACT else draw.size(0.0 if learnt else 0.03, long=0.05)
    dk = draw.size(0.0) if learnt else dq
    score = SCORES[name](draw, dq, dk)
    inner = score.value_weight.numel() if name == "additive" else max(dq, 1)
    n, m, dv = draw.size(long=0.15), draw.size(long=0.15), draw.size(long=0.03)
    while max(math.prod(batch), 1) * n * m * max(inner, dv) > LARGEST:
        n, m = (n // 2, m) if n > m else (n, m // 2)
    query, key = draw_points(draw, name, score, dtype, [(*leads[0], n, dq), (*leads[1], m, dk)])
    tensors = [draw.layout(rows.to(dtype)) for rows in (query * times, key * times, draw.normal(*leads[2], m, dv))]
    if learnt or dtype == torch.float64 or draw.chance(0.3):
        score = score.to(dtype)
    score.requires_grad_(False)  # like the tensors, until somebody asks for gradients
    masks, allowed, names = draw_masks(draw, batch, n, m)
    added = draw_bias(draw, batch, n, m, dtype) if draw.chance(0.25) else None
    names += [] if added is None else [f"bias({tuple(added.shape)}, {added.dtype})"]
    return Case(*tensors, score, masks, allowed, added, name, names)
