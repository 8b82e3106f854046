"""What pairs of unlearned and retrained models show about an algorithm: a lower bound on its ε.

U-LiRA: Hayes et al., "Inexact Unlearning Needs More Careful Evaluations to Avoid a False Sense
of Privacy" (SaTML 2025), after Carlini et al. (S&P 2022). On one half of the pairs, normal
densities and a threshold on their ratio are fitted; they classify the other half. A method that
unlearns with (ε, δ) allows no test with FNR < 1 - δ - e^ε FPR, nor the reverse (Kairouz et al.,
ICML 2015): the observed errors bound ε from below, as in Jagielski et al. (NeurIPS 2020).

All sums are rounded once, so equal statistics give equal counts on every machine.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import fsum, isfinite, log, sqrt
from typing import Literal

from workers.errors import RefusedError
from workers.judge.inference.intervals import clopper_pearson

ID, VERSION = "u-lira", "1"
FEWEST = 16  # pairs: 8 classified without an error show ε of 0.53 at 95 %
LEAST = 1e-6  # standard deviation: models that agree to the last bit are no evidence

Outcome = Literal["LEAK", "NOTHING-FOUND", "INCONCLUSIVE"]


@dataclass(frozen=True, slots=True)
class Bound:
    """Errors of a test on `trials` models of each world, and what they prove.

    A false positive is a model without the target that is classified as having had it, a false
    negative the reverse. Both upper limits hold jointly at the given confidence, and so does
    epsilon, the larger of both directions and never below 0. It is a lower bound.
    """

    false_positives: int
    false_negatives: int
    trials: int
    fpr_upper: float
    fnr_upper: float
    epsilon: float


@dataclass(frozen=True, slots=True)
class Finding:
    """after: unlearned against retrained models; before: the control, not yet unlearned.

    resolution: the ε that the same number of trials without any error would have shown.
    """

    result: Outcome
    after: Bound
    before: Bound
    resolution: float


def judge(
    before: Sequence[float],
    after: Sequence[float],
    retrained: Sequence[float],
    confidence: float,
    delta: float,
) -> Finding:
    """Return what the statistics of n pairs show; each (n,) finite, in the order of the pairs.

    LEAK: ε is above 0. NOTHING-FOUND: no such ε is shown, by an attack that does find the
    target before unlearning. INCONCLUSIVE: none is shown, but the attack could not have found
    it. Raises RefusedError for fewer than FEWEST pairs, unequal lengths, or values that are not
    numbers.
    """
    if not FEWEST <= len(before) == len(after) == len(retrained):
        raise RefusedError(f"an audit needs {FEWEST} whole pairs at least: run more")
    if not all(map(isfinite, (*before, *after, *retrained))):
        raise RefusedError("a statistic is no number: a model of a pair has diverged")
    control = attack(before, retrained, confidence, delta)
    found = attack(after, retrained, confidence, delta)
    result: Outcome = "INCONCLUSIVE"
    if found.epsilon > 0:
        result = "LEAK"
    elif control.epsilon > 0:
        result = "NOTHING-FOUND"
    return Finding(result, found, control, resolution(found.trials, confidence, delta))


def attack(
    inside: Sequence[float], outside: Sequence[float], confidence: float, delta: float
) -> Bound:
    """Fit a test on the first half of each world (n,); bound ε by its errors on the rest."""
    half = len(inside) // 2
    scored = _Ratio.fit(inside[:half], outside[:half])
    score_in = [scored.of(value) for value in inside]
    score_out = [scored.of(value) for value in outside]
    threshold = _threshold(score_in[:half], score_out[:half], confidence, delta)
    return bound(
        sum(score > threshold for score in score_out[half:]),
        sum(score <= threshold for score in score_in[half:]),
        len(inside) - half,
        confidence,
        delta,
    )


def bound(
    false_positives: int, false_negatives: int, trials: int, confidence: float, delta: float
) -> Bound:
    """Return what errors in `trials` models of each world prove, jointly at `confidence`."""
    # Each upper end alone misses with half of 1 - confidence; the lower ends are not used.
    fpr = clopper_pearson(false_positives, trials, 1 - confidence)[1]
    fnr = clopper_pearson(false_negatives, trials, 1 - confidence)[1]
    ratio = max((1 - delta - fnr) / fpr, (1 - delta - fpr) / fnr)
    epsilon = log(ratio) if ratio > 1 else 0.0
    return Bound(false_positives, false_negatives, trials, fpr, fnr, epsilon)


def resolution(trials: int, confidence: float, delta: float) -> float:
    """Return the ε that this number of trials shows without any error: the maximum."""
    return bound(0, 0, trials, confidence, delta).epsilon


@dataclass(frozen=True, slots=True)
class _Ratio:
    """log N(x; inside) - log N(x; outside), up to a constant that cancels."""

    inside: tuple[float, float]  # mean, standard deviation
    outside: tuple[float, float]

    @classmethod
    def fit(cls, inside: Sequence[float], outside: Sequence[float]) -> "_Ratio":
        return cls(_normal(inside), _normal(outside))

    def of(self, value: float) -> float:
        (mean, deviation), (other, spread) = self.inside, self.outside
        far, near = (value - other) / spread, (value - mean) / deviation
        return (far * far - near * near) / 2 + log(spread / deviation)


def _normal(values: Sequence[float]) -> tuple[float, float]:
    mean = fsum(values) / len(values)
    variance = fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, max(sqrt(variance), LEAST)


def _threshold(
    inside: Sequence[float], outside: Sequence[float], confidence: float, delta: float
) -> float:
    """Return the threshold that proves the most on these scores; of equal ones, fewest errors.

    0, the likelihood ratio's own threshold, is tried first. A larger ε is shown where one kind
    of error is rare, which is seldom at 0 (Nasr et al., S&P 2021).
    """
    ins, outs = sorted(inside), sorted(outside)
    between = [(low + high) / 2 for low, high in pairwise(sorted({*ins, *outs}))]

    def worth(threshold: float) -> tuple[float, int]:
        missed = bisect_right(ins, threshold)
        flagged = len(outs) - bisect_right(outs, threshold)
        proven = bound(flagged, missed, len(ins), confidence, delta).epsilon
        return proven, -(missed + flagged)

    return max([0.0, *between], key=worth)
