"""Unlearning methods by the name a request asks for, with settings as JSON has them."""

from collections.abc import Callable, Mapping
from typing import Any

from workers.errors import RefusedError
from workers.methods.certified import method as certified
from workers.methods.network import (
    hf_kcu,
    natural,
    puf,
    retrain,
)
from workers.methods.network.base import UnlearningMethod
from workers.methods.network.baselines import (
    federated,
    finetune,
    l1_sparsity,
    neg_grad,
    neg_grad_plus,
    random_label,
    scrub,
    wood_fisher,
)
from workers.methods.network.guard import StepGuard
from workers.methods.network.recovery import Recovery

_METHODS: dict[str, Callable[..., UnlearningMethod]] = {
    **certified.METHODS,
    **federated.METHODS,
    **finetune.METHODS,
    **hf_kcu.METHODS,
    **l1_sparsity.METHODS,
    **natural.METHODS,
    **neg_grad.METHODS,
    **neg_grad_plus.METHODS,
    **puf.METHODS,
    **random_label.METHODS,
    **retrain.METHODS,
    **scrub.METHODS,
    **wood_fisher.METHODS,
}
_NESTED: Mapping[str, type[Any]] = {"guard": StepGuard, "recovery": Recovery}


def known() -> tuple[str, ...]:
    """Return the names of all methods, sorted."""
    return tuple(sorted(_METHODS))


def make(method_id: str, settings: Mapping[str, Any] | None = None) -> UnlearningMethod:
    """Return a method with these settings, those not given by default.

    guard and recovery are objects of their own settings; guard null is the fixed step.
    Raises RefusedError for an unknown name, naming the known, or unknown settings.
    """
    try:
        maker = _METHODS[method_id]
    except (KeyError, TypeError):
        # The name asked for comes from outside and is not echoed.
        raise RefusedError(f"unknown method: choose one of {', '.join(known())}") from None
    try:
        given = dict(settings or {})
        for name, nested in _NESTED.items():
            if name not in given or isinstance(given[name], nested):
                continue
            if given[name] is not None or name != "guard":
                given[name] = nested(**given[name])
        return maker(**given)
    except (TypeError, ValueError):
        raise RefusedError(f"{method_id}: unknown settings, or of another type") from None
