"""Membership inference on the forget rows: controls before, equivalence to chance after.

Three measurements an attack: its accuracy at a threshold fixed beforehand, its AUC, which no
threshold can hide from, and how many forget rows stand out at a low false positive rate,
where a few remembered ones show that no average would.
"""

from collections.abc import Callable
from dataclasses import replace
from math import inf

from workers.errors import RefusedError
from workers.verifier.attacks.attack import Scores, Setting
from workers.verifier.attacks.registry import ATTACKS
from workers.verifier.attacks.roc import (
    advantage,
    auc_interval,
    best_advantage,
    caught,
    delong,
    tpr_at_fpr,
)
from workers.verifier.decide import Measurement, unmeasured
from workers.verifier.intervals import Interval, clopper_pearson, spell
from workers.verifier.policy import Policy
from workers.verifier.sizes import minimum_unseen
from workers.verifier.tost import around_chance

TAILS = (0.01, 0.001)  # false positive rates of which papers report


def controls(policy: Policy, before: Setting) -> list[Measurement]:
    """Return for each attack what must be shown before unlearning: an AUC above 1/2 + tau.

    Then an unchanged model could not pass: the same numbers would have to lie on both sides
    of 1/2 + tau. That rests on the AUC alone, so the AUC alone is tested.
    """
    margin = (0.5 + policy.tau, inf)
    threshold = f"AUC greater than 1/2 + {policy.tau:g} before unlearning"
    found: list[Measurement] = []
    for attack in policy.attacks:
        name, scores = f"control:{attack}", _scores(attack, before)
        if isinstance(scores, str):
            found.append(unmeasured(name, scores, margin, threshold))
            continue
        measured = _auc(name, scores, margin, threshold)
        if scores.threshold is not None:
            accuracy = _accuracy(name, scores, margin, threshold).value
            measured = replace(measured, value=f"{measured.value}; accuracy {accuracy}")
        found.append(measured)
    return found


def tests(policy: Policy, after: Setting) -> list[Measurement]:
    """Return for each attack what must be shown after unlearning."""
    margin = around_chance(policy.tau)
    threshold = f"between {spell(margin[0])} and {spell(margin[1])}"
    found: list[Measurement] = []
    for name in policy.attacks:
        scores = _scores(name, after)
        found += _chance(name, scores, margin, threshold)
        found.append(_tail(name, policy, scores))
    return found


def _scores(attack: str, setting: Setting) -> Scores | str:
    """Return the scores of an attack, or why it cannot be run."""
    try:
        return ATTACKS[attack](setting)
    except RefusedError as reason:
        return str(reason)


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


def _tail(attack: str, policy: Policy, scores: Scores | str) -> Measurement:
    name, margin = f"{attack}:tail", (-inf, policy.tail_limit)
    threshold = (
        f"true positives below {policy.tail_limit:g} where at most {policy.tail_rate:g} of "
        "non-members are flagged (at 95 %)"
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
    """Say the true positive rate at an observed false one, where that can be told at all."""
    if len(scores.unseen) < minimum_unseen(rate):
        return f"TPR at FPR {rate:g} not measured: needs {minimum_unseen(rate)} non-members"
    found = tpr_at_fpr(scores.forget, scores.unseen, rate)
    total = len(scores.forget)
    low, high = clopper_pearson(round(found * total), total, 0.05)
    return f"TPR at FPR {rate:g} {found:.4f} ({spell(low)} to {spell(high)} at 95 %)"


def _proportion(successes: int, trials: int) -> Callable[[float], Interval]:
    return lambda level: clopper_pearson(successes, trials, level)
