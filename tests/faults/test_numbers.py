"""`attend` against float64: thousands of random calls, forward and backward, and scores thirty times too large.

How an error is measured. An output is an average of values, so its error is relative to the largest value that its row
may attend to. A gradient is a sum of N terms (upstream · value, or upstream itself) that may cancel to nothing, so its
error is relative to its own largest entry, or to √N times the largest of those terms, whichever is larger. No score s
is known better than to s roundings, and its weight with it: where the best key of a row scores beyond ±20 (a kernel
that sees only far points), that row, and all gradients, are allowed more in proportion.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from regard import Dot
from tests.faults import campaign
from tests.faults.cases import Case, draw_case, spread

FORWARD = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 3e-2}
BACKWARD = {torch.float64: 1e-11, torch.float32: 1e-5, torch.float16: 2e-2, torch.bfloat16: 1e-1}
# Allowed where PyTorch's own error happens to be 0. In float64 the truth itself is off by some tens of roundings.
ROUNDINGS = {torch.float64: 100, torch.float32: 16, torch.float16: 16, torch.bfloat16: 16}


def gradients(output: Tensor, upstream: Tensor, leaves: dict[str, Tensor]) -> dict[str, Tensor]:
    """By name; None, for what the output does not depend on, is 0."""
    found = torch.autograd.grad(output, list(leaves.values()), upstream, allow_unused=True, materialize_grads=True)
    return dict(zip(leaves, found, strict=True))


def copies(case: Case, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    return {name: leaf.detach().to(dtype or leaf.dtype).requires_grad_() for name, leaf in case.leaves.items()}


def with_gradients(case: Case, upstream: Tensor, *, need_weights: bool) -> tuple[Tensor, dict[str, Tensor]]:
    for leaf in case.leaves.values():
        leaf.requires_grad_()
    output = case.attend(need_weights=True)[0] if need_weights else case.attend()
    found = gradients(output, upstream, case.leaves)
    for leaf in case.leaves.values():
        leaf.requires_grad_(False)
    return output.detach(), found


def peer(case: Case, upstream: Tensor) -> tuple[Tensor, dict[str, Tensor]] | None:
    """PyTorch's own attention on the same numbers in the same dtype, where it has the score and the shapes."""
    sizes = (*case.query.shape, *case.key.shape, *case.value.shape)
    if not isinstance(case.score, Dot) or case.score.softcap is not None or 0 in sizes:
        return None
    leaves = copies(case)
    *batch, n, m = case.allowed.shape
    query, key, value = (spread(leaves[name], case.heads) for name in ("query", "key", "value"))
    mask = torch.zeros(*batch, n, m, dtype=query.dtype).masked_fill(~case.allowed, -torch.inf)
    mask = mask + leaves["bias"].to(query.dtype) if case.bias is not None else mask
    shaped = [rows.expand(*batch, -1, -1).reshape(-1, 1, *rows.shape[-2:]) for rows in (query, key, value)]
    output = functional.scaled_dot_product_attention(*shaped, mask.reshape(-1, 1, n, m), scale=case.score.scale)
    output = output.reshape(upstream.shape)
    return output.detach(), gradients(output, upstream, leaves)


@dataclass
class Truth:
    """Everything in float64, and the scales that errors are relative to."""

    output: Tensor
    weights: Tensor
    gradients: dict[str, Tensor]
    row_scale: Tensor
    gradient_scale: dict[str, float]
    stretch: Tensor

    def errors(self, output: Tensor, found: dict[str, Tensor]) -> dict[str, float]:
        """The largest error of the output and of each gradient, in the measure of this file."""
        measured = {"output": largest((output.double() - self.output) / self.row_scale / self.stretch)}
        for name, gradient in found.items():
            scale = self.gradient_scale[name] * max(1.0, largest(self.stretch))
            measured[name] = largest(gradient.double() - self.gradients[name]) / scale
        return measured


def truth_of(case: Case, upstream: Tensor) -> Truth:
    leaves = copies(case, torch.float64)
    output, weights, best = case.reference(leaves)
    found = gradients(output, upstream.double(), leaves)
    value = spread(case.value, case.heads).double()
    sizes = functional.pad(value.abs(), (0, 1)).amax(-1)  # of each value; 0 where it has no features
    row_scale = functional.pad(torch.where(case.allowed, sizes[..., None, :], 0.0), (0, 1)).amax(-1, keepdim=True)
    term = max(largest(upstream), largest(torch.where(case.allowed, upstream.double() @ value.mT, 0.0)))
    scale = {name: max(largest(gradient), term * case.terms(name) ** 0.5) or 1.0 for name, gradient in found.items()}
    row_scale = torch.where(row_scale > 0, row_scale, 1.0)
    stretch = torch.where(best.isfinite(), best.abs() / 20, 1.0).clamp(min=1)
    return Truth(output.detach(), weights.detach(), found, row_scale, scale, stretch)


def largest(numbers: Tensor) -> float:
    return numbers.abs().max().item() if numbers.numel() else 0.0


def in_pieces(seed: int) -> AbstractContextManager[object]:
    """Every third case is cut as if it were large."""
    if seed % 3:
        return nullcontext()
    return patch.multiple("regard.attention.tiling", STREAMED=1000, MASKED_ROWS=7, WORTH_A_CALL=100)


def check_numbers(seed: int) -> None:
    """Output, weights and gradients, with and without weights, are as near to the truth as promised."""
    case = draw_case(seed)
    dtype = case.query.dtype
    shape = (*case.allowed.shape[:-1], case.value.shape[-1])
    upstream = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)
    truth = truth_of(case, upstream)
    theirs = peer(case, upstream)
    allowed = {name: max(BACKWARD[dtype], BACKWARD[leaf.dtype]) for name, leaf in case.leaves.items()}
    allowed["output"] = FORWARD[dtype]
    if theirs is not None and all(tensor.isfinite().all() for tensor in (theirs[0], *theirs[1].values())):
        for name, error in truth.errors(*theirs).items():
            own = case.leaves[name].dtype if name == "bias" else dtype
            floor = max(ROUNDINGS[each] * torch.finfo(each).eps for each in (own, dtype))
            allowed[name] = max(2 * error, min(floor, allowed[name]))

    with in_pieces(seed), torch.no_grad():
        runs = {"attend": (case.attend(), {})}
        output, weights = case.attend(need_weights=True)
        runs["attend, weights"] = output, {}
    with in_pieces(seed):
        runs["attend, gradients"] = with_gradients(case, upstream, need_weights=False)
        runs["attend, weights, gradients"] = with_gradients(case, upstream, need_weights=True)
    assert weights.shape == case.allowed.shape, f"{case}: weights of shape {tuple(weights.shape)}"
    assert largest((weights.double() - truth.weights) / truth.stretch) <= FORWARD[dtype], f"{case}: weights"
    for way, (output, found) in runs.items():
        assert (output.dtype, output.shape) == (dtype, shape), f"{case}: {way}: {output.dtype} {tuple(output.shape)}"
        assert not output[(truth.weights == 0).all(-1)].any(), f"{case}: {way}: a row that sees nothing is not 0"
        for name, error in truth.errors(output, found).items():
            assert error <= allowed[name], f"{case}: {way}: error of {name} is {error:.2g}, allowed {allowed[name]:.2g}"


def check_large_scores(seed: int) -> None:
    """Queries and keys thirty times too large: no NaN, and no inf that is not a true number beyond the dtype."""
    case = draw_case(seed, times=30)
    upstream = torch.ones(*case.allowed.shape[:-1], case.value.shape[-1], dtype=case.query.dtype)
    truth = truth_of(case, upstream)
    for need_weights in (False, True):
        with in_pieces(seed):
            output, found = with_gradients(case, upstream, need_weights=need_weights)
        assert output.isfinite().all(), f"{case}: output"
        for name, gradient in found.items():
            beyond = truth.gradients[name].abs() > torch.finfo(gradient.dtype).max / 2
            assert (gradient.isfinite() | beyond).all(), f"{case}: gradient of {name}"


def test_numbers():
    campaign.run(check_numbers, range(200))


def test_large_scores():
    campaign.run(check_large_scores, range(100))


@pytest.mark.faults
def test_numbers_whole():
    campaign.run(check_numbers, range(10_000))


@pytest.mark.faults
def test_large_scores_whole():
    campaign.run(check_large_scores, range(10_000))
