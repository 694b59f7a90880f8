"""Biases that depend on distance: against PyTorch and transformers, and what they cost."""

import pytest
import torch
from transformers.models.t5.configuration_t5 import T5Config
from transformers.models.t5.modeling_t5 import T5Attention

from regard import alibi, attend, bias, causal, relative, t5_buckets, weights
from regard.attention.layout import Tile, check_layout
from tests.attention.cases import assert_near


def random(*shape, grad=False):
    return torch.randn(shape, dtype=torch.float64, requires_grad=grad)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "distance"), [(32, 128), (16, 20), (5, 7), (64, 1000), (4, 3)])
def test_buckets_are_those_of_t5(buckets, distance, bidirectional):
    steps = torch.arange(-2100, 2100)
    theirs = T5Attention._relative_position_bucket(steps, bidirectional, buckets, distance)
    assert torch.equal(t5_buckets(buckets, distance, bidirectional)(steps), theirs)


@pytest.mark.parametrize("is_decoder", [True, False])
def test_the_bias_is_that_of_t5(is_decoder):
    layer = T5Attention(T5Config(num_heads=3, is_decoder=is_decoder), has_relative_attention_bias=True, layer_idx=0)
    table = layer.relative_attention_bias.weight
    mask = relative(table, t5_buckets(bidirectional=not is_decoder), align="start")
    layout = check_layout(torch.zeros(2, 3, 41, 5), torch.zeros(2, 3, 53, 5))
    ours, theirs = mask.bind(layout).bias(Tile.whole(2, 41, 53)), layer.compute_bias(41, 53)
    assert torch.equal(ours, theirs.expand_as(ours))
    upstream = torch.randn(1, 3, 41, 53)
    slopes = [
        torch.autograd.grad(added, table, upstream.expand_as(added))[0] for added in (ours, theirs.expand_as(ours))
    ]
    assert_near(*slopes, 1e-6)


@pytest.mark.parametrize(
    ("front", "key_front"),
    [((), ()), ((3,), (3,)), ((2, 3), (2, 3)), ((2, 6), (2, 2)), ((5, 2, 3), (2, 3)), ((6,), (2,))],
)
@pytest.mark.parametrize("one", [True, False])
def test_heads_are_dimension_3_from_the_end(front, key_front, one):
    """Grouped heads, more leading dimensions or none; one slope for all heads, or one each."""
    heads = front[-1] if front else 1
    slopes = random(1 if one else heads, grad=True)
    query, key, value = random(*front, 5, 4), random(*key_front, 7, 4), random(*key_front, 7, 3)
    steps = torch.arange(7) - torch.arange(5)[:, None] - 1
    added = -slopes[:, None, None] * steps.abs()
    for mask in (alibi(slopes, 1), relative(-slopes[None] * torch.arange(9.0)[:, None], torch.abs, 1)):
        ours = attend(query, key, value, mask=mask & causal(3))
        wanted = attend(query, key, value, mask=bias(added if front else added[0]) & causal(3))
        assert_near(ours, wanted, 1e-12)
        assert_near(
            *(torch.autograd.grad(output.sum(), slopes, retain_graph=True)[0] for output in (ours, wanted)), 1e-11
        )


@pytest.mark.parametrize("slopes", [0.5, [0.5, 0.5], torch.tensor(0.5), torch.tensor([0.5, 0.5]), 1, [1, 1]])
def test_slopes_are_a_number_or_one_per_head(slopes):
    query, key = random(3, 2, 5, 4), random(3, 2, 7, 4)
    added = -float(torch.as_tensor(slopes).flatten()[0]) * (torch.arange(7) - torch.arange(5)[:, None] - 2).abs()
    assert_near(
        weights(query, key, mask=alibi(slopes, align="end")), weights(query, key, mask=bias(added.double())), 1e-7
    )


def test_of_some_rows_and_heads():
    query, key = random(3, 4, 5, 4), random(3, 2, 7, 4)
    mask = relative(random(11, 4), lambda steps: steps + 4, align="start") & alibi(random(4), 0)
    full = weights(query, key, mask=mask)
    assert_near(weights(query, key, mask=mask, rows=[4, 0], heads=[3, 1]), full[:, [3, 1]][:, :, [4, 0]], 1e-12)
    assert_near(weights(query, key, mask=mask, heads=[2]), full[:, [2]], 1e-12)


def test_nothing_as_large_as_the_scores_is_kept():
    layout = check_layout(torch.zeros(2, 3, 4001, 1), torch.zeros(2, 3, 5003, 1))
    for mask in (alibi([0.1, 0.2, 0.3], 0), relative(torch.zeros(32, 3), t5_buckets(), 0)):
        (vector,) = mask.bind(layout).tensors
        assert vector.untyped_storage().nbytes() <= 3 * 4 * (4001 + 5003)


def test_half_precision_slopes_are_multiplied_in_full():
    """In bfloat16, 0.3 · 1000 would be off by one."""
    layout = check_layout(torch.zeros(1, 2, 1, 1), torch.zeros(1, 2, 1001, 1))
    slopes = torch.tensor([0.3, 0.7], dtype=torch.bfloat16)
    added = alibi(slopes, offset=0).bind(layout).bias(Tile.whole(1, 1, 1001))
    assert torch.equal(added[0, :, 0, -1], -slopes.float() * 1000)


@pytest.mark.parametrize(("n", "m"), [(131, 3), (257, 101), (3, 131)])
def test_many_rows_and_few_keys(n, m):
    """Computed a square at a time: the same numbers and gradients,."""
    table, query, key = random(7, 2, grad=True), random(2, n, 5), random(2, m, 5)

    def bucket(steps):
        return (steps + 3).clamp(0, 6)

    found = weights(query, key, mask=relative(table, bucket, offset=0))
    steps = torch.arange(m) - torch.arange(n)[:, None]
    expected = torch.softmax(query @ key.mT / 5**0.5 + table[bucket(steps)].movedim(-1, 0), -1)
    assert_near(found, expected, 1e-12)
    slopes = (torch.autograd.grad(rows.square().sum(), table)[0] for rows in (found, expected))
    assert_near(*slopes, 1e-12)
