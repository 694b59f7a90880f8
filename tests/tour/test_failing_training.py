"""Claims 8, 17, 19, 20, 32, 33, 34 and 40 through the same code, with settings in which they fail."""

import pytest
import torch

from regard.tour.section import Outcome, verdict
from regard.tour.sections import claim_08_learning_narrows_the_window as claim_08
from regard.tour.sections import claim_17_one_vector_is_a_bottleneck as claim_17
from regard.tour.sections import claim_19_where_on_looks as claim_19
from regard.tour.sections import claim_20_other_similarities_work_too as claim_20
from regard.tour.sections import claim_32_every_word_the_same as claim_32
from regard.tour.sections import claim_33_values_are_the_keys as claim_33
from regard.tour.sections import claim_34_trained_by_backpropagation as claim_34
from regard.tour.sections import claim_40_weights_as_explanations as claim_40
from regard.tour.translators import Training


def test_8_where_the_first_width_is_too_narrow_already():
    """From w = 200 on, the window gets wider: the same samples, another start."""
    numbers, _ = claim_08.measure(range(2), steps=40, starts=(200.0, 30.0))
    assert verdict(list(claim_08.judge(numbers))) is Outcome.DID_NOT_HOLD


def test_34_where_no_gradient_reaches_the_attention():
    numbers, _ = claim_34.measure(seeds=1, count=3, steps=3, broken=True)
    criteria = list(claim_34.judge(numbers))
    assert [criterion.met for criterion in criteria] == [False, False]
    assert verdict(criteria) is Outcome.DID_NOT_HOLD


def test_40_where_the_weights_are_those_of_another_sentence():
    numbers, _ = claim_40.measure(Training(3, range(3), 30), torch.rand_like, sentences=11)
    assert verdict(list(claim_40.judge(numbers))) is Outcome.DID_NOT_HOLD


def test_33_where_the_translators_have_not_learned():
    numbers, _ = claim_33.run(Training(3, range(2), 30))
    assert verdict(list(claim_33.judge(numbers))) is Outcome.DID_NOT_HOLD


def test_20_where_the_translators_have_not_learned():
    numbers, _ = claim_20.run(Training(3, range(2), 30))
    assert verdict(list(claim_20.judge(numbers))) is Outcome.DID_NOT_HOLD


def test_17_where_the_translators_have_not_learned():
    numbers, _ = claim_17.run(Training(3, range(2), 30))
    assert verdict(list(claim_17.judge(numbers))) is Outcome.DID_NOT_HOLD


def test_19_where_the_translators_have_not_learned():
    numbers, _ = claim_19.run(Training(3, range(2), 30), find=lambda: None)
    assert not next(criterion.met for criterion in claim_19.judge(numbers))


@pytest.mark.parametrize(("power", "outcome"), [(0, Outcome.HELD), (1, Outcome.DID_NOT_HOLD)])
def test_32_holds_where_every_word_has_the_same_influence_and_falls_for_the_first_ones(power, outcome, monkeypatch):
    def influence(model, pairs):
        return [(torch.arange(30) + 1.0).pow(power).expand(40, 30) for _ in pairs]

    monkeypatch.setattr(claim_32, "influence", influence)
    numbers, _ = claim_32.run(Training(3, range(2), 30))
    assert verdict(list(claim_32.judge(numbers))) is outcome
