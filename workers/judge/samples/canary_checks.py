"""Checks of the canary: the trigger worked before, by itself, and no longer works.

They apply to the erasure of a client who planted it. If no planted row is erased, nothing about
the trigger is to be unlearned, and it decides nothing. If rows that teach the same trigger are
retained, a retrained model would know it too, so a trigger that still works refutes nothing.
"""

from functools import partial
from math import inf

from lethe.catalogue import CHECKS
from workers.judge.inference.intervals import Flags, Interval, loss_interval
from workers.judge.samples.canary import CanaryClaim, check_canary, hits, success_interval
from workers.judge.samples.decide import CONTROLS, TESTS, Measurement, Tested, unmeasured
from workers.judge.samples.empirical_claim import EmpiricalClaim

SPEC = CHECKS["canary"]
MISSING = "not measured: no canary"
NO_ROWS = "not measured: every unseen row has the target class"


@TESTS.check("canary")
def canary(tested: Tested) -> list[Measurement]:
    """Return the success rate of the trigger after unlearning, if there is a canary.

    Raises RefusedError if it is malformed.
    """
    claim = tested.claim
    limit, given = claim.policy.canary_limit, claim.canary
    margin = None if limit is None else (-inf, limit)
    threshold = None if limit is None else f"below {limit:g}"
    if given is None:
        return [] if limit is None else [unmeasured(SPEC, MISSING, margin, threshold)]
    check_canary(given, claim.pool_labels)
    if not len(given.after):
        return [unmeasured(SPEC, NO_ROWS, margin, threshold)]
    was, remains = (hits(logits, given.target) for logits in (given.before, given.after))
    value = (
        f"{remains.mean():.4f} of {len(remains)} stamped rows, {was.mean():.4f} before; "
        f"planted in {given.leaving} rows that left and {given.staying} that stay"
    )
    if given.leaving == 0:
        value += ": nothing of it was to be unlearned"
        return [Measurement(SPEC, value, partial(success_interval, remains), None, None)]
    interval = _upper if given.staying else success_interval
    return [Measurement(SPEC, value, partial(interval, remains), margin, threshold)]


@CONTROLS.check("control:canary")
def canary_controls(tested: Tested) -> list[Measurement]:
    """Return measurements that the trigger worked before, if the canary is to decide.

    Rows predicted as the target without it are no sign of a trigger: its added effect on the
    same rows must be seen too. Raises RefusedError if the canary is malformed.
    """
    claim = tested.claim
    limit, given = claim.policy.canary_limit, claim.canary
    if limit is None or given is None or given.leaving == 0:
        return []
    check_canary(given, claim.pool_labels)
    if not len(given.before):
        return []  # `canary` reports it, and is undecided
    stamped, plain = hits(given.before, given.target), _plain(claim, given)
    value = f"{stamped.mean():.4f} of {len(stamped)} stamped rows"
    adds = float(stamped.mean()) - float(plain.mean())
    words = f"adds {adds:.4f}: {plain.mean():.4f} without the trigger, {value}"
    return [
        Measurement(
            CHECKS["control:canary"],
            value,
            partial(success_interval, stamped),
            (limit, inf),
            f"above {limit:g}",
        ),
        Measurement(
            CHECKS["control:canary-trigger"],
            words,
            lambda level: loss_interval(stamped, plain, level),
            (0.0, inf),
            "above 0",
        ),
    ]


def _plain(claim: EmpiricalClaim, given: CanaryClaim) -> Flags:
    """Return which of the same rows, unstamped, gave the target before unlearning."""
    return hits(claim.pool_before[claim.pool_labels != given.target], given.target)


def _upper(found: Flags, level: float) -> Interval:
    """Return an upper bound only: a success rate may be due to the retained planted rows."""
    return 0.0, success_interval(found, level)[1]
