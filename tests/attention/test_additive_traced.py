"""The additive score where nothing may look at numbers: compiled, exported, mapped, differentiated, without data."""

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.utils._pytree import tree_leaves

from regard import Additive
from regard.attention import additive
from regard.attention.additive import additive_scores

B, N, M, HIDDEN = 2, 5, 7, 11
SHAPES = ((B, N, HIDDEN), (B, M, HIDDEN), (HIDDEN,))
LAYOUTS = {
    "contiguous": lambda *size: torch.randn(*size),
    "permuted": lambda *size: torch.randn(*reversed(size)).permute(*range(len(size))[::-1]),
    "expanded": lambda *size: torch.randn(1, *size[1:]).expand(size),
    "sliced": lambda *size: torch.randn(*size[:-1], 3 * size[-1])[..., 1::3],
}
# PyTorch's rules for forward derivatives are in TorchScript, which it says is deprecated.
own_rules = pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")


@pytest.fixture(autouse=True)
def many(monkeypatch):
    """However few pairs there are, they go the way of many: to the loops."""
    monkeypatch.setattr(additive, "SMALL", 0)


def draw(*shapes, layout="contiguous", dtype=torch.float64) -> list[Tensor]:
    return [LAYOUTS[layout](*shape).to(dtype).requires_grad_() for shape in shapes]


def formula(query: Tensor, key: Tensor, w: Tensor) -> Tensor:
    return torch.tanh(query[..., :, None, :] + key[..., None, :, :]) @ w


def loss_of(scores):
    """A number that depends on all scores, with all derivatives."""
    return lambda query, key, w: torch.softmax(scores(query * 2, key, w), -1)[..., 0].square().sum()


def assert_same(got, expected, tolerance=1e-10):
    for one, other in zip(tree_leaves(got), tree_leaves(expected), strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


# --- the operators


@pytest.mark.parametrize(("layout", "dtype"), [*zip(LAYOUTS, [torch.float32, torch.float64] * 2, strict=True)], ids=str)
def test_opcheck(layout, dtype):
    tensors = draw((B, N, M), *SHAPES, layout=layout, dtype=dtype)
    leaves = tuple(x.detach().requires_grad_() for x in tensors)
    torch.library.opcheck(torch.ops.regard.additive_scores.default, leaves[1:])
    torch.library.opcheck(torch.ops.regard.additive_slopes.default, leaves[:3])


def test_operators_have_gradients_of_gradients():
    tensors = draw((B, 3, 4), (B, 3, 5), (B, 4, 5))
    assert torch.autograd.gradgradcheck(torch.ops.regard.additive_slopes, tensors)
    assert torch.autograd.gradgradcheck(torch.ops.regard.additive_scores, [*tensors[1:], *draw((5,))])


# --- compiled and exported


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_with_any_sizes(backend):
    torch._dynamo.reset()
    compiled = torch.compile(loss_of(additive_scores), fullgraph=True, dynamic=True, backend=backend)
    for batch, n, m in ((2, 5, 7), (3, 11, 13), (5, 3, 17)):
        tensors = draw((batch, 1, n, HIDDEN), (batch, 3, m, HIDDEN), (HIDDEN,))
        got, expected = compiled(*tensors), loss_of(formula)(*tensors)
        assert_same(got, expected)
        assert_same(torch.autograd.grad(got, tensors), torch.autograd.grad(expected, tensors))


@pytest.mark.parametrize("strict", [True, False])
def test_exported_with_any_sizes(strict):
    torch.manual_seed(0)
    score, (b, n, m) = Additive(HIDDEN, 3, 13), map(torch.export.Dim, "bnm")
    module = Pairs(score)
    sizes = ({0: b, 1: n}, {0: b, 1: m})
    program = torch.export.export(module, tuple(rows(2, 5, 7)), dynamic_shapes=sizes, strict=strict)
    others = rows(3, 11, 13)
    assert_same(program.module()(*others), formula(*others, score.value_weight), 1e-5)
    assert any("additive_scores" in str(node.target) for node in program.graph.nodes)


class Pairs(torch.nn.Module):
    """The scores of projected rows."""

    def __init__(self, score: Additive) -> None:
        super().__init__()
        self.score = score

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return self.score.pairs(query, key)


def rows(batch: int, n: int, m: int) -> list[Tensor]:
    return [torch.randn(batch, count, 13) for count in (n, m)]


@own_rules
@pytest.mark.parametrize("transform", [grad, lambda f: vmap(f, (0, 0, None)), hessian], ids=["grad", "vmap", "hessian"])
def test_compiled_transforms(transform):
    torch._dynamo.reset()
    tensors = [x.detach() for x in draw(*SHAPES)]
    compiled = torch.compile(lambda *args: transform(loss_of(additive_scores))(*args), fullgraph=True, backend="eager")
    assert_same(compiled(*tensors), transform(loss_of(formula))(*tensors))


# --- mapped and differentiated


@pytest.mark.parametrize(
    "dims", [(0, 0, 0), (0, None, None), (None, 1, None), (None, None, 0), (2, 0, None), (1, 2, 1)]
)
def test_mapped(dims):
    examples = [draw(*SHAPES) for _ in range(3)]
    tensors = [
        columns[0].detach() if dim is None else torch.stack(columns, dim).detach()
        for dim, columns in zip(dims, zip(*examples, strict=True), strict=True)
    ]
    for transform in (
        lambda scores: vmap(scores, dims)(*tensors),
        lambda scores: vmap(grad(loss_of(scores), (0, 1, 2)), dims)(*tensors),  # per example
        lambda scores: grad(lambda *args: vmap(loss_of(scores), dims)(*args).sum(), (0, 1, 2))(*tensors),
    ):
        assert_same(transform(additive_scores), transform(formula))


def both(transform):
    """Twice, with something between that is not linear."""
    return lambda f: transform(lambda *args: sum(x.sin().sum() for x in tree_leaves(transform(f)(*args))))


TRANSFORMS = {
    "grad": lambda f: grad(f, (0, 1, 2)),
    "grad of grad": both(lambda f: grad(f, (0, 1, 2))),
    "jacrev": lambda f: jacrev(f, (0, 1, 2)),
    "jacrev of jacrev": lambda f: jacrev(jacrev(f, (0, 1, 2)), (0, 1, 2)),
    "jacfwd": lambda f: jacfwd(f, (0, 1, 2)),
    "hessian": lambda f: hessian(f, (0, 1, 2)),
    "jvp": lambda f: lambda *args: jvp(f, args, tuple(x.cos() for x in args)),
}


@own_rules
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_differentiated(transform):
    tensors = [x.detach() for x in draw((B, 3, 5), (B, 4, 5), (5,))]
    assert_same(transform(loss_of(additive_scores))(*tensors), transform(loss_of(formula))(*tensors))


@own_rules
def test_forward_mode():
    tensors = [x.detach() for x in draw(*SHAPES)]
    tangents = []
    for scores in (additive_scores, formula):
        with torch.autograd.forward_ad.dual_level():
            duals = [torch.autograd.forward_ad.make_dual(x, x.cos()) for x in tensors]
            tangents.append(torch.autograd.forward_ad.unpack_dual(scores(*duals)).tangent)
    assert_same(*tangents)


def test_autograd_of_a_transform():
    tensors, gradients = draw(*SHAPES), []
    for scores in (additive_scores, formula):
        first = grad(loss_of(scores), (0, 1, 2))(*tensors)
        gradients.append(torch.autograd.grad(sum(x.sin().sum() for x in first), tensors))
    assert_same(*gradients)


# --- without data


def test_meta_tensors():
    tensors = [torch.empty(*shape, device="meta", requires_grad=True) for shape in ((B, 1, N, HIDDEN), *SHAPES[1:])]
    scores = additive_scores(*tensors)
    assert scores.is_meta
    assert scores.shape == (B, B, N, M)
    assert [x.shape for x in torch.autograd.grad(scores.sum(), tensors)] == [x.shape for x in tensors]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_fake_tensors_of_another_device(dtype):
    with FakeTensorMode():
        tensors = [torch.empty(*shape, device="cuda", dtype=dtype) for shape in ((B, 1, N, HIDDEN), *SHAPES[1:])]
        scores = additive_scores(*tensors)
    assert scores.shape == (B, B, N, M)
    assert scores.device.type == "cuda"
    assert scores.dtype == dtype
