"""Thousands of random calls: against float64 forward and backward, with scores thirty times too large, with rows that
may attend to nothing, and with NaN, inf, 1e30 and the largest number in keys that no query may attend.

How an error is measured. An output is an average of values, so its error is relative to the largest value that its row
may attend to; where a normaliser's weights sum to more than 1, to as many times that. A gradient is a sum of N terms
(weight · upstream · value, times the slope of the score) that may cancel to nothing, so its error is relative to its
own largest entry, or to √N times the largest of those terms, whichever is larger. No score s is known better than to s
roundings, and its weight with it: where the best key of a row scores beyond ±20 (a kernel that sees only far points),
that row, and all gradients, are allowed more in proportion.
"""

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional

import regard
from regard import Dot
from tests.attention.cases import Case, campaign, draw_case, restricted
from tests.attention.meanings import Draw, Meaning, kept, lengths_of
from tests.attention.random_masks import dense_shape
from tests.attention.reference import shared_heads

FORWARD = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 3e-2}
BACKWARD = {torch.float64: 1e-11, torch.float32: 1e-5, torch.float16: 2e-2, torch.bfloat16: 1e-1}
# Allowed where PyTorch's own error happens to be 0. In float64 the truth itself is off by some tens of roundings.
ROUNDINGS = {torch.float64: 100, torch.float32: 16, torch.float16: 16, torch.bfloat16: 16}


def gradients(output: Tensor, upstream: Tensor, leaves: dict[str, Tensor], *, again: bool = False) -> dict[str, Tensor]:
    """By name; 0 for what the output does not depend on. again: of a graph that more is asked of."""
    slopes = torch.autograd.grad(
        output, list(leaves.values()), upstream, retain_graph=again, allow_unused=True, materialize_grads=True
    )
    return dict(zip(leaves, slopes, strict=True))


def with_gradients(case: Case, upstream: Tensor, *, need_weights: bool) -> tuple[Tensor, dict[str, Tensor]]:
    for leaf in case.leaves.values():
        leaf.requires_grad_()
    output = case.output(need_weights)
    slopes = gradients(output, upstream, case.leaves)
    for leaf in case.leaves.values():
        leaf.requires_grad_(False)
    return output.detach(), slopes


def in_tiles(seed: int) -> AbstractContextManager[object]:
    """Every third case is cut as if it were large."""
    if seed % 3:
        return nullcontext()
    return patch.multiple("regard.attention.tiling", STREAMED=1000, MASKED_ROWS=7, WORTH_A_CALL=100)


def largest(numbers: Tensor) -> float:
    return numbers.abs().max().item() if numbers.numel() else 0.0


# ------------------------------------------------------------------------------------------------------------- numbers


def peer(case: Case, upstream: Tensor) -> tuple[Tensor, dict[str, Tensor]] | None:
    """PyTorch's own attention on the same numbers in the same dtype, where it has the score and the shapes."""
    sizes = (*case.query.shape, *case.key.shape, *case.value.shape)
    if not isinstance(case.score, Dot) or case.score.softcap is not None or 0 in sizes:
        return None
    *batch, n, m = case.shape
    case = case.copied()
    mask = torch.zeros(*batch, n, m, dtype=case.query.dtype)
    mask = mask if case.meaning.allowed is None else mask.masked_fill(~case.meaning.allowed, -torch.inf)
    mask = mask if case.meaning.added is None else mask + case.meaning.added.to(mask.dtype)
    rows = (shared_heads(tensor, batch[-1] if batch else 1) for tensor in case.inputs)
    shaped = [tensor.expand(*batch, -1, -1).reshape(-1, 1, *tensor.shape[-2:]) for tensor in rows]
    output = functional.scaled_dot_product_attention(*shaped, mask.reshape(-1, 1, n, m), scale=case.score.scale)
    output = output.reshape(upstream.shape)
    return output.detach(), gradients(output, upstream, case.leaves)


@dataclass
class Truth:
    """Everything in float64, and the scales that errors are relative to."""

    output: Tensor
    weights: Tensor
    gradients: dict[str, Tensor]
    row_scale: Tensor
    gradient_scale: dict[str, float]
    stretch: Tensor

    def errors(self, output: Tensor, slopes: dict[str, Tensor]) -> dict[str, float]:
        """The largest error of the output and of each gradient, in the measure of this file."""
        measured = {"output": largest((output.double() - self.output) / self.row_scale / self.stretch)}
        for name, slope in slopes.items():
            scale = self.gradient_scale[name] * max(1.0, largest(self.stretch))
            measured[name] = largest(slope.double() - self.gradients[name]) / scale
        return measured


def truth_of(case: Case, upstream: Tensor) -> Truth:
    case, shape = case.copied(torch.float64), case.shape
    output, weights = case.expected()
    slopes = gradients(output, upstream.double(), case.leaves, again=True)
    allowed = torch.ones(shape).bool() if case.meaning.allowed is None else case.meaning.allowed.expand(shape)
    value = shared_heads(case.value.detach(), shape[-3] if len(shape) > 2 else 1)
    sizes = functional.pad(value.abs(), (0, 1)).amax(-1)  # of each value; 0 where it has no features
    row_scale = functional.pad(torch.where(allowed, sizes[..., None, :], 0.0), (0, 1)).amax(-1, keepdim=True)
    sums = weights.detach().abs().sum(-1, keepdim=True).clamp(min=1)
    term = max(largest(upstream), largest(torch.where(allowed, upstream.double() @ value.mT, 0.0)))
    term *= max(1.0, largest(weights.detach()))
    scores = case.scores()
    steepness = gradients(scores, (scores.isfinite() & allowed).double(), case.leaves)  # a log's slope has no bound
    scale = {}
    for name, slope in slopes.items():
        # How many pairs an entry of this gradient sums over, on average; a parameter sums over all of them.
        entries = math.prod(slope.shape if name.startswith("bias") else slope.shape[:-1])
        rows = entries if name in ("query", "key", "value") or name.startswith("bias") else 1
        terms = max(1.0, allowed.sum().item() / max(rows, 1))
        steep = largest(steepness[name].nan_to_num(0, 0, 0)) / terms
        scale[name] = max(largest(slope), term * terms**0.5 * max(1.0, steep)) or 1.0
    scores = scores.detach()
    best = scores.amax(-1, keepdim=True) if scores.shape[-1] else scores.new_zeros(())
    stretch = torch.where(best.isfinite(), best.abs() / 20, 1.0).clamp(min=1)
    row_scale = torch.where(row_scale > 0, row_scale * sums, 1.0)
    return Truth(output.detach(), weights.detach(), slopes, row_scale, scale, stretch)


@campaign(fast=200, whole=10_000)
def test_numbers(seed: int) -> None:
    """Output, weights and gradients, with and without weights, are as near to the truth as promised."""
    case = draw_case(seed)
    dtype, shape = case.query.dtype, (*case.shape[:-1], case.value.shape[-1])
    upstream = Draw(seed).normal(*shape).to(dtype)
    truth, theirs = truth_of(case, upstream), peer(case, upstream)
    allowed = {name: max(BACKWARD[dtype], BACKWARD[leaf.dtype]) for name, leaf in case.leaves.items()}
    allowed["output"] = FORWARD[dtype]
    if theirs is not None and all(tensor.isfinite().all() for tensor in (theirs[0], *theirs[1].values())):
        for name, error in truth.errors(*theirs).items():
            leaf_dtype = case.leaves[name].dtype if name.startswith("bias") else dtype
            floor = max(ROUNDINGS[precision] * torch.finfo(precision).eps for precision in (leaf_dtype, dtype))
            allowed[name] = max(2 * error, min(floor, allowed[name]))
    with in_tiles(seed):
        with torch.no_grad():
            output, weights = case.attend(need_weights=True)
            runs = {"attend": (case.attend(), {}), "attend, weights": (output, {})}
        runs["attend, gradients"] = with_gradients(case, upstream, need_weights=False)
        runs["attend, weights, gradients"] = with_gradients(case, upstream, need_weights=True)
    assert weights.shape == case.shape, f"{case}: weights of shape {tuple(weights.shape)}"
    size = truth.stretch * truth.weights.abs().clamp(min=1)  # those of SquaredReLU have no bound
    assert largest((weights.double() - truth.weights) / size) <= FORWARD[dtype], f"{case}: weights"
    for way, (output, slopes) in runs.items():
        assert (output.dtype, output.shape) == (dtype, shape), f"{case}: {way}: {output.dtype} {tuple(output.shape)}"
        assert not output[(truth.weights == 0).all(-1)].any(), f"{case}: {way}: a row that sees nothing is not 0"
        for name, error in truth.errors(output, slopes).items():
            assert error <= allowed[name], f"{case}: {way}: error of {name} is {error:.2g}, allowed {allowed[name]:.2g}"


@campaign(fast=60, whole=10_000)
def test_large_scores(seed: int) -> None:
    """Queries and keys thirty times too large: no NaN, and no inf that is not a true number beyond the dtype."""
    case = draw_case(seed, times=30)
    upstream = torch.ones(*case.shape[:-1], case.value.shape[-1], dtype=case.query.dtype)
    truth = truth_of(case, upstream)
    for need_weights in (False, True):
        with in_tiles(seed):
            output, slopes = with_gradients(case, upstream, need_weights=need_weights)
        assert output.isfinite().all(), f"{case}: output"
        for name, slope in slopes.items():
            beyond = truth.gradients[name].abs() > torch.finfo(slope.dtype).max / 2
            assert (slope.isfinite() | beyond).all(), f"{case}: gradient of {name}"


# ------------------------------------------------------------------------------------------ what may not be attended to


def outcomes(case: Case) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The output by each of the ways through `attend`, and the gradients."""
    with torch.no_grad():
        ways = {"attend": case.attend()}
        ways["attend, weights"], ways["weights"] = case.attend(need_weights=True)
    upstream = torch.ones_like(ways["attend"])
    ways["attend, weights, gradients"], slopes = with_gradients(case, upstream, need_weights=True)
    ways["attend, gradients"], more = with_gradients(case, upstream, need_weights=False)
    return ways, slopes | {f"{name}, streamed": slope for name, slope in more.items()}


def emptied(case: Case, draw: Draw) -> tuple[Case, Case, Tensor]:
    """The case with one more mask, the same with a mask that also hides everything from some rows, and which rows."""
    *batch, n, m = case.shape
    way = draw.choice(["keep", "drop", "bias", "lengths"] if batch else ["keep", "drop", "bias"])
    if way == "lengths":
        counts = draw.integers(min(m, 1), m + 1, (batch[0], n))
        gone = draw.booleans((batch[0], n), 0.3)
        masks = regard.lengths(counts), regard.lengths(counts.masked_fill(gone, 0))
        rows = gone.reshape(batch[0], *[1] * (len(batch) - 1), n)
    else:
        shape = (*dense_shape(draw, case.shape)[:-2], n, m)
        shown, rows = draw.booleans(shape, 0.8), draw.booleans(shape[:-1], 0.3)
        wrap = {
            "keep": regard.keep,
            "drop": lambda visible: regard.drop(~visible),
            "bias": lambda visible: regard.bias(
                torch.zeros(shape, dtype=case.query.dtype).masked_fill(~visible, -math.inf)
            ),
        }[way]
        masks = wrap(shown), wrap(shown & ~rows[..., None])
    before, after = (restricted(case, Meaning(mask)) for mask in masks)
    return before, after, rows.expand(*batch, n)


@campaign(fast=120, whole=2_000)
def test_empty_rows(seed: int) -> None:
    """Rows that see nothing give exactly 0 and finite gradients, and no other row changes by a bit.

    In tiles that are cut small, other rows may change by a rounding: where no row of a tile sees a key any more, the
    keys are copied, and PyTorch multiplies a copy in another order than a slice.
    """
    before, after, rows = emptied(draw_case(seed), Draw(seed))
    with in_tiles(seed):
        (full, _), (some, slopes) = outcomes(before), outcomes(after)
    allowed = 0 if seed % 3 else FORWARD[after.query.dtype]
    for way, output in some.items():
        assert not output[rows].any(), f"{after}: {way}: an empty row is not 0"
        assert largest(output[~rows] - full[way][~rows]) <= allowed, f"{after}: {way}: another row changed"
    for name, slope in slopes.items():
        assert slope.isfinite().all(), f"{after}: gradient of {name}"


def hidden_rows(case: Case, rows: Tensor) -> Tensor:
    """Which of these keys or values (…, m, size) no query may attend, (…, m, 1)."""
    visible = ~case.meaning.hides(case.shape).all(-2)  # (*batch, m)
    lead = rows.shape[:-2]
    if lead and shared_heads(rows, case.shape[-3]).shape != rows.shape:  # grouped heads: whichever of the group sees it
        visible = visible.unflatten(-2, (lead[-1], -1)).any(-2)
    return visible.double().sum_to_size(*lead, rows.shape[-2]).unsqueeze(-1) == 0


@campaign(fast=120, whole=5_000)
def test_padding(seed: int) -> None:
    """Whatever stands in keys and values that no query may attend, output and gradients are the same bits."""
    draw, case = Draw(seed), draw_case(seed)
    *batch, _, m = case.shape
    if batch and draw.flip(0.7):
        case = restricted(case, lengths_of(draw.integers(0, m + 1, (batch[0],)), case.shape))
    else:
        case = restricted(case, kept(draw.booleans((1, m), 0.7)))
    poisoned = case
    for name in ("key", "value"):
        rows = getattr(case, name)
        largest_number = torch.finfo(rows.dtype).max
        poison = torch.tensor(draw.choice([math.nan, math.inf, -math.inf, 1e30, -1e30, largest_number])).to(rows.dtype)
        # masked_fill_, because the strides have to stay
        poisoned = replace(poisoned, **{name: rows.clone().masked_fill_(hidden_rows(case, rows), poison)})
    with in_tiles(seed):
        (clean, clean_slopes), (spoilt, slopes) = outcomes(case), outcomes(poisoned)
    for way, output in spoilt.items():
        assert torch.equal(output, clean[way]), f"{case}: {way}: padding leaks"
    for name, slope in slopes.items():
        assert torch.equal(slope, clean_slopes[name]), f"{case}: padding leaks into the gradient of {name}"
