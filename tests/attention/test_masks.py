"""Masks: what they mean, how they join, what they are allowed to be."""

import copy
import pickle

import numpy
import pytest
import torch

import regard
from regard.attention import Dot, Mask, attend, bias, causal, drop, keep, lengths, masked_softmax, weights, window
from tests.attention import reference
from tests.attention.cases import assert_near
from tests.attention.meanings import MASKS, Shape


def visible(mask, shape):
    """Which pairs a mask lets through, read off the weights of equal scores."""
    return masked_softmax(torch.zeros(shape, dtype=torch.float64), mask) > 0


def random(*shape):
    return torch.randn(shape, dtype=torch.float64)


# A mask over (batch, heads, n, m) = (3, 2, 5, 7), and the pairs that it has to allow.
SHAPE = Shape(3, 2, 5, 7)
ROW_LENGTHS = torch.randint(0, 8, (3, 5), generator=torch.Generator().manual_seed(1))
MEANINGS = {
    "causal, end": (causal(align="end"), lambda b, h, i, j: j <= i + 2),
    "causal, start": (causal(align="start"), lambda b, h, i, j: j <= i),
    "causal, offset 0": (causal(0), lambda b, h, i, j: j <= i),
    "causal, offset 4": (causal(offset=4), lambda b, h, i, j: j <= i + 4),
    "causal, offset -3": (causal(offset=-3), lambda b, h, i, j: j <= i - 3),
    "causal, far ahead": (causal(offset=10**30), lambda b, h, i, j: True),
    "causal, far behind": (causal(offset=-(10**30)), lambda b, h, i, j: False),
    "window": (window(1, 2, offset=1), lambda b, h, i, j: i + 1 - 1 <= j <= i + 1 + 2),
    "window, end": (window(1, 0, align="end"), lambda b, h, i, j: i + 2 - 1 <= j <= i + 2),
    "window, all behind": (window(None, 0, align="start"), lambda b, h, i, j: j <= i),
    "window, all ahead": (window(0, None, align="start"), lambda b, h, i, j: j >= i),
    "window, no limits": (window(None, None, align="start"), lambda b, h, i, j: True),
    "window, wide": (window(10**30, 10**30, offset=3), lambda b, h, i, j: True),
    "window, far ahead": (window(2, 2, offset=10**30), lambda b, h, i, j: False),
    "window, far behind": (window(2, 2, offset=-(10**30)), lambda b, h, i, j: False),
    "window, wide and far": (window(10**30, 1, offset=10**30), lambda b, h, i, j: j >= i),
    "lengths": (lengths([7, 0, 3]), lambda b, h, i, j: j < [7, 0, 3][b]),
    "lengths by row": (lengths(ROW_LENGTHS), lambda b, h, i, j: j < ROW_LENGTHS[b, i]),
    "keep all": (keep(torch.tensor([[True]])), lambda b, h, i, j: True),
    "drop all": (drop(torch.tensor([[True]])), lambda b, h, i, j: False),
    "keep keys": (keep(torch.arange(7)[None] % 2 == 0), lambda b, h, i, j: j % 2 == 0),
    "drop rows": (drop(torch.arange(5)[:, None] == 2), lambda b, h, i, j: i != 2),
    "keep heads": (keep(torch.tensor([True, False])[:, None, None]), lambda b, h, i, j: h == 0),
    "keep a sequence": (keep(torch.tensor([0, 1, 1]).bool()[:, None, None, None]), lambda b, h, i, j: b > 0),
    "bias": (bias(torch.zeros(1, 7).index_fill_(1, torch.tensor([3]), -torch.inf)), lambda b, h, i, j: j != 3),
}


@pytest.mark.parametrize("name", MEANINGS)
def test_meaning_pair_by_pair(name):
    mask, predicate = MEANINGS[name]
    allowed = reference.dense(SHAPE, predicate)
    assert torch.equal(visible(mask, SHAPE), allowed)
    query, key, value = random(3, 2, 5, 4), random(3, 2, 7, 4), random(3, 2, 7, 3)
    output, expected_weights = reference.attend(reference.scores(Dot(), query, key), value, allowed)
    assert_near(attend(query, key, value, mask=mask), output, 1e-12)
    assert_near(weights(query, key, mask=mask), expected_weights, 1e-12)


DENSE = {name: reference.dense(SHAPE, predicate) for name, (_, predicate) in MEANINGS.items()}


@pytest.mark.parametrize("first", MEANINGS)
def test_joins(first):
    mask = MEANINGS[first][0]
    for second, (other, _) in MEANINGS.items():
        assert torch.equal(visible(mask & other, SHAPE), DENSE[first] & DENSE[second]), f"& {second}"
        if "bias" not in (first, second):
            assert torch.equal(visible(mask | other, SHAPE), DENSE[first] | DENSE[second]), f"| {second}"


@pytest.mark.parametrize("name", [name for name in MEANINGS if name != "bias"])
def test_opposites(name):
    mask = MEANINGS[name][0]
    assert torch.equal(visible(~mask, SHAPE), ~DENSE[name])
    assert torch.equal(visible(~~mask, SHAPE), DENSE[name])
    assert not visible(mask & ~mask, SHAPE).any()
    assert visible(mask | ~mask, SHAPE).all()
    other, dense = MEANINGS["lengths by row"][0], DENSE["lengths by row"]
    assert torch.equal(visible(~(mask | other), SHAPE), ~(DENSE[name] | dense))
    assert torch.equal(visible(~(mask & other), SHAPE), ~(DENSE[name] & dense))


def test_joins_of_joins():
    names = ("lengths", "causal, end", "window, all ahead", "keep keys")
    (a, b, c, d), (A, B, C, D) = (MEANINGS[name][0] for name in names), (DENSE[name] for name in names)
    assert torch.equal(visible((a | b) & (c | d) & b, SHAPE), (A | B) & (C | D) & B)
    assert torch.equal(visible((a & b) | (c & d) | (b & (c | a)), SHAPE), (A & B) | (C & D) | (B & (C | A)))


def test_biases_add_up():
    scores, first, second = random(3, 2, 5, 7), random(5, 7), random(2, 1, 7)
    wanted = torch.softmax(scores + first + second, -1)
    assert_near(masked_softmax(scores, bias(first) & bias(second)), wanted, 1e-12)
    assert_near(masked_softmax(scores, bias(first) & causal(10) & bias(second)), wanted, 1e-12)


@pytest.mark.parametrize(
    ("dtype", "first", "second"),
    [(torch.bfloat16, [100.0, 100.0], [0.2, 0.0]), (torch.float16, [40_000.0, 39_968.0], [40_000.0, 40_032.0])],
)
@pytest.mark.parametrize("half", [True, False])
def test_half_precision_biases_add_up_in_full(dtype, first, second, half):
    """Where half precision would lose the digits that differ, or overflow."""
    added = [torch.tensor([numbers], dtype=dtype) for numbers in (first, second)]
    query, key, value = (torch.zeros(rows, 4, dtype=dtype if half else torch.float32) for rows in (1, 2, 2))
    value[0], mask = 1.0, bias(added[0]) & bias(added[1])
    wanted = torch.softmax(added[0].double() + added[1].double(), -1)
    assert_near(weights(query, key, mask=mask), wanted, 4e-3)
    for need_weights in (False, True):
        output = attend(query, key, value, mask=mask, need_weights=need_weights)
        assert_near((output[0] if need_weights else output)[:, :1], wanted[:, :1], 4e-3)


@pytest.mark.parametrize("bias_dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("need_weights", [False, True])
def test_a_bias_may_have_another_dtype(bias_dtype, dtype, need_weights):
    query, key, value, added = (torch.randn(shape) for shape in ((5, 4), (7, 4), (7, 3), (5, 7)))
    added = added.to(bias_dtype)
    query, key, value = (tensor.to(dtype) for tensor in (query, key, value))
    scores = reference.scores(Dot(), query.double(), key.double())
    wanted, _ = reference.attend(scores, value.double(), added=added.double())
    got = attend(query, key, value, mask=bias(added), need_weights=need_weights)
    got = got[0] if need_weights else got
    assert got.dtype == dtype
    assert_near(got, wanted, 3 * torch.finfo(dtype).eps if dtype != torch.float64 else 1e-12)


@pytest.mark.parametrize(
    "counts",
    [
        [2, 0, 7],
        (2, 0, 7),
        numpy.array([2, 0, 7]),
        *(torch.tensor([2, 0, 7], dtype=dtype) for dtype in (torch.uint8, torch.int16, torch.int32, torch.int64)),
    ],
    ids=lambda counts: str(getattr(counts, "dtype", type(counts).__name__)),
)
def test_lengths_are_whole_numbers_of_any_kind(counts):
    assert torch.equal(visible(lengths(counts), SHAPE), visible(lengths([2, 0, 7]), SHAPE))


def test_no_lengths_for_no_sequences():
    assert visible(lengths([]), Shape(0, 2, 5, 7)).shape == (0, 2, 5, 7)


@pytest.mark.parametrize("front", [(3,), (3, 2), (3, 2, 5)])
def test_lengths_speak_of_the_first_dimension(front):
    counts = torch.tensor([4, 0, 7])
    allowed = reference.dense((*front, 11, 7), lambda b, *rest: rest[-1] < counts[b])
    assert torch.equal(visible(lengths(counts), (*front, 11, 7)), allowed)
    by_row = torch.arange(33).reshape(3, 11) % 8
    allowed = reference.dense((*front, 11, 7), lambda b, *rest: rest[-1] < by_row[b, rest[-2]])
    assert torch.equal(visible(lengths(by_row), (*front, 11, 7)), allowed)


def test_one_mask_serves_many_shapes():
    """A mask is a predicate until it meets a problem."""
    mask = causal(align="end") & window(3, None, align="end")
    for n, m in ((5, 7), (7, 5), (1, 3), (0, 0), (11, 11)):
        allowed = reference.dense((n, m), lambda i, j, d=m - n: i + d - 3 <= j <= i + d)
        assert torch.equal(visible(mask, (n, m)), allowed)


def test_masks_are_not_changed_by_use():
    counts, allowed, added = torch.tensor([2, 0, 7]), torch.rand(5, 7) < 0.5, torch.randn(5, 7)
    before = [tensor.clone() for tensor in (counts, allowed, added)]
    mask = lengths(counts) & keep(allowed) & bias(added)
    attend(random(3, 5, 4), random(3, 7, 4), random(3, 7, 4), mask=mask)
    assert all(torch.equal(*pair) for pair in zip(before, (counts, allowed, added), strict=True))


def test_no_offset_is_needed_where_there_are_as_many_queries_as_keys():
    assert torch.equal(visible(causal(), (7, 7)), torch.ones(7, 7).tril() > 0)
    assert torch.equal(visible(window(0, 0), (7, 7)), torch.eye(7) > 0)


KINDS = ("alibi", "bias", "causal", "drop", "keep", "lengths", "relative", "segments", "visible", "window")


@pytest.mark.parametrize("name", [name for name in MASKS if name != "none"])
def test_masks_show_themselves_and_can_be_copied(name):
    mask = MASKS[name](SHAPE).mask
    assert isinstance(mask, Mask)
    text = repr(mask)
    assert "object at 0x" not in text
    assert any(word in text for word in KINDS)
    for twin in (pickle.loads(pickle.dumps(mask)), copy.deepcopy(mask)):
        assert torch.equal(visible(twin, SHAPE), visible(mask, SHAPE))


def test_repr():
    assert repr(lengths([1, 2]) & causal(align="end")) == "lengths((2,)) & causal(offset=None, align='end')"
    assert repr(~keep(torch.ones(2, 3) > 0)) == "drop((2, 3))"
    assert repr(~(causal(1) & lengths([1])) | ~causal(2)) == (
        "(~(causal(offset=1, align=None) & lengths((1,))) | ~causal(offset=2, align=None))"
    )
    assert repr(keep(torch.ones(2, 3) > 0) | window(1, 2, 0)) == "(keep((2, 3)) | window(1, 2, offset=0, align=None))"


@pytest.mark.parametrize("score", [None, regard.Dot(softcap=30.0), regard.Cosine()])
def test_an_empty_batch_may_share_keys_and_values_that_are_hidden(score):
    query, key, value = torch.randn(0, 1, 5), torch.randn(7, 5), torch.randn(7, 3)
    mask = regard.segments([1, 0], [5, 2])
    output, shares = attend(query, key, value, score=score, mask=mask, need_weights=True)
    assert output.shape == (0, 1, 3)
    assert shares.shape == (0, 1, 7)
