"""Gradients against finite differences, in float64: every score, every kernel, every mask (FAULTS 4)."""

import pytest
import torch

from regard.attention import Additive, Bilinear, Cosine, Dot, Kernel, attend, masked_softmax, max_pool, weights
from regard.attention.kernels import KERNELS
from tests.attention.cases import CUTS, MASKS, SCORES, SOME_SCORES, Shape, cut, in_turn, tensors


def agrees(function, inputs, fast=True):
    """gradcheck of a function of tensors, parameters among them."""
    return torch.autograd.gradcheck(function, tuple(inputs), fast_mode=fast, raise_exception=True)


def call(case, module, meaning, run):
    """`run` as a function of query, key, value, and of the parameters and biases that it does not name."""

    def function(query, key, value, *_):
        return run(query, key, value, score=module, mask=meaning.mask)

    return function


def without_weights(query, key, value, **options):
    return attend(query, key, value, **options)


def with_weights(query, key, value, **options):
    return attend(query, key, value, need_weights=True, **options)


def only_weights(query, key, _, **options):
    return weights(query, key, **options)


OFTEN = ["additive", "custom", "kernel-gaussian-learnable"]
RUNS = {"plain": without_weights, "with weights": with_weights, "weights": only_weights}


@pytest.mark.parametrize(("score", "mask", "size"), in_turn(SCORES, MASKS, list(CUTS), often=OFTEN))
def test_every_score_and_mask(monkeypatch, score, mask, size):
    """Along a random direction of all inputs, parameters and biases at once."""
    cut(monkeypatch, size)
    case, shape = SCORES[score], Shape(2, 1, 3, 5)
    module, meaning = case.build(), MASKS[mask](shape)
    inputs = [*tensors(case, shape, grad=True, seed=3), *module.parameters(), *meaning.learned]
    assert agrees(call(case, module, meaning, without_weights), inputs)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("score", SCORES)
def test_every_score_on_every_road(score, run):
    case, shape = SCORES[score], Shape(1, 2, 3, 5)
    module, meaning = case.build(), MASKS["bias-learned"](shape)
    inputs = [*tensors(case, shape, grad=True, seed=4), *module.parameters(), *meaning.learned]
    assert agrees(call(case, module, meaning, RUNS[run]), inputs)


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
    inputs = [query, key, value, *module.parameters()]
    assert agrees(lambda query, key, value, *_: attend(query, key, value, score=module), inputs, fast=False)


@pytest.mark.parametrize("mask", MASKS)
def test_masked_softmax(mask):
    shape = Shape(2, 1, 2, 3)
    meaning = MASKS[mask](shape)
    scores = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    inputs = [scores, *meaning.learned]
    assert agrees(lambda scores, *_: masked_softmax(scores, meaning.mask), inputs, fast=False)


def test_max_pool():
    value = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    assert agrees(lambda value: max_pool(value, MASKS["lengths"](Shape(2, 1, 1, 5)).mask), [value], fast=False)


SECOND = ["softcap", "cosine", "bilinear", "additive", "dot"]


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("score", SECOND)
def test_second_derivatives(score, need_weights):
    """Right where PyTorch has them, refused where it has not: its fused kernel has none."""
    module = SMALL[score]().double()
    inputs = [torch.randn(1, rows, 2, dtype=torch.float64, requires_grad=True) for rows in (2, 3, 3)]

    def function(query, key, value):
        output = attend(query, key, value, score=module, need_weights=need_weights)
        return output[0] if need_weights else output

    if need_weights or score in ("softcap", "additive"):
        assert torch.autograd.gradgradcheck(function, tuple(inputs))
    else:
        with pytest.raises(RuntimeError, match=r"derivative for .* is not implemented"):
            torch.autograd.gradgradcheck(function, tuple(inputs))


@pytest.mark.parametrize(("score", "mask", "size"), in_turn(SOME_SCORES, ["none", "keep", "lengths"], list(CUTS)))
def test_a_graph_that_is_kept_gives_the_same_again(monkeypatch, score, mask, size):
    cut(monkeypatch, size)
    case, shape = SCORES[score], Shape(2, 1, 3, 5)
    module, meaning, inputs = case.build(), MASKS[mask](shape), tensors(case, shape, grad=True)
    output = attend(*inputs, score=module, mask=meaning.mask, dropout=0.3).sum()
    first, again = (torch.autograd.grad(output, inputs, retain_graph=True) for _ in range(2))
    assert all(torch.equal(*pair) for pair in zip(first, again, strict=True))


@pytest.mark.parametrize("score", SOME_SCORES)
def test_only_some_inputs_want_gradients(score):
    """Each alone gets what it gets together with the others."""
    case, shape = SCORES[score], Shape(2, 1, 3, 5)
    module, meaning = case.build(), MASKS["drop&window&learned"](shape)
    together = [*tensors(case, shape, grad=True), *module.parameters(), *meaning.learned]
    output = attend(*together[:3], score=module, mask=meaning.mask)
    slopes = torch.autograd.grad(output.square().sum(), together)
    for place, wanted in enumerate(together):
        for tensor in together:
            tensor.requires_grad_(tensor is wanted)
        for run in (without_weights, lambda *inputs, **options: with_weights(*inputs, **options)[0]):
            output = run(*together[:3], score=module, mask=meaning.mask)
            (alone,) = torch.autograd.grad(output.square().sum(), [wanted])
            assert torch.allclose(alone, slopes[place], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("score", SOME_SCORES)
def test_autocast_does_not_lower_the_precision(score):
    case, shape = SCORES[score], Shape(2, 1, 3, 5)
    module, meaning = case.build(torch.float32), MASKS["lengths&causal"](shape)
    inputs = tensors(case, shape, torch.float32, grad=True)
    results = []
    for enabled in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            output = attend(*inputs, score=module, mask=meaning.mask)
            assert output.dtype == torch.float32
        results.append([output, *torch.autograd.grad(output.square().sum(), [*inputs, *module.parameters()])])
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


def test_gradients_reach_all_parameters():
    """Every parameter of every score gets a gradient that is not zero throughout."""
    shape = Shape(2, 1, 7, 11)
    for name, case in SCORES.items():
        module = case.build()
        parameters = list(module.parameters())
        if not parameters:
            continue
        output = attend(*tensors(case, shape), score=module)
        for slope, parameter in zip(torch.autograd.grad(output.square().sum(), parameters), parameters, strict=True):
            assert slope.shape == parameter.shape, name
            assert (slope != 0).all(), name
