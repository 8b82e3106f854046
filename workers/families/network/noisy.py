"""Noisy fine-tuning of a small head: its key, its count of releases, and its secret.

The model before the erasure and the key are sealed for the verifier until the last certificate.
"""

from dataclasses import dataclass, replace

from app.service.context import Services
from app.vault.master import NOISY_FINETUNING, noise_key
from models import Model
from workers.errors import RefusedError
from workers.families.network import logged
from workers.families.network.config import NetworkConfig
from workers.methods.certified.noisy_finetuning import NoisyFinetuning
from workers.methods.network.base import Hooks, Unlearned, UnlearningCase
from workers.training.networks.weights import encode_weights


class NotRegisteredError(RefusedError):
    """The model was registered without noise: no key was committed to before the request."""


class SilosError(RefusedError):
    """Silos would see iterates without the noise that hides them."""


@dataclass(frozen=True, slots=True, eq=False)
class KeyedMethod:
    """The registered method with the number of earlier releases, and the noise key."""

    method: NoisyFinetuning
    key: bytes


def registered_method(config: NetworkConfig) -> NoisyFinetuning:
    """Return the registered method. Raises NotRegisteredError."""
    if NOISY_FINETUNING not in config.settings:
        raise NotRegisteredError(
            "noisy-finetuning was not registered: register the model with its settings, or use "
            "retrain"
        )
    method = config.method(NOISY_FINETUNING)
    assert isinstance(method, NoisyFinetuning)
    return method


def load_keyed(services: Services, model: Model, config: NetworkConfig) -> KeyedMethod:
    """Return the method of a model's next release. Raises NotRegisteredError and SilosError."""
    if services.settings.silos:
        raise SilosError(
            "noisy-finetuning bounds what its last iterate says, and silos would see those "
            "before: unset LETHE_SILOS, or use retrain"
        )
    method = replace(
        registered_method(config),
        before=logged.releases_since_training(services.ledger, model),
        ordinal=logged.ordinal(services.ledger, model),
    )
    return KeyedMethod(method, noise_key(services.root_secret, model))


def carry_out(
    keyed: KeyedMethod, case: UnlearningCase, hooks: Hooks
) -> tuple[Unlearned, dict[str, str], bytes]:
    """Return the result, the bounds of its certificate and the secret for its verifier."""
    found = keyed.method.keyed(case, keyed.key, hooks)
    file = encode_weights(case.network.id, case.network.parameters, case.weights)
    return found, bounds_of(keyed.method), keyed.key + file


def bounds_of(method: NoisyFinetuning) -> dict[str, str]:
    """Return the bounds of a certificate."""
    return {"epsilon": repr(float(method.epsilon)), "delta": repr(float(method.delta))}
