"""Membership inference on the forget rows: controls before, equivalence to chance after.

Three measurements decide for an attack: its accuracy at a threshold fixed beforehand, its AUC,
which no threshold can hide from, and how many forget rows stand out at a low false positive
rate, which shows a few remembered rows that an average would hide. The advantage, which papers
report too, decides nothing and has its interval.
"""

from collections.abc import Callable
from dataclasses import replace
from math import inf

from lethe.catalogue import CHECKS, CheckSpec
from lethe.certificates.attack_curve import AttackCurve
from lethe.certificates.attack_curve import spelled as spelled_curve
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
    curve,
    delong,
    reach,
    tpr_at_fpr,
)
from workers.judge.inference.intervals import Interval, around_chance, clopper_pearson, spell
from workers.judge.inference.sizes import minimum_unseen
from workers.judge.policy.policy import Policy
from workers.judge.samples.decide import (
    CONTROLS,
    REPORT_LEVEL,
    TESTS,
    Measurement,
    Scored,
    Tested,
    unmeasured,
)

TAILS = (0.01, 0.001)  # false positive rates that papers report


def scored(policy: Policy, setting: Setting) -> Scored:
    """Return the scores of each of a policy's attacks, or why it cannot be run."""
    found: dict[str, Scores | str] = {}
    for attack in policy.attacks:
        try:
            found[attack] = ATTACKS[attack](setting)
        except RefusedError as reason:
            found[attack] = str(reason)
    return found


@CONTROLS.check("control:*")
def controls(tested: Tested) -> list[Measurement]:
    """Return for each attack what must be shown before unlearning: an AUC above 1/2 + tau.

    Then an unchanged model cannot pass: the same numbers would have to lie on both sides of 1/2
    + tau. That argument uses the AUC alone, so the AUC alone is tested.
    """
    tau = tested.claim.policy.tau
    margin, threshold = (0.5 + tau, inf), f"above {0.5 + tau:g}"
    found: list[Measurement] = []
    for attack, scores in tested.scored_before.items():
        spec = CHECKS["control:*"].of(attack)
        if isinstance(scores, str):
            found.append(unmeasured(spec, scores, margin, threshold))
            continue
        measured = _auc(spec, scores, margin, threshold)
        if scores.threshold is not None:
            accuracy = _accuracy(spec, scores, margin, threshold).value
            measured = replace(measured, value=f"{measured.value}; accuracy {accuracy}")
        found.append(measured)
    return found


@TESTS.check("*:auc")
def tests(tested: Tested) -> list[Measurement]:
    """Return for each attack what must be shown after unlearning."""
    policy = tested.claim.policy
    margin = around_chance(policy.tau)
    threshold = f"between {spell(margin[0])} and {spell(margin[1])}"
    found: list[Measurement] = []
    for name, scores in tested.scored_after.items():
        found += _chance(name, scores, margin, threshold)
        found.append(_tail(name, policy, scores))
    return found


@TESTS.check("*:advantage")
def advantages(tested: Tested) -> list[Measurement]:
    """Return the advantage of each attack that could be run, which is reported only.

    At the threshold fixed beforehand, if there is one, and at the best of all thresholds, which
    no attacker knows: it is chosen on the tested rows.
    """
    found: list[Measurement] = []
    for attack, now in tested.scored_after.items():
        was = tested.scored_before[attack]
        if isinstance(was, str) or isinstance(now, str):
            continue  # the attack's other checks report the reason
        if was.threshold is not None and now.threshold is not None:
            found.append(_reported(CHECKS["*:advantage"].of(attack), _fixed, was, now))
        found.append(_reported(CHECKS["*:best-advantage"].of(attack), _best, was, now))
    return found


@TESTS.check("*:roc")
def curves(tested: Tested) -> list[Measurement]:
    """Return the ROC curve of each attack after and before unlearning, reported only."""
    found: list[Measurement] = []
    for attack, now in tested.scored_after.items():
        was = tested.scored_before[attack]
        if isinstance(was, str) or isinstance(now, str):
            continue  # the attack's other checks report the reason
        rows = len(now.forget), len(now.unseen)
        widths = (reach(len(side), REPORT_LEVEL) for side in (now.unseen, now.forget))
        wide, high = (f"{one:.4f}" for one in widths)
        after, before = (curve(one.forget, one.unseen) for one in (now, was))
        value = spelled_curve(AttackCurve(*rows, after, before, (wide, high)))
        found.append(unmeasured(CHECKS["*:roc"].of(attack), value, None, None))
    return found


def _chance(
    attack: str, scores: Scores | str, margin: Interval, threshold: str
) -> list[Measurement]:
    """Return accuracy, if a threshold is fixed beforehand, and AUC."""
    area = CHECKS["*:auc"].of(attack)
    if isinstance(scores, str):
        return [unmeasured(area, scores, margin, threshold)]
    found = [_auc(area, scores, margin, threshold)]
    if scores.threshold is not None:
        accuracy = CHECKS["*:accuracy"].of(attack)
        found.insert(0, _accuracy(accuracy, scores, margin, threshold))
    return found


def _accuracy(spec: CheckSpec, scores: Scores, margin: Interval, threshold: str) -> Measurement:
    assert scores.threshold is not None
    correct = sum(int(side.sum()) for side in scores.correct())
    guesses = len(scores.forget) + len(scores.unseen)
    gained = advantage(scores.forget, scores.unseen, scores.threshold)
    value = f"{correct / guesses:.4f} ({correct} of {guesses} right), advantage {gained:.4f}"
    return Measurement(spec, value, _proportion(correct, guesses), margin, threshold)


def _auc(spec: CheckSpec, scores: Scores, margin: Interval, threshold: str) -> Measurement:
    area, variance = delong(scores.forget, scores.unseen)
    smaller = min(len(scores.forget), len(scores.unseen))
    best = best_advantage(scores.forget, scores.unseen)
    value = (
        f"{area:.4f} ({len(scores.forget)} forget, {len(scores.unseen)} unseen rows; DeLong), "
        f"best advantage after the fact {best:.4f}"
    )

    def interval(level: float) -> Interval:
        return auc_interval(area, variance, smaller, level)

    return Measurement(spec, value, interval, margin, threshold)


def _reported(
    spec: CheckSpec,
    measure: Callable[[Scores, float], tuple[float, Interval]],
    before: Scores,
    after: Scores,
) -> Measurement:
    was, (low, high) = measure(before, REPORT_LEVEL)
    value = f"{measure(after, REPORT_LEVEL)[0]:.4f}; {was:.4f} before unlearning"
    value += f" ({spell(low)} to {spell(high)} at 95 %)"
    return Measurement(spec, value, lambda level: measure(after, level)[1], None, None)


def _fixed(scores: Scores, level: float) -> tuple[float, Interval]:
    assert scores.threshold is not None
    given = scores.forget, scores.unseen, scores.threshold
    return advantage(*given), advantage_interval(*given, level)


def _best(scores: Scores, level: float) -> tuple[float, Interval]:
    given = scores.forget, scores.unseen
    return best_advantage(*given), best_advantage_interval(*given, level)


def _tail(attack: str, policy: Policy, scores: Scores | str) -> Measurement:
    spec, margin = CHECKS["*:tail"].of(attack), (-inf, policy.tail_limit)
    threshold = (
        f"below {policy.tail_limit:g} where at most {policy.tail_rate:g} of non-members are "
        "flagged (at 95 %)"
    )
    if isinstance(scores, str):
        return unmeasured(spec, scores, margin, threshold)
    total = len(scores.forget)
    hits = caught(scores.forget, scores.unseen, policy.tail_rate)
    if hits is None:
        needed = minimum_unseen(policy.tail_rate)
        return unmeasured(spec, f"not measured: needs {needed} non-members", margin, threshold)
    value = f"{hits / total:.4f} ({hits} of {total} forget rows)"
    for rate in TAILS:
        value += f"; {_observed(scores, rate)}"
    return Measurement(spec, value, _proportion(hits, total), margin, threshold)


def _observed(scores: Scores, rate: float) -> str:
    """Return the true positive rate at an observed false one, if the sample can show it.

    The unseen rows alone choose the threshold, so the interval for this threshold is exact. Its
    false positive rate on other rows is not known to be `rate`: `caught` is for that.
    """
    if len(scores.unseen) < minimum_unseen(rate):
        return f"TPR at FPR {rate:g} not measured: needs {minimum_unseen(rate)} non-members"
    found = tpr_at_fpr(scores.forget, scores.unseen, rate)
    total = len(scores.forget)
    low, high = clopper_pearson(round(found * total), total, 0.05)
    return f"TPR at FPR {rate:g} {found:.4f} ({spell(low)} to {spell(high)} at 95 %)"


def _proportion(successes: int, trials: int) -> Callable[[float], Interval]:
    return lambda level: clopper_pearson(successes, trials, level)
