"""Summaries are those of the weights, for every score, mask and normaliser, and nothing as large as the weights is made."""

import math

import pytest
import torch
from torch import nn

from regard import Entmax, Kernel, Sigmoid, Softmax, Sparsemax, causal, keep, lengths, segments, summarize, weights
from regard.attention import Normalizer, Summary, numbers, tiling
from tests.attention.cases import CUTS, MASKS, SCORES, SHAPES, SOME_SCORES, campaign, cut, draw_case, in_turn, table_case
from tests.attention.meanings import Draw, Shape
from tests.attention.test_memory import Allocations, callers

NEVER = -math.inf


class SquaredReLU(Normalizer):
    """A normaliser that regard does not know, whose weights add up to anything."""

    def forward(self, scores, per_head=None):
        return scores.relu().square()


# name → a normaliser for so many heads, and what the sink adds to the scores
NORMALIZERS = {
    "softmax": lambda heads: None,
    "sink": lambda heads: Softmax(sink=0.5),
    "sink-by-head": lambda heads: Softmax(sink=nn.Parameter(torch.linspace(-2, 2, heads, dtype=torch.float64))),
    "sigmoid": lambda heads: Sigmoid(bias=-1.0),
    "sparsemax": lambda heads: Sparsemax(),
    "entmax": lambda heads: Entmax(1.5),
    "squared-relu": lambda heads: SquaredReLU(),
}


def sink_of(normalizer):
    """The sink, broadcastable to (…, heads, n)."""
    if not isinstance(normalizer, Softmax) or normalizer.sink is None:
        return torch.tensor(NEVER, dtype=torch.float64)
    return torch.as_tensor(normalizer.sink, dtype=torch.float64).detach().reshape(-1, 1)


def assert_summarizes(summary, dense, top, tolerance=1e-10):
    """The summary is that of dense weights (…, n, m)."""
    dense = dense.detach()
    best = dense.topk(min(top, dense.shape[-1])).values
    expected = {
        "entropy": numbers.entropy(dense),
        "width": numbers.width(dense),
        "received": dense.double().sum(-2),
        "top_weights": best,
    }
    for name, numbers_ in expected.items():
        actual = getattr(summary, name)
        torch.testing.assert_close(actual.double(), numbers_.double(), rtol=tolerance, atol=tolerance, msg=name)
    torch.testing.assert_close(dense.gather(-1, summary.top_keys), best, rtol=tolerance, atol=tolerance)
    ordered = summary.top_keys.sort(-1).values
    assert (ordered[..., 1:] > ordered[..., :-1]).all(), "a key stands twice among the best"


def assert_log_sum_exp(summary, scores, normalizer=None, tolerance=1e-10):
    expected = torch.logaddexp(scores.detach().double().logsumexp(-1), sink_of(normalizer))
    torch.testing.assert_close(summary.log_sum_exp.double(), expected, rtol=tolerance, atol=tolerance)


# ------------------------------------------------------------------------------------------------------- every call


@pytest.mark.parametrize(("score", "mask", "normalizer"), in_turn(SCORES, MASKS, list(NORMALIZERS), often=SOME_SCORES))
def test_a_summary_is_that_of_the_weights(monkeypatch, score, mask, normalizer):
    for shape in SHAPES.values():
        case, normalizer_ = table_case(score, mask, shape), NORMALIZERS[normalizer](shape.heads)
        dense = weights(case.query, case.key, **case.options, normalizer=normalizer_)
        for size in CUTS:
            with monkeypatch.context() as patch:
                cut(patch, size)
                summary = summarize(case.query, case.key, **case.options, normalizer=normalizer_, top=3)
            assert_summarizes(summary, dense, 3)
            assert_log_sum_exp(summary, case.scores().expand(dense.shape), normalizer_)


@campaign(150, 3000)
def test_random_calls(seed):
    case = draw_case(seed).copied(torch.float64)
    draw = Draw(seed)
    heads = case.shape[-3] if len(case.shape) > 3 else 1
    normalizer = NORMALIZERS[draw.choice(list(NORMALIZERS))](heads)
    dense = weights(case.query, case.key, **case.options, normalizer=normalizer)
    top = draw.choice([1, 2, 5, 40])
    summary = summarize(case.query, case.key, **case.options, normalizer=normalizer, top=top)
    assert_summarizes(summary, dense, top, 1e-9)
