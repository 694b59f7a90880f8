"""Claims that do not hold in another setting, measured by the code of their sections."""

from regard.tour.section import Outcome, verdict
from regard.tour.sections import claim_03_distance_follows_the_trend as claim_03


def outcome(section, measured):
    return verdict(list(section.judge(measured[0])))


def test_claim_3_a_window_without_end_follows_no_trend():
    assert outcome(claim_03, claim_03.measure(width=100.0)) is Outcome.DID_NOT_HOLD
