"""Certified removal of a head: its terms, key, budget and secret.

The terms are the settings of certified-newton in the registration. They apply to HF-KCU too: a
logistic head made by it is certified if the bound allows it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.service.context import Services
from app.vault.master import CERTIFIED_NEWTON, NOISY_FINETUNING, noise_key
from models import Model
from workers.errors import RefusedError
from workers.families.network import logged, noisy
from workers.families.network.config import NetworkConfig
from workers.methods.certified.bound import with_bound, with_noise
from workers.methods.certified.budget import BudgetSpentError, LooseResidualError
from workers.methods.certified.method import CertifiedNewton, LooseBoundError
from workers.methods.certified.objective import NotConvexError
from workers.methods.certified.release import Release
from workers.methods.network.base import Hooks, Unlearned, UnlearningCase, UnlearningMethod
from workers.methods.network.registry import make
from workers.training.fedavg.base import ClientData

CERTIFIED = "certified-approximate"
BOUNDED = "hf-kcu"  # the other method whose logistic heads can be certified
# For these errors a retraining takes over, as for a step that is never safe.
GIVES_WAY = (
    *(BudgetSpentError, LooseBoundError, LooseResidualError, NotConvexError),
    *(logged.UnprovenTrainingError, noisy.NotRegisteredError, noisy.SilosError),
)


@dataclass(frozen=True, slots=True, eq=False)
class Carried:
    """A method's result, the bounds of its certificate, and the secret for its verifier."""

    found: Unlearned
    bounds: Mapping[str, str]
    secret: bytes | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """The registered certified removal, with the earlier releases; key iff sigma > 0."""

    method: CertifiedNewton
    key: bytes | None


def load_terms(
    services: Services,
    model: Model,
    config: NetworkConfig,
    retained: Mapping[str, ClientData],
    method_id: str,
) -> Terms | noisy.KeyedMethod:
    """Return the terms of the next release of a model with these retained rows.

    Raises RefusedError for settings that are out of range, UnprovenTrainingError,
    NotRegisteredError and SilosError.
    """
    if method_id == NOISY_FINETUNING:
        return noisy.load_keyed(services, model, config)
    method = registered_terms(config)
    if CERTIFIED_NEWTON not in config.settings and config.network.id == "logistic":
        method = replace(
            method, row_norm=longest(data.inputs.numpy() for data in retained.values())
        )
    if not method.sigma:
        return Terms(method, None)
    if services.settings.silos and method_id in (CERTIFIED_NEWTON, BOUNDED):
        raise noisy.SilosError(
            f"{method_id} hides its weights by noise that is added last, and silos would see "
            "them before: unset LETHE_SILOS, or use retrain"
        )
    method = replace(
        method,
        before=logged.releases_since_training(services.ledger, model),
        ordinal=logged.ordinal(services.ledger, model),
    )
    return Terms(method, noise_key(services.root_secret, model))


def registered_terms(config: NetworkConfig) -> CertifiedNewton:
    """Return the terms of the registration; if it has none, there is no noise."""
    method = make(CERTIFIED_NEWTON, config.settings.get(CERTIFIED_NEWTON))
    assert isinstance(method, CertifiedNewton)
    return method


def longest(rows: Iterable[NDArray[Any]]) -> float:
    """Return the largest ‖(1, x)‖ of any row in arrays (n, features)."""
    squares = [np.square(part.astype(np.float64)).sum(1).max() for part in rows]
    return float(np.sqrt(1 + max(squares, default=0.0)))


def check_rows(config: NetworkConfig, rows: Iterable[NDArray[Any]]) -> None:
    """Check that no row is longer than registered. Raises RefusedError."""
    limit = config.settings.get(CERTIFIED_NEWTON, {}).get("row_norm")
    if limit is not None and longest(rows) > limit:
        raise RefusedError(
            f"a row (1, x) is longer than the row_norm {limit:g} that {CERTIFIED_NEWTON} is "
            "registered with: scale the rows, or register a larger one"
        )


def carry_out(
    method: UnlearningMethod,
    terms: Terms | noisy.KeyedMethod,
    case: UnlearningCase,
    hooks: Hooks,
) -> Carried:
    """Run a method, and certify its result if that is a certifiable logistic head.

    Raises what the method raises, GIVES_WAY, and RefusedError for a claim that has no verifier
    here.
    """
    if isinstance(terms, noisy.KeyedMethod):
        return Carried(*noisy.carry_out(terms, case, hooks))
    if method.id == CERTIFIED_NEWTON:
        return _of(terms.method.released(case, terms.key, hooks), terms, case)
    if method.id == BOUNDED and terms.key is not None:
        terms.method.check(case, terms.key)
        centre = method.run(case, hooks)
        return _of(with_noise(case, centre, terms.method, terms.key), terms, case)
    found = method.run(case, hooks)
    if method.id == BOUNDED:
        of = terms.method
        found = with_bound(case, found, row_norm=of.row_norm, tolerance=of.tolerance)
        if found.claim == CERTIFIED:
            bound = float(found.notes["certified.bound"])
            return Carried(found, bounds_of(terms.method, bound))
    if found.claim != "empirical-approximate":
        raise RefusedError(f"{method.id}: its promise is not one that is verified here")
    return Carried(found, {})


def _of(release: Release, terms: Terms, case: UnlearningCase) -> Carried:
    found = Unlearned(release.weights, release.work, "certified-approximate", release.notes)
    secret = None if terms.key is None else release.encode(case.data)
    return Carried(found, bounds_of(terms.method, release.bound), secret)


def bounds_of(method: CertifiedNewton, bound: float) -> dict[str, str]:
    """Return the bounds of a certificate: the distance and, with noise, (ε, δ)."""
    distance = {"distance": repr(bound)}
    if not method.sigma:
        return distance
    # 1 and 1.0 are the same number
    promised = {"epsilon": method.epsilon, "delta": method.delta}
    return {**distance, **{name: repr(float(value)) for name, value in promised.items()}}
