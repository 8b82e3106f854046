"""Unlearning methods by the name in a request, with settings as in JSON."""

from collections.abc import Mapping
from typing import Any

from workers.discovery import import_room
from workers.errors import RefusedError
from workers.methods.network.base import MAKERS, Maker, UnlearningMethod
from workers.methods.network.guard import NoSafeStepError, StepGuard
from workers.methods.network.hf_kcu.conjugate_gradients import BreakdownError
from workers.methods.network.hf_kcu.direction import CurvatureError
from workers.methods.network.recovery import LastingDamageError, OutOfMemoryError, Recovery
from workers.training.fedavg.errors import DivergedError

for _room in (
    "workers.methods.network",
    "workers.methods.network.baselines",
    "workers.methods.network.hf_kcu",
    "workers.methods.certified",
):
    import_room(_room)
METHODS: dict[str, Maker] = MAKERS
_NESTED: Mapping[str, type[Any]] = {"guard": StepGuard, "recovery": Recovery}


def make(
    method_id: str,
    settings: Mapping[str, Any] | None = None,
    methods: Mapping[str, Maker] = METHODS,
) -> UnlearningMethod:
    """Return one of `methods` with these settings and defaults for the others.

    guard and recovery are objects of their own settings; guard null is the fixed step.
    Raises RefusedError for an unknown name, naming the known, or unknown settings.
    """
    try:
        maker = methods[method_id]
    except (KeyError, TypeError):
        # The requested name is untrusted and not echoed.
        raise RefusedError(
            f"unknown method: choose one of {', '.join(sorted(methods))}"
        ) from None
    try:
        given = dict(settings or {})
        for name, nested in _NESTED.items():
            if name not in given or isinstance(given[name], nested):
                continue
            if given[name] is not None or name != "guard":
                given[name] = nested(**given[name])
        return maker(**given)
    except (TypeError, ValueError):
        raise RefusedError(
            f"{method_id}: a setting is unknown, or of another type than it must "
            "have: docs/federated.md lists them"
        ) from None


WITHOUT_A_MODEL = (
    DivergedError,
    NoSafeStepError,
    LastingDamageError,
    BreakdownError,
    CurvatureError,
    OutOfMemoryError,
)
