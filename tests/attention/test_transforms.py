"""torch.func's transforms (vmap, grad, jvp, hessian), and meta and fake tensors: each call equals the eager one, or has
its shape, for every score, mask and normaliser, and no tensor is asked for its value.
"""

import io
import itertools
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

import regard
from regard import attend, masked_softmax, weights
from tests.attention.cases import NORMALIZERS, SCORES, VALUE_SIZE, Case, in_turn, table_case
from tests.attention.meanings import MASKS, Draw, Shape
from tests.attention.traced import MADE, assert_same

# PyTorch's rules for forward derivatives are in TorchScript, which it says is deprecated.
own_rules = pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
SHAPE = Shape(3, 2, 5, 7)

TRIPLES = in_turn(SCORES, MASKS, list(NORMALIZERS), often=[])


def fixed_case(score, mask, normalizer, shape=SHAPE) -> Case:
    case = table_case(score, mask, shape, normalizer=normalizer)
    for leaf in case.leaves.values():
        leaf.requires_grad_(False)
    return case


@pytest.mark.parametrize("score", SCORES)
def test_mapped(score):
    """Over all three inputs, with and without weights, or one of them, at any place."""
    for mask, normalizer in [(mask, normalizer) for each, mask, normalizer in TRIPLES if each == score]:
        case = fixed_case(score, mask, normalizer)
        examples = [case.inputs, tuple(rows.flip(-1) * 0.7 for rows in case.inputs)]
        query, key, value = (torch.stack(rows) for rows in zip(*examples, strict=True))

        def run(*rows, case=case):
            return attend(*rows, **case.options, need_weights=True)

        expected = [torch.stack(each) for each in zip(*(run(*rows) for rows in examples), strict=True)]
        assert_same(torch.vmap(run)(query, key, value), expected)
        assert_same(torch.vmap(lambda *rows, case=case: attend(*rows, **case.options))(query, key, value), expected[0])
        for place, dims in enumerate(((0, None, None), (None, 2, None), (None, None, 1))):
            rows = [many[0] for many in (query, key, value)]
            one_by_one = []
            for changed in (query, key, value)[place]:
                rows[place] = changed
                one_by_one.append(attend(*rows, **case.options))
            many = (query, key, value)[place].movedim(0, dims[place])
            rows[place] = many
            mapped = torch.vmap(lambda *rows, case=case: attend(*rows, **case.options), dims, 1)(*rows)
            assert_same(mapped, torch.stack(one_by_one, 1))


@pytest.mark.parametrize("mask", [name for name in MADE if name != "none"])
@pytest.mark.parametrize("score", ["dot", "additive", "kernel-laplace", "custom"])
def test_mapped_over_masks(score, mask):
    shape, (tensors, make) = Shape(3, 2, 5, 7), MADE[mask]
    case = fixed_case(score, "none", "none", shape)
    made = [(tensor, tensor.flip(-1)) for tensor in tensors(shape)]

    def run(*tensors):
        return attend(*case.inputs, score=case.score, mask=make(*tensors))

    expected = torch.stack([run(*tensors) for tensors in zip(*made, strict=True)])
    assert_same(torch.vmap(run)(*map(torch.stack, made)), expected)


def mixture(case, draw):
    """A random mixture of the outputs, as a function of query, key and value."""
    direction = draw.normal(*case.shape[:-1], case.value.shape[-1])
    return lambda *rows: (attend(*rows, **case.options) * direction).sum()


def slopes_of(function, rows):
    leaves = [each.clone().requires_grad_() for each in rows]
    return torch.autograd.grad(function(*leaves), leaves, allow_unused=True, materialize_grads=True)


def has_forward_derivatives(score):
    """PyTorch's cdist, which kernels of several features are made of, has none; the Gaussian needs no cdist."""
    return not score.startswith("kernel") or "gaussian" in score


@own_rules
@pytest.mark.parametrize("score", SCORES)
def test_differentiated_by_transforms(score):
    """torch.func.grad, the same mapped over examples, and jvp."""
    for mask, normalizer in [(mask, normalizer) for each, mask, normalizer in TRIPLES if each == score]:
        case, draw = fixed_case(score, mask, normalizer), Draw(3)
        function = mixture(case, draw)
        expected = slopes_of(function, case.inputs)
        by_all = torch.func.grad(function, (0, 1, 2))
        assert_same(by_all(*case.inputs), expected, 1e-10)
        examples = [torch.stack([rows, rows]) for rows in case.inputs]
        assert_same(torch.vmap(by_all)(*examples), [torch.stack([slope, slope]) for slope in expected], 1e-10)
        if has_forward_derivatives(score):
            tangents = tuple(draw.normal(*rows.shape) for rows in case.inputs)
            along = sum((slope * tangent).sum() for slope, tangent in zip(expected, tangents, strict=True))
            assert_same(torch.func.jvp(function, case.inputs, tangents)[1], along, 1e-9)


@own_rules
@pytest.mark.parametrize("score", list(filter(has_forward_derivatives, SCORES)))
def test_hessians(score):
    """By transforms, forward over backward, and by two eager backward passes."""
    masks = list(MASKS)[list(SCORES).index(score) % 5 :: 5]
    for mask, normalizer in zip(masks, itertools.cycle(NORMALIZERS)):
        case = fixed_case(score, mask, normalizer, Shape(2, 1, 2, 3))
        function = mixture(case, Draw(3))
        eager = torch.autograd.functional.hessian(function, case.inputs)
        assert_same(torch.func.hessian(function, (0, 1, 2))(*case.inputs), eager, 1e-9)


@own_rules
def test_by_parameters_of_everything():
    """functional_call: the gradients by parameters of the score and the normaliser, and by a bias, per example."""
    case = table_case("additive", "bias-learned", Shape(3, 2, 5, 7), normalizer="sink-heads")
    module = nn.ModuleDict({"score": case.score, "normalizer": case.normalizer})
    parameters, added = dict(module.named_parameters()), case.meaning.learned[0]

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.score, self.normalizer = case.score, case.normalizer

        def forward(self, query, key, value, added):
            return attend(
                query, key, value, score=self.score, mask=regard.bias(added), normalizer=self.normalizer
            ).square()

    def loss(parameters, added, *rows):
        return torch.func.functional_call(whole, parameters, (*rows, added)).sum()

    whole = Whole()
    slopes = torch.vmap(torch.func.grad(loss, (0, 1)), (None, None, 0, 0, 0))(parameters, added, *case.inputs)
    for number, rows in enumerate(zip(*case.inputs, strict=True)):
        leaves = [*parameters.values(), added]
        expected = torch.autograd.grad(whole(*rows, added).sum(), leaves)
        assert_same([*(slopes[0][name][number] for name in parameters), slopes[1][number]], expected, 1e-10)


# ---------------------------------------------------------------------------------------------------- without numbers


def with_tensors(thing, change):
    """A copy of a module or a mask, with change(tensor) for each tensor; functions stay."""
    kept = []

    class Pickler(pickle.Pickler):
        def persistent_id(self, part):
            if isinstance(part, Tensor) or (callable(part) and getattr(part, "__closure__", None)):
                kept.append(part)
                return len(kept) - 1
            return None

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, number):
            part = kept[number]
            if not isinstance(part, Tensor):
                return part
            return nn.Parameter(change(part)) if isinstance(part, nn.Parameter) else change(part)

    buffer = io.BytesIO()
    Pickler(buffer).dump(thing)
    buffer.seek(0)
    return Unpickler(buffer).load()


class NoNumbers(TorchDispatchMode):
    """Refuses to tell the value of a tensor."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert function is not torch.ops.aten._local_scalar_dense.default, "a tensor is asked for its value"
        return function(*args, **(kwargs or {}))


class WithoutADevice(TorchFunctionMode):
    """What Python's own methods of tensors ask the device for, on a machine whose PyTorch has no such device."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is Tensor.__invert__:
            return torch.bitwise_not(*args)
        if function is Tensor.contiguous:
            return args[0].clone(memory_format=torch.contiguous_format)
        if function is Tensor.__getitem__:
            with unset_fake_temporarily():
                table, index = tree_map_only(Tensor, lambda tensor: on(tensor, "meta"), args)
                part = table[index]
            return on(part, args[0].device)
        return function(*args, **(kwargs or {}))


def on(tensor, device):
    """A tensor of that shape, without its numbers."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)


def check_shapes(case: Case, device: str, *, grad: bool) -> None:
    """All that attend, weights and masked_softmax give, and the gradients."""
    query, key, value = inputs = [on(rows, device).requires_grad_(grad) for rows in case.inputs]
    options = {name: with_tensors(part, lambda tensor: on(tensor, device)) for name, part in case.options.items()}
    for part in (options["score"], options["normalizer"]):
        if part is not None:
            part.requires_grad_(grad)
    output, attention = attend(query, key, value, **options, need_weights=True)
    results = {
        "output": output,
        "output alone": attend(query, key, value, **options),
        "output, dropout": attend(query, key, value, **options, dropout=0.1),
        "weights": attention,
        "weights alone": weights(query, key, **options),
        "weights, softmax": masked_softmax(attention, options["mask"]),
    }
    for name, result in results.items():
        expected = case.shape if "weights" in name else (*case.shape[:-1], VALUE_SIZE)
        assert (tuple(result.shape), result.dtype) == (expected, query.dtype), name
        assert result.device.type == query.device.type, name
        if grad:
            slopes = torch.autograd.grad(result.sum(), inputs, retain_graph=True, allow_unused=True)
            assert all(slope is None or slope.shape == rows.shape for slope, rows in zip(slopes, inputs, strict=True))
            assert all(slope is not None for slope in slopes[: 2 if "weights" in name else 3])


# Functions that read a tensor of the CPU.
PORTABLE = [mask for mask in MASKS if mask not in ("visible-same_document", "visible-by_sequence")]
NUMBERLESS = in_turn(SCORES, PORTABLE, list(NORMALIZERS), often=[])


# Half of a score's masks and normalizers are enough for every day.
EACH_HALF = pytest.mark.parametrize("half", [0, pytest.param(1, marks=pytest.mark.faults)])


def numberless(score, half):
    return [fixed_case(*names) for names in NUMBERLESS if names[0] == score][half::2]


@EACH_HALF
@pytest.mark.parametrize("score", SCORES)
def test_meta_tensors(score, half):
    for case in numberless(score, half):
        with NoNumbers():
            check_shapes(case, "meta", grad=True)


@pytest.mark.parametrize("device", ["cuda", pytest.param("cpu", marks=pytest.mark.faults)])
@EACH_HALF
@pytest.mark.parametrize("score", SCORES)
def test_fake_tensors(score, half, device):
    """As if there were a GPU, which would have to stop whenever a value is asked for."""
    for case in numberless(score, half):
        with FakeTensorMode(), NoNumbers(), WithoutADevice():
            check_shapes(case, device, grad=False)


def test_the_measure_itself_sees_what_it_should():
    with FakeTensorMode(), pytest.raises(AssertionError, match="asked for its value"), NoNumbers():
        bool(torch.zeros(2, device="cuda").any())
