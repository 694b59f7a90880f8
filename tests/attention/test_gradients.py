"""Gradients against finite differences, in float64: every score, every kernel, every mask."""

import pytest
import torch

from regard.attention import Additive, Bilinear, Cosine, Dot, Kernel, attend, masked_softmax, max_pool, weights
from regard.attention.kernels import KERNELS
from tests.attention.cases import CUTS, SCORES, SOME_SCORES, cut, in_turn, table_case
from tests.attention.meanings import MASKS, Shape

SMALL_SHAPE = Shape(2, 1, 3, 5)


def check(function, case):
    """gradcheck of function(query, key, value, …), in which parameters and biases take part without being named."""
    assert torch.autograd.gradcheck(function, tuple(case.leaves.values()), fast_mode=True)


OFTEN = ["additive", "custom", "kernel-gaussian-learnable"]


@pytest.mark.parametrize(("score", "mask", "size"), in_turn(SCORES, MASKS, list(CUTS), often=OFTEN))
def test_every_score_and_mask(monkeypatch, score, mask, size):
    """Along a random direction of all inputs, parameters and biases at once."""
    cut(monkeypatch, size)
    case = table_case(score, mask, SMALL_SHAPE, grad=True, seed=3)
    check(lambda query, key, value, *_: attend(query, key, value, **case.options), case)


RUNS = {
    "plain": lambda query, key, value, **options: attend(query, key, value, **options),
    "with weights": lambda query, key, value, **options: attend(query, key, value, need_weights=True, **options),
    "weights": lambda query, key, value, **options: weights(query, key, **options),
}


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("score", SCORES)
def test_every_score_on_every_road(score, run):
    case = table_case(score, "bias-learned", Shape(1, 2, 3, 5), grad=True, seed=4)
    check(lambda query, key, value, *_: RUNS[run](query, key, value, **case.options), case)


# Entry by entry, for problems small enough to be gone through in full.
SMALL = {
    "dot": lambda: Dot(),
    "softcap": lambda: Dot(0.8, softcap=1.1),
    "cosine": lambda: Cosine(0.7, learnable=True),
    "bilinear": lambda: Bilinear(2, 2),
    "additive": lambda: Additive(2, 2, 3),
} | {f"kernel-{name}": lambda name=name: Kernel(name, [2.5, 3.5], learnable=True) for name in KERNELS}


@pytest.mark.parametrize("score", SMALL)
def test_entry_by_entry(score):
    module = SMALL[score]().double()
    query, key, value = (torch.randn(rows, 2, dtype=torch.float64, requires_grad=True) for rows in (2, 3, 3))
    for parameter in module.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    inputs = (query, key, value, *module.parameters())
    assert torch.autograd.gradcheck(lambda query, key, value, *_: attend(query, key, value, score=module), inputs)


@pytest.mark.parametrize("mask", MASKS)
def test_masked_softmax(mask):
    shape = Shape(2, 1, 2, 3)
    meaning = MASKS[mask](shape)
    scores = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda scores, *_: masked_softmax(scores, meaning.mask), (scores, *meaning.learned))


def test_max_pool():
    value = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda value: max_pool(value, MASKS["lengths"](Shape(2, 1, 1, 5)).mask), (value,))


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("score", ["softcap", "cosine", "bilinear", "additive", "dot"])
def test_second_derivatives(score, need_weights):
    """Also where PyTorch's fused kernel, which has none, is used for the output and the gradients."""
    module = SMALL[score]().double()
    inputs = tuple(torch.randn(1, rows, 2, dtype=torch.float64, requires_grad=True) for rows in (2, 3, 3))

    def function(query, key, value):
        output = attend(query, key, value, score=module, need_weights=need_weights)
        return output[0] if need_weights else output

    assert torch.autograd.gradgradcheck(function, inputs)


@pytest.mark.parametrize(("score", "mask", "size"), in_turn(SOME_SCORES, ["none", "keep", "lengths"], list(CUTS)))
def test_a_graph_that_is_kept_gives_the_same_again(monkeypatch, score, mask, size):
    cut(monkeypatch, size)
    case = table_case(score, mask, SMALL_SHAPE, grad=True)
    output = case.attend(dropout=0.3).sum()
    first, again = (torch.autograd.grad(output, case.inputs, retain_graph=True) for _ in range(2))
    assert all(torch.equal(*pair) for pair in zip(first, again, strict=True))


@pytest.mark.parametrize("score", SOME_SCORES)
def test_only_some_inputs_want_gradients(score):
    """Each alone gets what it gets together with the others."""
    case = table_case(score, "drop&window&learned", SMALL_SHAPE, grad=True)
    together = list(case.leaves.values())
    slopes = torch.autograd.grad(case.attend().square().sum(), together)
    for slope, wanted in zip(slopes, together, strict=True):
        for tensor in together:
            tensor.requires_grad_(tensor is wanted)
        for need_weights in (False, True):
            (alone,) = torch.autograd.grad(case.output(need_weights).square().sum(), [wanted])
            assert torch.allclose(alone, slope, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("score", SOME_SCORES)
def test_autocast_does_not_lower_the_precision(score):
    case = table_case(score, "lengths&causal", SMALL_SHAPE, torch.float32, grad=True)
    results = []
    for enabled in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            output = case.attend()
            assert output.dtype == torch.float32
        results.append([output, *torch.autograd.grad(output.square().sum(), list(case.leaves.values()))])
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


@pytest.mark.parametrize("score", [name for name in SCORES if list(SCORES[name]().parameters())])
def test_gradients_reach_all_parameters(score):
    """Every parameter gets a gradient that is not zero throughout."""
    case = table_case(score, "none", Shape(2, 1, 7, 11))
    parameters = list(case.score.parameters())
    for slope, parameter in zip(torch.autograd.grad(case.attend().square().sum(), parameters), parameters, strict=True):
        assert slope.shape == parameter.shape
        assert (slope != 0).all()
