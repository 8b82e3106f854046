"""All that was measured, as the JSON that is kept and as the numbers that have targets."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.common import Line
from benchmarks.soundness.costs import VerdictCost
from benchmarks.soundness.empirical import Facts
from benchmarks.soundness.providers import STORAGE
from benchmarks.soundness.rates import LEVEL, Rate
from workers.judge.inference.intervals import clopper_pearson

GAP = 15.0  # points by which forget accuracy must exceed unseen accuracy, for power


@dataclass(frozen=True, slots=True)
class SoundnessResults:
    """One run. powerful: the settings in which attacks are expected to find the rows.

    edge: those in which they just do: an honest retraining may stay undecided there, and
    whoever does nothing, or hides it, has the best chance.
    """

    quick: bool
    machine: dict[str, str]
    rates: Sequence[Rate]
    facts: Sequence[Facts]
    costs: Sequence[VerdictCost]
    powerful: Sequence[str]
    edge: Sequence[str] = ()

    def chosen(self, wanted: Callable[[Rate], bool]) -> tuple[int, int]:
        """Return (accepted, trials) of some lines together."""
        lines = [rate for rate in self.rates if wanted(rate)]
        return sum(r.verdicts["PASS"] for r in lines), sum(r.trials for r in lines)

    def exact(self, *, honest: bool, guarantee: str = "exact") -> tuple[int, int]:
        """Return (accepted, trials) of the class `exact`, or of `exact-retrained`."""
        return self.chosen(
            lambda rate: (
                rate.guarantee == guarantee
                and rate.honest is honest
                and rate.provider not in STORAGE
            )
        )

    def swapped(self, guarantee: str) -> tuple[int, int]:
        """Return (accepted, trials) of those who forge the stored rows."""
        return self.chosen(
            lambda rate: rate.guarantee == guarantee and rate.provider in STORAGE
        )

    def empirical(self, provider: str, *settings: str) -> tuple[int, int]:
        """Return (accepted, trials) of one provider in some or all settings with power."""
        chosen = settings or self.powerful
        return self.chosen(lambda rate: rate.provider == provider and rate.setting in chosen)

    def gap(self, setting: str) -> float:
        """Return the least gap in points of any world of a setting."""
        return min(fact.gap for fact in self.facts if fact.setting == setting)


def lines(results: SoundnessResults) -> list[Line]:
    """Return what has a target, with whether it is met."""
    passed, cheats = results.exact(honest=False)
    kept, honest = results.exact(honest=True)
    found = [
        Line("exact cheats accepted", passed, f"0 of 10,000; {cheats:,} tried", passed == 0),
        Line(
            "exact honest refused",
            honest - kept,
            f"0 of 1,000; {honest:,} tried",
            kept == honest,
        ),
    ]
    again, retrained = results.exact(honest=False, guarantee="exact-retrained")
    stayed, trained = results.exact(honest=True, guarantee="exact-retrained")
    if retrained:
        found.append(
            Line(
                "exact-retrained cheats accepted",
                again,
                f"0; {retrained:,} tried",
                again == 0,
            )
        )
    if trained:
        found.append(
            Line(
                "exact-retrained honest refused",
                trained - stayed,
                f"0; {trained:,} tried",
                stayed == trained,
            )
        )
    for name in results.powerful:
        noop, retrain = (
            results.empirical("no-op", name),
            results.empirical("honest retrain", name),
        )
        found += [
            Line(
                f"no-op accepted, {name}",
                noop[0] / noop[1],
                "at most 0.01",
                noop[0] <= 0.01 * noop[1],
            ),
            Line(
                f"honest retrain accepted, {name}",
                retrain[0] / retrain[1],
                "at least 0.95",
                retrain[0] >= 0.95 * retrain[1],
            ),
        ]
    for name in results.edge:
        for provider in ("no-op", "one class loud"):
            took, tried = results.empirical(provider, name)
            what = f"{provider} accepted, {name}"
            if tried:
                rate = took / tried
                found.append(Line(what, rate, "at most 0.01", rate <= 0.01))
    for guarantee in dict.fromkeys(rate.guarantee for rate in results.rates):
        took, tried = results.swapped(guarantee)
        if tried:
            found.append(
                Line(f"swapped rows accepted, {guarantee}", took / tried, "0", took == 0)
            )
    weak = [
        rate
        for rate in results.rates
        if rate.guarantee == "empirical-approximate"
        and rate.setting not in (*results.powerful, *results.edge)
    ]
    wrong = sum(rate.verdicts["PASS"] for rate in weak)
    if weak:
        found.append(Line("PASS where nothing has power", wrong, "0", wrong == 0))
    for name in results.powerful:
        gap = results.gap(name)
        found.append(Line(f"least gap in points, {name}", gap, f"at least {GAP:g}", gap >= GAP))
    for cost in results.costs:
        if cost.target is not None:
            found.append(
                Line(
                    f"{cost.what} / {cost.beside}",
                    cost.ratio,
                    f"below {cost.target:g}",
                    cost.ratio < cost.target,
                )
            )
    return found


def format_results(results: SoundnessResults) -> str:
    """Return the JSON document of a run."""
    passed, cheats = results.exact(honest=False)
    kept, honest = results.exact(honest=True)
    noop, retrain = results.empirical("no-op"), results.empirical("honest retrain")
    document: dict[str, Any] = {
        "quick": results.quick,
        "machine": results.machine,
        "exact_false_accepts": passed,
        "exact_trials": cheats,
        "exact_false_accept_interval": _interval(passed, cheats),
        "exact_false_rejects": honest - kept,
        "exact_honest_trials": honest,
        "exact_false_reject_interval": _interval(honest - kept, honest),
        "noop_accept_rate": noop[0] / noop[1],
        "noop_trials": noop[1],
        "noop_accept_interval": _interval(*noop),
        "honest_retrain_accept_rate": retrain[0] / retrain[1],
        "honest_retrain_trials": retrain[1],
        "honest_retrain_accept_interval": _interval(*retrain),
        "interval_level": LEVEL,
        "powerful": list(results.powerful),
        "edge": list(results.edge),
        "least_gap_points": {
            name: results.gap(name)
            for name in dict.fromkeys(fact.setting for fact in results.facts)
        },
        "claims": [asdict(line) for line in lines(results)],
        "costs": [asdict(cost) for cost in results.costs],
        "table": [_row(rate) for rate in results.rates],
    }
    return json.dumps(document, indent=1) + "\n"


def _row(rate: Rate) -> dict[str, Any]:
    return {
        "class": rate.guarantee,
        "setting": rate.setting,
        "provider": rate.provider,
        "honest": rate.honest,
        "trials": rate.trials,
        "verdicts": rate.verdicts,
        "accepted": rate.accepted,
        "interval": list(rate.interval),
        "blocks": rate.blocks,
        "blocks_ever_accepted": rate.ever,
        "block_interval": list(rate.block_interval),
        "worst_block": rate.worst,
        "refused_by": rate.refused_by,
    }


def _interval(count: int, trials: int) -> list[float]:
    return list(clopper_pearson(count, trials, LEVEL))
