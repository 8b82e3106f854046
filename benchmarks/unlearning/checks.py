"""How a paper's claim is held to what was measured: over one setting, or along several.

A verdict is what was measured and whether it bears the claim out; its second half is None
where seeds do not tell, and the verdict is None where nothing was measured. Whatever compares
two models compares them seed by seed, and asks the 95 % interval of the difference.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from math import isnan

from benchmarks.unlearning.contenders import AGAIN, ORIGINAL, RETRAIN
from benchmarks.unlearning.markdown import points as points_of
from benchmarks.unlearning.markdown import times
from benchmarks.unlearning.names import name_of
from benchmarks.unlearning.records import Record
from benchmarks.unlearning.summary import Interval, Seeds, gap, interval

Verdict = tuple[str, bool | None] | None
Known = Mapping[str, Seeds]
Check = Callable[[Seeds], Verdict]
Along = Callable[[Known], Verdict]
OUTPUT_KL = 0.0023  # nats, HF-KCU's table 9


def closer(label: str, others: Sequence[str], measure: str = "forget") -> Check:
    """Check that a method's gap is smaller than each of the others'."""

    def check(seeds: Seeds) -> Verdict:
        mine = 100 * seeds.gap(label, measure).mean
        theirs = {other: 100 * seeds.gap(other, measure).mean for other in others}
        measured = {other: value for other, value in theirs.items() if not isnan(value)}
        if isnan(mine) or not measured:
            return None
        said = "; ".join(f"{name_of(other)} {value:.1f}" for other, value in measured.items())
        apart = [_apart(seeds, label, other, measure) for other in measured]
        return f"{name_of(label)} {mine:.1f}; {said}", _below(apart)

    return check


def cheaper(label: str, at_least: float) -> Check:
    """Check that a method takes so many times fewer operations than retraining, on average."""

    def check(seeds: Seeds) -> Verdict:
        found = seeds.ratio(label, "flops")
        return None if isnan(found.mean) else (times(found), found.mean >= at_least)

    return check


def faster(label: str, at_least: float) -> Check:
    """Check that a method takes so many times less time, on average; operations beside it."""

    def check(seeds: Seeds) -> Verdict:
        found, flops = seeds.ratio(label, "seconds"), seeds.ratio(label, "flops")
        if isnan(found.mean):
            return None
        return (
            f"{times(found)} in seconds, {times(flops)} in operations",
            found.mean >= at_least,
        )

    return check


def within_noise(label: str, measure: str) -> Check:
    """Check that a gap is below that of a second retraining.

    Two gaps that cannot be told apart do not show that the model matches.
    """

    def check(seeds: Seeds) -> Verdict:
        mine, noise = (100 * seeds.gap(part, measure).mean for part in (label, AGAIN))
        if isnan(mine) or isnan(noise):
            return None
        apart = _apart(seeds, label, AGAIN, measure)
        return f"{mine:.1f}, another seed of retraining {noise:.1f}", _below([apart])

    return check


def at_most(label: str, measure: str, points: float) -> Check:
    """Check that a mean is at most so many points from retraining's, as the papers' tables are.

    The gaps of single seeds, which do not cancel, and the seed noise stand beside it.
    """

    def check(seeds: Seeds) -> Verdict:
        mine, noise = (100 * seeds.gap(part, measure).mean for part in (label, AGAIN))
        if isnan(mine):
            return None
        apart = _differences(seeds, label, RETRAIN, lambda one, _: one.values[measure])
        low, high = 100 * _low(apart), 100 * _high(apart)
        told: bool | None = None
        if -points <= low and high <= points:
            told = True
        elif low > points or high < -points:
            told = False
        beside = "" if isnan(noise) else f", another seed of retraining {noise:.1f}"
        return f"{points_of(apart)} of means; seed by seed {mine:.1f}{beside}", told

    return check


def divergence(label: str) -> Check:
    """Check a method's output KL to the retrained model, held to HF-KCU's."""

    def check(seeds: Seeds) -> Verdict:
        mine, noise = seeds.mean(label, "kl").mean, seeds.mean(AGAIN, "kl").mean
        if isnan(mine):
            return None
        beside = "" if isnan(noise) else f", another seed of retraining {noise:.3g}"
        return f"{mine:.3g}{beside}", mine <= OUTPUT_KL

    return check


def chance(seeds: Seeds) -> Verdict:
    """Check that NaiveGA's test accuracy is at most half of the retrained model's."""
    found, whole = seeds.mean("naive-ga", "test").mean, seeds.mean(RETRAIN, "test").mean
    return None if isnan(found) else (f"{100 * found:.1f}", found <= whole / 2)


def lower(label: str, measure: str) -> Check:
    """Check that a method leaves less of a measure than the original model has."""

    def check(seeds: Seeds) -> Verdict:
        before, after = (100 * seeds.mean(part, measure).mean for part in (ORIGINAL, label))
        if isnan(before) or isnan(after):
            return None
        apart = _differences(seeds, label, ORIGINAL, lambda one, _: one.values[measure])
        return f"{before:.1f} to {after:.1f}", _below([apart])

    return check


def higher(label: str, other: str, measure: str) -> Check:
    """Check that a method has more of a measure than another."""

    def check(seeds: Seeds) -> Verdict:
        mine, theirs = (100 * seeds.mean(part, measure).mean for part in (label, other))
        if isnan(mine) or isnan(theirs):
            return None
        apart = _differences(seeds, other, label, lambda one, _: one.values[measure])
        return f"{mine:.1f}; without {theirs:.1f}", _below([apart])

    return check


def costs_less(label: str, other: str) -> Check:
    """Check that a method takes fewer operations than another."""

    def check(seeds: Seeds) -> Verdict:
        mine, theirs = (seeds.ratio(part, "flops") for part in (label, other))
        if isnan(mine.mean) or isnan(theirs.mean):
            return None
        apart = _differences(seeds, label, other, lambda one, _: one.cost["flops"])
        return f"{times(mine)}; {times(theirs)}", _below([apart])

    return check


RISE = 1.05  # what is less is no growth that anybody means


def growing(label: str, settings: Sequence[str]) -> Along:
    """Check that the reduction in operations grows from each setting to the next.

    Seeds of two settings are no pairs: intervals that do not touch tell them apart. Operations
    hardly depend on the seed, so from the first setting to the last it must be RISE times.
    """

    def check(known: Known) -> Verdict:
        if any(name not in known for name in settings):
            return None
        found = [known[name].ratio(label, "flops") for name in settings]
        if any(isnan(part.mean) for part in found):
            return None
        said = ", ".join(times(part) for part in found)
        steps = list(itertools.pairwise(found))
        falls = any(_high(after) < _low(before) for before, after in steps)
        if falls or _high(found[-1]) < RISE * _low(found[0]):
            return said, False
        return said, all(_low(after) > _high(before) for before, after in steps) or None

    return check


def _apart(seeds: Seeds, one: str, other: str, measure: str) -> Interval:
    return _differences(seeds, one, other, lambda part, truth: gap(part, truth, measure))


def _differences(
    seeds: Seeds, one: str, other: str, value: Callable[[Record, Record], float]
) -> Interval:
    """Return one's value minus the other's over the seeds that have both."""
    found = []
    for seed in seeds.seeds:
        first, second, truth = (seeds.at(seed, label) for label in (one, other, RETRAIN))
        if first is None or second is None or truth is None:
            continue
        if first.values and second.values:
            found.append(value(first, truth) - value(second, truth))
    return interval(found)


def _below(apart: Sequence[Interval]) -> bool | None:
    """Return whether all differences are below zero, False if one is above, else None."""
    if any(_low(part) > 0 for part in apart):
        return False
    return True if all(_high(part) < 0 for part in apart) else None


def _low(part: Interval) -> float:
    return part.mean - part.half


def _high(part: Interval) -> float:
    return part.mean + part.half
