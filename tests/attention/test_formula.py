"""attend, weights and masked_softmax against the reference, on every road through the formula."""

import itertools
from dataclasses import replace

import pytest
import torch

from regard.attention import Dot, Kernel, attend, causal, keep, masked_softmax, weights
from tests.attention import reference
from tests.attention.cases import (
    CUTS,
    ENGINES,
    FEATURES,
    NORMALIZERS,
    SCORES,
    SHAPES,
    SOME_SCORES,
    VALUE_SIZE,
    Case,
    assert_near,
    build,
    cut,
    gradients,
    in_turn,
    key_size,
    run,
    table_case,
)
from tests.attention.meanings import MASKS, Shape, band, lengths_of

FORWARD, BACKWARD = 1e-12, 1e-11


def random(*shape, grad=False):
    return torch.randn(shape, dtype=torch.float64).requires_grad_(grad)


def check(case):
    """Every road through the formula, forward and backward, against output and weights of the reference."""
    output, expected_weights = case.expected()
    wanted = list(case.leaves.values())
    slopes = gradients(output, wanted)
    for engine in ENGINES:
        result = run(case, engine)
        assert_near(result, output, FORWARD, engine)
        if "no-grad" not in engine:
            for place, (slope, right) in enumerate(zip(gradients(result, wanted), slopes, strict=True)):
                assert_near(slope, right, BACKWARD, f"gradient {place} of {engine}")
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            assert_near(case.attend(need_weights=True)[1], expected_weights.expand(case.shape), FORWARD, "weights")


# ------------------------------------------------------------------------------------------- every score, every mask


WAYS = list(itertools.product(SHAPES, CUTS))


@pytest.mark.parametrize(("score", "mask", "way"), in_turn(SCORES, MASKS, WAYS, often=SOME_SCORES))
def test_every_score_with_every_mask(monkeypatch, score, mask, way):
    cut(monkeypatch, way[1])
    check(table_case(score, mask, SHAPES[way[0]], grad=True))


@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_a_dot_product_up_to_a_constant_of_the_row_under_every_normalizer(normalizer):
    """To a softmax a Gaussian is such a product; to what is not shift-invariant it is not."""
    check(table_case("kernel-gaussian", "causal-start", SHAPES["more-queries"], normalizer=normalizer, grad=True))


@pytest.mark.faults
@pytest.mark.parametrize("score", SCORES)
def test_every_score_with_every_mask_in_every_way(monkeypatch, score):
    for mask, (shape, size) in itertools.product(MASKS, WAYS):
        with monkeypatch.context() as patch:
            cut(patch, size)
            check(table_case(score, mask, SHAPES[shape], grad=True))


@pytest.mark.parametrize(
    ("score", "mask"),
    [("dot", "lengths"), ("dot", "causal-end"), ("dot-softcap", "keep"), ("kernel-tricube", "lengths&causal")],
)
def test_sizes_that_are_cut_as_they_come(score, mask):
    """More rows than MASKED_ROWS, more scores than STREAMED: several tiles at the sizes that users have."""
    case = table_case(score, mask, Shape(2, 1, 271, 3907))
    output, expected_weights = case.expected()
    assert_near(case.attend(), output, FORWARD)
    assert_near(weights(case.query, case.key, **case.options), expected_weights, FORWARD)


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("mask", MASKS)
def test_tiles_that_cannot_be_fused_after_all(monkeypatch, mask, size):
    """Keys hundreds of widths away: the reduction to a dot product gives up on a tile, which is then streamed."""
    cut(monkeypatch, size)
    case = replace(table_case("kernel-gaussian", mask, grad=True), score=Kernel("gaussian", 0.02))
    assert case.score.as_dot(case.query, case.key) is None
    (output, _), result = case.expected(), case.attend()
    assert_near(result, output, 1e-9)
    wanted = list(case.leaves.values())
    for slope, right in zip(gradients(result, wanted), gradients(output, wanted), strict=True):
        assert_near(slope, right, 1e-8)


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("score", SOME_SCORES)
def test_train_and_eval_are_the_same(monkeypatch, score, engine, size):
    cut(monkeypatch, size)
    case = table_case(score, "lengths&causal", grad=True)
    trained, evaluated = (run(replace(case, score=case.score.train(mode)), engine) for mode in (True, False))
    assert torch.equal(trained, evaluated)


# ------------------------------------------------------------------------------------------------------------- shapes

# query, key and value in front of their last two dimensions
LEADS = {
    "none": ((), (), ()),
    "one": ((3,), (3,), (3,)),
    "three": ((2, 3, 5), (2, 3, 5), (2, 3, 5)),
    "shared keys": ((3, 2), (), ()),
    "shared queries": ((), (3, 2), (3, 2)),
    "values of their own": ((), (), (3, 2)),
    "each brings one": ((3, 1), (2,), (1, 1)),
    "ones": ((1, 1), (3, 1), (1, 2)),
    "longer keys": ((2,), (5, 3, 2), (3, 1)),
    "one head for all": ((3, 4), (3, 1), (3, 1)),
    "grouped heads": ((6,), (3,), (3,)),
    "grouped heads of a batch of batches": ((5, 2, 6), (5, 2, 3), (5, 2, 3)),
}


@pytest.mark.parametrize(("score", "lead", "size"), in_turn(SOME_SCORES, LEADS, list(CUTS)))
def test_leading_dimensions_broadcast(monkeypatch, score, lead, size):
    cut(monkeypatch, size)
    lasts = ((7, FEATURES), (11, key_size(score)), (11, VALUE_SIZE))
    inputs = (random(*front, *last, grad=True) for front, last in zip(LEADS[lead], lasts, strict=True))
    check(Case(*inputs, build(score), band(causal(align="end"), (7, 11), None, 0, 4)))


ORDINARY = {"batch": 3, "heads": 2, "n": 7, "m": 11, "features": FEATURES, "values": VALUE_SIZE}
SIZED_SCORES = ["dot", "cosine", "custom", "additive", "kernel-gaussian", "kernel-tricube"]
FEW = [
    (score, missing, names)
    for score in SIZED_SCORES
    for missing in (0, 1)
    for names in (*((name,) for name in ORDINARY), ("n", "m"), tuple(ORDINARY))
    if score != "additive" or "features" not in names  # its parameters say how many features there are
]


@pytest.mark.parametrize("mask", ["none", "lengths-by-row", "lengths&causal&bias", "drop&window&learned"])
@pytest.mark.parametrize(("score", "missing", "names"), FEW)
def test_sizes_of_nothing_and_one(score, missing, names, mask):
    """No batch, no heads, no queries, no keys, no features, no values: an answer of the right shape, and gradients."""
    batch, heads, n, m, features, size = (missing if name in names else usual for name, usual in ORDINARY.items())
    key_features = key_size(score) if score == "additive" else features
    inputs = (random(batch, heads, *last, grad=True) for last in ((n, features), (m, key_features), (m, size)))
    check(Case(*inputs, build(score), MASKS[mask](Shape(batch, heads, n, m))))


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("score", SOME_SCORES)
def test_strides_do_not_matter(monkeypatch, score, size):
    """Transposed, sliced, reversed and expanded tensors."""
    cut(monkeypatch, size)
    shape = SHAPES["more-keys"]
    query = random(shape.n, FEATURES, shape.heads, shape.batch).permute(3, 2, 0, 1)
    key = random(shape.batch, 1, 3 * shape.m, key_size(score))[:, :, ::3].expand(-1, shape.heads, -1, -1)
    value = random(shape.batch, shape.heads, VALUE_SIZE, shape.m).transpose(-2, -1).flip(-2)
    case = Case(query, key, value, build(score), MASKS["lengths&causal"](shape))
    for engine in ENGINES:
        assert_near(run(case, engine), case.expected()[0], FORWARD)


# ------------------------------------------------------------------------------------------------------ grouped heads

# query heads, key heads, value heads
GROUPS = {"6/2": (6, 2, 2), "6/3": (6, 3, 3), "6/1": (6, 1, 1), "6/2, values 6": (6, 2, 6), "6/3, values 1": (6, 3, 1)}
GROUPS |= {"keys 6, values 2": (6, 6, 2), "keys 1, values 3": (6, 1, 3), "4/2": (4, 2, 2)}
GROUP_MASKS = ["none", "lengths", "lengths-by-row", "keep", "causal-end", "bias-learned", "drop"]


@pytest.mark.parametrize(("mask", "group", "size"), in_turn(GROUP_MASKS, GROUPS, list(CUTS)))
def test_grouped_heads(monkeypatch, mask, group, size):
    """Head h reads key head h // (H // G)."""
    cut(monkeypatch, size)
    score = ["dot", "additive", "custom", "kernel-triangular"][list(GROUPS).index(group) // 2]
    lasts = ((7, FEATURES), (11, key_size(score)), (11, VALUE_SIZE))
    inputs = (random(3, heads, *last, grad=True) for heads, last in zip(GROUPS[group], lasts, strict=True))
    heads = GROUPS[group][0]
    case = Case(*inputs, build(score), MASKS[mask](Shape(3, heads, 7, 11)))
    check(case)
    some = weights(case.query, case.key, **case.options, heads=[heads - 1, 1, 1], rows=[4, 0])
    assert_near(some, case.expected()[1][:, [heads - 1, 1, 1]][:, :, [4, 0]], FORWARD, "weights of some heads")


def test_lengths_of_grouped_heads_without_a_batch():
    """lengths speaks of the first dimension of the query, which here is that of the heads."""
    meaning = lengths_of(torch.tensor([0, 11, 3, 5, 1, 7]), (6, 7, 11))
    check(Case(random(6, 7, 5, grad=True), random(3, 11, 5, grad=True), random(3, 11, 13, grad=True), Dot(), meaning))


# ------------------------------------------------------------------------------------------------- weights on demand

ROWS = {"all": None, "some": [5, 1], "repeated": [2, 2, 6], "from the end": [-1, 0], "none": []}
ROWS["tensor"] = torch.tensor([3, 4])
HEADS = {"all": None, "one": [1], "turned": [1, 0], "none": [], "tensor": torch.tensor([-1])}
CHOICES = [*zip(ROWS, [*HEADS, "all"], strict=True), ("some", "all"), ("some", "turned"), ("all", "one")]


def choose(table, rows, heads):
    table = table if heads is None else table[..., torch.as_tensor(heads, dtype=torch.long), :, :]
    return table if rows is None else table[..., torch.as_tensor(rows, dtype=torch.long), :]


@pytest.mark.parametrize(("score", "mask", "size"), in_turn(SOME_SCORES, MASKS, list(CUTS)))
def test_weights_of_some_rows_and_heads(monkeypatch, score, mask, size):
    cut(monkeypatch, size)
    case = table_case(score, mask)
    expected_weights = case.expected()[1].detach()
    for rows, heads in CHOICES:
        some = weights(case.query, case.key, **case.options, rows=ROWS[rows], heads=HEADS[heads])
        assert_near(some, choose(expected_weights, ROWS[rows], HEADS[heads]), FORWARD, f"rows {rows}, heads {heads}")


@pytest.mark.parametrize("front", [(), (2,), (3, 2), (5, 3, 2)])
def test_weights_of_some_rows_in_any_number_of_dimensions(front):
    query, key = random(*front, 7, 5), random(*front, 11, 5)
    for rows, heads in ([4, 2], None), ([3], [1] if front else None):
        some = weights(query, key, mask=causal(align="end"), rows=rows, heads=heads)
        assert_near(some, choose(weights(query, key, mask=causal(align="end")), rows, heads), FORWARD)


def test_weights_have_gradients():
    case = table_case("dot", "drop&window&learned", grad=True)
    wanted = [case.query, case.key, *case.meaning.learned]
    result, right = weights(case.query, case.key, **case.options), case.expected()[1]
    for slope, other in zip(gradients(result, wanted), gradients(right, wanted), strict=True):
        assert_near(slope, other, BACKWARD)


# ----------------------------------------------------------------------------------------------------- masked_softmax


@pytest.mark.parametrize("shape", [*SHAPES.values(), Shape(3, 1, 1, 5), Shape(1, 2, 5, 1), Shape(1, 1, 1, 1)])
@pytest.mark.parametrize("mask", MASKS)
def test_masked_softmax(mask, shape):
    meaning = MASKS[mask](shape)
    scores = random(*shape, grad=True)
    _, right = reference.attend(scores, random(shape.m, 1), meaning.allowed, meaning.added)
    result = masked_softmax(scores, meaning.mask)
    assert_near(result, right, FORWARD)
    assert torch.equal(result == 0, meaning.hides(shape))
    wanted = [scores, *meaning.learned]
    for slope, other in zip(gradients(result, wanted), gradients(right, wanted), strict=True):
        assert_near(slope, other, BACKWARD)


@pytest.mark.parametrize("front", [(), (1,), (0,), (3,), (3, 2), (5, 3, 2)])
@pytest.mark.parametrize(("n", "m"), [(7, 11), (1, 1), (0, 3), (3, 0), (0, 0)])
def test_masked_softmax_in_any_number_of_dimensions(front, n, m):
    scores = random(*front, n, m)
    _, right = reference.attend(scores, random(m, 1), reference.dense((n, m), lambda i, j: j <= i))
    assert_near(masked_softmax(scores, causal(align="start")), right, FORWARD)
    assert_near(masked_softmax(scores), torch.softmax(scores, -1), FORWARD)


def test_masked_softmax_does_not_look_at_what_is_forbidden():
    scores = random(3, 7)
    allowed = torch.rand(3, 7) < 0.5
    allowed[1] = False
    for poison in (torch.nan, torch.inf, -torch.inf, 1e300):
        result = masked_softmax(scores.masked_fill(~allowed, poison), keep(allowed))
        assert torch.equal(result, masked_softmax(scores, keep(allowed)))
    assert (result[1] == 0).all()
    assert (result[~allowed] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtypes_stay(dtype):
    scores, query, key, value = (torch.randn(shape).to(dtype) for shape in ((3, 7), (3, 5), (7, 5), (7, 2)))
    for mask in (None, keep(torch.rand(3, 7) < 0.5)):
        assert masked_softmax(scores, mask).dtype == dtype
        assert weights(query, key, mask=mask).dtype == dtype
        assert [tensor.dtype for tensor in attend(query, key, value, mask=mask, need_weights=True)] == [dtype, dtype]
        assert attend(query, key, value, mask=mask).dtype == dtype
