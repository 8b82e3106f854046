"""The gradient bound for a logistic head that another method made, such as HF-KCU.

Such a step aims at no tolerance, but its distance to the retained rows' optimum can be
bounded. A bound within the registered tolerance certifies the result. Without noise no (ε, δ)
is claimed: HF-KCU's Theorem 7 (a bound in total variation) does not hold for a deterministic
step. With noise, the result is a centre like any other.
"""

from dataclasses import replace

from workers.methods.certified.method import TOLERANCE, CertifiedNewton
from workers.methods.certified.objective import NotConvexError, measure, penalty_of
from workers.methods.certified.release import Release
from workers.methods.network.base import Unlearned, UnlearningCase
from workers.methods.network.hf_kcu.products import Asking, NobodyAnsweredError
from workers.training.fedavg.seeds import derive
from workers.training.networks.weights import norm


def with_bound(
    case: UnlearningCase, found: Unlearned, *, row_norm: float, tolerance: float = TOLERANCE
) -> Unlearned:
    """Return `found` with the bound in its notes, and certified if that is within tolerance.

    Returns `found` unchanged if the objective is not strongly convex or a retained client is
    missing. Costs one gradient of each retained client.
    """
    try:
        penalty = penalty_of(case)
        asking = _asking(case, found)
        gradient = measure(asking, case.retained, penalty, row_norm)
    except (NotConvexError, NobodyAnsweredError):
        return found
    bound, length = gradient.distance(penalty), norm(found.weights)
    notes = {
        **found.notes,
        "certified.penalty": repr(penalty),
        "certified.gradient": repr(gradient.norm),
        "certified.rounding": repr(gradient.rounding),
        "certified.bound": repr(bound),
        "certified.relative": repr(bound / length if length else 0.0),
    }
    made = replace(found, work=found.work + asking.work, notes=notes)
    if not bound <= tolerance * length:
        return made
    return replace(made, claim="certified-approximate")


def with_noise(
    case: UnlearningCase, found: Unlearned, method: CertifiedNewton, key: bytes
) -> Release:
    """Return `found` as the centre of a release with noise, as `method` is registered for it.

    The other method's notes are dropped: they describe the rows without noise. Raises
    NotConvexError, NobodyAnsweredError, BudgetSpentError, LooseResidualError,
    LooseBoundError.
    """
    method.check(case, key)
    penalty, asking = penalty_of(case), _asking(case, found)
    gradient = measure(asking, case.retained, penalty, method.row_norm)
    made = method.around(case, asking, found.weights, gradient, key, {})
    return replace(made, work=found.work + made.work)


def _asking(case: UnlearningCase, found: Unlearned) -> Asking:
    return Asking(
        case.network,
        found.weights,
        case.config.local,
        derive(case.config.seed, "certified-bound", case.config.rounds),
        case.config.timeout,
    )
