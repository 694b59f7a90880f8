"""Average and max pooling: what attention is measured against, under every mask."""

import pytest
import torch

from regard.attention import average_pool, bias, keep, lengths, max_pool
from tests.attention.cases import assert_near, gradients
from tests.attention.meanings import MASKS, Shape

SHAPE, SIZE = Shape(3, 2, 1, 7), 5  # pooling has one query
BOOLEAN = [name for name in MASKS if MASKS[name](SHAPE).added is None]
POOLS = {"average": (average_pool, lambda rows: rows.sum(0) / len(rows)), "max": (max_pool, lambda rows: rows.amax(0))}


def plain(value, hidden, pool):
    """Sequence by sequence and head by head; 0 where nothing may be seen."""
    rows = [
        pool(one[~hides]) if not hides.all() else one[0] * 0
        for one, hides in zip(value.flatten(0, 1), hidden.flatten(0, 1), strict=True)
    ]
    return torch.stack(rows).reshape(*SHAPE[:3], SIZE)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("name", BOOLEAN)
def test_pooling_respects_masks(pool, name):
    """And whatever stands in values that are hidden, output and gradients are the same bits."""
    (our_pool, plain_pool), meaning = POOLS[pool], MASKS[name](SHAPE)
    hidden = meaning.hides(SHAPE)[:, :, 0]  # (batch, heads, m)
    value = torch.randn(3, 2, 7, SIZE, dtype=torch.float64)
    clean = value.clone().requires_grad_()
    result, wanted = our_pool(clean, meaning.mask), plain(clean, hidden, plain_pool)
    assert_near(result, wanted, 1e-12)
    (slope,), (right,) = gradients(result, [clean]), gradients(wanted, [clean])
    assert_near(slope, right, 1e-12)
    for poison in (torch.nan, torch.inf, -torch.inf, 1e30):
        spoilt = value.masked_fill(hidden[..., None], poison).requires_grad_()
        output = our_pool(spoilt, meaning.mask)
        assert torch.equal(output, result)
        assert torch.equal(gradients(output, [spoilt])[0], slope)


@pytest.mark.parametrize("pool", POOLS)
def test_what_may_be_seen_is_not_hidden(pool):
    value = torch.randn(7, SIZE)
    value[2, 3] = torch.nan
    assert POOLS[pool][0](value).isnan().tolist() == [[False, False, False, True, False]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("pool", POOLS)
def test_dtypes_stay(pool, dtype):
    value = torch.randn(7, SIZE).to(dtype)
    result = POOLS[pool][0](value, keep(torch.arange(7)[None] > 2))
    assert result.dtype == dtype
    assert_near(result, POOLS[pool][1](value[3:].double())[None], torch.finfo(dtype).eps)


def test_averages_are_summed_in_float32():
    """4,099 ones: a sum in bfloat16 stops at 256, one in float16 at 2,048."""
    for dtype in (torch.float16, torch.bfloat16):
        assert_near(average_pool(torch.ones(4099, 1, dtype=dtype)), torch.ones(1, 1), 1e-2)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("shape", [(7, 5), (3, 7, 5), (2, 3, 5, 7, 11), (0, 7, 5), (3, 0, 5), (7, 0), (1, 1)])
def test_any_number_of_dimensions(pool, shape):
    value = torch.randn(shape)
    result = POOLS[pool][0](value)
    assert result.shape == (*shape[:-2], 1, shape[-1])
    if shape[-2]:
        right = value.mean(-2, keepdim=True) if pool == "average" else value.amax(-2, keepdim=True)
        assert_near(result, right, 1e-6)
    else:
        assert (result == 0).all()


def test_average_pooling_is_attention_with_equal_scores_so_a_bias_weighs():
    value, added = torch.randn(7, SIZE, dtype=torch.float64), torch.randn(1, 7, dtype=torch.float64)
    assert_near(average_pool(value, bias(added)), torch.softmax(added, -1) @ value, 1e-12)


def test_a_largest_value_of_minus_infinity_stays():
    assert max_pool(torch.tensor([[-torch.inf], [-torch.inf]])).item() == -torch.inf


def test_the_largest_can_be_traced():
    torch.compiler.reset()
    value = torch.randn(3, 7, 5)
    for mask in (None, lengths([1, 0, 7])):
        compiled = torch.compile(max_pool, fullgraph=True, dynamic=True, backend="eager")(value, mask)
        assert torch.equal(compiled, max_pool(value, mask))
        assert max_pool(value.to("meta"), mask).shape == (3, 1, 5)
    assert torch.equal(torch.vmap(max_pool)(value), max_pool(value))
