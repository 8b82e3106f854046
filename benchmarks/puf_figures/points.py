"""Figure 5 and 6's points: rounds until the retrained model's test score, and the gap there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.puf_figures.curves import ORIGINAL, RETRAIN, Curve
from benchmarks.unlearning.summary import Interval, interval

Curves = Sequence[Curve]


@dataclass(frozen=True, slots=True)
class Point:
    """A configuration over seeds.

    rounds: of recovery until the test score reaches the retrained model's of the same seed,
    the most that were run where it never does. gap: |forget score - the retrained model's|
    after them. reached, refused: in so many of `seeds`.
    """

    label: str
    rounds: Interval
    gap: Interval
    test: Interval
    reached: int
    refused: int
    seeds: int


def seeds_of(curves: Curves, setting: str) -> list[int]:
    """Return the seeds of a setting that have a retrained model."""
    return sorted({c.seed for c in curves if c.setting == setting and c.label == RETRAIN})


def labels_of(curves: Curves, setting: str) -> list[str]:
    """Return the configurations of a setting in the order measured."""
    found = dict.fromkeys(c.label for c in curves if c.setting == setting)
    return [label for label in found if label not in (ORIGINAL, RETRAIN)]


def stop(curve: Curve, retrained: Curve) -> tuple[int, bool]:
    """Return the round whose model recovery would end with, and whether it got there."""
    goal = retrained.test[0]
    for number, score in enumerate(curve.test):
        if number and score >= goal:  # the step alone is no recovery
            return number, True
    return len(curve.test) - 1, False


def points(curves: Curves, setting: str) -> list[Point]:
    """Return one point for each configuration of a setting."""
    by_key: Mapping[tuple[int, str], Curve] = {
        (curve.seed, curve.label): curve for curve in curves if curve.setting == setting
    }
    seeds = seeds_of(curves, setting)
    found = []
    for label in labels_of(curves, setting):
        rounds, gaps, tests, reached, refused = [], [], [], 0, 0
        for seed in seeds:
            curve, truth = by_key.get((seed, label)), by_key[seed, RETRAIN]
            if curve is None:
                continue
            if curve.refused:
                refused += 1
                continue
            number, there = stop(curve, truth)
            reached += there
            rounds.append(float(number))
            gaps.append(abs(curve.forget[number] - truth.forget[0]))
            tests.append(curve.test[number] - truth.test[0])
        found.append(
            Point(
                label,
                interval(rounds),
                interval(gaps),
                interval(tests),
                reached,
                refused,
                len(seeds),
            )
        )
    return found


def mean_curve(curves: Curves, setting: str, label: str, part: str) -> list[float]:
    """Return the mean of `test` or `forget` over the seeds that were not refused, by round."""
    mine = [
        getattr(curve, part)
        for curve in curves
        if curve.setting == setting and curve.label == label and not curve.refused
    ]
    return [sum(values) / len(values) for values in zip(*mine, strict=True)]
