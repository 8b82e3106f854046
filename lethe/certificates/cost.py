"""The cost of an erasure compared with a retraining, if its certificate states both.

The seconds are the worker's own measurements: reported, not verified.
"""

from collections.abc import Mapping
from typing import Final, Literal

from lethe.catalogue import METHODS
from lethe.certificates.statement import Predicate
from lethe.records import dataclass

# Method parameters, in wall-clock seconds: of the method that made the version, of the earlier
# attempts, of the verifier's judgement.
METHOD: Final = "cost.seconds"
EARLIER: Final = "escalation.seconds"
JUDGED: Final = "verification.seconds"
_REPEATED_CLASSES = ("exact-retrained", "retrained")


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds, None if the certificate states none.

    unlearning: of all attempts that were not a retraining. retraining: of one retraining, by
    the method or by the verifier; the verifier's seconds include its other checks.
    """

    unlearning: float | None
    retraining: float | None
    by: Literal["method", "verifier"] | None


def cost_of(predicate: Predicate) -> Cost:
    """Return the cost that a certificate states."""
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
    """Return whether a method retrains the model from the retained rows."""
    spec = METHODS.get(method)
    return method.endswith("-refit") or (spec is not None and spec.retrains)


def _was_repeated(predicate: Predicate) -> bool:
    """Return whether the verifier retrained the model to judge it."""
    repeated = any(check.name == "re-execution" for check in predicate.checks)
    return repeated or predicate.guarantee.class_ in _REPEATED_CLASSES


def _seconds(parameters: Mapping[str, str], name: str) -> float | None:
    try:
        found = float(parameters[name])
    except (KeyError, ValueError):
        return None
    return found if 0 <= found < 1e9 else None  # excludes NaN
