"""One pair of an audit: a model that learned the target and forgot it, one that never saw it.

Both are trained from the same initial weights on the same other rows, with the same seed for
the order of minibatches. Each world alone is then a fresh draw in each pair, as the test
requires; and a method that retrains gives both the same model, bit for bit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from workers.audit_pairs.draw import Drawn, Plan, StoredRows, draw
from workers.errors import RefusedError
from workers.judge.attacks.outputs import Outputs, log_odds
from workers.methods.network.base import UnlearningMethod
from workers.methods.network.local_case import local_case
from workers.methods.network.registry import WITHOUT_A_MODEL
from workers.methods.network.validation import held_out
from workers.training.fedavg.base import ClientData
from workers.training.fedavg.config import TrainingConfig
from workers.training.fedavg.evaluate import logits_of
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import complete, sizes, train
from workers.training.fedavg.seeds import derive
from workers.training.networks.registry import Network
from workers.training.networks.weights import Weights

CLAIMS = ("empirical-approximate", "exact-retrained")
THREADS = 1


@dataclass(frozen=True, slots=True)
class Pair:
    """Mean log-odds log p / (1 - p) of the targets' classes, as they were learned.

    before and after: with the targets in the training, and once they are unlearned; retrained:
    without them. gave_way: the method found no usable step, so that the service would have
    retrained: after is the model that it would then have published.
    """

    before: float
    after: float
    retrained: float
    gave_way: bool


def run_pair(
    network: Network,
    training: TrainingConfig,
    method: UnlearningMethod,
    rows: Mapping[str, StoredRows],
    plan: Plan,
    pair: int,
    device: torch.device | str = "cpu",
) -> Pair:
    """Return the statistics of pair number `pair`: equal bits on equal rows and machines.

    Raises RefusedError if the rows are too few or the method cannot be audited on them.
    """
    if network.task != "classification":
        raise RefusedError(
            "this network learns masks: only networks that classify whole rows can be audited"
        )
    drawn = draw(rows, plan, pair, network.classes)
    config = replace(training, seed=derive(plan.seed, "audit-training", pair), timeout=0.0)
    before = _trained(network, config, drawn.learned, device)
    retrained = _trained(network, config, drawn.retained, device)
    after = _unlearned(network, config, method, drawn, before, device)

    def statistic(weights: Weights) -> float:
        logits = logits_of(network, weights, drawn.targets.inputs, device, THREADS)
        outputs = Outputs(logits.double().numpy(), drawn.targets.targets.numpy())
        return float(log_odds(outputs).mean())

    last = statistic(retrained)
    return Pair(
        statistic(before), last if after is None else statistic(after), last, after is None
    )


def _trained(
    network: Network,
    config: TrainingConfig,
    clients: Mapping[str, ClientData],
    device: torch.device | str,
) -> Weights:
    engine = InProcess(clients, device, THREADS)
    return complete(train(network, sizes(clients), _among(config, clients), engine)).weights


def _among(config: TrainingConfig, clients: Mapping[str, ClientData]) -> TrainingConfig:
    """Return the training for these clients: with fewer than the minimum, all must answer."""
    return replace(config, min_clients=min(config.min_clients, len(clients)))


def _unlearned(
    network: Network,
    config: TrainingConfig,
    method: UnlearningMethod,
    drawn: Drawn,
    weights: Weights,
    device: torch.device | str,
) -> Weights | None:
    """Return the model without the targets, None if the method finds no usable step."""
    case = local_case(
        network,
        weights,
        drawn.request,
        _among(config, drawn.retained),
        drawn.learned,
        device=device,
        threads=THREADS,
        validation=held_out(network, drawn.validation, device, THREADS),
    )
    try:
        found = method.run(case)
    except WITHOUT_A_MODEL:
        return None
    if found.claim not in CLAIMS:
        raise RefusedError(
            f"{method.id}: cannot be audited, since each of its models is proven instead"
        )
    return found.weights
