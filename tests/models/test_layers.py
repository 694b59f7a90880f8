"""Layers against PyTorch's own with the same weights, and against their formulas."""

import math

import pytest
import torch
from torch import nn

from regard import Attention, Block, FeedForward, MultiHead, attend, causal, keep, lengths, segments
from regard.models.block import ACTIVATIONS, GATED
from regard.models.decode_kernels import FEW, LARGE, SHARE, Linear, RMSNorm
from regard.models.mixers import Convolution, Recurrent
from regard.models.multihead import SCORES
from regard.models.packing import SequenceInfo
from regard.models.positions import LearnedPositions, alibi_slopes, apply_rotary, rotary_table, sinusoidal

BATCH, N, M = 3, 7, 11


def same(ours, theirs, atol=1e-5):
    torch.testing.assert_close(ours, theirs, atol=atol, rtol=1e-5)


# ---------------------------------------------------------------------------------------------------------- MultiHead


def copied(theirs: nn.MultiheadAttention, ours: MultiHead) -> None:
    with torch.no_grad():
        if theirs.in_proj_weight is not None:
            ours.in_proj[0].weight.copy_(theirs.in_proj_weight)
        else:
            weights = (theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight)
            for linear, weight in zip(ours.in_proj, weights, strict=True):
                linear.weight.copy_(weight)
        if theirs.in_proj_bias is not None:
            biases = theirs.in_proj_bias.split([linear.out_features for linear in ours.in_proj])
            for linear, bias in zip(ours.in_proj, biases, strict=True):
                linear.bias.copy_(bias.normal_())
            ours.out_proj.bias.copy_(theirs.out_proj.bias.normal_())
        ours.out_proj.weight.copy_(theirs.out_proj.weight)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("key_size", "value_size"), [(None, None), (5, 5), (5, 13)])
def test_multihead_is_pytorchs(bias, key_size, value_size):
    theirs = nn.MultiheadAttention(21, 3, bias=bias, kdim=key_size, vdim=value_size, batch_first=True)
    ours = MultiHead(21, 3, bias=bias, key_size=key_size, value_size=value_size)
    copied(theirs, ours)
    query, key = torch.randn(BATCH, N, 21), torch.randn(BATCH, M, key_size or 21)
    value = torch.randn(BATCH, M, value_size or 21)
    counts = torch.tensor([11, 1, 5])
    padding = torch.arange(M) >= counts[:, None]
    same(ours(query, key, value), theirs(query, key, value)[0])
    same(ours(query, key, value, mask=lengths(counts)), theirs(query, key, value, key_padding_mask=padding)[0])
    if key_size is None:
        same(ours(query, key), theirs(query, key, key)[0])
        same(ours(query), theirs(query, query, query)[0])
        ahead = torch.ones(N, N).triu(1).bool()
        same(ours(query, mask=causal()), theirs(query, query, query, attn_mask=ahead)[0])


@pytest.mark.parametrize("key_size", [None, 10])
def test_each_projection_starts_as_if_it_stood_alone(key_size):
    ours = MultiHead(24, 3, kv_heads=1, key_size=key_size)
    weights = [linear.weight for linear in ours.in_proj]
    for weight in weights if key_size else weights[0].split(ours.widths):
        bound = math.sqrt(6 / sum(weight.shape))  # Xavier's
        assert 0.9 * bound < weight.abs().max() <= bound
    assert not any(linear.bias.any() for linear in ours.in_proj)


def test_gradients_are_pytorchs():
    theirs, ours = nn.MultiheadAttention(21, 3, batch_first=True), MultiHead(21, 3)
    copied(theirs, ours)
    query, key = torch.randn(BATCH, N, 21), torch.randn(BATCH, M, 21)
    ours(query, key).square().sum().backward()
    theirs(query, key, key)[0].square().sum().backward()
    same(ours.in_proj[0].weight.grad, theirs.in_proj_weight.grad, 1e-4)
    same(ours.in_proj[0].bias.grad, theirs.in_proj_bias.grad, 1e-4)
    same(ours.out_proj.weight.grad, theirs.out_proj.weight.grad, 1e-4)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("hook", ["register_forward_pre_hook", "register_forward_hook", "register_full_backward_hook"])
def test_who_hooks_the_projection_is_called_and_changes_nothing(hook, bias):
    """With gradients the three products are taken one by one, unless somebody watches the one layer."""
    layer, rows, calls = MultiHead(15, 3, bias=bias), torch.randn(BATCH, N, 15, requires_grad=True), []
    inputs = (rows, *layer.parameters())
    plain = layer(rows)
    gradients = torch.autograd.grad(plain.square().sum(), inputs)
    getattr(layer.in_proj[0], hook)(lambda *arguments: calls.append(1))
    watched = layer(rows)
    same(watched, plain)
    for ours, theirs in zip(torch.autograd.grad(watched.square().sum(), inputs), gradients, strict=True):
        same(ours, theirs)
    assert calls == [1]
    with torch.no_grad():
        same(layer(rows), plain)


@pytest.mark.parametrize("kv_heads", [1, 2, 3])
def test_grouped_heads_are_heads_with_copies(kv_heads):
    grouped, full = MultiHead(24, 6, kv_heads=kv_heads, head_size=5), MultiHead(24, 6, head_size=5)
    query, *rest = grouped.in_proj[0].weight.split(grouped.widths)
    copies = [part.view(kv_heads, 5, 24).repeat_interleave(6 // kv_heads, 0).flatten(0, 1) for part in rest]
    with torch.no_grad():
        full.in_proj[0].weight.copy_(torch.cat([query, *copies]))
        full.out_proj.load_state_dict(grouped.out_proj.state_dict())
    rows = torch.randn(BATCH, N, 24)
    same(grouped(rows, mask=causal()), full(rows, mask=causal()))


@pytest.mark.parametrize("score", SCORES)
def test_any_score(score):
    layer = MultiHead(12, 3, score=score, bias=False)
    query, key = torch.randn(BATCH, N, 12), torch.randn(BATCH, M, 12)
    weights = layer.in_proj[0].weight.split(12)
    heads = [
        (rows @ weight.T).unflatten(-1, (3, 4)).transpose(1, 2)
        for rows, weight in zip((query, key, key), weights, strict=True)
    ]
    expected = attend(*heads, score=layer.score).transpose(1, 2).flatten(2)
    same(layer(query, key), layer.out_proj(expected))


@pytest.mark.parametrize("key_size", [12, 10])
def test_norms_of_queries_and_keys(key_size):
    layer = MultiHead(12, 3, kv_heads=1, key_size=key_size, qk_norm_epsilon=1e-3)
    plain = MultiHead(12, 3, kv_heads=1, key_size=key_size)
    plain.load_state_dict({name: tensor for name, tensor in layer.state_dict().items() if "norm" not in name})
    query, key = torch.randn(BATCH, N, 12), torch.randn(BATCH, M, key_size)
    with torch.no_grad():
        layer.query_norm.weight.normal_()
        layer.key_norm.weight.normal_()
    heads = [*plain._project(query, slice(0, 1)), *plain._project(key, slice(1, 3))]
    norms = (layer.query_norm, layer.key_norm)
    theirs = [
        nn.functional.rms_norm(part, (4,), norm.weight, 1e-3) for part, norm in zip(heads[:2], norms, strict=True)
    ]
    expected = attend(*theirs, heads[2]).transpose(1, 2).flatten(2)
    same(layer(query, key), layer.out_proj(expected))


def test_a_score_of_your_own():
    class Far(nn.Module):
        def forward(self, query, key):
            return (query.unsqueeze(-2) - key.unsqueeze(-3)).abs().sum(-1)

    assert MultiHead(12, 3, score=Far())(torch.randn(BATCH, N, 12)).shape == (BATCH, N, 12)


def test_the_single_attention_layer():
    """K = X W_k, V = X W_v; several queries at once are the same as one by one."""
    layer = Attention(5, 3, 13)
    source, query = torch.randn(M, 5), torch.randn(N, 3)
    scores = query @ (source @ layer.key.weight.T).T / math.sqrt(3)
    weights = scores.exp() / scores.exp().sum(-1, keepdim=True)
    same(layer(query, source), weights @ (source @ layer.value.weight.T))
    same(layer(query, source), torch.cat([layer(row[None], source) for row in query]))


# ---------------------------------------------------------------------------------------------------------- positions


@pytest.mark.parametrize("size", [1, 2, 7, 12])
def test_sinusoidal_is_the_papers_formula(size):
    waves = sinusoidal(torch.arange(19), size)
    for position in range(19):
        for entry in range(size):
            angle = position / 10_000 ** (2 * (entry // 2) / size)
            expected = math.cos(angle) if entry % 2 else math.sin(angle)
            assert abs(float(waves[position, entry]) - expected) < 1e-6


def test_halves_are_the_same_waves():
    waves, halves = sinusoidal(torch.arange(19), 7), sinusoidal(torch.arange(19), 7, halves=True)
    same(halves, torch.cat([waves[:, 0::2], waves[:, 1::2]], 1))


def test_rotary_scores_see_differences_only():
    query, key = torch.randn(1, 2, 1, 10), torch.randn(1, 2, 1, 10)

    def score(*positions):
        tables = [rotary_table(torch.tensor([[position]]), 10) for position in positions]
        return (apply_rotary(query, tables[0]) * apply_rotary(key, tables[1])).sum(-1)

    same(score(3, 8), score(103, 108), 1e-4)
    assert not torch.allclose(score(3, 8), score(3, 9))
    same(apply_rotary(query, rotary_table(torch.tensor([[0]]), 10)), query)


def test_alibi_slopes():
    same(alibi_slopes(8), torch.tensor([2.0**-power for power in range(1, 9)]))
    twelve = [2.0**-power for power in range(1, 9)] + [2 ** -(power + 0.5) for power in range(4)]
    same(alibi_slopes(12), torch.tensor(twelve))
    assert len(alibi_slopes(7)) == 7


def test_rotations_are_cached_where_they_can_be_used():
    with torch.device("meta"):
        rotary_table(torch.tensor([[77]], device="cpu"), 14)
    assert not rotary_table(torch.tensor([[77]]), 14).cosine.is_meta


def test_learned_positions_end():
    with pytest.raises(ValueError, match=r"at most 5 positions.*got 6"):
        LearnedPositions(5, 3)(torch.arange(6))


# --------------------------------------------------------------------------------------- feed-forward, norms, few rows


@pytest.mark.parametrize("activation", [*ACTIVATIONS, *GATED])
@pytest.mark.parametrize("bias", [True, False])
def test_feed_forward(activation, bias):
    layer, rows = FeedForward(12, 19, activation, bias=bias), torch.randn(BATCH, N, 12)
    inner = rows @ layer.in_proj.weight.T + (layer.in_proj.bias if bias else 0)
    if activation in GATED:
        plain = {"swiglu": "silu", "geglu": "gelu", "geglu_tanh": "gelu_tanh"}[activation]
        inner = ACTIVATIONS[plain](inner[..., :19]) * inner[..., 19:]
    else:
        inner = ACTIVATIONS[activation](inner)
    expected = inner @ layer.out_proj.weight.T + (layer.out_proj.bias if bias else 0)
    same(layer(rows), expected)


@pytest.mark.parametrize("count", [1, 2, 5, FEW, FEW + 1])
@pytest.mark.parametrize("bias", [True, False])
def test_few_rows_are_rows(count, bias):
    """Without a gradient, products of few rows take another path."""
    rows, linear = torch.randn(1, count, 37), Linear(37, 53, bias=bias)
    assert linear(rows).requires_grad
    with torch.no_grad():
        same(linear(rows), nn.functional.linear(rows, linear.weight, linear.bias))


@pytest.mark.parametrize("bias", [True, False])
def test_some_rows_and_a_large_matrix(bias):
    rows, linear = torch.randn(FEW + 3, 2, 521).transpose(0, 1), Linear(521, LARGE // 521 + 1, bias=bias)
    with torch.no_grad():
        same(linear(rows), nn.functional.linear(rows, linear.weight, linear.bias), 1e-4)


def test_threads_change_no_bit_of_few_rows_and_a_large_matrix():
    rows, linear = torch.randn(2, 1_021), Linear(1_021, 3 * SHARE // 1_021 + 1)
    outputs = []
    with torch.no_grad():
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            outputs.append(linear(rows))
        same(outputs[0], nn.functional.linear(rows, linear.weight, linear.bias), 1e-4)
    assert all(torch.equal(outputs[0], output) for output in outputs)


def test_few_rows_in_any_layout_and_under_any_default():
    layer, rows = Linear(3, 19), torch.randn(2, 3, 4).transpose(1, 2)
    with torch.no_grad():
        same(layer(rows), layer(rows.contiguous()))
        negative = torch.complex(rows, rows).conj().imag  # numbers that are negated when they are read
        same(layer(negative), layer(-rows))
        torch.set_default_dtype(torch.float64)
        try:
            assert layer(rows).dtype == torch.float32
        finally:
            torch.set_default_dtype(torch.float32)


def test_few_rows_keep_what_is_not_a_number():
    rows = torch.tensor([[math.nan, 1.0], [math.inf, 1.0]])
    with torch.no_grad():
        output = Linear(2, 3, bias=False)(rows)
    assert output[0].isnan().all()
    assert not output[1].isfinite().any()


@pytest.mark.parametrize("count", [1, FEW, FEW + 1])
@pytest.mark.parametrize("epsilon", [1e-5, 0.3, None])
def test_norm_of_few_rows(count, epsilon):
    norm, formula = RMSNorm(37, epsilon), nn.RMSNorm(37, epsilon)
    nn.init.normal_(norm.weight)
    formula.load_state_dict(norm.state_dict())
    rows = torch.randn(1, 37, count).transpose(1, 2) * torch.tensor([1e-4, 1.0, 1e20]).repeat(3)[:count, None]
    rows[..., -1] = math.nan if count == FEW else 1.0
    assert norm(rows).requires_grad
    with torch.no_grad():
        torch.testing.assert_close(norm(rows), formula(rows), equal_nan=True)


# --------------------------------------------------------------------------------------------------------------- Block

NAMES = {
    "self_attn.in_proj_weight": "mixer.in_proj.0.weight",
    "self_attn.in_proj_bias": "mixer.in_proj.0.bias",
    "self_attn.out_proj.weight": "mixer.out_proj.weight",
    "self_attn.out_proj.bias": "mixer.out_proj.bias",
    "multihead_attn.in_proj_weight": "cross.in_proj.0.weight",
    "multihead_attn.in_proj_bias": "cross.in_proj.0.bias",
    "multihead_attn.out_proj.weight": "cross.out_proj.weight",
    "multihead_attn.out_proj.bias": "cross.out_proj.bias",
    "linear1": "feed_forward.in_proj",
    "linear2": "feed_forward.out_proj",
}


def block_state(theirs: nn.Module, cross: bool) -> dict:
    norms = {
        "norm1": "mixer_norm",
        "norm2": "cross_norm" if cross else "feed_forward_norm",
        "norm3": "feed_forward_norm",
    }
    state = {}
    for name, tensor in theirs.state_dict().items():
        layer, _, kind = name.rpartition(".")
        state[NAMES.get(name) or f"{(NAMES | norms)[layer]}.{kind}"] = tensor
    return state


@pytest.mark.parametrize("pre_norm", [True, False])
def test_block_is_pytorchs_encoder_layer(pre_norm):
    theirs = nn.TransformerEncoderLayer(12, 3, 19, 0.0, "gelu", batch_first=True, norm_first=pre_norm)
    ours = Block(MultiHead(12, 3), FeedForward(12, 19), pre_norm=pre_norm)
    ours.load_state_dict(block_state(theirs, cross=False))
    rows = torch.randn(BATCH, N, 12)
    same(ours(rows), theirs(rows))
    visible = torch.rand(BATCH, 1, 1, N) < 0.7
    visible[..., 0] = True
    same(ours(rows, SequenceInfo(keep(visible))), theirs(rows, src_key_padding_mask=~visible[:, 0, 0]))


@pytest.mark.parametrize("pre_norm", [True, False])
def test_block_is_pytorchs_decoder_layer(pre_norm):
    theirs = nn.TransformerDecoderLayer(12, 3, 19, 0.0, "relu", batch_first=True, norm_first=pre_norm)
    ours = Block(MultiHead(12, 3), FeedForward(12, 19, "relu"), cross=MultiHead(12, 3), pre_norm=pre_norm)
    ours.load_state_dict(block_state(theirs, cross=True))
    rows, memory = torch.randn(BATCH, N, 12), torch.randn(BATCH, M, 12)
    counts = torch.tensor([11, 1, 5])
    padding = torch.arange(M) >= counts[:, None]
    ahead = torch.ones(N, N).triu(1).bool()
    expected = theirs(rows, memory, tgt_mask=ahead, memory_key_padding_mask=padding)
    same(ours(rows, SequenceInfo(causal()), ours.cross.project_kv(memory), lengths(counts)), expected)


@pytest.mark.parametrize("pre_norm", [True, False])
def test_output_norms(pre_norm):
    block = Block(MultiHead(12, 3), FeedForward(12, 19), cross=MultiHead(12, 3), pre_norm=pre_norm, output_norms=True)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    rows, memory = torch.randn(BATCH, N, 12), torch.randn(BATCH, M, 12)
    before = expected = rows
    for name, part in (("mixer", block.mixer), ("cross", None), ("feed_forward", block.feed_forward)):
        norm, output_norm = getattr(block, f"{name}_norm"), getattr(block, f"{name}_output_norm")
        before = norm(expected) if pre_norm else expected
        change = block.cross(before, memory) if part is None else part(before)
        expected = expected + output_norm(change)
        expected = expected if pre_norm else norm(expected)
    same(block(rows, None, block.cross.project_kv(memory)), expected)


# -------------------------------------------------------------------------------------------------------------- mixers


@pytest.mark.parametrize("causal_", [True, False])
@pytest.mark.parametrize("make", [Recurrent, Convolution, lambda size, causal: MultiHead(size, 2)])
def test_three_ways_of_one_shape(make, causal_):
    """Rows end to end are the rows of each sequence alone."""
    mixer = make(12, causal=causal_)
    block = Block(mixer, FeedForward(12, 19))
    counts = (5, 1, 7)
    rows = torch.randn(1, sum(counts), 12)
    mask = segments(counts) & causal() if causal_ else segments(counts)
    together = block(rows, SequenceInfo(mask, lengths=counts))
    alone = [block(part, SequenceInfo(causal() if causal_ else None)) for part in rows.split(list(counts), 1)]
    same(together, torch.cat(alone, 1))


def test_recurrent_is_a_gru_and_convolution_a_convolution():
    rows = torch.randn(BATCH, N, 12)
    recurrent = Recurrent(12, causal=True)
    same(recurrent.mix(rows, SequenceInfo(), None)[0], recurrent.net(rows)[0])
    convolution = Convolution(12, causal=True, width=3)
    expected = [
        sum(convolution.net.weight[..., 2 - back] @ rows[0, row - back] for back in range(3) if row >= back)
        + convolution.net.bias
        for row in range(N)
    ]
    same(convolution.mix(rows, SequenceInfo(), None)[0][0], torch.stack(expected))
