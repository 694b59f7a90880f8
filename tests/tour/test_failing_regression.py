"""Claims that do not hold in another setting, measured by the code of their sections."""

from functools import partial

import regard
from regard.tour.section import Outcome, verdict
from regard.tour.sections import claim_01_pooling_ignores_the_question as claim_01
from regard.tour.sections import claim_02_average_is_flat as claim_02
from regard.tour.sections import claim_03_distance_follows_the_trend as claim_03
from regard.tour.sections import claim_04_enough_data_find_the_curve as claim_04
from regard.tour.sections import claim_05_gaussian_is_softmax as claim_05
from regard.tour.sections import claim_06_weights_are_a_distribution as claim_06
from regard.tour.sections import claim_07_rows_look_near_their_own_x as claim_07
from regard.tour.sections import claim_09_w_can_be_a_vector as claim_09
from regard.tour.sections import claim_10_the_choice_of_kernel as claim_10
from regard.tour.sections import claim_11_batch_matrix_product as claim_11
from regard.tour.sections import claim_35_the_query_is_the_difference as claim_35
from regard.tour.sections import claim_36_weights_not_values_are_probabilities as claim_36
from regard.tour.sections import claim_39_any_kernel_is_a_score as claim_39


def outcome(section, measured):
    return verdict(list(section.judge(measured[0])))


def test_claim_3_a_window_without_end_follows_no_trend():
    assert outcome(claim_03, claim_03.measure(width=100.0)) is Outcome.DID_NOT_HOLD


def test_claim_1_a_query_drowned_in_noise_is_not_answered():
    assert outcome(claim_01, claim_01.measure(noise=10.0)) is Outcome.DID_NOT_HOLD


def test_claim_2_a_line_that_reads_x_is_not_flat():
    assert outcome(claim_02, claim_02.measure("gaussian")) is Outcome.DID_NOT_HOLD


def test_claim_35_a_query_that_says_nothing_makes_no_difference():
    assert outcome(claim_35, claim_35.measure(noise=100.0, seeds=2, steps=10)) is Outcome.DID_NOT_HOLD


def test_claim_4_a_narrow_window_is_not_too_smooth():
    assert outcome(claim_04, claim_04.measure(width=0.05, counts=(50, 200))) is Outcome.DID_NOT_HOLD


def test_claim_7_weights_without_distance_are_not_dark_near_their_own_x():
    assert outcome(claim_07, claim_07.measure("constant")) is Outcome.DID_NOT_HOLD


def test_claim_6_sigmoid_weights_are_no_distribution_and_without_far_queries_the_claim_holds():
    assert outcome(claim_06, claim_06.measure(normalizer=regard.Sigmoid())) is Outcome.DID_NOT_HOLD
    assert outcome(claim_06, claim_06.measure(far=0.0)) is Outcome.HELD


def test_claim_39_softmax_of_the_kernel_itself_is_another_one():
    assert outcome(claim_39, claim_39.measure(scored=lambda kernel: kernel)) is Outcome.DID_NOT_HOLD


def test_claim_10_the_constant_kernel_is_no_choice():
    assert outcome(claim_10, claim_10.measure(("gaussian", "constant"))) is Outcome.DID_NOT_HOLD


def test_claim_36_needs_no_correction_where_the_values_are_distributions():
    assert outcome(claim_36, claim_36.measure(classes=True)) is Outcome.BY_DEFINITION


def test_claim_9_an_inner_product_does_not_pay_where_there_is_no_direction():
    measured = claim_09.measure(direction=claim_09.both_features, seeds=3, steps=40)
    assert outcome(claim_09, measured) is Outcome.DID_NOT_HOLD


def test_claim_5_attention_by_another_score_is_another_estimate(monkeypatch):
    monkeypatch.setattr(regard, "Kernel", lambda name: regard.attention.Kernel("laplace"))
    assert outcome(claim_05, claim_05.run()) is not Outcome.BY_DEFINITION


def test_claim_11_attention_by_other_weights_is_another_product(monkeypatch):
    monkeypatch.setattr(claim_11, "weights", partial(regard.weights, normalizer=regard.Sparsemax()))
    assert outcome(claim_11, claim_11.run()) is not Outcome.BY_DEFINITION
