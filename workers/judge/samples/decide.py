"""Measurements against their margins, all sharing one alpha by Holm's procedure.

A check passes if the whole interval lies inside the margin, and is refuted if the whole
interval lies outside, each at the level at which Holm's procedure reached it; otherwise it is
undecided. Both families spend the same alpha: one bounds the probability of any wrong pass, the
other that of any wrong refutation.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf, isfinite

from lethe.catalogue import CheckSpec
from workers.judge.attacks.attack import Scores
from workers.judge.base import Judgement
from workers.judge.checks import CheckRoom, judged
from workers.judge.inference.intervals import (
    Interval,
    apart,
    last_level,
    spell,
    step_down,
    within,
)
from workers.judge.samples.empirical_claim import EmpiricalClaim
from workers.judge.samples.samples import ModelAnswers

REPORT_LEVEL = 0.05  # of intervals that decide nothing


@dataclass(frozen=True, slots=True)
class Measurement:
    """A value of a check, its interval by level, and the margin that the interval must keep.

    margin and threshold None: reported only. Intervals of smaller levels must contain those of
    larger ones.
    """

    spec: CheckSpec
    value: str
    interval: Callable[[float], Interval]
    margin: Interval | None
    threshold: str | None


def unmeasured(
    spec: CheckSpec, reason: str, margin: Interval | None, threshold: str | None
) -> Measurement:
    """Return a measurement that could not be made: it passes nothing and refutes nothing."""
    return Measurement(spec, reason, lambda _: (-inf, inf), margin, threshold)


def decide(measurements: Sequence[Measurement], alpha: float) -> list[Judgement]:
    """Return a judgement on each measurement, in their order, without numbers yet."""
    tested = [m for m in measurements if m.margin is not None]
    shown = step_down([partial(_within, m) for m in tested], alpha)
    refuted = step_down([partial(_apart, m) for m in tested], alpha)
    last = last_level(shown, alpha)
    found: list[Judgement] = []
    place = 0
    for m in measurements:
        if m.margin is None:
            found.append(_judgement(m, REPORT_LEVEL, None, passed=True))
            continue
        accepted, denied = shown[place], refuted[place]
        place += 1
        level = accepted or denied or last
        how = f"Holm over {len(tested)} tests"
        found.append(
            _judgement(m, level, how, passed=accepted is not None, undecided=denied is None)
        )
    return found


def control(measurements: Sequence[Measurement], alpha: float) -> list[Judgement]:
    """Return a judgement on each: shown, or undecided, since a control refutes nothing."""
    shown = step_down([partial(_within, m) for m in measurements], alpha)
    last = last_level(shown, alpha)
    how = f"Holm over {len(shown)} tests"
    return [
        _judgement(m, level or last, how, passed=level is not None, undecided=True)
        for m, level in zip(measurements, shown, strict=True)
    ]


def _judgement(
    m: Measurement, level: float, how: str | None, *, passed: bool, undecided: bool = False
) -> Judgement:
    interval = m.interval(level)
    ends = (spell(interval[0]), spell(interval[1])) if all(map(isfinite, interval)) else None
    threshold = None
    if how is not None:
        threshold = f"{m.threshold}; interval at level {spell(level)}, {how}"
    judgement = judged(
        m.spec, m.value, passed=passed, interval=ends, undecided=undecided and not passed
    )
    return replace(judgement, check=replace(judgement.check, threshold=threshold))


def _within(m: Measurement, level: float) -> bool:
    return m.margin is not None and within(m.interval(level), m.margin)


def _apart(m: Measurement, level: float) -> bool:
    return m.margin is not None and apart(m.interval(level), m.margin)


Scored = Mapping[str, Scores | str]  # by attack; instead of scores the reason for none


@dataclass(frozen=True, slots=True, eq=False)
class Tested:
    """A claim with the outputs of both versions, and the scores of each attack on them."""

    claim: EmpiricalClaim
    before: ModelAnswers
    after: ModelAnswers
    scored_before: Scored
    scored_after: Scored


Measure = Callable[[Tested], list[Measurement]]
# What must be seen before unlearning: otherwise the tests after it show nothing.
CONTROLS: CheckRoom[Measure] = CheckRoom("workers.judge.samples")
# What must be seen after unlearning. Tests with a margin share the request's alpha.
TESTS: CheckRoom[Measure] = CheckRoom("workers.judge.samples")
# Utility, not forgetting: a wrong pass harms no one's privacy and spends no alpha.
ACCURACIES: CheckRoom[Measure] = CheckRoom("workers.judge.samples")
