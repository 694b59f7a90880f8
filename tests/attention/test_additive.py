"""The additive score: loops and tiles against w · tanh(query + key) in float64, and what they must survive."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from regard.attention import additive
from regard.attention.additive import LIMIT, additive_scores, loop_limit
from tests.attention.additive_formula import formula, ordinary, results, same_bits

each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


@pytest.fixture(params=["loops", "limited loops", "tiles", "small"])
def inputs(request, monkeypatch):
    """`ordinary`, so that the scores are computed in each of the ways: with numba's loops, with loops that have to cut
    off exponentials because one query and one key are large, in tiles, as without numba, and at once, as few pairs."""
    monkeypatch.setattr(additive, "SMALL", 1 << 40 if request.param == "small" else 0)
    if request.param == "tiles":
        monkeypatch.setattr(additive, "load_kernels", lambda name: None)

    def make(*sizes: int, **options) -> list[Tensor]:
        query, key, w = ordinary(*sizes, **options)
        if request.param == "limited loops":
            with torch.no_grad():
                for x in (query, key):
                    x[..., :1, :] += 25 if x.dtype == torch.float32 else 100
        if query.numel() and min(sizes[:2]) > 2:
            expected = {"loops": math.inf, "limited loops": LIMIT[query.dtype]}.get(request.param)
            assert loop_limit(query, key, w) == expected
        return [query, key, w]

    return make


@pytest.fixture(params=[0, 1 << 40], ids=["many", "few"])
def many_or_few(request, monkeypatch):
    """Whether a small problem goes the way of large ones."""
    monkeypatch.setattr(additive, "SMALL", request.param)


def exactly(query: Tensor, key: Tensor, w: Tensor, grad: Tensor) -> list[Tensor]:
    """Scores and gradients of the formula, in float64."""
    return results(formula, *(x.detach().double().requires_grad_() for x in (query, key, w)), grad)


def assert_right(query: Tensor, key: Tensor, w: Tensor, grad: Tensor, tolerance: float) -> None:
    got = results(additive_scores, query, key, w, grad)
    # A gradient sums a term for each pair, and their roundings: in an order that depends on how long vectors are.
    at_least = max(tolerance, 8 * torch.finfo(query.dtype).eps * grad.numel() ** 0.5)
    for one, truth in zip(got, exactly(query, key, w, grad), strict=True):
        assert one.dtype == query.dtype
        torch.testing.assert_close(one.double(), truth, rtol=tolerance, atol=at_least)


# --- the numbers


@each_dtype
@pytest.mark.parametrize(
    ("lead", "key_lead"),
    [((), ()), ((3,), (3,)), ((2, 3), (2, 3)), ((2, 3), (2, 1)), ((2, 3), (3,)), ((3,), (2, 1)), ((1,), ())],
    ids=str,
)
def test_scores_and_gradients_are_the_formulas(inputs, dtype, lead, key_lead, monkeypatch):
    monkeypatch.setattr(additive, "TILE", 500)  # several rows of tiles and several tiles in a row
    query, key, w = inputs(7, 19, 13, lead=lead, key_lead=key_lead, dtype=dtype)
    grad = torch.randn(formula(query, key, w).shape)
    assert_right(query, key, w, grad, tolerance=1e-5 if dtype == torch.float32 else 1e-13)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 17), (17, 1), (37, 67), (0, 0), (0, 5), (5, 0)])
def test_any_size(inputs, n, m):
    for batch, hidden in itertools.product([0, 1, 2], [0, 1, 2, 3, 4, 5]):
        assert_right(*inputs(n, m, hidden, lead=(batch,)), torch.randn(batch, n, m), tolerance=1e-5)


@pytest.mark.parametrize(("n", "m"), [(257, 263), (31, 2053), (2053, 31)])
def test_as_close_to_the_truth_as_the_formula(inputs, n, m):
    query, key, w = inputs(n, m, 61)
    grad = torch.randn(n, m)
    ours, plain = (results(scores, query, key, w, grad) for scores in (additive_scores, formula))
    for one, other, exact in zip(ours, plain, exactly(query, key, w, grad), strict=True):
        assert (one - exact).norm() < 2 * (other - exact).norm()


def test_gradcheck(inputs, monkeypatch):
    monkeypatch.setattr(additive, "TILE", 20)
    tensors = inputs(2, 3, 5, lead=(2,), key_lead=(), dtype=torch.float64)
    assert torch.autograd.gradcheck(additive_scores, tensors)
    assert torch.autograd.gradgradcheck(additive_scores, tensors)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_computed_in_float32(inputs, dtype):
    query, key, w = (x.detach().to(dtype) for x in inputs(5, 7, 257))
    got = additive_scores(query, key, w)
    assert got.dtype == dtype
    assert torch.equal(got, additive_scores(query.float(), key.float(), w.float()).to(dtype))


def test_autocast_changes_nothing(inputs):
    tensors = inputs(5, 7, 11)
    plain = additive_scores(*tensors)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(additive_scores(*tensors), plain)


def test_strides_do_not_matter_and_inputs_are_left_alone(inputs):
    query, key, w = (x.detach() for x in inputs(11, 13, 8, lead=(2,)))
    strided = [query.mT.contiguous().mT, *(x.repeat_interleave(2, -1)[..., ::2] for x in (key, w))]
    assert not any(x.is_contiguous() for x in strided)
    assert_right(*(x.requires_grad_() for x in strided), torch.randn(1, 13, 11).mT.expand(2, 11, 13), tolerance=1e-5)
    assert same_bits(strided, [query, key, w])


@pytest.mark.parametrize("index", range(3), ids=["query", "key", "w"])
def test_what_is_changed_before_the_backward_pass_is_noticed(many_or_few, index):
    tensors = ordinary(5, 7, 11, lead=(2,))
    expected = torch.autograd.grad(additive_scores(*tensors).sum(), tensors)
    copies = [x.clone() for x in tensors]
    scores = additive_scores(*copies)
    copies[index].mul_(2)
    if additive.SMALL and index < 2:  # PyTorch's tanh has kept its own result
        assert same_bits(torch.autograd.grad(scores.sum(), tensors), expected)
        return
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(scores.sum(), tensors)


# --- the range


@each_dtype
@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 3.0, 8.0])  # query and key reach 30 at the last
def test_ordinary_numbers_stay_in_the_loops(dtype, scale):
    tensors = ordinary(43, 47, 41, dtype=dtype, scale=scale)
    assert loop_limit(*tensors) is not None
    assert_right(*tensors, torch.randn(43, 47), tolerance=2e-5 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize(("n", "m", "hidden"), [(1, 509, 257), (509, 2, 257), (37, 23, 61)])
def test_where_loops_do_not_pay_there_are_none(n, m, hidden):
    tensors = ordinary(n, m, hidden)
    assert loop_limit(*tensors) is None
    assert_right(*tensors, torch.randn(n, m), tolerance=1e-4)


@each_dtype
@pytest.mark.parametrize(
    ("of_query", "of_key"),
    [(60, 60), (60, 10), (60, 30), (60, 38), (43, 43), (43.7, 43.7), (30, 60), (22, 22), (1e30, 1), (1e38, 60)],
)
def test_any_finite_number_is_safe(many_or_few, dtype, of_query, of_key):
    query, key, w = ordinary(5, 7, 12, dtype=dtype)
    with torch.no_grad():  # large and small numbers of both signs meet
        query += of_query * torch.tensor([1, 1, -1, -1, 0])[:, None]
        key += of_key * torch.tensor([1, 1, 1, -1, -1, 0, 0])[:, None]
    assert_right(query, key, w, torch.randn(5, 7), tolerance=3e-5 if dtype == torch.float32 else 1e-12)


@each_dtype
def test_no_number_near_an_edge_overflows(many_or_few, dtype):
    near = torch.tensor([-1.001, -1.0, -0.999, -0.51, -0.5, -0.49, 0, 0.49, 0.5, 0.51, 0.999, 1.0, 1.001], dtype=dtype)
    query = (near * math.log(LIMIT[dtype]))[:, None].expand(-1, 5).clone()
    key, w = query.clone(), torch.randn(5, dtype=dtype)
    for rows in (slice(None), slice(1, -1), slice(2, -2), slice(4, -4)):  # from no loops to loops without a limit
        tensors = [x.clone().requires_grad_() for x in (query[rows], key[rows], w)]
        assert_right(*tensors, torch.ones(len(query[rows]), len(key[rows])), tolerance=1e-5)


@pytest.mark.parametrize("where", range(3), ids=["query", "key", "w"])
@pytest.mark.parametrize("what", [math.nan, math.inf, -math.inf, 1e30])
def test_what_is_not_finite_comes_out_as_from_the_formula(many_or_few, where, what):
    tensors = [x.detach() for x in ordinary(5, 7, 11)]
    tensors[where].view(-1)[9] = what
    assert math.isfinite(what) or loop_limit(*tensors) is None
    got = additive_scores(*tensors)
    torch.testing.assert_close(got, formula(*tensors), rtol=1e-5, atol=1e-5, equal_nan=True)
    assert got.isnan().sum() == ([7, 5, 35][where] if math.isnan(what) else 0)


def test_huge_weights(many_or_few):
    query, key, w = ordinary(5, 7, 12, scale=8.0)
    got = additive_scores(query, key, w * 1e30) / 1e30
    torch.testing.assert_close(got, formula(query, key, w), rtol=1e-5, atol=1e-5)


def test_nan_in_the_gradient_stays_where_it_belongs(inputs):
    grad = torch.randn(5, 7)
    grad[2, 3] = math.nan
    _, by_query, by_key, by_w = results(additive_scores, *inputs(5, 7, 11), grad)
    assert by_query.isnan().any(-1).tolist() == [i == 2 for i in range(5)]
    assert by_key.isnan().any(-1).tolist() == [j == 3 for j in range(7)]
    assert by_w.isnan().all()
