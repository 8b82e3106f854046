"""Membership inference on the forget rows: controls before, equivalence to chance after.

Three measurements decide for an attack: its accuracy at a threshold fixed beforehand, its AUC,
which no threshold can hide from, and how many forget rows stand out at a low false positive
rate, where a few remembered ones show that no average would. What papers report besides, the
advantage, decides nothing and has its interval.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf

from workers.errors import RefusedError
from workers.judge.attacks.attack import Scores, Setting
from workers.judge.attacks.registry import ATTACKS
from workers.judge.attacks.roc import (
    advantage,
    advantage_interval,
    auc_interval,
    best_advantage,
    best_advantage_interval,
    caught,
    delong,
    tpr_at_fpr,
)
from workers.judge.policy.policy import Policy
from workers.judge.samples.decide import REPORT_LEVEL, Measurement, unmeasured
from workers.judge.samples.intervals import Interval, clopper_pearson, spell
from workers.judge.samples.sizes import minimum_unseen
from workers.judge.samples.tost import around_chance

FIXED = "true less false positive rate at the threshold fixed beforehand"
BEST = "greatest true less false positive rate of any threshold, chosen after the fact"
OBSERVED = "TPR at FPR: of the threshold that flags this share of these non-members, given it"
TAILS = (0.01, 0.001)  # false positive rates of which papers report


Scored = Mapping[str, Scores | str]


def scored(policy: Policy, setting: Setting) -> Scored:
    """Return the scores of each of a policy's attacks, or why it cannot be run."""
    found: dict[str, Scores | str] = {}
    for attack in policy.attacks:
        try:
            found[attack] = ATTACKS[attack](setting)
        except RefusedError as reason:
            found[attack] = str(reason)
    return found


def controls(policy: Policy, before: Scored) -> list[Measurement]:
    """Return for each attack what must be shown before unlearning: an AUC above 1/2 + tau.

    Then an unchanged model could not pass: the same numbers would have to lie on both sides
    of 1/2 + tau. That rests on the AUC alone, so the AUC alone is tested.
    """
    margin = (0.5 + policy.tau, inf)
    threshold = f"AUC greater than 1/2 + {policy.tau:g} before unlearning"
    found: list[Measurement] = []
    for attack, scores in before.items():
        name = f"control:{attack}"
        if isinstance(scores, str):
            found.append(unmeasured(name, scores, margin, threshold))
            continue
        measured = _auc(name, scores, margin, threshold)
        if scores.threshold is not None:
            accuracy = _accuracy(name, scores, margin, threshold).value
            measured = replace(measured, value=f"{measured.value}; accuracy {accuracy}")
        found.append(measured)
    return found


def tests(policy: Policy, after: Scored) -> list[Measurement]:
    """Return for each attack what must be shown after unlearning."""
    margin = around_chance(policy.tau)
    threshold = f"between {spell(margin[0])} and {spell(margin[1])}"
    found: list[Measurement] = []
    for name, scores in after.items():
        found += _chance(name, scores, margin, threshold)
        found.append(_tail(name, policy, scores))
    return found


def advantages(before: Scored, after: Scored) -> list[Measurement]:
    """Return the advantage of each attack that could be run, which is reported only.

    At the threshold fixed beforehand, where there is one, and at the best of all thresholds,
    which nobody knows who attacks: it is found on the rows that it is told of.
    """
    found: list[Measurement] = []
    for attack in after:
        was, now = before[attack], after[attack]
        if isinstance(was, str) or isinstance(now, str):
            continue  # the attack's other checks say why
        if was.threshold is not None and now.threshold is not None:
            found.append(_reported(f"{attack}:advantage", FIXED, _fixed, was, now))
        found.append(_reported(f"{attack}:best-advantage", BEST, _best, was, now))
    return found


def _chance(
    attack: str, scores: Scores | str, margin: Interval, threshold: str
) -> list[Measurement]:
    """Return accuracy, where a threshold is fixed beforehand, and AUC."""
    if isinstance(scores, str):
        return [unmeasured(f"{attack}:auc", scores, margin, threshold)]
    found = [_auc(f"{attack}:auc", scores, margin, threshold)]
    if scores.threshold is not None:
        found.insert(0, _accuracy(f"{attack}:accuracy", scores, margin, threshold))
    return found


def _accuracy(name: str, scores: Scores, margin: Interval, threshold: str) -> Measurement:
    assert scores.threshold is not None
    correct = sum(int(side.sum()) for side in scores.correct())
    guesses = len(scores.forget) + len(scores.unseen)
    gained = advantage(scores.forget, scores.unseen, scores.threshold)
    value = f"{correct / guesses:.4f} ({correct} of {guesses} right), advantage {gained:.4f}"
    return Measurement(name, value, _proportion(correct, guesses), margin, threshold)


def _auc(name: str, scores: Scores, margin: Interval, threshold: str) -> Measurement:
    area, variance = delong(scores.forget, scores.unseen)
    smaller = min(len(scores.forget), len(scores.unseen))
    best = best_advantage(scores.forget, scores.unseen)
    value = (
        f"{area:.4f} ({len(scores.forget)} forget, {len(scores.unseen)} unseen rows; DeLong), "
        f"best advantage after the fact {best:.4f}"
    )

    def interval(level: float) -> Interval:
        return auc_interval(area, variance, smaller, level)

    return Measurement(name, value, interval, margin, threshold)


def _reported(
    name: str,
    about: str,
    measure: Callable[[Scores, float], tuple[float, Interval]],
    before: Scores,
    after: Scores,
) -> Measurement:
    was, (low, high) = measure(before, REPORT_LEVEL)
    value = f"{measure(after, REPORT_LEVEL)[0]:.4f}; {was:.4f} before unlearning"
    value += f" ({spell(low)} to {spell(high)} at 95 %)"
    return Measurement(name, value, lambda level: measure(after, level)[1], None, about)


def _fixed(scores: Scores, level: float) -> tuple[float, Interval]:
    assert scores.threshold is not None
    given = scores.forget, scores.unseen, scores.threshold
    return advantage(*given), advantage_interval(*given, level)


def _best(scores: Scores, level: float) -> tuple[float, Interval]:
    given = scores.forget, scores.unseen
    return best_advantage(*given), best_advantage_interval(*given, level)


def _tail(attack: str, policy: Policy, scores: Scores | str) -> Measurement:
    name, margin = f"{attack}:tail", (-inf, policy.tail_limit)
    threshold = (
        f"true positives below {policy.tail_limit:g} where at most {policy.tail_rate:g} of "
        f"non-members are flagged (at 95 %); {OBSERVED}"
    )
    if isinstance(scores, str):
        return unmeasured(name, scores, margin, threshold)
    total = len(scores.forget)
    hits = caught(scores.forget, scores.unseen, policy.tail_rate)
    if hits is None:
        needed = minimum_unseen(policy.tail_rate)
        return unmeasured(name, f"not measured: needs {needed} non-members", margin, threshold)
    value = f"{hits / total:.4f} ({hits} of {total} forget rows)"
    for rate in TAILS:
        value += f"; {_observed(scores, rate)}"
    return Measurement(name, value, _proportion(hits, total), margin, threshold)


def _observed(scores: Scores, rate: float) -> str:
    """Say the true positive rate at an observed false one, where that can be told at all.

    The unseen rows alone choose the threshold, so of this threshold the interval is exact. Its
    false positive rate on other rows is not known to be `rate`: for that there is `caught`.
    """
    if len(scores.unseen) < minimum_unseen(rate):
        return f"TPR at FPR {rate:g} not measured: needs {minimum_unseen(rate)} non-members"
    found = tpr_at_fpr(scores.forget, scores.unseen, rate)
    total = len(scores.forget)
    low, high = clopper_pearson(round(found * total), total, 0.05)
    return f"TPR at FPR {rate:g} {found:.4f} ({spell(low)} to {spell(high)} at 95 %)"


def _proportion(successes: int, trials: int) -> Callable[[float], Interval]:
    return lambda level: clopper_pearson(successes, trials, level)
