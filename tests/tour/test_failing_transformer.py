"""Claims 25–30, 37 and 38 can fail: the same code and length of training as where they hold, and something broken."""

import torch
from torch import nn

from regard.tour.section import Outcome, verdict
from regard.tour.sections import claim_25_several_heads as heads
from regard.tour.sections import claim_26_three_ways_of_reading_a_sequence as ways
from regard.tour.sections import claim_27_only_attention_mixes_vectors as mixing
from regard.tour.sections import claim_28_layer_norm_does_not_see_the_batch as norms
from regard.tour.sections import claim_29_pretraining_then_few_labels as pretraining
from regard.tour.sections import claim_30_vision_transformer_and_resnet as vision
from regard.tour.sections import claim_37_residual_connections as residuals
from regard.tour.sections import claim_38_head_size_and_number_of_heads as sizes


def outcome(section, measured):
    return verdict(list(section.judge(measured[0])))


def test_fewer_heads_are_not_better():
    torch.manual_seed(0)
    assert outcome(heads, heads.run(range(2), 15, heads=(4, 1))) is Outcome.DID_NOT_HOLD


def test_attention_that_sees_its_neighbours_alone_does_not_reach_far():
    numbers, _ = ways.run(range(2), 45, attention=ways.Convolutions)
    far, *_ = ways.judge(numbers)
    assert not far.met
    assert outcome(ways, (numbers, None)) is Outcome.DID_NOT_HOLD


def test_a_norm_over_all_vectors_mixes_them_too():
    torch.manual_seed(0)
    assert outcome(mixing, mixing.run(nn.LayerNorm((mixing.COUNT, mixing.SIZE)))) is Outcome.DID_NOT_HOLD


def test_batch_norm_in_the_place_of_layer_norm_sees_the_batch():
    measured = norms.run(range(2), ((1, 20), (4, 20)), layer=norms.BatchNorm)
    assert outcome(norms, measured) is Outcome.DID_NOT_HOLD


def test_a_model_that_has_read_nothing_is_not_ahead():
    assert outcome(pretraining, pretraining.run(range(2), pretrain_steps=0, tune_steps=5)) is Outcome.DID_NOT_HOLD


def test_a_resnet_in_the_place_of_the_vit_is_not_behind():
    measured = vision.run("digits", range(2), 90, (100,), kinds=(vision.resnet, vision.vit))
    assert outcome(vision, measured) is Outcome.DID_NOT_HOLD


def test_a_connection_of_no_weight_is_none():
    assert outcome(residuals, residuals.run(range(2), 25, (1, 3), residual=0.0)) is Outcome.DID_NOT_HOLD


def test_a_choice_between_equals_makes_no_difference():
    assert outcome(sizes, sizes.run(range(2), 5, heads=(2, 2), query_sizes=(4, 4))) is Outcome.DID_NOT_HOLD
