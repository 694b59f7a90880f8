"""Claims that fall: the measuring code of a section, in another setting or with a broken model."""

from functools import partial

import torch

import regard
from regard.tour.section import Outcome, verdict
from regard.tour.sections import (
    claim_12_masked_softmax as claim_12,
)
from regard.tour.sections import (
    claim_13_additive_attention as claim_13,
)
from regard.tour.sections import (
    claim_14_variance_of_dot_products as claim_14,
)
from regard.tour.sections import (
    claim_15_large_scores_stop_the_gradient as claim_15,
)
from regard.tour.sections import (
    claim_16_dot_is_cheaper_than_additive as claim_16,
)


def outcome(section, numbers):
    return verdict(list(section.judge(numbers)))


def test_12_falls_where_a_large_negative_number_stands_for_minus_infinity():
    def softmax(scores, lengths):
        beyond = torch.arange(scores.shape[-1]) >= lengths.reshape(len(scores), -1, 1)
        return torch.softmax(scores.masked_fill(beyond, -1e6), -1)

    numbers = claim_12.measure({"−10⁶": partial(claim_12.by_softmax, softmax)})
    assert outcome(claim_12, numbers) is Outcome.DID_NOT_HOLD


def test_13_falls_for_a_score_that_is_no_perceptron():
    numbers, _ = claim_13.run(regard.Bilinear(20, 2))
    assert outcome(claim_13, numbers) is Outcome.DID_NOT_HOLD


def test_14_falls_for_entries_whose_mean_is_not_0():
    numbers, _ = claim_14.measure({"shifted": lambda *shape: torch.randn(*shape) + 1}, count=20_000)
    assert outcome(claim_14, numbers) is Outcome.DID_NOT_HOLD


def test_15_falls_for_short_vectors_which_have_no_large_scores():
    numbers, _ = claim_15.measure(range(2), length=0.05)
    assert outcome(claim_15, numbers) is Outcome.DID_NOT_HOLD


def test_16_falls_for_long_vectors_and_a_single_hidden_unit():
    numbers, _ = claim_16.measure(n=128, size=8192, hidden=1)
    assert outcome(claim_16, numbers) is Outcome.DID_NOT_HOLD
