"""An upper estimate of a method's operations, before it runs.

An attempt that would cost too much is not started. The counts are those of `Work.flops`:
gradients for training, forward passes for judging, products for conjugate gradients. A guard
is assumed to use all its trials, a solver all its iterations, a recovery all its rounds.
"""

from dataclasses import dataclass

from workers.methods.network.base import UnlearningMethod
from workers.methods.network.guard import StepGuard
from workers.methods.network.hf_kcu.method import HfKcu
from workers.methods.network.natural import Natural
from workers.methods.network.puf import Puf
from workers.methods.network.recovery import Recovery
from workers.training.fedavg.client.curvature import operation_flops
from workers.training.fedavg.client.flops import forward_flops, training_flops
from workers.training.fedavg.config import TrainingConfig
from workers.training.networks.registry import Network


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of training rows to retain and to forget, and of validation rows."""

    retained: int
    forget: int
    validation: int


def retraining_flops(network: Network, config: TrainingConfig, retained: int) -> int:
    """Return about the cost of `retrain` on `retained` rows: exact with full participation."""
    passes = config.rounds * config.participation * config.local.epochs
    return int(passes * retained * training_flops(network, config.local.loss))


def most_flops(
    method: UnlearningMethod, network: Network, config: TrainingConfig, sizes: Sizes
) -> int | None:
    """Return about the most operations a method takes, None without an estimate."""
    if isinstance(method, Puf):
        epochs = config.local.epochs if method.epochs is None else method.epochs
        asked = sizes.forget + (sizes.retained if method.mode == "regular" else 0)
        step = int(epochs * asked * training_flops(network, config.local.loss))
        after = _after(method.guard, method.recovery, network, config, sizes)
        return method.cycles * (step + after) + _ceiling(method.guard, network, sizes)
    if isinstance(method, HfKcu):
        loss = config.local.loss
        asked = sizes.forget + (sizes.retained if method.drift == "ask" else 0)
        gradients = asked * operation_flops(network, loss, "gradient")
        products = method.iterations + 1  # one of them tells whether the matrix is symmetric
        products += method.probes if method.preconditioner == "diagonal" else 0
        taken = products * method.curvature_rows * sizes.retained
        solved = int(taken * operation_flops(network, loss, method.product))
        after = _after(method.guard, method.recovery, network, config, sizes)
        each = gradients + solved + after
        return method.cycles * each + _ceiling(method.guard, network, sizes)
    if isinstance(method, Natural):
        return _after(None, method.recovery, network, config, sizes)
    return None


def _after(
    guard: StepGuard | None,
    recovery: Recovery,
    network: Network,
    config: TrainingConfig,
    sizes: Sizes,
) -> int:
    """Return the operations of shortening a step and recovering from it."""
    judged = 0 if guard is None else 1 + guard.trials
    forget = (
        0 if guard is None or guard.forget is None else min(guard.forget_rows, sizes.forget)
    )
    judged += 0 if recovery.within is None else 1 + recovery.rounds
    epochs = config.local.epochs if recovery.epochs is None else recovery.epochs
    passes = recovery.rounds * config.participation * epochs
    trained = int(passes * sizes.retained * training_flops(network, config.local.loss))
    asked = judged * sizes.validation + (0 if guard is None else (1 + guard.trials) * forget)
    return trained + asked * forward_flops(network)


def _ceiling(guard: StepGuard | None, network: Network, sizes: Sizes) -> int:
    """Return the operations of finding the loss at which rows count as forgotten."""
    if guard is None or guard.forget is None:
        return 0
    return sizes.validation * forward_flops(network)
