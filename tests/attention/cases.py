"""The tables that the tests of this room run over: a new score, mask or engine is one row here.

Sizes are distinct primes, so that a swapped axis cannot pass.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attention import (
    Additive,
    Bilinear,
    Cosine,
    Dot,
    Kernel,
    Mask,
    attend,
    bias,
    causal,
    drop,
    keep,
    lengths,
    pieces,
    segments,
    window,
)
from tests.attention import reference

# ------------------------------------------------------------------------------------------------------------- scores

FEATURES, OTHER_FEATURES, VALUE_SIZE = 5, 3, 13


class SquaredDifference(nn.Module):
    """A score that regard does not know: any nn.Module will do."""

    def __init__(self) -> None:
        super().__init__()
        self.strength = nn.Parameter(torch.tensor(1.25))

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return -self.strength * (query.unsqueeze(-2) - key.unsqueeze(-3)).square().sum(-1)


@dataclass(frozen=True)
class ScoreCase:
    make: Callable[[], nn.Module]
    plain: Callable[[nn.Module, Tensor, Tensor], Tensor]  # by the reference: the scores, or K of a kernel
    key_size: int = FEATURES
    kernel: bool = False

    def build(self, dtype: torch.dtype = torch.float64) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(5)
            return self.make().to(dtype)

    def evidence(self, score: nn.Module, query: Tensor, key: Tensor) -> Tensor:
        plain = self.plain(score, query, key)
        return plain if self.kernel else reference.evidence(plain)

    def scores(self, score: nn.Module, query: Tensor, key: Tensor) -> Tensor:
        plain = self.plain(score, query, key)
        return plain.log() if self.kernel else plain


WIDTHS = [1.0, 2.0, 3.0, 1.5, 2.5]

SCORES: dict[str, ScoreCase] = {
    "dot": ScoreCase(Dot, lambda _, q, k: reference.dot(q, k)),
    "dot-scale": ScoreCase(lambda: Dot(scale=-0.3), lambda _, q, k: reference.dot(q, k, -0.3)),
    "dot-constant": ScoreCase(lambda: Dot(scale=0), lambda _, q, k: reference.dot(q, k, 0.0)),
    "dot-softcap": ScoreCase(lambda: Dot(0.7, softcap=1.5), lambda _, q, k: reference.dot(q, k, 0.7, 1.5)),
    "cosine": ScoreCase(lambda: Cosine(0.2), lambda _, q, k: reference.cosine(q, k, 0.2)),
    "cosine-learnable": ScoreCase(
        lambda: Cosine(0.4, learnable=True), lambda s, q, k: reference.cosine(q, k, s.temperature)
    ),
    "bilinear": ScoreCase(
        lambda: Bilinear(FEATURES, OTHER_FEATURES),
        lambda s, q, k: reference.bilinear(q, k, s.weight),
        key_size=OTHER_FEATURES,
    ),
    "additive": ScoreCase(
        lambda: Additive(FEATURES, OTHER_FEATURES, 11),
        lambda s, q, k: reference.additive(q, k, s.query_weight, s.key_weight, s.value_weight),
        key_size=OTHER_FEATURES,
    ),
    "custom": ScoreCase(SquaredDifference, lambda s, q, k: s.strength * reference.squared_difference(q, k)),
}


def _kernel_case(name: str, width: float | list[float], learnable: bool) -> ScoreCase:
    return ScoreCase(
        lambda: Kernel(name, width, learnable),
        lambda s, q, k: reference.kernel(q, k, name, s.width),
        kernel=True,
    )


# Wide enough that a compact kernel reaches most of the keys, narrow enough that it does not reach all.
SCORES |= {f"kernel-{name}": _kernel_case(name, 3.5, False) for name in reference.KERNELS}
SCORES |= {
    "kernel-gaussian-features": _kernel_case("gaussian", WIDTHS, False),
    "kernel-gaussian-learnable": _kernel_case("gaussian", WIDTHS, True),
    "kernel-laplace-learnable": _kernel_case("laplace", 2.5, True),
    "kernel-biweight-learnable": _kernel_case("biweight", 4.5, True),
    "kernel-tricube-learnable": _kernel_case("tricube", [width * 2 for width in WIDTHS], True),
}

# One score of each way through the engines, where the whole table would only repeat itself.
SOME_SCORES = ["dot", "dot-softcap", "bilinear", "additive", "custom", "kernel-gaussian-learnable", "kernel-tricube"]


# -------------------------------------------------------------------------------------------------------------- masks


class Shape(NamedTuple):
    """Of the scores: sequences, heads, queries, keys."""

    batch: int
    heads: int
    n: int
    m: int


SHAPES = {"more-keys": Shape(3, 2, 7, 11), "square": Shape(3, 2, 7, 7), "more-queries": Shape(2, 3, 11, 5)}


@dataclass(frozen=True)
class Meaning:
    """A mask and what it has to mean, pair by pair."""

    mask: Mask | None
    allowed: Tensor | None = None  # (batch, heads, n, m)
    added: Tensor | None = None
    learned: list[Tensor] = field(default_factory=list)  # biases that want gradients


def _some(shape: tuple[int, ...], share: float = 0.6, seed: int = 3) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < share


def _noise(*shape: int, seed: int = 4, learned: bool = False) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_(learned)


def _counts(s: Shape) -> list[int]:
    """Valid lengths with the two ends of the range among them."""
    return [0, s.m, s.m // 2][: s.batch] if s.batch <= 3 else [i % (s.m + 1) for i in range(s.batch)]


def _row_counts(s: Shape) -> Tensor:
    return torch.randint(0, s.m + 1, (s.batch, s.n), generator=torch.Generator().manual_seed(6))


def _lengths(s: Shape) -> Meaning:
    counts = _counts(s)
    return Meaning(lengths(counts), reference.dense(s, lambda b, h, i, j: j < counts[b]))


def _lengths_by_row(s: Shape) -> Meaning:
    counts = _row_counts(s)
    return Meaning(lengths(counts), reference.dense(s, lambda b, h, i, j: j < counts[b, i]))


def _segments(s: Shape) -> Meaning:
    """Three sequences end to end: one of nothing but keys, one of nothing but queries, and the rest."""
    lone_rows, lone_keys = min(2, s.n), min(1, s.m)
    rows, keys = [0, lone_rows, s.n - lone_rows], [lone_keys, 0, s.m - lone_keys]
    ends = [list(itertools.accumulate(counts)) for counts in (rows, keys)]
    own = [[sum(place >= end for end in ends_) for place in range(ends_[-1])] for ends_ in ends]
    return Meaning(segments(rows, keys), reference.dense(s, lambda b, h, i, j: own[0][i] == own[1][j]))


def _kept(*sizes: str) -> Callable[[Shape], Meaning]:
    """keep of a tensor with these dimensions, named as in Shape, or "1"."""

    def make(s: Shape) -> Meaning:
        tensor = _some(tuple(1 if size == "1" else getattr(s, size) for size in sizes))
        return Meaning(keep(tensor), tensor.expand(s))

    return make


def _dropped(s: Shape) -> Meaning:
    tensor = _some((s.heads, s.n, s.m), 0.4)
    return Meaning(drop(tensor), ~tensor.expand(s))


def _bias(*sizes: str, holes: float = 0.0, learned: bool = False) -> Callable[[Shape], Meaning]:
    def make(s: Shape) -> Meaning:
        shape = tuple(1 if size == "1" else getattr(s, size) for size in sizes)
        tensor = _noise(*shape)
        if holes:
            tensor = tensor.masked_fill(_some(shape, holes), -torch.inf)
        tensor = tensor.detach().requires_grad_(learned)
        return Meaning(bias(tensor), None, tensor, [tensor] if learned else [])

    return make


def _causal(offset: int | None, align: str | None, where: Callable[[Shape], int]) -> Callable[[Shape], Meaning]:
    def make(s: Shape) -> Meaning:
        shift = where(s)
        return Meaning(causal(offset, align), reference.dense(s, lambda b, h, i, j: j <= i + shift))

    return make


def _window(left: int | None, right: int | None, align: str) -> Callable[[Shape], Meaning]:
    def make(s: Shape) -> Meaning:
        shift = s.m - s.n if align == "end" else 0
        behind, ahead = s.n + s.m if left is None else left, s.n + s.m if right is None else right
        allowed = reference.dense(s, lambda b, h, i, j: i + shift - behind <= j <= i + shift + ahead)
        return Meaning(window(left, right, align=align), allowed)

    return make


def _both(*makes: Callable[[Shape], Meaning]) -> Callable[[Shape], Meaning]:
    def make(s: Shape) -> Meaning:
        first, *rest = [make(s) for make in makes]
        mask, allowed, added, learned = first.mask, first.allowed, first.added, list(first.learned)
        for other in rest:
            mask = mask & other.mask
            if other.allowed is not None:
                allowed = other.allowed if allowed is None else allowed & other.allowed
            if other.added is not None:
                added = other.added if added is None else added + other.added
            learned += other.learned
        return Meaning(mask, allowed, added, learned)

    return make


def _either(*makes: Callable[[Shape], Meaning]) -> Callable[[Shape], Meaning]:
    def make(s: Shape) -> Meaning:
        first, *rest = [make(s) for make in makes]
        mask, allowed = first.mask, first.allowed
        for other in rest:
            mask, allowed = mask | other.mask, allowed | other.allowed
        return Meaning(mask, allowed)

    return make


_start = _causal(None, "start", lambda s: 0)
_end = _causal(None, "end", lambda s: s.m - s.n)
_some_pairs = _kept("batch", "heads", "n", "m")

MASKS: dict[str, Callable[[Shape], Meaning]] = {
    "none": lambda s: Meaning(None),
    "lengths": _lengths,
    "lengths-by-row": _lengths_by_row,
    "segments": _segments,
    "keep": _some_pairs,
    "keep-keys": _kept("batch", "1", "1", "m"),
    "keep-rows": _kept("n", "1"),
    "keep-nothing": lambda s: Meaning(keep(torch.zeros(1, 1, dtype=torch.bool)), torch.zeros(s, dtype=torch.bool)),
    "drop": _dropped,
    "bias": _bias("heads", "n", "m"),
    "bias-holes": _bias("batch", "1", "n", "m", holes=0.4),
    "bias-keys-holes": _bias("batch", "1", "1", "m", holes=0.4),
    "bias-learned": _bias("heads", "n", "m", learned=True),
    "bias-keys-learned": _bias("1", "m", learned=True),
    "bias-rows-learned": _bias("heads", "n", "1", learned=True),
    "bias-holes-learned": _bias("batch", "heads", "n", "m", holes=0.4, learned=True),
    "causal-start": _start,
    "causal-end": _end,
    "causal-before": _causal(-2, None, lambda s: -2),
    "causal-after": _causal(3, None, lambda s: 3),
    "window": _window(2, 1, "end"),
    "window-past": _window(3, 0, "start"),
    "window-future": _window(0, None, "start"),
    "lengths&causal": _both(_lengths, _start),
    "lengths&causal&bias": _both(_lengths, _end, _bias("heads", "n", "m")),
    "segments&causal": _both(_segments, _causal(1, None, lambda s: 1)),
    "segments&lengths": _both(_segments, _lengths),
    "segments|window": _either(_segments, _window(1, 1, "end")),
    "drop&window&learned": _both(_dropped, _window(3, 2, "end"), _bias("n", "m", learned=True)),
    "bias&bias": _both(_bias("1", "m", holes=0.2), _bias("heads", "n", "m", learned=True)),
    "lengths|causal": _either(_lengths, _start),
    "keep|window": _either(_some_pairs, _window(1, 1, "end")),
    "(lengths|keep)&causal": _both(_either(_lengths, _some_pairs), _end),
    "(lengths&causal)|window": _either(_both(_lengths, _start), _window(0, 0, "start")),
}


# ------------------------------------------------------------------------------------------------------------- inputs


def tensors(
    case: ScoreCase, shape: Shape, dtype: torch.dtype = torch.float64, *, grad: bool = False, seed: int = 7
) -> tuple[Tensor, Tensor, Tensor]:
    """query (b, h, n, FEATURES), key (b, h, m, key size), value (b, h, m, VALUE_SIZE)."""
    generator = torch.Generator().manual_seed(seed)
    front, lasts = shape[:2], ((shape.n, FEATURES), (shape.m, case.key_size), (shape.m, VALUE_SIZE))
    made = (torch.randn(*front, *last, generator=generator, dtype=torch.float64) for last in lasts)
    query, key, value = (tensor.to(dtype).requires_grad_(grad) for tensor in made)
    return query, key, value


def expected(
    case: ScoreCase, score: nn.Module, query: Tensor, key: Tensor, value: Tensor, meaning: Meaning
) -> tuple[Tensor, Tensor]:
    """Output and weights as the reference has them."""
    return reference.attend(case.evidence(score, query, key), value, meaning.allowed, meaning.added)


def gradients(output: Tensor, wanted: list[Tensor], seed: int = 8) -> list[Tensor]:
    """Of a random mixture of the outputs; a tensor that takes no part has gradient 0."""
    generator = torch.Generator().manual_seed(seed)
    direction = torch.randn(output.shape, generator=generator, dtype=torch.float64).to(output.dtype)
    if not output.requires_grad:
        return [torch.zeros_like(tensor) for tensor in wanted]
    found = torch.autograd.grad(output, wanted, direction, allow_unused=True)
    return [torch.zeros_like(tensor) if own is None else own for own, tensor in zip(found, wanted, strict=True)]


# ------------------------------------------------------------------------------------------------------------ engines

# The sizes at which a problem is cut: as they are, and so small that every engine runs on many pieces.
CUTS = {
    "normal": {},
    "small": {"STREAMED": 40, "MASKED_ROWS": 3, "WORTH_A_CALL": 1},
}


def cut(monkeypatch, name: str) -> None:
    for constant, number in CUTS[name].items():
        assert hasattr(pieces, constant)
        monkeypatch.setattr(pieces, constant, number)


def _without_weights(query, key, value, **options):
    return attend(query, key, value, **options)


def _with_weights(query, key, value, **options):
    return attend(query, key, value, need_weights=True, **options)[0]


def _without_grad(engine):
    def run(query, key, value, **options):
        with torch.no_grad():
            return engine(query, key, value, **options)

    return run


# The roads through the formula: fused or streamed and recomputed, whole with weights, and both without gradients.
ENGINES = {
    "plain": _without_weights,
    "weights": _with_weights,
    "plain-no-grad": _without_grad(_without_weights),
    "weights-no-grad": _without_grad(_with_weights),
}


def in_turn(first, second, third, often=None) -> list[tuple]:
    """Every pair of the first two, each with one of the third, so that each meets all of the others.

    With `often`, those of the first that are not in it meet every fourth of the second only.
    """
    pairs = itertools.product(enumerate(first), enumerate(second))
    wanted = ((i + j, own, other) for (i, own), (j, other) in pairs if often is None or own in often or not (i + j) % 4)
    return [(own, other, third[turn % len(third)]) for turn, own, other in wanted]


def assert_near(found: Tensor, wanted: Tensor, tolerance: float, what: str = "") -> None:
    """Same shape, same dtype, and no entry further off than the tolerance, relative to the largest."""
    assert found.shape == wanted.shape, f"{what}: shape {tuple(found.shape)}, wanted {tuple(wanted.shape)}"
    if not found.numel():
        return
    assert found.isfinite().all(), f"{what}: not finite"
    found, wanted = found.detach(), wanted.detach()
    error = float((found.double() - wanted.double()).abs().max()) / max(1.0, float(wanted.abs().max()))
    assert error <= tolerance, f"{what}: off by {error:.3g}, tolerance {tolerance}"
