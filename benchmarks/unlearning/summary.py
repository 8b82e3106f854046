"""Seeds together: means with 95 % intervals, differences to the retrained model seed by seed.

Intervals are Student's t over seeds, two-sided. A difference is taken within each seed first:
both models know the same rows, and what a seed makes easy or hard cancels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf, isfinite, isnan, nan, sqrt
from statistics import fmean, stdev

from scipy.stats import t

from benchmarks.unlearning.contenders import ORIGINAL, RETRAIN
from benchmarks.unlearning.machines import comparable
from benchmarks.unlearning.records import Record, Records

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """mean ± half over so many seeds; half is NaN for a single one, both for none."""

    mean: float
    half: float
    seeds: int


def interval(values: Sequence[float]) -> Interval:
    """Return the mean and the half width of its 95 % t interval."""
    if not values:
        return Interval(nan, nan, 0)
    if len(values) == 1:
        return Interval(values[0], nan, 1)
    half = _quantile(len(values) - 1) * stdev(values) / sqrt(len(values))
    return Interval(fmean(values), half, len(values))


def one_minus_ratio(pairs: Sequence[tuple[float, float]]) -> Interval:
    """Return 1 - mean of the first / mean of the second, over seeds, with a 95 % interval.

    The interval is the jackknife's (Tukey, Ann. Math. Statist. 1958): of the values without
    one seed. NaN where the second mean is zero; half is NaN where it is without some seed.
    """
    whole = _one_minus(pairs)
    if isnan(whole) or len(pairs) < 2:
        return Interval(whole, nan, len(pairs))
    less = [_one_minus([*pairs[:i], *pairs[i + 1 :]]) for i in range(len(pairs))]
    if any(isnan(one) for one in less):
        return Interval(whole, nan, len(pairs))
    error = stdev(less) * (len(pairs) - 1) / sqrt(len(pairs))
    return Interval(whole, _quantile(len(pairs) - 1) * error, len(pairs))


def _one_minus(pairs: Sequence[tuple[float, float]]) -> float:
    below = fmean(pair[1] for pair in pairs) if pairs else 0.0
    return 1 - fmean(pair[0] for pair in pairs) / below if below else nan


@cache
def _quantile(freedom: int) -> float:
    return float(t.ppf((1 + CONFIDENCE) / 2, freedom))


@dataclass(frozen=True, slots=True)
class Seeds:
    """The results of one setting, by seed and label."""

    setting: str
    records: Records

    @property
    def seeds(self) -> list[int]:
        """The seeds with a retrained model, which all else is held to."""
        found = {seed for _, seed, label in self.records if label == RETRAIN}
        return sorted(seed for seed in found if self.at(seed, ORIGINAL) is not None)

    @property
    def labels(self) -> list[str]:
        """Who was measured, in the order of the lines."""
        return list(dict.fromkeys(label for _, _, label in self.records))

    def at(self, seed: int, label: str) -> Record | None:
        """Return one result, None if it is not there."""
        return self.records.get((self.setting, seed, label))

    def over(self, label: str, value: Callable[[Record, Record], float]) -> list[float]:
        """Return value(record, the retrained one) for each seed that has a measured one."""
        found = []
        for seed in self.seeds:
            record, truth = self.at(seed, label), self.at(seed, RETRAIN)
            assert truth is not None  # `seeds`
            if record is None or record.refused:
                continue
            number = value(record, truth)
            if isfinite(number):
                found.append(number)
        return found

    def mean(self, label: str, name: str) -> Interval:
        """Return a measure over seeds."""
        return interval(self.over(label, lambda one, _: one.values.get(name, nan)))

    def gap(self, label: str, name: str) -> Interval:
        """Return |measure - the retrained model's| over seeds."""
        return interval(self.over(label, lambda one, truth: gap(one, truth, name)))

    def cost(self, label: str, name: str) -> Interval:
        """Return a cost over seeds."""
        return interval(self.over(label, lambda one, _: one.cost.get(name, nan)))

    def ratio(self, label: str, name: str) -> Interval:
        """Return how many times less than retraining a method took, over seeds."""
        return interval(self.over(label, lambda one, truth: ratio(one, truth, name)))

    def residuals(self, label: str) -> list[float]:
        """Return ‖g - Ax‖ / ‖g‖ at the end of each solver, over seeds and cycles."""
        found = []
        for seed in self.seeds:
            record = self.at(seed, label)
            said = record.notes.get("cg.residual", "") if record is not None else ""
            found += [float(part) for part in said.split(" | ") if part]
        return found

    def refusal(self, label: str) -> str:
        """Return why a method refused, if it never did anything else; else nothing."""
        found = [self.at(seed, label) for seed in self.seeds]
        said = [record.refused for record in found if record is not None]
        return said[0] if said and all(said) else ""

    def refusals(self, label: str) -> int:
        """Return in how many seeds a method refused."""
        found = [self.at(seed, label) for seed in self.seeds]
        return sum(1 for record in found if record is not None and record.refused)


def gap(one: Record, truth: Record, name: str) -> float:
    """Return |measure - the retrained model's|; NaN where either has none."""
    return abs(one.values.get(name, nan) - truth.values.get(name, nan))


def ratio(one: Record, truth: Record, name: str) -> float:
    """Return the retraining's cost over the method's; infinite where that costs nothing.

    NaN for seconds of two machines.
    """
    if name == "seconds" and not comparable(one.machine, truth.machine):
        return nan
    mine, theirs = one.cost.get(name, nan), truth.cost.get(name, nan)
    if mine == 0:
        return inf
    return theirs / mine


def of(records: Records, setting: str) -> Seeds:
    """Return the results of a setting."""
    return Seeds(setting, {key: part for key, part in records.items() if key[0] == setting})
