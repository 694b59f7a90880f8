"""attend, weights and masked_softmax against the reference, on every road through the formula."""

import itertools

import pytest
import torch

from regard.attention import Kernel, attend, causal, keep, lengths, masked_softmax, weights
from tests.attention import reference
from tests.attention.cases import (
    CUTS,
    ENGINES,
    FEATURES,
    MASKS,
    SCORES,
    SHAPES,
    SOME_SCORES,
    VALUE_SIZE,
    Meaning,
    Shape,
    assert_near,
    cut,
    expected,
    gradients,
    in_turn,
    tensors,
)

FORWARD, BACKWARD = 1e-12, 1e-11


def random(*shape, grad=False):
    return torch.randn(shape, dtype=torch.float64).requires_grad_(grad)


def check(module, inputs, meaning, output, found):
    """Every road through the formula, forward and backward, against output and weights of the reference."""
    wanted = [*inputs, *module.parameters(), *meaning.learned]
    slopes = gradients(output, wanted)
    options = {"score": module, "mask": meaning.mask}

    own = attend(*inputs, **options)
    beside, own_weights = attend(*inputs, **options, need_weights=True)
    assert_near(own_weights, found, FORWARD, "weights")
    for what, result in (("output", own), ("output beside weights", beside)):
        assert_near(result, output, FORWARD, what)
        for place, (slope, right) in enumerate(zip(gradients(result, wanted), slopes, strict=True)):
            assert_near(slope, right, BACKWARD, f"gradient {place} of {what}")

    with torch.no_grad():
        assert_near(attend(*inputs, **options), output, FORWARD, "output without grad")
        beside, own_weights = attend(*inputs, **options, need_weights=True)
        assert_near(beside, output, FORWARD, "output beside weights without grad")
        assert_near(own_weights, found, FORWARD, "weights without grad")


# ------------------------------------------------------------------------------------------- every score, every mask


def check_case(monkeypatch, score, mask, shape, size):
    cut(monkeypatch, size)
    case, shape = SCORES[score], SHAPES[shape]
    module, meaning = case.build(), MASKS[mask](shape)
    inputs = tensors(case, shape, grad=True)
    check(module, inputs, meaning, *expected(case, module, *inputs, meaning))


WAYS = list(itertools.product(SHAPES, CUTS))


@pytest.mark.parametrize(("score", "mask", "way"), in_turn(SCORES, MASKS, WAYS, often=SOME_SCORES))
def test_every_score_with_every_mask(monkeypatch, score, mask, way):
    check_case(monkeypatch, score, mask, *way)


@pytest.mark.faults
@pytest.mark.parametrize("score", SCORES)
def test_every_score_with_every_mask_in_every_way(monkeypatch, score):
    for mask, way in itertools.product(MASKS, WAYS):
        with monkeypatch.context() as patch:
            check_case(patch, score, mask, *way)


@pytest.mark.parametrize(
    ("score", "mask"),
    [("dot", "lengths"), ("dot", "causal-end"), ("dot-softcap", "keep"), ("kernel-tricube", "lengths&causal")],
)
def test_sizes_that_are_cut_as_they_come(score, mask):
    """More rows than MASKED_ROWS, more scores than STREAMED: several pieces without anyone having asked for them."""
    case, shape = SCORES[score], Shape(2, 1, 271, 3907)
    module, meaning = case.build(), MASKS[mask](shape)
    inputs = tensors(case, shape)
    output, found = expected(case, module, *inputs, meaning)
    assert_near(attend(*inputs, score=module, mask=meaning.mask), output, FORWARD)
    assert_near(weights(*inputs[:2], score=module, mask=meaning.mask), found, FORWARD)


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("mask", MASKS)
def test_pieces_that_cannot_be_fused_after_all(monkeypatch, mask, size):
    """Keys hundreds of widths away: the reduction to a dot product gives up on a piece, which is then streamed."""
    cut(monkeypatch, size)
    shape, score = SHAPES["more-keys"], Kernel("gaussian", 0.02)
    inputs, meaning = tensors(SCORES["kernel-gaussian"], shape, grad=True), MASKS[mask](shape)
    assert score.as_dot(*inputs[:2]) is None
    scores = -0.5 * reference.distance(*inputs[:2], 0.02) ** 2
    scores = scores if meaning.added is None else scores + meaning.added
    scores = scores if meaning.allowed is None else scores.masked_fill(~meaning.allowed, -torch.inf)
    empty = (scores == -torch.inf).all(-1, keepdim=True)
    found = torch.softmax(scores.masked_fill(empty, 0), -1).masked_fill(empty, 0)
    wanted = [*inputs, *meaning.learned]
    output = found @ inputs[2]
    own = attend(*inputs, score=score, mask=meaning.mask)
    assert_near(own, output, 1e-9)
    for slope, right in zip(gradients(own, wanted), gradients(output, wanted), strict=True):
        assert_near(slope, right, 1e-8)


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("score", SOME_SCORES)
def test_train_and_eval_are_the_same(monkeypatch, score, engine, size):
    cut(monkeypatch, size)
    case = SCORES[score]
    module, inputs = case.build(), tensors(case, SHAPES["more-keys"], grad=True)
    mask = MASKS["lengths&causal"](SHAPES["more-keys"]).mask
    trained, evaluated = (ENGINES[engine](*inputs, score=module.train(mode), mask=mask) for mode in (True, False))
    assert torch.equal(trained, evaluated)


# ------------------------------------------------------------------------------------------------------------- shapes

# query, key and value in front of their last two dimensions, and the heads that the reference has to copy
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
}


@pytest.mark.parametrize(("score", "lead", "size"), in_turn(SOME_SCORES, LEADS, list(CUTS)))
def test_leading_dimensions_broadcast(monkeypatch, score, lead, size):
    cut(monkeypatch, size)
    case = SCORES[score]
    module = case.build()
    lasts = ((7, FEATURES), (11, case.key_size), (11, VALUE_SIZE))
    inputs = tuple(random(*front, *last, grad=True) for front, last in zip(LEADS[lead], lasts, strict=True))
    front = torch.broadcast_shapes(*LEADS[lead])
    rest = MASKS["causal-end"](Shape(1, 1, 7, 11))
    allowed = rest.allowed[0, 0]
    evidence = case.evidence(module, *inputs[:2])
    output, found = reference.attend(evidence, inputs[2], allowed)
    assert output.shape == (*front, 7, VALUE_SIZE)
    check(module, inputs, Meaning(rest.mask), output, found.expand(*front, 7, 11))


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
    case = SCORES[score]
    batch, heads, n, m, features, size = (missing if name in names else usual for name, usual in ORDINARY.items())
    module, meaning = case.build(), MASKS[mask](Shape(batch, heads, n, m))
    inputs = (
        random(batch, heads, n, features, grad=True),
        random(batch, heads, m, case.key_size if score == "additive" else features, grad=True),
        random(batch, heads, m, size, grad=True),
    )
    if score == "cosine" and not features:  # the reference divides by the lengths; vectors of no length have cosine 0
        evidence = torch.ones(batch, heads, n, m, dtype=torch.float64)
    else:
        evidence = case.evidence(module, *inputs[:2])
    check(module, inputs, meaning, *reference.attend(evidence, inputs[2], meaning.allowed, meaning.added))


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("score", SOME_SCORES)
def test_strides_do_not_matter(monkeypatch, score, size):
    """Transposed, sliced, reversed and expanded tensors."""
    cut(monkeypatch, size)
    case, shape = SCORES[score], SHAPES["more-keys"]
    module, meaning = case.build(), MASKS["lengths&causal"](shape)
    query = random(shape.n, FEATURES, shape.heads, shape.batch).permute(3, 2, 0, 1)
    key = random(shape.batch, 1, 3 * shape.m, case.key_size)[:, :, ::3].expand(-1, shape.heads, -1, -1)
    value = random(shape.batch, shape.heads, VALUE_SIZE, shape.m).transpose(-2, -1).flip(-2)
    output, found = expected(case, module, query, key, value, meaning)
    own, own_weights = attend(query, key, value, score=module, mask=meaning.mask, need_weights=True)
    assert_near(own, output, FORWARD)
    assert_near(own_weights, found, FORWARD)
    assert_near(attend(query, key, value, score=module, mask=meaning.mask), output, FORWARD)


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
    case, module = SCORES[score], SCORES[score].build()
    heads, key_heads, value_heads = GROUPS[group]
    inputs = (
        random(3, heads, 7, FEATURES, grad=True),
        random(3, key_heads, 11, case.key_size, grad=True),
        random(3, value_heads, 11, VALUE_SIZE, grad=True),
    )
    meaning = MASKS[mask](Shape(3, heads, 7, 11))
    evidence = case.evidence(module, inputs[0], reference.shared_heads(inputs[1], heads))
    value = reference.shared_heads(inputs[2], heads)
    output, found = reference.attend(evidence, value, meaning.allowed, meaning.added)
    check(module, inputs, meaning, output, found)

    some = weights(*inputs[:2], score=module, mask=meaning.mask, heads=[heads - 1, 1, 1], rows=[4, 0])
    assert_near(some, found[:, [heads - 1, 1, 1]][:, :, [4, 0]], FORWARD, "weights of some heads")


@pytest.mark.parametrize("lead", [(), (2,), (5, 2)])
def test_grouped_heads_in_any_number_of_dimensions(lead):
    query, key, value = random(*lead, 6, 7, 5), random(*lead, 3, 11, 5), random(*lead, 3, 11, 13)
    output, found = reference.attend(
        reference.evidence(reference.dot(query, reference.shared_heads(key, 6))), reference.shared_heads(value, 6)
    )
    own, own_weights = attend(query, key, value, need_weights=True)
    assert_near(own, output, FORWARD)
    assert_near(own_weights, found, FORWARD)
    assert_near(attend(query, key, value), output, FORWARD)


def test_lengths_of_grouped_heads_without_a_batch():
    """lengths speaks of the first dimension of the query, which here is that of the heads."""
    query, key, value = random(6, 7, 5), random(3, 11, 5), random(3, 11, 13)
    counts = torch.tensor([0, 11, 3, 5, 1, 7])
    allowed = reference.dense((6, 7, 11), lambda h, i, j: j < counts[h])
    evidence = reference.evidence(reference.dot(query, reference.shared_heads(key, 6)))
    output, _ = reference.attend(evidence, reference.shared_heads(value, 6), allowed)
    assert_near(attend(query, key, value, mask=lengths(counts)), output, FORWARD)


# ------------------------------------------------------------------------------------------------- weights on demand

ROWS = {"all": None, "some": [5, 1], "repeated": [2, 2, 6], "from the end": [-1, 0], "none": []}
ROWS["tensor"] = torch.tensor([3, 4])
HEADS = {"all": None, "one": [1], "turned": [1, 0], "none": [], "tensor": torch.tensor([-1])}


CHOICES = [*zip(ROWS, [*HEADS, "all"], strict=True), ("some", "all"), ("some", "turned"), ("all", "one")]


def chosen(found, rows, heads):
    found = found if heads is None else found[..., torch.as_tensor(heads, dtype=torch.long), :, :]
    return found if rows is None else found[..., torch.as_tensor(rows, dtype=torch.long), :]


@pytest.mark.parametrize(("score", "mask", "size"), in_turn(SOME_SCORES, MASKS, list(CUTS)))
def test_weights_of_some_rows_and_heads(monkeypatch, score, mask, size):
    cut(monkeypatch, size)
    case, shape = SCORES[score], SHAPES["more-keys"]
    module, meaning = case.build(), MASKS[mask](shape)
    query, key, value = tensors(case, shape)
    _, found = expected(case, module, query, key, value, meaning)
    for rows, heads in CHOICES:
        own = weights(query, key, score=module, mask=meaning.mask, rows=ROWS[rows], heads=HEADS[heads])
        assert_near(own, chosen(found.detach(), ROWS[rows], HEADS[heads]), FORWARD, f"rows {rows}, heads {heads}")


@pytest.mark.parametrize("front", [(), (2,), (3, 2), (5, 3, 2)])
def test_weights_of_some_rows_in_any_number_of_dimensions(front):
    query, key = random(*front, 7, 5), random(*front, 11, 5)
    found = weights(query, key, mask=causal(align="end"))
    assert_near(weights(query, key, mask=causal(align="end"), rows=[4, 2]), found[..., [4, 2], :], FORWARD)
    if front:
        some = weights(query, key, mask=causal(align="end"), heads=[1], rows=[3])
        assert_near(some, found[..., [1], :, :][..., [3], :], FORWARD)


def test_weights_have_gradients():
    shape = SHAPES["more-keys"]
    query, key, value = tensors(SCORES["dot"], shape, grad=True)
    meaning = MASKS["drop&window&learned"](shape)
    wanted = [query, key, *meaning.learned]
    _, found = expected(SCORES["dot"], SCORES["dot"].build(), query, key, value, meaning)
    own = weights(query, key, mask=meaning.mask)
    for slope, right in zip(gradients(own, wanted), gradients(found, wanted), strict=True):
        assert_near(slope, right, BACKWARD)


# ----------------------------------------------------------------------------------------------------- masked_softmax


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mask", MASKS)
def test_masked_softmax(mask, shape):
    shape = SHAPES[shape]
    meaning = MASKS[mask](shape)
    scores = random(*shape, grad=True)
    _, found = reference.attend(reference.evidence(scores), random(shape.m, 1), meaning.allowed, meaning.added)
    own = masked_softmax(scores, meaning.mask)
    assert_near(own, found, FORWARD)
    wanted = [scores, *meaning.learned]
    for slope, right in zip(gradients(own, wanted), gradients(found, wanted), strict=True):
        assert_near(slope, right, BACKWARD)


@pytest.mark.parametrize("front", [(), (1,), (0,), (3,), (3, 2), (5, 3, 2)])
@pytest.mark.parametrize(("n", "m"), [(7, 11), (1, 1), (0, 3), (3, 0), (0, 0)])
def test_masked_softmax_in_any_number_of_dimensions(front, n, m):
    scores = random(*front, n, m)
    allowed = reference.dense((n, m), lambda i, j: j <= i)
    _, found = reference.attend(reference.evidence(scores), random(m, 1), allowed)
    assert_near(masked_softmax(scores, causal(align="start")), found, FORWARD)
    assert_near(masked_softmax(scores), torch.softmax(scores, -1), FORWARD)


def test_masked_softmax_does_not_look_at_what_is_forbidden():
    scores = random(3, 7)
    allowed = torch.rand(3, 7) < 0.5
    allowed[1] = False
    for poison in (torch.nan, torch.inf, -torch.inf, 1e300):
        own = masked_softmax(scores.masked_fill(~allowed, poison), keep(allowed))
        assert torch.equal(own, masked_softmax(scores, keep(allowed)))
    assert (own[1] == 0).all()
    assert (own[~allowed] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtypes_stay(dtype):
    scores, query, key, value = (torch.randn(shape).to(dtype) for shape in ((3, 7), (3, 5), (7, 5), (7, 2)))
    assert masked_softmax(scores).dtype == dtype
    assert weights(query, key).dtype == dtype
    assert [each.dtype for each in attend(query, key, value, need_weights=True)] == [dtype, dtype]
    assert attend(query, key, value).dtype == dtype
