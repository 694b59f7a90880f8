"""The calls that the tests of this room run over: tables of scores, masks and normalisers, and random cases, each from
one number.

A new score, normaliser or engine is one row here, a new mask one in meanings.py. Sizes of the tables are distinct
primes, so that a swapped axis cannot pass.
"""

import copy
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn

from regard import (
    Additive,
    Bilinear,
    Cosine,
    Dot,
    Entmax,
    Kernel,
    Normalizer,
    Separable,
    Sigmoid,
    Softmax,
    Sparsemax,
    attend,
)
from regard.attention import tiling
from tests.attention import reference
from tests.attention.meanings import DTYPES, MASKS, Draw, Meaning, Shape
from tests.attention.random_masks import draw_meaning

FEATURES, OTHER_FEATURES, VALUE_SIZE = 5, 3, 13
SHAPES = {"more-keys": Shape(3, 2, 7, 11), "square": Shape(3, 2, 7, 7), "more-queries": Shape(2, 3, 11, 5)}


@dataclass(frozen=True)
class Case:
    """One call of attend, and what its mask has to mean."""

    query: Tensor
    key: Tensor
    value: Tensor
    score: nn.Module
    meaning: Meaning
    normalizer: nn.Module | None = None

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.query, self.key, self.value

    @property
    def leaves(self) -> dict[str, Tensor]:
        """Everything that a gradient flows into, by name."""
        named = {"query": self.query, "key": self.key, "value": self.value, **dict(self.score.named_parameters())}
        if self.normalizer is not None:
            named |= dict(self.normalizer.named_parameters(prefix="normalizer"))
        return named | {f"bias {i}": tensor for i, tensor in enumerate(self.meaning.learned)}

    @property
    def options(self) -> dict:
        return {"score": self.score, "mask": self.meaning.mask, "normalizer": self.normalizer}

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the scores."""
        leads = [reference.shared_heads(rows, self._heads).shape[:-2] for rows in self.inputs]
        return (*torch.broadcast_shapes(*leads), self.query.shape[-2], self.key.shape[-2])

    @property
    def _heads(self) -> int:
        return self.query.shape[-3] if self.query.dim() > 2 else 1

    def attend(self, **options) -> Tensor | tuple[Tensor, Tensor]:
        return attend(*self.inputs, **self.options, **options)

    def output(self, need_weights: bool = False) -> Tensor:
        return self.attend(need_weights=True)[0] if need_weights else self.attend()

    def scores(self) -> Tensor:
        """The reference's, restricted by the mask."""
        scores = reference.scores(self.score, self.query, self.key)
        return reference.restrict(scores, self.meaning.allowed, self.meaning.added)

    def expected(self) -> tuple[Tensor, Tensor]:
        """Output and weights as the reference has them."""
        return reference.attend(self.scores(), self.value, normalizer=self.normalizer)

    def copied(self, dtype: torch.dtype | None = None) -> "Case":
        """The same numbers in leaves of their own, in another dtype, that all want gradients."""
        query, key, value = (tensor.detach().to(dtype or tensor.dtype).requires_grad_() for tensor in self.inputs)
        score, meaning = copy.deepcopy(self.score).requires_grad_(), self.meaning
        if meaning.learned:
            (learned,) = (tensor.detach().to(dtype or tensor.dtype).requires_grad_() for tensor in meaning.learned)
            added = learned if meaning.formula is None else meaning.formula(learned)
            meaning = replace(meaning, added=added, learned=[learned])
        normalizer = None if self.normalizer is None else copy.deepcopy(self.normalizer).requires_grad_()
        if dtype is not None:
            score, normalizer = score.to(dtype), None if normalizer is None else normalizer.to(dtype)
        return Case(query, key, value, score, meaning, normalizer)

    def __str__(self) -> str:
        shapes = ", ".join(f"{name} {tuple(leaf.shape)}" for name, leaf in self.leaves.items())
        return f"{self.score}, mask {self.meaning.mask!r}, {self.normalizer}, {shapes}, {self.query.dtype}"


# ---------------------------------------------------------------------------------------------------------- the tables


class SquaredDifference(nn.Module):
    """A score that regard does not know: any nn.Module will do."""

    def __init__(self) -> None:
        super().__init__()
        self.strength = nn.Parameter(torch.tensor(1.25))

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return -self.strength * (query.unsqueeze(-2) - key.unsqueeze(-3)).square().sum(-1)


WIDTHS = [1.0, 2.0, 3.0, 1.5, 2.5]
SCORES: dict[str, Callable[[], nn.Module]] = {
    "dot": Dot,
    "dot-scale": lambda: Dot(scale=-0.3),
    "dot-constant": lambda: Dot(scale=0),
    "dot-softcap": lambda: Dot(0.7, softcap=1.5),
    "cosine": lambda: Cosine(0.2),
    "cosine-learnable": lambda: Cosine(0.4, learnable=True),
    "bilinear": lambda: Bilinear(FEATURES, OTHER_FEATURES),
    "additive": lambda: Additive(FEATURES, OTHER_FEATURES, 11),
    "custom": SquaredDifference,
    "separable": Separable,
    "separable-relu": lambda: Separable(torch.relu),
    # Wide enough that a compact kernel reaches most of the keys, narrow enough that it does not reach all.
    **{f"kernel-{name}": lambda name=name: Kernel(name, 3.5) for name in reference.KERNELS},
    "kernel-gaussian-features": lambda: Kernel("gaussian", WIDTHS),
    "kernel-gaussian-learnable": lambda: Kernel("gaussian", WIDTHS, learnable=True),
    "kernel-laplace-learnable": lambda: Kernel("laplace", 2.5, learnable=True),
    "kernel-biweight-learnable": lambda: Kernel("biweight", 4.5, learnable=True),
    "kernel-tricube-learnable": lambda: Kernel("tricube", [width * 2 for width in WIDTHS], learnable=True),
}
# One score of each way through the engines, where the whole table would only repeat itself.
SOME_SCORES = [
    "dot",
    "dot-scale",
    "dot-softcap",
    "bilinear",
    "additive",
    "custom",
    "kernel-gaussian-learnable",
    "kernel-tricube",
]


class SquaredReLU(Normalizer):
    """A normaliser that regard does not know: any Normalizer will do."""

    def forward(self, scores: Tensor, per_head: Tensor | None = None) -> Tensor:
        return scores.relu().square()


def per_head(heads: int) -> nn.Parameter:
    return nn.Parameter(torch.linspace(-0.7, 1.3, heads, dtype=torch.float64))


# name → a normaliser for so many heads; None is what a call gets that names none
NORMALIZERS: dict[str, Callable[[int], nn.Module | None]] = {
    "none": lambda heads: None,
    "sink": lambda heads: Softmax(sink=0.3),
    "sink-heads": lambda heads: Softmax(sink=per_head(heads)),
    "sigmoid": lambda heads: Sigmoid(bias=-0.9),
    "sigmoid-heads": lambda heads: Sigmoid(bias=per_head(heads)),
    "sparsemax": lambda heads: Sparsemax(),
    "entmax": lambda heads: Entmax(1.5),
    "squared-relu": lambda heads: SquaredReLU(),
}


def key_size(score: str) -> int:
    return OTHER_FEATURES if score in ("bilinear", "additive") else FEATURES


def build(score: str, dtype: torch.dtype = torch.float64) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return SCORES[score]().to(dtype)


def table_case(
    score: str,
    mask: str = "none",
    shape: Shape = SHAPES["more-keys"],
    dtype: torch.dtype = torch.float64,
    *,
    normalizer: str = "none",
    grad: bool = False,
    seed: int = 7,
) -> Case:
    """query (b, h, n, FEATURES), key (b, h, m, key size), value (b, h, m, VALUE_SIZE), the rest by name."""
    draw, front = Draw(seed), shape[:2]
    sizes = ((shape.n, FEATURES), (shape.m, key_size(score)), (shape.m, VALUE_SIZE))
    tensors = (draw.normal(*front, *size).to(dtype).requires_grad_(grad) for size in sizes)
    built = NORMALIZERS[normalizer](shape.heads)
    return Case(*tensors, build(score, dtype), MASKS[mask](shape), None if built is None else built.to(dtype))


def in_turn(first, second, third, often=None) -> list[tuple]:
    """Every pair of the first two, each with one of the third, so that each meets all of the others.

    With `often`, those of the first that are not in it meet every fourth of the second only.
    """
    pairs = itertools.product(enumerate(first), enumerate(second))
    wanted = ((i + j, a, b) for (i, a), (j, b) in pairs if often is None or a in often or not (i + j) % 4)
    return [(a, b, third[turn % len(third)]) for turn, a, b in wanted]


# ------------------------------------------------------------------------------------------------------------ engines

# The sizes at which a problem is cut: as they are, and so small that every engine runs on many tiles.
CUTS = {"normal": {}, "small": {"STREAMED": 40, "MASKED_ROWS": 3, "DENSE": 40, "WORTH_A_CALL": 1}}


def cut(monkeypatch, name: str) -> None:
    for constant, number in CUTS[name].items():
        monkeypatch.setattr(tiling, constant, number)


def run(case: Case, engine: str) -> Tensor:
    """The output on one of the roads through the formula."""
    with torch.set_grad_enabled("no-grad" not in engine):
        return case.output(need_weights="weights" in engine)


# Fused, or streamed and recomputed; whole with weights; and both without gradients.
ENGINES = ["plain", "weights", "plain-no-grad", "weights-no-grad"]


def gradients(output: Tensor, leaves: list[Tensor], seed: int = 8) -> list[Tensor]:
    """Of a random mixture of the outputs; a tensor that takes no part has gradient 0."""
    direction = Draw(seed).normal(*output.shape).to(output.dtype)
    if not output.requires_grad:
        return [torch.zeros_like(tensor) for tensor in leaves]
    return list(torch.autograd.grad(output, leaves, direction, allow_unused=True, materialize_grads=True))


def assert_near(actual: Tensor, expected: Tensor, tolerance: float, what: str = "") -> None:
    """Same shape, same dtype, and no entry further off than the tolerance, relative to the largest."""
    assert actual.shape == expected.shape, f"{what}: shape {tuple(actual.shape)}, wanted {tuple(expected.shape)}"
    if not actual.numel():
        return
    assert actual.isfinite().all(), f"{what}: not finite"
    actual, expected = actual.detach(), expected.detach()
    error = float((actual.double() - expected.double()).abs().max()) / max(1.0, float(expected.abs().max()))
    assert error <= tolerance, f"{what}: off by {error:.3g}, tolerance {tolerance}"


# -------------------------------------------------------------------------------------------------------- random cases

SIZES = [1, 1, 2, 3, 5, 7, 11, 13, 17, 31]
LONG = [64, 127, 257, 300, 513, 1031]  # beyond the product's tiles of 256 rows, and its 2¹⁴ scores for a call
LARGEST = 300_000  # pairs times features, so that a case takes milliseconds


def draw_kernel(draw: Draw, name: str, size: int) -> Kernel:
    learnable, by_feature = draw.flip(0.5), size > 0 and draw.flip(0.3)
    widths = [0.5, 0.7, 1.0, 2.0]
    if name in reference.COMPACT:
        # Points lie on a grid (see `draw_points`) whose squared distances are multiples of 1/4. Half-way between two of
        # those no rounding can move a pair across the edge, where a boxcar jumps.
        widths = [math.sqrt(steps / 4 + 1 / 8) for steps in range(1, 8)]
        if size == 1 and not learnable and not by_feature:
            widths += [0.5, 1.0, 1.5]  # in one dimension a pair exactly on the edge is computed without any rounding
    width = draw.choice(widths)
    return Kernel(name, [width * draw.choice([1.0, 2.0]) for _ in range(size)] if by_feature else width, learnable)


# name → a score for queries and keys of given sizes
RANDOM_SCORES: dict[str, Callable[[Draw, int, int], nn.Module]] = {
    "dot": lambda draw, dq, dk: Dot(draw.choice([None, None, 0.3, 1.0, 0.0, -0.7])),
    "dot, capped": lambda draw, dq, dk: Dot(draw.choice([None, 0.5]), softcap=draw.choice([0.5, 2.0, 30.0])),
    "cosine similarity": lambda draw, dq, dk: Cosine(draw.choice([0.1, 1.0]), draw.flip(0.5)),
    "bilinear": lambda draw, dq, dk: Bilinear(dq, dk),
    "additive": lambda draw, dq, dk: Additive(dq, dk, draw.choice([1, 2, 5, 8, 19, 33])),
    "custom": lambda draw, dq, dk: SquaredDifference(),
    "separable": lambda draw, dq, dk: draw.choice([Separable(), Separable(torch.relu)]),
    **{name: lambda draw, dq, dk, name=name: draw_kernel(draw, name, dq) for name in reference.KERNELS},
}
# Half of the cases are for the four scores that models are made of.
MIXTURE = [*RANDOM_SCORES, *["dot", "dot, capped", "bilinear", "additive"] * (len(RANDOM_SCORES) // 4)]


def draw_size(draw: Draw, zero: float = 0.03, long: float = 0.0) -> int:
    return 0 if draw.flip(zero) else draw.choice(LONG if draw.flip(long) else SIZES)


def draw_leads(draw: Draw) -> tuple[tuple[int, ...], ...]:
    """Leading dimensions of the query, the key and the value; those of the query are those of the scores."""
    batch = tuple(draw_size(draw, 0.02) for _ in range(draw.choice([0, 1, 2, 2, 2, 3])))
    if batch and draw.flip(0.25):  # grouped heads
        groups, sharing = draw.choice([1, 2, 3]), draw.choice([2, 3, 5])
        return (*batch[:-1], groups * sharing), (*batch[:-1], groups), (*batch[:-1], groups)
    if draw.flip(0.7):
        return batch, batch, batch
    lacking = [tuple(1 if draw.flip(0.4) else size for size in batch)[draw.choice([0, 0, 0, 1]) :] for _ in range(2)]
    return batch, *lacking


def draw_points(draw: Draw, name: str, score: nn.Module, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """Queries or keys: normal, on a grid for compact kernels, and for the others sometimes far from 0, all or some."""
    if name in reference.COMPACT:
        steps = 1 if score.width.dim() else draw.choice([1, 2])  # a width of its own may halve a feature's
        return draw.integers(-2 * steps, 2 * steps + 1, shape).double() / steps
    points = draw.normal(*shape)
    if name not in ("gaussian", "laplace") or dtype not in (torch.float64, torch.float32) or draw.flip(0.7):
        return points
    return points + draw.choice([10.0, 1000.0]) * draw.booleans((*shape[:-1], 1), draw.choice([0.5, 1.0]))


def draw_normalizer(draw: Draw, batch: tuple[int, ...], dtype: torch.dtype) -> nn.Module | None:
    """The default for two thirds of the cases. Parameters are of the dtype, or in full precision."""
    if not draw.flip(1 / 3):
        return None
    name = draw.choice(list(NORMALIZERS)[1:])
    if name == "squared-relu" and dtype in (torch.float16, torch.bfloat16):
        return None  # its weights grow with the square of the scores, and so does the error of rounded inputs
    normalizer = NORMALIZERS[name](batch[-1] if len(batch) > 1 else 1)
    return normalizer.requires_grad_(False).to(dtype if draw.flip(0.7) else torch.float64)


def draw_case(seed: int, *, times: float = 1.0) -> Case:
    """The case of this number; queries and keys are multiplied by `times`. Nothing wants gradients yet."""
    torch.manual_seed(seed)  # for the parameters of scores
    draw = Draw(seed)
    dtype, name = draw.choice(DTYPES), draw.choice(MIXTURE)
    leads = draw_leads(draw)
    learned = name in ("bilinear", "additive")
    compact = name in reference.COMPACT
    dq = draw.choice([1, 2, 3, 5]) if compact else draw_size(draw, 0.0 if learned else 0.03, long=0.05)
    dk = draw_size(draw, 0.0) if learned else dq
    score = RANDOM_SCORES[name](draw, dq, dk)
    inner = score.value_weight.numel() if name == "additive" else max(dq, 1)
    n, m, dv = draw_size(draw, long=0.15), draw_size(draw, long=0.15), draw_size(draw, long=0.03)
    while max(math.prod(leads[0]), 1) * n * m * max(inner, dv) > LARGEST:
        n, m = (n // 2, m) if n > m else (n, m // 2)
    query, key = (
        times * draw_points(draw, name, score, dtype, shape) for shape in ((*leads[0], n, dq), (*leads[1], m, dk))
    )
    tensors = [rows.to(dtype) for rows in (query, key, draw.normal(*leads[2], m, dv))]
    tensors = [rows.mT.contiguous().mT if draw.flip(0.2) else rows for rows in tensors]  # with other strides
    if learned or dtype == torch.float64 or (name != "custom" and draw.flip(0.3)):
        score = score.to(dtype)
    meaning = draw_meaning(draw, (*leads[0], n, m), dtype)
    for tensor in meaning.learned:
        tensor.requires_grad_(False)
    normalizer = draw_normalizer(draw, leads[0], dtype)
    return Case(*tensors, score.requires_grad_(False), meaning, normalizer)


def restricted(case: Case, meaning: Meaning) -> Case:
    return replace(case, meaning=case.meaning & meaning)


def campaign(fast: int, whole: int):
    """A check of one number becomes a test of many: a fast share of them always, the whole in `make faults`."""

    def decorate(check: Callable[[int], None]):
        chunks = (range(start, min(start + 500, whole)) for start in range(0, whole, 500))
        long = [pytest.param(chunk, id=f"{chunk.start}-{chunk.stop}", marks=pytest.mark.faults) for chunk in chunks]

        @pytest.mark.parametrize("seeds", [pytest.param(range(fast), id="fast"), *long])
        def test(seeds):
            for seed in seeds:
                try:
                    check(seed)
                except Exception as error:
                    error.add_note(f"seed {seed}")
                    raise

        test.__doc__ = check.__doc__
        return test

    return decorate
