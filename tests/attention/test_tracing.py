"""Compiled and exported calls equal eager ones, for every score, mask and normaliser, at all sizes with one graph.

The compiler takes the time: a share of the product is compiled here, by turns, more of it in `make faults`.
"""

import itertools
import shutil
from dataclasses import replace

import pytest
import torch
from functorch.compile import aot_module_simplified, make_boxed_func
from torch import nn
from torch.utils._pytree import tree_leaves

import regard
from regard import Additive, Dot, Softmax, attend, masked_softmax, weights
from regard.attention.observers import observe
from tests.attention.cases import (
    NORMALIZERS,
    SCORES,
    build,
    gradients,
    in_turn,
    table_case,
)
from tests.attention.meanings import MASKS, Draw, Shape
from tests.attention.traced import MADE, assert_same

# Sizes that are nothing else's: the compiler takes sizes that are alike for one.
SMALL, LARGE = Shape(19, 2, 7, 7), Shape(23, 2, 17, 17)


def covering(shift=0):
    """Each mask once, with scores and normalisers in turn, all of which come up."""
    scores, normalizers = list(SCORES), list(NORMALIZERS)
    turns = enumerate(MASKS, shift)
    return [(scores[7 * i % len(scores)], mask, normalizers[i % len(normalizers)]) for i, mask in turns]


# ------------------------------------------------------------------------------------------------------------ compiled


class Graphs:
    """A backend that runs graphs as they are, and counts them."""

    def __init__(self):
        self.count = 0

    def __call__(self, graph, inputs):
        self.count += 1
        return graph


@pytest.fixture
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def joined(results):
    return torch.cat([tensor.flatten() for tensor in tree_leaves(results)])


def call(query, key, value, score, mask, normalizer):
    return attend(query, key, value, score=score, mask=mask, normalizer=normalizer)


def call_with_weights(query, key, value, score, mask, normalizer):
    output, attention = attend(query, key, value, score=score, mask=mask, normalizer=normalizer, need_weights=True)
    return output, attention, weights(query, key, score=score, mask=mask, normalizer=normalizer)


def check_compiled(function, names, backend=None, shapes=(SMALL, LARGE)):
    """The results and their gradients, at two sizes; with a backend of our own, in one graph for both."""
    torch.compiler.reset()
    graphs = Graphs()
    compiled = torch.compile(function, fullgraph=True, dynamic=True, backend=backend or graphs)
    score, mask, normalizer = names
    first = table_case(score, mask, shapes[0], normalizer=normalizer, grad=True)
    for shape in shapes:
        case = table_case(score, mask, shape, grad=True)
        case = replace(case, score=first.score, normalizer=first.normalizer)
        arguments = (*case.inputs, case.score, case.meaning.mask, case.normalizer)
        got, expected, leaves = compiled(*arguments), function(*arguments), list(case.leaves.values())
        assert_same(got, expected)
        assert_same(gradients(joined(got), leaves), gradients(joined(expected), leaves), 1e-10)
    if backend is None and "visible" not in mask:  # whose functions are other ones for another size
        assert graphs.count == 1


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("names", covering()[::5], ids="-".join)
def test_compiled(names):
    check_compiled(call, names)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("names", covering(5)[2::9], ids="-".join)
def test_compiled_with_weights(names):
    check_compiled(call_with_weights, names)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize(
    "names", [("dot", "lengths&causal&bias", "sink-heads"), ("kernel-tricube-learnable", "bias-learned", "entmax")]
)
def test_compiled_through_autograd(names):
    """Where the backward pass is a graph too."""
    check_compiled(call, names, backend="aot_eager")


WAYS = {  # what is compiled, and by which backend
    "output": (call, None),
    "output-autograd": (call, "aot_eager"),
    "weights": (call_with_weights, None),
    "weights-autograd": (call_with_weights, "aot_eager"),
}
TURNS = list(itertools.product(NORMALIZERS, WAYS))


@pytest.mark.faults
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize(
    ("score", "mask", "normalizer", "way"),
    [(*pair, *turn) for *pair, turn in in_turn(SCORES, MASKS, TURNS, ("dot", "additive"))],
    ids=str,
)
def test_compiled_with_many_masks(score, mask, normalizer, way):
    """Two scores with all masks, the others with a quarter of them; normalisers and ways by turns."""
    function, backend = WAYS[way]
    check_compiled(function, (score, mask, normalizer), backend)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("mask", [None, regard.causal(), regard.lengths([3, 7]), regard.window(2, 0)])
@pytest.mark.parametrize("normalizer", [None, Softmax(sink=0.3)])
def test_a_compiled_dot_product_is_one_operator(mask, normalizer):
    """Not a softmax of (n × m) numbers, forward or backward."""
    graphs = []

    def backend(graph, inputs):
        return aot_module_simplified(graph, inputs, fw_compiler=keep_graph, bw_compiler=keep_graph)

    def keep_graph(graph, inputs):
        graphs.append(str(graph.graph))
        return make_boxed_func(graph.forward)

    inputs = [torch.randn(2, 3, 7, 5, requires_grad=True) for _ in range(3)]
    torch.compile(attend, backend=backend, fullgraph=True)(*inputs, mask=mask, normalizer=normalizer).sum().backward()
    forward, backward = graphs
    assert "regard.dot_attention.default" in forward
    assert "regard.dot_attention_backward.default" in backward
    assert not any(name in graph for graph in graphs for name in ("bmm", "matmul", "softmax", "exp.default"))


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method:DeprecationWarning")  # inductor calls it
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler, and there is no g++")
def test_compiled_to_machine_code():
    torch.manual_seed(3)
    score, normalizer = Additive(5, 5, 11), Softmax(nn.Parameter(torch.tensor([0.3, -0.4])))

    @torch.compile(fullgraph=True)
    def layer(query, key, value, counts):
        inner = attend(query, key, value, score=score, mask=regard.lengths(counts))
        return attend(inner, inner, value, mask=regard.causal(), normalizer=normalizer)

    inputs = [torch.randn(3, 2, 7, 5, requires_grad=True) for _ in range(3)]
    counts, leaves = torch.tensor([0, 7, 3]), [*inputs, *score.parameters(), *normalizer.parameters()]
    got = layer(*inputs, counts)
    expected = layer.__wrapped__(*inputs, counts)
    assert_same(got, expected, 1e-5)
    assert_same(gradients(got, leaves), gradients(expected, leaves), 1e-5)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("kv_heads", [1, 2, 6])
def test_compiled_sinks_beside_numbers_that_are_not_finite(kv_heads):
    """Which the operator computes by the formula: each head has its sink there too, also where heads share keys."""
    draw, sink = Draw(3), nn.Parameter(torch.linspace(-2, 2, 6, dtype=torch.float64))
    query, key, value = (draw.normal(2, heads, 5, 7).requires_grad_() for heads in (6, kv_heads, kv_heads))
    normalizer, mask = Softmax(sink), regard.bias(draw.normal(2, 1, 5, 5)) & regard.causal()
    poisoned = key.detach().masked_fill((torch.arange(5) == 3)[:, None], torch.nan)  # not for the first rows

    def first_rows(key):
        return attend(query, key, value, mask=mask, normalizer=normalizer)[..., :3, :]

    expected, leaves = first_rows(key), [query, value, sink]
    got = torch.compile(first_rows, fullgraph=True, backend="aot_eager")(poisoned)
    assert_same(got, expected)
    assert_same(gradients(got, leaves), gradients(expected, leaves), 1e-10)


@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_calls_of_other_kinds():
    """Masks made inside, grouped heads, half precision, two dimensions, dropout, and masked_softmax."""

    def calls(query, key, value, counts, allowed):
        padded = regard.lengths(counts) & regard.keep(allowed)
        grouped = attend(query, key[:, :1], value[:, :1], mask=padded | regard.window(1, 1, align="start"))
        halves = attend(*(rows.bfloat16() for rows in (query, key, value)), score=Dot(softcap=2.0), mask=padded)
        plain = attend(query[0, 0], key[0, 0], value[0, 0], mask=regard.causal(align="end"))
        scores = masked_softmax(query @ key.mT, padded)
        dropped = attend(query, key, torch.ones_like(value), dropout=0.5)
        return grouped, halves, plain, scores, dropped

    compiled = torch.compile(calls, fullgraph=True, dynamic=True, backend="eager")
    draw = Draw(4)
    for batch, n, m in ((19, 7, 11), (23, 13, 17)):
        query, key, value = (draw.normal(batch, 2, rows, 5) for rows in (n, m, m))
        arguments = query, key, value, draw.integers(0, m + 1, (batch,)), draw.booleans((n, m))
        *got, dropped = compiled(*arguments)
        assert_same(got, calls(*arguments)[:-1])
        assert 0.9 < float(dropped.mean()) < 1.1
        assert float(dropped.std()) > 0.05


@pytest.mark.usefixtures("fresh_compiler")
def test_observers_are_told_of_calls_that_are_compiled():
    """What they need cannot be in a graph: an open `observe` breaks the graph, and only then."""

    def twice(query, key, value):
        return attend(attend(query, key, value) * 2, key, value, mask=regard.causal())

    graphs, rows = Graphs(), [torch.randn(3, 5, 7) for _ in range(3)]
    compiled = torch.compile(twice, backend=graphs)
    expected, calls = compiled(*rows), []
    assert graphs.count == 1
    with observe(calls.append):
        assert_same(compiled(*rows), expected, 1e-6)
    assert [each.weights().shape for each in calls] == [(3, 1, 5, 5)] * 2
    assert_same(calls[0].weights()[:, 0], weights(*rows[:2]), 1e-6)
    assert graphs.count > 1


# ------------------------------------------------------------------------------------------------------------ exported

EXPORTED = [
    ("dot", "lengths", "none"),
    ("dot", "bias & causal", "none"),
    ("additive", "keep", "sink-heads"),
    ("kernel-tricube-learnable", "alibi & window", "entmax"),
    ("custom", "opposite of drop", "sigmoid-heads"),
    ("separable", "none", "squared-relu"),
    ("dot-softcap", "visible", "sparsemax"),
]


class Attention(nn.Module):
    """attend, with a mask that is made of the tensors behind query, key and value."""

    def __init__(self, score, mask, normalizer):
        super().__init__()
        self.score, self.mask, self.normalizer = score, MADE[mask][1], normalizer

    def forward(self, query, key, value, *made):
        return attend(query, key, value, score=self.score, mask=self.mask(*made), normalizer=self.normalizer)


def open_sizes(tensors, shape):
    """Every size of the batch, of the queries and of the keys may be another."""
    dims = {shape.batch: "batch", shape.n: "n", shape.m: "m"}
    return tuple(
        {dim: torch.export.Dim(dims[size]) for dim, size in enumerate(tensor.shape) if size in dims}
        for tensor in tensors
    )


# The slower of the two tracers is the one that torch.compile has.
@pytest.mark.parametrize(("names", "strict"), [*((names, False) for names in EXPORTED), (EXPORTED[2], True)])
def test_exported(names, strict):
    score, mask, normalizer = names
    module = Attention(build(score), mask, NORMALIZERS[normalizer](2))

    def inputs(shape):
        return (*table_case(score, "none", shape).inputs, *MADE[mask][0](shape))

    small, large = Shape(19, 2, 7, 11), Shape(23, 2, 17, 29)
    example = inputs(small)
    rows, made = open_sizes(example[:3], small), open_sizes(example[3:], small)
    program = torch.export.export(module, example, dynamic_shapes=(*rows, made) if made else rows, strict=strict)
    for shape in (small, large):
        assert_same(program.module()(*inputs(shape)), module(*inputs(shape)))
    operators = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    ours = {name for name in operators if name.startswith("regard.")}  # a program ought to run without regard
    assert ours == ({"regard.additive_scores.default"} if score == "additive" else set())
