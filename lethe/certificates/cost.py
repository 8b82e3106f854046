"""What an erasure cost beside a retraining, as far as its certificate states both.

Seconds are what the worker's clock said: reported, and verified by nobody.
"""

from collections.abc import Mapping
from typing import Final, Literal

from lethe.certificates.statement import Predicate
from lethe.records import dataclass

# Parameters of a method, wall-clock seconds: of the method that made the version; of the
# attempts before it; of the verifier's judgement.
METHOD: Final = "cost.seconds"
EARLIER: Final = "escalation.seconds"
JUDGED: Final = "verification.seconds"
_RETRAININGS = ("retrain", "refit", "refit-shards", "rerun")
_REPEATED_CLASSES = ("exact-retrained", "retrained")


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds, None where the certificate states none.

    unlearning: of all attempts that were no retraining. retraining: of one, by the method or by
    the verifier, whose seconds include its other checks.
    """

    unlearning: float | None
    retraining: float | None
    by: Literal["method", "verifier"] | None


def cost_of(predicate: Predicate) -> Cost:
    """Return what a certificate states of its cost."""
    parameters = predicate.method.parameters
    own, earlier = (_seconds(parameters, name) for name in (METHOD, EARLIER))
    if is_retraining(predicate.method.id):
        return Cost(earlier, own, None if own is None else "method")
    unlearning = None if own is None else own + (earlier or 0.0)
    judged = _seconds(parameters, JUDGED)
    if judged is None or not _was_repeated(predicate):
        return Cost(unlearning, None, None)
    return Cost(unlearning, judged, "verifier")


def is_retraining(method: str) -> bool:
    """Return whether a method makes the model anew from the retained rows."""
    return method in _RETRAININGS or method.endswith("-refit")


def _was_repeated(predicate: Predicate) -> bool:
    """Return whether the verifier made the model anew to judge it."""
    repeated = any(check.name == "re-execution" for check in predicate.checks)
    return repeated or predicate.guarantee.class_ in _REPEATED_CLASSES


def _seconds(parameters: Mapping[str, str], name: str) -> float | None:
    try:
        found = float(parameters[name])
    except (KeyError, ValueError):
        return None
    return found if 0 <= found < 1e9 else None  # and no NaN
