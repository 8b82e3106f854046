"""FedAU: an auxiliary classifier that learned wrong labels is mixed into the classifier.

Source: Gu et al., "Unlearning during Learning: An Efficient Federated Machine Unlearning
Method", IJCAI 2024 (arXiv 2405.15474); the paper was not available, its published code
(Liar-Mask/FedAU) and PUF's appendix A were. With W the last layer,

    W ← (1 - α) W + α A        α = 0.04, A trained for 10 local epochs on the rows to forget

with one random label that is not its own for each row. The published code trains A in every
round of training, beside W, on all clients' rows, true labels for retained ones. Here, as in
PUF's comparison, the targets train A when the request comes, on features that do not move,
from weights of its own seed: training needs no change, and the targets are needed once more.
"""

import time
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import ClassVar

import torch

from workers.errors import RefusedError
from workers.methods.network.base import (
    Hooks,
    Need,
    Unlearned,
    UnlearningCase,
    check_needs,
    method,
)
from workers.methods.network.baselines.at_clients import ask, check_targets
from workers.methods.network.baselines.layers import classifier
from workers.methods.network.baselines.random_label import other_labels
from workers.methods.network.recovery import Recovery, Step, step_and_recover
from workers.training.fedavg.base import ClientData, ClientUpdate, RoundTask, check_data
from workers.training.fedavg.client.flops import gradient_flops, without_values
from workers.training.fedavg.client.local import Steps, update_of
from workers.training.fedavg.config import LocalConfig, Loss
from workers.training.fedavg.evaluate import loss_of
from workers.training.fedavg.seeds import derive
from workers.training.fedavg.server import weighted_mean
from workers.training.networks.registry import Network
from workers.training.networks.weights import (
    initial_weights,
    moved,
    size_of,
    with_weights,
)


@method("fed-au")
@dataclass(frozen=True, slots=True)
class FedAU:
    """alpha: the share of A; epochs: of the auxiliary training; then recovery.

    Raises RefusedError for a value out of range.
    """

    id: ClassVar[str] = "fed-au"
    version: ClassVar[str] = "1"
    needs: ClassVar[frozenset[Need]] = frozenset({"targets"})  # the targets once more
    alpha: float = 0.04
    epochs: float = 10.0
    learning_rate: float | None = None
    recovery: Recovery = field(default_factory=Recovery)

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise RefusedError("alpha: must lie between 0 and 1")
        self._local(LocalConfig(), 1)

    def run(self, case: UnlearningCase, hooks: Hooks | None = None) -> Unlearned:
        """Return the model after mixing and recovery.

        Raises UnmetNeedError, RowsElsewhereError, TargetError, DivergedError.
        """
        check_needs(self.needs, case)
        spelled = f"{self.id}/{self.version} {self!r}"
        return step_and_recover(case, spelled, lambda: self._step(case), self.recovery, hooks)

    def _step(self, case: UnlearningCase) -> Step:
        assert case.targets is not None  # check_needs
        config, names = case.config, classifier(case.network)
        fresh = initial_weights(case.network, derive(config.seed, self.id, "module"))
        base = {**case.weights, **{name: fresh[name] for name in names}}

        def answer(
            task: RoundTask, data: ClientData, device: torch.device | str
        ) -> ClientUpdate:
            return train_classifier(task, data, names, device)

        found = ask(
            case,
            case.targets,
            answer,
            self._local(config.local, config.rounds + 1),
            seed=derive(config.seed, self.id, config.rounds),
            weights=dict(sorted(base.items())),
        )
        check_targets(found.faults)
        auxiliary = moved(base, weighted_mean(found.updates))
        weights = {
            name: mix(part, auxiliary[name], self.alpha) if name in names else part
            for name, part in case.weights.items()
        }
        kept = size_of({name: auxiliary[name] for name in names})
        notes = {
            "fed-au.alpha": f"{self.alpha:.6g}",
            "fed-au.loss": f"{found.loss:.6g}",
            "fed-au.module-bytes": str(kept),
            "state.bytes": "0",  # nothing from training; the published form keeps one module
        }
        return Step(weights, found.work, notes)

    def _local(self, config: LocalConfig, round: int) -> LocalConfig:
        rate = config.rate(round) if self.learning_rate is None else self.learning_rate
        return replace(
            config,
            optimizer="sgd",
            epochs=self.epochs,
            learning_rate=rate,
            decay=1.0,
            augment="none",
        )


def mix(part: torch.Tensor, auxiliary: torch.Tensor, alpha: float) -> torch.Tensor:
    """Return (1 - α) part + α auxiliary: in float64, rounded once to float32."""
    return ((1 - alpha) * part.double() + alpha * auxiliary.double()).float()


def train_classifier(
    task: RoundTask,
    data: ClientData,
    names: tuple[str, ...],
    device: torch.device | str = "cpu",
) -> ClientUpdate:
    """Return the update of these parameters alone, learning wrong labels by SGD.

    The labels are drawn once, by the task's seed. The answer has the whole network's
    tensors, zero elsewhere: the bytes of a message of PUF's 2 P_c B would be fewer.
    """
    started = time.perf_counter()
    config = task.config
    module = with_weights(task.network, task.weights, device).train()
    check_data(task.network, data)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name in names)
    free = [part for part in module.parameters() if part.requires_grad]
    rate = config.rate(task.round)
    steps = Steps(free, rate, momentum=config.momentum, decay=config.weight_decay)
    wrong = other_labels(data.targets, task.network.classes, derive(task.seed, "labels"))
    inputs, labels = data.inputs.to(device), wrong.to(device)

    def loss(at: torch.Tensor) -> torch.Tensor:
        return loss_of(config.loss, module(inputs[at]), labels[at])

    flops = classifier_flops(task.network, config.loss, names)
    return update_of(task, module, steps, loss, len(data), flops, started)


@lru_cache(maxsize=64)
def classifier_flops(network: Network, loss: Loss, names: tuple[str, ...]) -> int:
    """Return the operations of one row: forward through all, backward to `names` only."""
    module = without_values(network)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name in names)
    return gradient_flops(network, module, loss)
