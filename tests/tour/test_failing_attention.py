"""Claims that fall: the measuring code of a section, in another setting or with a broken model."""

from functools import partial

import torch

import regard
from regard.tour.section import Outcome, verdict
from regard.tour.sections import claim_12_masked_softmax as claim_12
from regard.tour.sections import claim_13_additive_attention as claim_13
from regard.tour.sections import claim_14_variance_of_dot_products as claim_14
from regard.tour.sections import claim_15_large_scores_stop_the_gradient as claim_15
from regard.tour.sections import claim_16_dot_is_cheaper_than_additive as claim_16
from regard.tour.sections import claim_21_order_does_not_matter as claim_21
from regard.tour.sections import claim_22_keys_and_values_by_two_matrices as claim_22
from regard.tour.sections import claim_23_positions_break_the_symmetry as claim_23
from regard.tour.sections import claim_24_masked_attention_never_sees_the_future as claim_24
from regard.tour.sections import claim_31_queries_keys_values_are_a_search_engine as claim_31


def outcome(section, numbers):
    return verdict(list(section.judge(numbers)))


def test_12_falls_where_a_large_negative_number_stands_for_minus_infinity():
    def softmax(scores, lengths):
        beyond = torch.arange(scores.shape[-1]) >= lengths.reshape(len(scores), -1, 1)
        return torch.softmax(scores.masked_fill(beyond, -1e6), -1)

    numbers, _ = claim_12.measure({"−10⁶": partial(claim_12.by_softmax, softmax)})
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


def test_21_falls_where_scores_depend_on_places():
    nearer = regard.bias(-torch.arange(64).double()[None])
    numbers, _ = claim_21.measure(1, {"places": partial(regard.attend, mask=nearer)})
    assert outcome(claim_21, numbers) is Outcome.DID_NOT_HOLD


def test_21_falls_where_nothing_was_learned():
    numbers, _ = claim_21.measure(1)
    assert outcome(claim_21, numbers) is Outcome.DID_NOT_HOLD


def test_22_falls_where_inputs_serve_one_purpose():
    numbers, _ = claim_22.measure(50, names_only=True)
    assert numbers.two > 0.5
    assert outcome(claim_22, numbers) is Outcome.DID_NOT_HOLD


def test_23_falls_for_masked_attention_which_knows_the_order():
    numbers, _ = claim_23.measure(1, mask=regard.causal())
    assert outcome(claim_23, numbers) is Outcome.DID_NOT_HOLD


def test_23_stands_in_part_where_positions_were_not_learned_to_use():
    numbers, _ = claim_23.measure(1)
    assert outcome(claim_23, numbers) is Outcome.PARTLY


def test_24_falls_for_a_mask_that_is_wrong_by_one():
    numbers, _ = claim_24.measure(regard.visible(lambda b, h, q_idx, kv_idx: kv_idx <= q_idx + 1))
    assert outcome(claim_24, numbers) is Outcome.DID_NOT_HOLD


def test_31_falls_with_vectors_that_know_nothing_of_the_texts():
    torch.manual_seed(0)
    numbers, _ = claim_31.measure(dict.fromkeys(("en", "zh"), lambda texts: torch.randn(len(texts), 16)))
    assert outcome(claim_31, numbers) is Outcome.DID_NOT_HOLD


def test_31_ranks_worse_than_bm25_with_vectors_that_count_letters():
    numbers, _ = claim_31.rehearse()
    assert not any(criterion.met for criterion in claim_31.judge(numbers))
