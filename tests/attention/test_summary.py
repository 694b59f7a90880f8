"""Summaries are those of the weights, for every score, mask and normaliser; nothing as large as the weights is made."""

import itertools
import math
from dataclasses import fields

import pytest
import torch
from torch import nn

from regard import Dot, Kernel, Separable, Softmax, causal, keep, lengths, segments, summarize, weights, window
from regard.attention import Summary, numbers, tiling
from tests.attention.cases import (
    CUTS,
    NORMALIZERS,
    SCORES,
    SHAPES,
    campaign,
    cut,
    draw_case,
    in_turn,
    table_case,
)
from tests.attention.meanings import MASKS, Draw, Shape
from tests.attention.test_memory import Allocations, callers

NEVER = -math.inf
OFTEN = ["dot", "kernel-gaussian-learnable"]  # these have ways of their own to the scores of a tile
ECONOMICAL = ["dot", "dot-softcap", "kernel-gaussian"]
# For many rows that see few keys, a bias by distance makes a square of the rows.
SLIM_MASKS = [name for name in MASKS if name != "segments-ragged&alibi"]


def assert_summary(summary: Summary, dense, top, tolerance=1e-10):
    """All but the log-sum-exp is that of the weights (…, n, m)."""
    dense = dense.detach()
    best = dense.topk(min(top, dense.shape[-1])).values
    expected = {
        "entropy": numbers.entropy(dense),
        "width": numbers.width(dense),
        "received": dense.double().sum(-2),
        "top_weights": best.double(),
    }
    for name, numbers_ in expected.items():
        actual = getattr(summary, name)
        assert actual.dtype == dense.dtype, name
        torch.testing.assert_close(
            actual.double(), numbers_, rtol=tolerance, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}"
        )
    torch.testing.assert_close(dense.gather(-1, summary.top_keys), best, rtol=tolerance, atol=tolerance)
    in_order = summary.top_keys.sort(-1).values
    assert (in_order[..., 1:] > in_order[..., :-1]).all(), "a key stands twice among the largest"


def assert_log_sum_exp(summary: Summary, scores, normalizer=None, tolerance=1e-10):
    """It is that of the restricted scores (…, n, m), and of the sink."""
    expected = scores.detach().logsumexp(-1) if scores.shape[-1] else scores.new_full(scores.shape[:-1], NEVER)
    sink = getattr(normalizer, "sink", None)
    if sink is not None:
        sink = torch.as_tensor(sink, dtype=expected.dtype).detach()
        expected = torch.logaddexp(expected, sink[:, None] if sink.numel() != 1 else sink.reshape(()))
    torch.testing.assert_close(summary.log_sum_exp, expected.to(summary.log_sum_exp), rtol=tolerance, atol=tolerance)


def same(left: Summary, right: Summary, rtol=1e-5, atol=1e-6):
    for field in fields(Summary):
        torch.testing.assert_close(getattr(left, field.name), getattr(right, field.name), rtol=rtol, atol=atol)


# ------------------------------------------------------------------------------------------------------- every call


@pytest.mark.parametrize(
    ("score", "mask", "others"),
    in_turn(SCORES, MASKS, list(itertools.product(NORMALIZERS, SHAPES)), often=OFTEN),
)
def test_a_summary_is_that_of_the_weights(monkeypatch, score, mask, others):
    normalizer, shape = others
    case = table_case(score, mask, SHAPES[shape], normalizer=normalizer)
    dense = weights(case.query, case.key, **case.options)
    for size in CUTS:
        with monkeypatch.context() as patch:
            cut(patch, size)
            summary = summarize(case.query, case.key, **case.options, top=3)
        assert_summary(summary, dense, 3)
        assert_log_sum_exp(summary, case.scores().expand(dense.shape), case.normalizer)


@campaign(60, 3000)
def test_random_calls(seed):
    case = draw_case(seed).copied(torch.float64)
    dense = weights(case.query, case.key, **case.options)
    top = Draw(seed).choice([1, 2, 5, 40])
    summary = summarize(case.query, case.key, **case.options, top=top)
    assert_summary(summary, dense, top, 1e-9)
    assert_log_sum_exp(summary, case.scores().expand(dense.shape), case.normalizer, 1e-9)


@pytest.mark.parametrize("normalizer", ["none", "sink-heads", "sparsemax"])
@pytest.mark.parametrize(
    ("query", "key"),
    [((2, 6, 7, 5), (2, 3, 11, 5)), ((6, 7, 5), (11, 5)), ((7, 5), (3, 2, 11, 5)), ((2, 1, 7, 5), (3, 11, 5))],
)
def test_heads_share_keys_and_leading_dimensions_broadcast(monkeypatch, query, key, normalizer):
    draw = Draw(17)
    query, key = draw.normal(*query), draw.normal(*key)
    lead = weights(query, key).shape[:-2]
    options = {"normalizer": NORMALIZERS[normalizer](lead[-1]), "mask": causal(align="end")}
    for score in (Dot(), Dot(softcap=1.5), Kernel("gaussian"), Dot().modified(lambda s, b, h, i, j: s + h * (i - j))):
        dense = weights(query, key, score=score, **options)
        for size in CUTS:
            with monkeypatch.context() as patch:
                cut(patch, size)
                assert_summary(summarize(query, key, score=score, **options, top=4), dense, 4)


# ------------------------------------------------------------------------------------------------------- the largest


@pytest.mark.parametrize("m", [639, 640, 641, 997])
def test_the_largest_among_many_keys(m):
    """Where keys are compared in chunks: the same keys in the same order, wherever they are."""
    draw = Draw(m)
    query, key = draw.normal(3, 41, 5), draw.normal(3, m, 5)
    best = weights(query, key).topk(5)
    summary = summarize(query, key)
    assert torch.equal(summary.top_keys, best.indices)
    torch.testing.assert_close(summary.top_weights, best.values)
    key[:, 1::2] = key[:, ::2][:, : m // 2]  # each key twice
    assert_summary(summarize(query, key), weights(query, key), 5)


def test_where_fewer_keys_are_seen_the_rest_have_weight_0():
    query, key = Draw(1).normal(13, 5), Draw(2).normal(13, 5)
    for mask in (window(1, 0), segments([2, 0, 3, 8], [1, 2, 7, 3]), causal(-2), keep(torch.zeros(1, 1).bool())):
        assert_summary(summarize(query, key, mask=mask, top=6), weights(query, key, mask=mask), 6)


def test_top_is_at_most_the_number_of_keys():
    query, key = torch.randn(3, 7, 5), torch.randn(3, 2, 5)
    assert summarize(query, key, top=9).top_keys.shape == (3, 7, 2)
    assert summarize(query, key, top=1).top_weights.shape == (3, 7, 1)


@pytest.mark.parametrize(("top", "error"), [(0, ValueError), (-1, ValueError), (2.0, TypeError), (True, TypeError)])
def test_a_wrong_top_is_refused(top, error):
    with pytest.raises(error, match="top: expected"):
        summarize(torch.zeros(2, 3), torch.zeros(5, 3), top=top)


# ------------------------------------------------------------------------------------------------------------ the edges


@pytest.mark.parametrize("sink", [None, -0.5])
@pytest.mark.parametrize("score", ["dot", "dot-softcap", "kernel-gaussian"])
def test_a_query_that_may_attend_to_nothing(score, sink):
    case = table_case(score, shape=Shape(3, 2, 7, 11))
    normalizer, mask = Softmax(sink), lengths(torch.tensor([0, 4, 11])) & causal(-2)
    summary = summarize(case.query, case.key, score=case.score, mask=mask, normalizer=normalizer)
    for rows in ((0,), (slice(None), slice(None), slice(2))):
        assert (summary.log_sum_exp[rows] == (NEVER if sink is None else sink)).all()
        for numbers_ in (summary.entropy, summary.width, summary.top_weights):
            assert (numbers_[rows] == 0).all()
    assert (summary.received[0] == 0).all()
    assert (summary.width[1:, :, 2:] > 0).all()


@pytest.mark.parametrize("shape", [(0, 2, 7, 11), (3, 2, 0, 11), (3, 2, 7, 0)])
@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_nothing_to_summarize(shape, normalizer):
    case = table_case("dot", shape=Shape(*shape), normalizer=normalizer)
    summary = summarize(case.query, case.key, **case.options, top=3)
    batch, heads, n, m = shape
    assert summary.width.shape == (batch, heads, n)
    assert torch.equal(summary.received, torch.zeros(batch, heads, m, dtype=torch.float64))
    assert summary.top_keys.shape == (batch, heads, n, min(3, m))
    if not m:
        assert_log_sum_exp(summary, torch.empty(shape, dtype=torch.float64), case.normalizer)


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("broken", [math.nan, math.inf])
@pytest.mark.parametrize("score", ["dot", "dot-softcap", "additive", "separable", "kernel-gaussian", "kernel-tricube"])
def test_what_may_not_be_attended_does_not_matter_and_a_nan_that_may_is_not_hidden(monkeypatch, score, broken, size):
    cut(monkeypatch, size)
    case = table_case(score, shape=Shape(2, 1, 11, 11))
    mask = window(2, 0) & keep(torch.arange(11)[None] != 4)
    plain = summarize(case.query, case.key, score=case.score, mask=mask)
    key = case.key.clone()
    key[..., 4, :] = broken  # which nothing may attend to
    same(summarize(case.query, key, score=case.score, mask=mask), plain, 1e-12, 1e-12)
    key[..., 0, :] = math.nan  # which the first three rows may
    spoilt = summarize(case.query, key, score=case.score, mask=mask)
    for name in ("log_sum_exp", "entropy", "width", "top_weights"):
        actual, expected = getattr(spoilt, name), getattr(plain, name)
        torch.testing.assert_close(actual[:, :, 3:], expected[:, :, 3:], rtol=1e-12, atol=1e-12)
        assert actual[:, :, :3].isnan().all() or name == "top_weights", name
    assert spoilt.top_weights[:, :, :3, 0].isnan().all()
    assert spoilt.received[..., 0].isnan().all()


def test_a_key_that_nothing_may_attend_to_may_be_one_that_the_score_refuses():
    score, query, key = Separable(lambda rows: rows), torch.rand(7, 3), torch.rand(11, 3)
    key[4] = -1
    mask = keep(torch.arange(11)[None] != 4)
    assert_summary(summarize(query, key, score=score, mask=mask), weights(query, key, score=score, mask=mask), 5, 1e-5)


def test_a_nan_among_many_keys_is_not_hidden():
    query, key = torch.randn(7, 5), torch.randn(997, 5)
    key[400] = math.nan
    summary = summarize(query, key)
    assert summary.entropy.isnan().all()
    assert summary.top_weights.isnan().all()


# ----------------------------------------------------------------------------------------------------------- precision


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1000.0])
@pytest.mark.parametrize("sink", [None, 0.0, 1e30])
def test_float32_is_as_exact_as_float32_can_be(scale, sink):
    """From weights that are all alike to such as have all on one key; terms do not cancel."""
    draw = Draw(3)
    query, key = (draw.normal(2, 31, 16).float(), draw.normal(2, 997, 16).float())
    query = query * 2.0 ** round(math.log2(scale))
    summary = summarize(query, key, normalizer=Softmax(sink))
    exact = summarize(query.double(), key.double(), normalizer=Softmax(sink))
    for name, rtol in (("entropy", 1e-5), ("width", 1e-5), ("received", 1e-4), ("log_sum_exp", 1e-6)):
        actual = getattr(summary, name)
        assert actual.dtype == torch.float32
        torch.testing.assert_close(actual.double(), getattr(exact, name), rtol=rtol, atol=1e-5, msg=name)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summarized_in_float32(dtype):
    query, key = torch.randn(2, 7, 5).to(dtype), torch.randn(2, 11, 5).to(dtype)
    same(summarize(query, key, mask=causal(3)), summarize(query.float(), key.float(), mask=causal(3)), 0, 0)


def test_gaussian_rows_far_from_0_have_the_log_sum_exp_of_their_scores():
    """As a dot product, a Gaussian score lacks a constant of the row."""
    query, key = torch.randn(31, 3) + 100, torch.randn(61, 3) + 101
    score = Kernel("gaussian", 0.7)
    summary = summarize(query, key, score=score)
    assert_log_sum_exp(summary, score(query.double(), key.double()), tolerance=1e-5)


def test_what_many_queries_give_adds_up(monkeypatch):
    """In float64, however many tiles there are."""
    monkeypatch.setattr(tiling, "STREAMED", 16)
    query, key = Draw(5).normal(10_007, 2).float(), Draw(6).normal(3, 2).float()
    exact = summarize(query.double(), key.double()).received
    torch.testing.assert_close(summarize(query, key).received.double(), exact, rtol=1.5e-7, atol=0)


def test_there_are_no_gradients():
    query, sink = torch.randn(7, 5, requires_grad=True), nn.Parameter(torch.zeros(1))
    summary = summarize(query, torch.randn(11, 5), normalizer=Softmax(sink))
    assert not any(getattr(summary, field.name).requires_grad for field in fields(Summary))


# ------------------------------------------------------------------------------------------------------ memory, tracing


@pytest.mark.parametrize(
    ("normalizer", "mask", "score"), in_turn(["none", "sink"], SLIM_MASKS, ECONOMICAL, often=["none"])
)
def test_nothing_as_large_as_the_scores_is_made(monkeypatch, normalizer, mask, score):
    for constant, number in {"STREAMED": 1 << 9, "WORTH_A_CALL": 1 << 8}.items():
        monkeypatch.setattr(tiling, constant, number)
    case = table_case(score, mask, Shape(2, 1, 53, 151), normalizer=normalizer)  # 8,003 scores in a sequence
    with Allocations(*callers(case)) as allocations:
        summarize(case.query, case.key, **case.options)
    made, maker = allocations.largest()
    assert made <= 5 << 9, f"{maker} makes {made} elements"


def test_it_can_be_compiled_and_mapped():
    query, key = torch.randn(3, 2, 7, 5), torch.randn(3, 2, 11, 5)
    mask, normalizer = causal(align="end"), Softmax(sink=0.5)
    expected = summarize(query, key, mask=mask, normalizer=normalizer)

    def call(query, key):
        return summarize(query, key, mask=mask, normalizer=normalizer)

    same(torch.compile(call, fullgraph=True, backend="eager")(query, key), expected)
    entropy, received = torch.vmap(lambda q, k: (call(q, k).entropy, call(q, k).received))(query, key)
    torch.testing.assert_close(entropy, expected.entropy)
    torch.testing.assert_close(received, expected.received)
