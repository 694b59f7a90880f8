"""Average and max pooling: what attention is measured against, under every mask."""

import pytest
import torch

from regard.attention import average_pool, bias, causal, drop, keep, lengths, max_pool, window
from tests.attention.cases import assert_near, gradients

BATCH, HEADS, M, SIZE = 3, 2, 7, 5
ALLOWED = torch.rand(BATCH, HEADS, 1, M, generator=torch.Generator().manual_seed(2)) < 0.5
ALLOWED[1, 0] = False

# Pooling asks one question, so n = 1. Each mask with the keys that it lets through.
MASKS = {
    "none": (None, lambda b, h, j: True),
    "lengths": (lengths([0, 7, 3]), lambda b, h, j: j < [0, 7, 3][b]),
    "lengths by row": (lengths([[0], [7], [3]]), lambda b, h, j: j < [0, 7, 3][b]),
    "keep": (keep(ALLOWED), lambda b, h, j: ALLOWED[b, h, 0, j]),
    "drop": (drop(ALLOWED), lambda b, h, j: not ALLOWED[b, h, 0, j]),
    "keep nothing": (keep(torch.zeros(1, 1, dtype=torch.bool)), lambda b, h, j: False),
    "causal": (causal(offset=4), lambda b, h, j: j <= 4),
    "window": (window(2, 1, align="end"), lambda b, h, j: j >= 4),
    "both": (lengths([0, 7, 3]) & drop(ALLOWED), lambda b, h, j: j < [0, 7, 3][b] and not ALLOWED[b, h, 0, j]),
    "either": (lengths([0, 7, 3]) | keep(ALLOWED), lambda b, h, j: j < [0, 7, 3][b] or ALLOWED[b, h, 0, j]),
}


def plain(value, predicate, pool):
    """Sequence by sequence and head by head; 0 where nothing may be seen."""
    rows = []
    for b in range(BATCH):
        for h in range(HEADS):
            own = [value[b, h, j] for j in range(M) if predicate(b, h, j)]
            rows.append(pool(torch.stack(own)) if own else value[b, h, 0] * 0)
    return torch.stack(rows).reshape(BATCH, HEADS, 1, SIZE)


POOLS = {"average": (average_pool, lambda own: own.sum(0) / len(own)), "max": (max_pool, lambda own: own.max(0).values)}


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("mask", MASKS)
def test_pooling_respects_masks(pool, mask):
    value = torch.randn(BATCH, HEADS, M, SIZE, dtype=torch.float64, requires_grad=True)
    (own_pool, plain_pool), (mask, predicate) = POOLS[pool], MASKS[mask]
    own, wanted = own_pool(value, mask), plain(value, predicate, plain_pool)
    assert own.shape == (BATCH, HEADS, 1, SIZE)
    assert_near(own, wanted, 1e-12)
    for slope, right in zip(gradients(own, [value]), gradients(wanted, [value]), strict=True):
        assert_near(slope, right, 1e-12)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("mask", [name for name in MASKS if name != "none"])
@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf, 1e30])
def test_what_is_hidden_does_not_matter(pool, mask, poison):
    (own_pool, _), (mask, predicate) = POOLS[pool], MASKS[mask]
    value = torch.randn(BATCH, HEADS, M, SIZE)
    hidden = torch.tensor([[[not predicate(b, h, j) for j in range(M)] for h in range(HEADS)] for b in range(BATCH)])
    clean = value.clone().requires_grad_()
    spoilt = value.masked_fill(hidden[..., None], poison).requires_grad_()
    own, wanted = own_pool(spoilt, mask), own_pool(clean, mask)
    assert torch.equal(own, wanted)
    assert torch.equal(*(gradients(out, [start])[0] for out, start in ((own, spoilt), (wanted, clean))))


@pytest.mark.parametrize("pool", POOLS)
def test_what_may_be_seen_is_not_hidden(pool):
    value = torch.randn(M, SIZE)
    value[2, 3] = torch.nan
    own = POOLS[pool][0](value)
    assert own.isnan().tolist() == [[False, False, False, True, False]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("pool", POOLS)
def test_dtypes_stay(pool, dtype):
    value = torch.randn(M, SIZE).to(dtype)
    own = POOLS[pool][0](value, keep(torch.arange(M)[None] > 2))
    wanted = POOLS[pool][1](value[3:].double())[None]
    assert own.dtype == dtype
    assert_near(own, wanted, torch.finfo(dtype).eps)


def test_averages_are_summed_in_float32():
    """4,099 ones: a sum in bfloat16 stops at 256, one in float16 at 2,048."""
    for dtype in (torch.float16, torch.bfloat16):
        assert_near(average_pool(torch.ones(4099, 1, dtype=dtype)), torch.ones(1, 1), 1e-2)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("shape", [(7, 5), (3, 7, 5), (2, 3, 5, 7, 11), (0, 7, 5), (3, 0, 5), (7, 0), (1, 1)])
def test_any_number_of_dimensions(pool, shape):
    value = torch.randn(shape)
    own = POOLS[pool][0](value)
    assert own.shape == (*shape[:-2], 1, shape[-1])
    if shape[-2]:
        right = value.mean(-2, keepdim=True) if pool == "average" else value.amax(-2, keepdim=True)
        assert_near(own, right, 1e-6)
    else:
        assert (own == 0).all()


def test_average_pooling_is_attention_with_equal_scores_so_a_bias_weighs():
    value, added = torch.randn(M, SIZE, dtype=torch.float64), torch.randn(1, M, dtype=torch.float64)
    assert_near(average_pool(value, bias(added)), torch.softmax(added, -1) @ value, 1e-12)


def test_a_largest_value_of_minus_infinity_stays():
    assert max_pool(torch.tensor([[-torch.inf], [-torch.inf]])).item() == -torch.inf
