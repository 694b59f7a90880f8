"""The 93 single-node cases of ONNX's `Attention`, and the same nodes on other numbers, through a thin adapter."""

from importlib import import_module
from unittest import mock

import numpy as np
import onnx
import pytest
import torch
from onnx.backend.test.case import node as node_cases
from onnx.reference import ReferenceEvaluator

from tests.attention.onnx_adapter import onnx_attention

INPUTS = ("q", "k", "v", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
# Relative and absolute. The cases in half precision were rounded to it after every step, regard rounds once at the end.
EXACT = {torch.float32: (1e-5, 1e-6), torch.float16: (1e-3, 1e-6), torch.bfloat16: (8e-3, 1e-6)}
ROUNDED = {torch.float32: (1e-5, 1e-6), torch.float16: (2e-3, 1e-3), torch.bfloat16: (2e-2, 1e-2)}


def collected():
    """ONNX makes the cases of all its operators on the way, which takes 8 s; those of one file are enough here."""

    def import_one(package):
        import_module(f"{package.__name__}.attention")

    with mock.patch.object(node_cases, "import_recursive", import_one):
        return [case for case in node_cases.collect_testcases("Attention") if len(case.model.graph.node) == 1]


CASES = {case.name: case for case in collected()}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def test_no_case_is_lost():
    assert len(CASES) == 93


def tensor(array):
    if array.dtype.name == "bfloat16":  # which NumPy knows only as somebody else's type
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def run(case, arrays):
    """The outputs that the node asks for, by regard."""
    (node,) = case.model.graph.node
    named = dict(zip([name for name in node.input if name], arrays, strict=True))
    given = {
        name: tensor(named[given_name]) for name, given_name in zip(INPUTS, node.input, strict=False) if given_name
    }
    attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    wanted = [bool(name) for name in node.output] + [False] * (4 - len(node.output))
    if not wanted[3]:
        assert attributes.setdefault("qk_matmul_output_mode", None) is None
    outputs = onnx_attention(**given, **attributes)
    assert (outputs[3] is None) == (not wanted[3])
    return [output for output, needed in zip(outputs, wanted, strict=True) if needed]


def assert_close(ours, theirs, tolerance):
    assert len(ours) == len(theirs)
    for actual, their in zip(ours, map(tensor, theirs), strict=True):
        relative, absolute = tolerance[actual.dtype]
        torch.testing.assert_close(actual, their.to(actual.dtype), rtol=relative, atol=absolute)


@every_case
def test_the_case_passes(case):
    ((inputs, outputs),) = case.data_sets
    ours = run(case, inputs)
    assert [output.dtype for output in ours] == [tensor(output).dtype for output in outputs]
    assert_close(ours, outputs, ROUNDED)


def redrawn(array, generator):
    """Other numbers in the same places: what was forbidden stays forbidden, and lengths stay lengths."""
    if array.dtype.kind == "i":
        return generator.permutation(array)
    if array.dtype.kind == "b":
        return generator.permuted(array, axis=-1)
    fresh = generator.standard_normal(array.shape).astype(array.dtype)
    return np.where(np.isneginf(array.astype(np.float32)), array, fresh)


def widened(array):
    """The reference is exact for halves, too, if it gets them as float32."""
    return array.astype(np.float32) if array.dtype.name in ("float16", "bfloat16") else array


@every_case
def test_the_node_agrees_with_the_reference_on_other_numbers(case):
    reference = ReferenceEvaluator(case.model)
    names = [each.name for each in case.model.graph.input]
    for seed in range(5):
        generator = np.random.default_rng(seed)
        arrays = [redrawn(array, generator) for array in case.data_sets[0][0]]
        expected = reference.run(None, {name: widened(array) for name, array in zip(names, arrays, strict=True)})
        assert_close(run(case, arrays), expected, EXACT)


@pytest.mark.parametrize(
    ("message", "change"),
    [
        ("past_key, past_value", {"past_key": torch.zeros(2, 3, 1, 8)}),
        ("nonpad_kv_seqlen", {"past_key": torch.zeros(2, 3, 1, 8), "past_value": torch.zeros(2, 3, 1, 8)}),
        ("qk_matmul_output_mode", {"qk_matmul_output_mode": 4}),
        ("q: ", {"q": torch.zeros(2, 5, 24), "kv_num_heads": 3}),
        ("k: ", {"k": torch.zeros(2, 7, 24), "q_num_heads": 3}),
    ],
)
def test_a_wrong_call_is_refused(message, change):
    right = {"q": torch.zeros(2, 3, 5, 8), "k": torch.zeros(2, 3, 7, 8), "v": torch.zeros(2, 3, 7, 8)}
    right["nonpad_kv_seqlen"] = torch.tensor([7, 2])
    onnx_attention(**right)
    with pytest.raises(ValueError, match=message):
        onnx_attention(**right | change)
