"""What unlearning cost: accuracy on retained and unseen rows, and what is left of the rest.

Accuracy on the forget rows is reported only: a retrained model has lost it, too.
"""

from math import inf

from workers.errors import RefusedError
from workers.judge.attacks.outputs import Outputs, right
from workers.judge.samples.decide import REPORT_LEVEL, Measurement, unmeasured
from workers.judge.samples.distances import DISTANCES, Distance, Side, accuracy_difference
from workers.judge.samples.empirical_claim import EmpiricalClaim
from workers.judge.samples.intervals import Interval, clopper_pearson, loss_interval
from workers.judge.samples.samples import Answers

UNREFERENCED = "not measured: no retrained reference model"
DIFFERENCE = "accuracy of the published model less that of the retrained one, on the same rows"
NAMES: dict[Side, str] = {
    "forget": "forget-accuracy",
    "retained": "retained-accuracy",
    "unseen": "test-accuracy",
}


def accuracies(claim: EmpiricalClaim, before: Answers, after: Answers) -> list[Measurement]:
    """Return the accuracy lost on retained and on unseen rows, and that of the forget rows."""
    policy = claim.policy
    found = right(after.forget)

    def forgotten(level: float) -> Interval:
        return clopper_pearson(int(found.sum()), len(found), level)

    value = f"{found.mean():.4f} of {len(found)} rows, {right(before.forget).mean():.4f} before"
    return [
        _loss("retained-accuracy", before.retained, after.retained, policy.retained_loss),
        _loss("test-accuracy", before.pool, after.pool, policy.test_loss),
        Measurement("forget-accuracy", value, forgotten, None, "accuracy on forget rows"),
    ]


def distances(claim: EmpiricalClaim, after: Answers) -> list[Measurement]:
    """Return the distances to a retrained model. Raises RefusedError if it is malformed."""
    limits = claim.policy.distances
    if claim.retrained is None:
        missing = [_unreferenced(name, limit) for name, limit in sorted(limits.items())]
        return missing or [
            unmeasured("distances", UNREFERENCED, None, "no limit in the policy")
        ]
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
        name = "distance:parameter-gap"
        found.append(unmeasured(name, value, None, "units can be permuted: it shows nothing"))
    return found


def _loss(name: str, before: Outputs, after: Outputs, allowed: float) -> Measurement:
    was, remains = right(before), right(after)

    def interval(level: float) -> Interval:
        return loss_interval(was, remains, level)

    fall = float(was.mean()) - float(remains.mean())
    value = f"lost {fall:.4f}: {was.mean():.4f} before, {remains.mean():.4f} after"
    value += f", {len(after)} rows"
    return Measurement(name, value, interval, _upto(allowed), f"loses less than {allowed:g}")


def _difference(name: str, sides: tuple[Outputs, Outputs]) -> Measurement:
    ours, theirs = (float(right(side).mean()) for side in sides)
    value = f"{ours - theirs:+.4f}: {ours:.4f} published, {theirs:.4f} retrained"
    value += f", {len(sides[0])} rows"

    def interval(level: float) -> Interval:
        return accuracy_difference(*sides, level)[1]

    return Measurement(f"distance:{name}", value, interval, None, DIFFERENCE)


def _distance(
    name: str, distance: Distance, sides: tuple[Outputs, Outputs] | None, limit: float | None
) -> Measurement:
    if sides is None:
        return _unreferenced(name, limit)

    def interval(level: float) -> Interval:
        return distance(*sides, level)[1]

    value = f"{distance(*sides, REPORT_LEVEL)[0]:.6g} on {len(sides[0])} rows"
    return Measurement(f"distance:{name}", value, interval, _upto(limit), _limit(name, limit))


def _unreferenced(name: str, limit: float | None) -> Measurement:
    return unmeasured(f"distance:{name}", UNREFERENCED, _upto(limit), _limit(name, limit))


def _upto(limit: float | None) -> Interval | None:
    return None if limit is None else (-inf, limit)


def _limit(name: str, limit: float | None) -> str:
    return "no limit in the policy" if limit is None else f"{name} below {limit:g}"
