"""The utility lost by unlearning: accuracy on retained and unseen rows, and distances.

Accuracy on the forget rows is reported only: a retrained model has lost it, too.
"""

from dataclasses import replace
from math import inf

from lethe.catalogue import CHECKS, CheckSpec
from workers.errors import RefusedError
from workers.judge.attacks.outputs import Outputs, right
from workers.judge.inference.intervals import Interval, clopper_pearson, loss_interval
from workers.judge.samples.decide import (
    ACCURACIES,
    REPORT_LEVEL,
    TESTS,
    Measurement,
    Tested,
    unmeasured,
)
from workers.judge.samples.distances import DISTANCES, Distance, Side, accuracy_difference

UNREFERENCED = "not measured: no retrained reference model"
NAMES: dict[Side, str] = {
    "forget": "forget-accuracy",
    "retained": "retained-accuracy",
    "unseen": "test-accuracy",
}


@ACCURACIES.check("retained-accuracy")
def accuracies(tested: Tested) -> list[Measurement]:
    """Return the accuracy lost on retained and on unseen rows, and that of the forget rows."""
    policy, before, after = tested.claim.policy, tested.before, tested.after
    found = right(after.forget)

    def forgotten(level: float) -> Interval:
        return clopper_pearson(int(found.sum()), len(found), level)

    value = f"{found.mean():.4f} of {len(found)} rows, {right(before.forget).mean():.4f} before"
    return [
        _loss(
            CHECKS["retained-accuracy"], before.retained, after.retained, policy.retained_loss
        ),
        _loss(CHECKS["test-accuracy"], before.pool, after.pool, policy.test_loss),
        Measurement(CHECKS["forget-accuracy"], value, forgotten, None, None),
    ]


@TESTS.check("distances")
def distances(tested: Tested) -> list[Measurement]:
    """Return the distances to a retrained model. Raises RefusedError if it is malformed."""
    claim, after = tested.claim, tested.after
    limits = claim.policy.distances
    if claim.retrained is None:
        missing = [_unreferenced(name, limit) for name, limit in sorted(limits.items())]
        return missing or [unmeasured(CHECKS["distances"], UNREFERENCED, None, None)]
    split = len(after.forget)
    sides: dict[Side, tuple[Outputs, Outputs]] = {
        "forget": (after.forget, Outputs(claim.retrained[:split], claim.forget_labels)),
        "unseen": (after.pool, Outputs(claim.retrained[split:], claim.pool_labels)),
    }
    if claim.retrained_retained is not None:
        answered = Outputs(claim.retrained_retained, claim.retained_labels)
        sides["retained"] = (after.retained, answered)
    found = [
        _distance(name, distance, sides.get(rows), limits.get(name))
        for name, (rows, distance) in DISTANCES.items()
    ]
    found += [_difference(NAMES[rows], sides[rows]) for rows in NAMES if rows in sides]
    if claim.parameter_gap is not None:
        gap, relative = claim.parameter_gap
        if not all(type(value) is float and 0 <= value < inf for value in (gap, relative)):
            raise RefusedError("the parameter gap is two numbers, neither below 0")
        value = f"{gap:.6g}, {relative:.6g} of the retrained norm"
        found.append(unmeasured(CHECKS["distance:parameter-gap"], value, None, None))
    return found


def _loss(spec: CheckSpec, before: Outputs, after: Outputs, allowed: float) -> Measurement:
    was, remains = right(before), right(after)

    def interval(level: float) -> Interval:
        return loss_interval(was, remains, level)

    fall = float(was.mean()) - float(remains.mean())
    value = f"lost {fall:.4f}: {was.mean():.4f} before, {remains.mean():.4f} after"
    value += f", {len(after)} rows"
    return Measurement(spec, value, interval, _upto(allowed), f"below {allowed:g}")


def _difference(name: str, sides: tuple[Outputs, Outputs]) -> Measurement:
    ours, theirs = (float(right(side).mean()) for side in sides)
    value = f"{ours - theirs:+.4f}: {ours:.4f} published, {theirs:.4f} retrained"
    value += f", {len(sides[0])} rows"

    def interval(level: float) -> Interval:
        return accuracy_difference(*sides, level)[1]

    spec = replace(CHECKS["distance:*-accuracy"], name=f"distance:{name}")
    return Measurement(spec, value, interval, None, None)


def _distance(
    name: str, distance: Distance, sides: tuple[Outputs, Outputs] | None, limit: float | None
) -> Measurement:
    if sides is None:
        return _unreferenced(name, limit)

    def interval(level: float) -> Interval:
        return distance(*sides, level)[1]

    value = f"{distance(*sides, REPORT_LEVEL)[0]:.6g} on {len(sides[0])} rows"
    return Measurement(CHECKS[f"distance:{name}"], value, interval, _upto(limit), _limit(limit))


def _unreferenced(name: str, limit: float | None) -> Measurement:
    return unmeasured(CHECKS[f"distance:{name}"], UNREFERENCED, _upto(limit), _limit(limit))


def _upto(limit: float | None) -> Interval | None:
    return None if limit is None else (-inf, limit)


def _limit(limit: float | None) -> str | None:
    return None if limit is None else f"below {limit:g}"
