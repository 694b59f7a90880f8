"""Normalisers against plain formulas in float64, with first and second derivatives, wherever PyTorch can trace them."""

import math

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

from regard import Entmax, Normalizer, Sigmoid, Softmax, Sparsemax
from tests.attention.cases import assert_near

NEVER = -math.inf
HEADS = 5
ALPHAS = [1.05, 1.3, 1.5, 1.8, 2.0, 2.5, 3.0]


def random(*shape, grad=False):
    return torch.randn(shape, dtype=torch.float64).mul(1.5).requires_grad_(grad)


# -------------------------------------------------------------------------------------------------- the plain formulas


def softmax(scores, sink=None):
    """e^{s} over the sum, with the sink as one more term; Python's own numbers, row by row."""
    best = max([*scores, NEVER if sink is None else sink])
    shares = [math.exp(score - best) for score in scores]
    total = sum(shares) + (0 if sink is None else math.exp(sink - best))
    return [share / total for share in shares]


def sigmoid(scores, bias=0.0):
    return [0.0 if score == NEVER else 1 / (1 + math.exp(-score - bias)) for score in scores]


def sparsemax(scores):
    """By sorting (Martins and Astudillo): the largest k for which 1 + k s_k > s_1 + … + s_k."""
    falling = sorted(scores, reverse=True)
    sums = [sum(falling[:k]) for k in range(1, len(falling) + 1)]
    k = max(k for k in range(1, len(falling) + 1) if 1 + k * falling[k - 1] > sums[k - 1])
    threshold = (sums[k - 1] - 1) / k
    return [max(score - threshold, 0.0) for score in scores]


def entmax15(scores):
    """By sorting (Peters et al.): a quadratic equation for each number of keys, and the one whose solution fits."""
    halves = [score / 2 for score in scores]
    falling = sorted((half for half in halves if half != NEVER), reverse=True)
    for k in range(1, len(falling) + 1):
        mean = sum(falling[:k]) / k
        spread = sum((half - mean) ** 2 for half in falling[:k])
        if spread > 1:
            break
        candidate = mean - math.sqrt((1 - spread) / k)
        if candidate <= falling[k - 1]:
            threshold = candidate
    return [max(half - threshold, 0.0) ** 2 for half in halves]


def entmax(scores, alpha):
    """τ by bisection over the reals, in as many steps as Python's numbers can tell apart."""
    scaled = [(alpha - 1) * (score - max(scores)) for score in scores]
    low, high = -1.0, 0.0
    for _ in range(200):
        middle = (low + high) / 2
        total = sum(max(score - middle, 0.0) ** (1 / (alpha - 1)) for score in scaled)
        low, high = (middle, high) if total > 1 else (low, middle)
    return [max(score - low, 0.0) ** (1 / (alpha - 1)) for score in scaled]


def by_row(formula, scores, *arguments):
    rows = [formula(row, *arguments) for row in scores.reshape(-1, scores.shape[-1]).tolist()]
    return torch.tensor(rows, dtype=torch.float64).reshape(scores.shape)


def hidden(scores):
    """Some columns −inf, but never a whole row."""
    scores = scores.clone()
    scores[..., 1::3] = NEVER
    scores[..., ::2, -1] = NEVER
    return scores


PLAIN = {
    "softmax": (Softmax, softmax, ()),
    "softmax-one": (lambda: Softmax(sink=0.0), softmax, (0.0,)),
    "softmax-sink": (lambda: Softmax(sink=1.5), softmax, (1.5,)),
    "softmax-no-sink": (lambda: Softmax(sink=NEVER), softmax, ()),
    "sigmoid": (Sigmoid, sigmoid, ()),
    "sigmoid-bias": (lambda: Sigmoid(bias=-math.log(11)), sigmoid, (-math.log(11),)),
    "sparsemax": (Sparsemax, sparsemax, ()),
    "entmax": (Entmax, entmax15, ()),
    **{f"entmax-{alpha}": (lambda alpha=alpha: Entmax(alpha), entmax, (alpha,)) for alpha in ALPHAS},
}

# Above alpha = 2 a weight rises like a root at the edge of the support, so that the last bit of a score is seen there.
STEEP = ["entmax-2.5", "entmax-3.0"]


@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("name", PLAIN)
def test_weights_are_those_of_the_plain_formula(name, scale):
    build, formula, arguments = PLAIN[name]
    tolerance = 1e-8 if name in STEEP else 1e-12
    for scores in (random(3, 7, 11) * scale, hidden(random(3, 7, 11) * scale), random(2, 1) * scale):
        assert_near(build()(scores), by_row(formula, scores, *arguments), tolerance, name)


@pytest.mark.parametrize("name", PLAIN)
def test_float32_is_as_exact_as_float32_can_be(name):
    scores = random(7, 11).float()
    weights = PLAIN[name][0]()(scores)
    assert weights.dtype == torch.float32
    assert_near(weights, PLAIN[name][0]()(scores.double()), 1e-3 if name in STEEP else 2e-6)


@pytest.mark.parametrize("name", PLAIN)
def test_what_is_hidden_gets_exactly_nothing_and_is_not_seen(name):
    normalizer, scores = PLAIN[name][0](), random(7, 11)
    left_out = torch.cat([scores, torch.full((7, 3), NEVER)], -1).requires_grad_()
    weights = normalizer(left_out)
    assert (weights[:, 11:] == 0).all()
    assert_near(weights[:, :11], normalizer(scores), 1e-14)
    (slope,) = torch.autograd.grad(weights[:, ::2].sum(), left_out)
    assert slope.isfinite().all()
    assert (slope[:, 11:] == 0).all()


@pytest.mark.parametrize("alpha", [1.3, 1.5, 2.0, 3.0])
def test_small_weights_are_exactly_0(alpha):
    """Those of keys that are worse than the best one by 1 / (α − 1) or more."""
    scores = random(7, 11) * 5
    worse = scores.amax(-1, keepdim=True) - scores >= 1 / (alpha - 1)
    assert worse.any()
    for normalizer in [Entmax(alpha), *([Sparsemax()] if alpha == 2 else [])]:
        assert (normalizer(scores)[worse] == 0).all()


@pytest.mark.parametrize("name", PLAIN)
def test_keys_have_no_order(name):
    normalizer, scores, order = PLAIN[name][0](), random(7, 11), torch.randperm(11)
    assert_near(normalizer(scores[:, order]), normalizer(scores)[:, order], 1e-14)


@pytest.mark.parametrize("name", PLAIN)
def test_shift_invariance_is_what_it_says(name):
    normalizer, scores = PLAIN[name][0](), random(7, 11)
    same = torch.allclose(normalizer(scores), normalizer(scores + 2), rtol=0, atol=1e-13)
    assert same == (normalizer.shift_invariant or name == "softmax-no-sink")


@pytest.mark.parametrize("name", PLAIN)
def test_nan_and_no_key(name):
    normalizer, scores = PLAIN[name][0](), random(3, 5)
    scores[1, 2] = math.nan
    weights = normalizer(scores)
    assert weights[1, 2].isnan()
    assert weights[::2].isfinite().all()
    assert normalizer(scores[:, :0]).shape == (3, 0)


# --------------------------------------------------------------------------------------------------------- derivatives


@pytest.mark.parametrize("name", PLAIN)
def test_first_and_second_derivatives(name):
    normalizer, scores = PLAIN[name][0](), random(3, 5, grad=True)
    assert gradcheck(normalizer, scores)
    assert gradgradcheck(normalizer, scores)


@pytest.mark.parametrize("build", [Softmax, Sigmoid])
def test_derivatives_by_a_number_per_head(build):
    def weights(scores, numbers):
        return build(numbers)(scores)

    scores, numbers = random(2, HEADS, 3, 7, grad=True), random(HEADS, grad=True)
    assert gradcheck(weights, (scores, numbers))
    assert gradgradcheck(weights, (scores[:1, :, :2, :3], numbers))


@pytest.mark.parametrize("alpha", [2.5, 3.0, 7.0, 40.0])
def test_gradients_are_finite_at_the_edge_of_the_support(alpha):
    """There a weight rises with an infinite slope."""
    edge = -1 / (alpha - 1)  # with one best key of 0, a key here has weight 0, and any better one more than that
    near = [edge * (1 + step) for step in (0.0, 1e-16, -1e-16, 1e-9, -1e-9)]
    scores = torch.tensor([[0.0, key, -9.0] for key in near], dtype=torch.float64, requires_grad=True)
    weights = Entmax(alpha)(scores)
    (slope,) = torch.autograd.grad(weights[:, 1].sum(), scores, create_graph=True)
    assert slope.isfinite().all()
    assert torch.autograd.grad(slope[:, 0].sum(), scores)[0].isfinite().all()


# -------------------------------------------------------------------------------------------------- limits and extremes


def test_entmax_tends_to_softmax():
    scores = random(7, 11)
    near, far = (float((Entmax(1 + step)(scores) - Softmax()(scores)).abs().max()) for step in (1e-6, 1e-3))
    assert near < 1e-5
    assert near * 500 < far < 1e-2


def test_sparsemax_is_entmax_of_two():
    scores = random(7, 11)
    assert torch.equal(Sparsemax()(scores), Entmax(2)(scores))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("alpha", [1.01, *ALPHAS, 7.0, 50.0])
def test_many_keys_that_are_alike_share_the_weight(alpha, dtype):
    weights = Entmax(alpha)(torch.full((2, 65_537), -3.25, dtype=dtype))
    assert_near(weights * 65_537, torch.ones_like(weights), 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", [name for name in PLAIN if not name.startswith("sigmoid")])
def test_scores_far_apart(name, dtype):
    """The best keys share everything; the others get what float32 and float64 can say of so little: nothing."""
    normalizer, top = PLAIN[name][0](), [1.0, 0.5, 1.0]
    for step in (1e4, 1e30):
        rows = [[0.0, -1.0, NEVER], [0.0, 0.0, -1.0], [0.0, -1.0, -1.0]]
        scores = torch.tensor(rows, dtype=dtype).mul_(step).add_(step).requires_grad_()
        weights = normalizer(scores)
        assert_near(weights.amax(-1), torch.tensor(top, dtype=dtype), 1e-6, name)
        assert int((weights > 0).sum()) == 4
        assert torch.autograd.grad(weights[:, 0].sum(), scores)[0].isfinite().all()


@pytest.mark.parametrize("sink", [-1e300, -1e4, 1e4, 1e30, 1e300])
def test_sinks_far_away(sink):
    for dtype in (torch.float32, torch.float64):
        scores = torch.zeros(2, 4, dtype=dtype, requires_grad=True)
        weights = Softmax(sink)(scores)
        assert torch.equal(weights, torch.full_like(weights, 0.25 if sink < 0 else 0.0))
        assert torch.autograd.grad(weights.sum(), scores)[0].isfinite().all()


# --------------------------------------------------------------------------------------------------- a number per head


@pytest.mark.parametrize("build", [Softmax, Sigmoid])
def test_a_number_per_head(build):
    scores, numbers = random(3, HEADS, 7, 11), random(HEADS)
    alone = torch.stack([build(number)(scores[:, head]) for head, number in enumerate(numbers.tolist())], 1)
    assert_near(build(numbers)(scores), alone, 1e-14)
    assert_near(build(numbers)(scores[0]), alone[0], 1e-14)
    # The engine folds heads as it likes, and passes the numbers so that they fit.
    folded, spread = scores.transpose(0, 1).reshape(-1, 1, 7, 11), numbers.repeat_interleave(3)[:, None, None, None]
    assert_near(build(numbers)(folded, spread).reshape(HEADS, 3, 7, 11).transpose(0, 1), alone, 1e-14)
    with pytest.raises(ValueError, match=r"expected 5 heads in dimension -3, got shape \(3, 7, 11\)"):
        build(numbers)(scores[:, 0])


@pytest.mark.parametrize("build", [Softmax, Sigmoid])
def test_what_is_a_parameter_and_what_a_buffer(build):
    (name,) = build(nn.Parameter(torch.zeros(HEADS))).state_dict()
    learned, fixed, number = build(nn.Parameter(torch.zeros(HEADS))), build(torch.zeros(HEADS)), build(0.5)
    assert [key for key, _ in learned.named_parameters()] == [name] == [key for key, _ in fixed.named_buffers()]
    assert not list(learned.buffers()) + list(fixed.parameters()) + list(number.buffers()) + list(number.parameters())
    assert number.per_head().item() == 0.5
    leaf = torch.zeros(HEADS, requires_grad=True)
    computed = build(leaf * 2)
    assert len(list(computed.buffers())) == 1
    weights = computed(torch.zeros(HEADS, 3, 7))
    assert (torch.autograd.grad(weights.sum(), leaf)[0] != 0).all()


def test_half_precision_numbers_follow_the_scores():
    scores = random(HEADS, 3, 7)
    learned = Softmax(nn.Parameter(torch.arange(HEADS).half()))
    assert_near(learned(scores), Softmax(torch.arange(HEADS).double())(scores), 1e-15)


# -------------------------------------------------------------------------------------------------------------- traced

TRACED = {
    "softmax": Softmax,
    "softmax-number": lambda: Softmax(0.0),
    "softmax-learned": lambda: Softmax(nn.Parameter(torch.linspace(-1, 1, HEADS))),
    "sigmoid-learned": lambda: Sigmoid(nn.Parameter(torch.linspace(-1, 1, HEADS))),
    "entmax": Entmax,
}


@pytest.fixture
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("name", TRACED)
def test_compiled_and_exported_with_any_size(name):
    normalizer = TRACED[name]()
    compiled = torch.compile(normalizer, fullgraph=True, dynamic=True, backend="aot_eager")
    sizes = {2: torch.export.Dim("n", min=2), 3: torch.export.Dim("m", min=2)}
    exported = torch.export.export(
        normalizer, (torch.zeros(2, HEADS, 3, 7),), dynamic_shapes={"scores": sizes}
    ).module()
    for n, m in ((3, 7), (11, 13)):
        scores = random(2, HEADS, n, m).float().requires_grad_()
        right, slope = weights_and_slope(normalizer, scores)
        for traced in (compiled, exported):
            weights, other = weights_and_slope(traced, scores)
            assert_near(weights, right, 1e-6)
            assert_near(other, slope, 1e-5)


def weights_and_slope(normalizer, scores):
    weights = normalizer(scores)
    return weights, torch.autograd.grad(weights[..., ::2].sum(), scores)[0]


@pytest.mark.filterwarnings("ignore:.torch.jit.script.:DeprecationWarning")  # torch.func.jvp calls it
@pytest.mark.parametrize("name", TRACED)
def test_transforms(name):
    normalizer, scores, tangent = TRACED[name](), random(3, HEADS, 5, 7), random(3, HEADS, 5, 7)
    right = normalizer(scores)
    assert_near(torch.vmap(normalizer)(scores), right, 1e-14)
    assert_near(torch.vmap(normalizer, 2, 2)(scores.unsqueeze(-2)).squeeze(-2), right, 1e-14)

    def total(scores):
        return normalizer(scores)[..., ::2].square().sum()

    leaf = scores.clone().requires_grad_()
    (slope,) = torch.autograd.grad(total(leaf), leaf)
    assert_near(torch.func.grad(total)(scores), slope, 1e-13)
    assert_near(torch.func.jvp(total, (scores,), (tangent,))[1], (slope * tangent).sum(), 1e-12)


@pytest.mark.parametrize("name", TRACED)
def test_meta_tensors(name):
    normalizer = TRACED[name]().to("meta")
    weights = normalizer(torch.empty(2, HEADS, 3, 7, device="meta"))
    assert (weights.is_meta, tuple(weights.shape)) == (True, (2, HEADS, 3, 7))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_operator_of_entmax_is_one_of_pytorch(dtype):
    gap = random(2, 3, 7).to(dtype).abs()
    torch.library.opcheck(torch.ops.regard.entmax_top.default, (gap, 1.5))
    torch.library.opcheck(torch.ops.regard.entmax_top.default, (gap.transpose(0, 2), 2.0))


# ------------------------------------------------------------------------------------------------------------ messages


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: Entmax(1.0), ValueError, r"alpha: expected a number above 1, got 1.0; alpha = 1 is Softmax\(\)"),
        (lambda: Entmax(0.5), ValueError, "alpha: expected a number above 1, got 0.5"),
        (lambda: Entmax(math.inf), ValueError, "alpha: expected a positive, finite number, got inf"),
        (lambda: Entmax("1.5"), TypeError, "alpha: expected a number, got str"),
        (lambda: Softmax(math.inf), ValueError, "sink: expected a number below infinity, got inf"),
        (lambda: Softmax(math.nan), ValueError, "sink: expected a number below infinity, got nan"),
        (lambda: Softmax([0.0]), TypeError, "sink: expected a number, or a floating-point tensor .* got list"),
        (lambda: Sigmoid(torch.zeros(2, 3)), ValueError, r"bias: expected a number, or .* got shape \(2, 3\)"),
        (lambda: Sigmoid(torch.zeros(2).long()), ValueError, r"bias: .* got shape \(2,\) of torch.int64"),
        (lambda: Normalizer()(random(3, 5)), NotImplementedError, "Normalizer must define forward"),
    ],
)
def test_messages(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_they_show_what_they_were_made_of():
    made = [Softmax(), Softmax(0), Sigmoid(torch.zeros(3)), Sparsemax(), Entmax()]
    shown = ["Softmax()", "Softmax(sink=0.0)", "Sigmoid(bias=tensor (3,))", "Sparsemax()", "Entmax(alpha=1.5)"]
    assert list(map(repr, made)) == shown
