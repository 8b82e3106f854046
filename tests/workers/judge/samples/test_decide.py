"""Passed, refuted and undecided, each at its level."""

import pytest
from scipy.stats import norm

from lethe.catalogue import CHECKS
from workers.judge.base import Judgement
from workers.judge.inference.intervals import Interval
from workers.judge.samples.decide import Measurement, control, decide, unmeasured

SPEC = CHECKS["test-accuracy"]


def at(place: float, margin: Interval | None = (0.4, 0.6), error: float = 0.01) -> Measurement:
    """Return a measurement with a normal interval."""

    def interval(level: float) -> Interval:
        reach = float(norm.isf(level / 2)) * error
        return place - reach, place + reach

    return Measurement(SPEC, str(place), interval, margin, "inside")


def states(judgements: list[Judgement]) -> str:
    return "".join("p" if j.check.passed else "u" if j.undecided else "f" for j in judgements)


def test_each_is_passed_refuted_or_undecided() -> None:
    places = [0.5, 0.7, 0.61, 0.59, 0.3, 0.45]
    assert states(decide([at(place) for place in places], 0.05)) == "pfuufp"


def test_the_shown_interval_is_the_one_that_decided() -> None:
    # Alone 0.577 passes (0.577 + 1.96 * 0.01 < 0.6); beside an undecided one it does not
    # (2.24), and neither is one just beyond refuted.
    assert states(decide([at(0.577)], 0.05)) == "p"
    first, second = decide([at(0.579), at(0.6)], 0.05)
    assert states([first, second]) == "uu"
    assert "level 0.025, Holm over 2 tests" in str(first.check.threshold)
    assert first.check.interval == ("0.556586", "0.601414")
    assert states(decide([at(0.579), at(0.5)], 0.05)) == "pp"


def test_what_was_not_measured_decides_nothing() -> None:
    (found,) = decide([unmeasured(SPEC, "why", (0.4, 0.6), "")], 0.05)
    assert states([found]) == "u"
    assert found.check.interval is None


def test_what_is_reported_only_passes_and_takes_no_alpha() -> None:
    judgements = decide([at(9.0, None), at(0.577), at(9.0, None)], 0.05)
    assert states(judgements) == "ppp"
    assert judgements[0].check.threshold is None
    assert "Holm over 1 tests" in str(judgements[1].check.threshold)


def test_a_control_is_shown_or_undecided() -> None:
    assert states(control([at(0.5), at(0.9), at(0.1)], 0.05)) == "puu"


@pytest.mark.parametrize("function", [decide, control])
def test_nothing_is_judged_of_nothing(function: type) -> None:
    assert function([], 0.05) == []
