"""MoDe: momentum pulls the model towards a young one, which then guides it back.

Source: Zhao et al., "Federated Unlearning With Momentum Degradation", IEEE Internet of Things
Journal, 2023. Only its abstract and PUF's description were available; settings and
participants follow PUF's appendix A and Table VIII: 2 P B (C_r R_d + C R_m). Two phases:

    degradation, 6 rounds   the retained clients train M_d from new weights, and after each
                            round M ← λ M + (1 - λ) M_d, λ = 0.95
    guidance, 10 rounds     all train M at the rate 0.0005: retained clients on their own
                            labels, the targets on what M_d, which never saw them, predicts

Not checked against the paper: that the phases follow one another (PUF calls them alternating),
that M_d begins at random weights, and that its predictions are hard labels.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch

from workers.errors import RefusedError
from workers.methods.network.base import (
    Hooks,
    Need,
    Tick,
    Unlearned,
    UnlearningCase,
    check_needs,
    method,
)
from workers.methods.network.baselines.at_clients import ask, check_targets
from workers.methods.network.recovery import Recovery, Step, step_and_recover
from workers.training.fedavg.base import ClientData, ClientUpdate, RoundTask, Work
from workers.training.fedavg.client.flops import forward_flops
from workers.training.fedavg.client.local import train_locally
from workers.training.fedavg.config import LocalConfig
from workers.training.fedavg.evaluate import BATCH
from workers.training.fedavg.rounds import collect, make_tasks, run_round, sample
from workers.training.fedavg.seeds import derive
from workers.training.fedavg.server import apply, initial_state, weighted_mean
from workers.training.networks.registry import Network
from workers.training.networks.weights import (
    Weights,
    encode_weights,
    initial_weights,
    size_of,
    with_weights,
)


@method("mode")
@dataclass(frozen=True, slots=True)
class MoDe:
    """Momentum degradation and memory guidance. Raises RefusedError for values out of range."""

    id: ClassVar[str] = "mode"
    version: ClassVar[str] = "1"
    needs: ClassVar[frozenset[Need]] = frozenset({"targets"})
    degradation_rounds: int = 6
    guidance_rounds: int = 10
    momentum: float = 0.95
    guidance_rate: float = 0.0005
    recovery: Recovery = field(default_factory=lambda: Recovery(rounds=0))

    def __post_init__(self) -> None:
        for name in ("degradation_rounds", "guidance_rounds"):
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value <= 1 << 20:
                raise RefusedError(f"{name}: must be an integer, 0 or more")
        if not 0 <= self.momentum <= 1:
            raise RefusedError("momentum: must lie between 0 and 1")
        LocalConfig(learning_rate=self.guidance_rate)  # refuses what is no rate

    def run(self, case: UnlearningCase, hooks: Hooks | None = None) -> Unlearned:
        """Return the guided model. `resume` continues after the guidance, never within.

        Raises UnmetNeedError, RowsElsewhereError, TargetError, RoundFailedError,
        DivergedError.
        """
        check_needs(self.needs, case)
        spelled = f"{self.id}/{self.version} {self!r}"
        return step_and_recover(
            case, spelled, lambda: self._step(case, hooks or Hooks()), self.recovery, hooks
        )

    def _step(self, case: UnlearningCase, hooks: Hooks) -> Step:
        total = self.degradation_rounds + self.guidance_rounds
        config = replace(case.config, seed=derive(case.config.seed, self.id, "degradation"))
        young = initial_state(initial_weights(case.network, config.seed), config.server)
        weights, work = case.weights, Work()
        for number in range(1, self.degradation_rounds + 1):
            young, record = run_round(
                case.network, young, case.retained.rows, config, case.retained.engine, number
            )
            weights, work = degrade(weights, young.weights, self.momentum), work + record.work
            if hooks.tell is not None:
                hooks.tell(Tick("step", number, total, record.loss))
        state = initial_state(weights, config.server)
        local = replace(config.local, learning_rate=self.guidance_rate, decay=1.0)
        if self.guidance_rounds:
            work = work + self._sent(case, young.weights)
        for number in range(1, self.guidance_rounds + 1):
            updates, spent = self._guide(case, state.weights, young.weights, local, number)
            state = apply(state, weighted_mean(updates), config.server)
            work = work + spent
            if hooks.tell is not None:
                hooks.tell(Tick("step", self.degradation_rounds + number, total))
        notes = {
            "mode.degradation-rounds": str(self.degradation_rounds),
            "mode.guidance-rounds": str(self.guidance_rounds),
            "mode.momentum": f"{self.momentum:.6g}",
            "state.bytes": str(2 * size_of(case.weights)),  # M and M_d, while it runs
        }
        return Step(state.weights, work, notes)

    def _guide(
        self,
        case: UnlearningCase,
        weights: Weights,
        young: Weights,
        local: LocalConfig,
        number: int,
    ) -> tuple[dict[str, ClientUpdate], Work]:
        """Return all clients' updates of one round; a client may be on both sides."""
        assert case.targets is not None  # check_needs
        config = case.config
        seed = derive(config.seed, self.id, "guidance")
        asked = sample(case.retained.rows, replace(config, seed=seed), number)
        kept = collect(
            make_tasks(case.network, weights, asked, local, round=number, seed=seed),
            case.retained.engine,
            rows=case.retained.rows,
            min_clients=config.min_clients,
            max_norm=config.max_norm,
            timeout=config.timeout,
        )

        def answer(
            task: RoundTask, data: ClientData, device: torch.device | str
        ) -> ClientUpdate:
            return train_locally(task, pseudo(task.network, young, data, device), device)

        quiet = replace(local, augment="none")
        left = ask(case, case.targets, answer, quiet, seed=seed, weights=weights, round=number)
        check_targets(left.faults)
        updates = {f"retained {name}": update for name, update in kept.updates.items()}
        updates.update({f"target {name}": update for name, update in left.updates.items()})
        return updates, replace(kept.work + left.work, rounds=1)

    def _sent(self, case: UnlearningCase, young: Weights) -> Work:
        """Return the work of sending M_d to the targets and labelling their rows once."""
        assert case.targets is not None  # check_needs
        size = len(encode_weights(case.network.id, case.network.parameters, young))
        rows = sum(case.targets.rows.values())
        return Work(
            bytes_down=size * len(case.targets.rows), flops=rows * forward_flops(case.network)
        )


def degrade(weights: Weights, young: Weights, momentum: float) -> dict[str, torch.Tensor]:
    """Return λ M + (1 - λ) M_d: in float64, rounded once to float32."""
    return {
        name: (momentum * part.double() + (1 - momentum) * young[name].double()).float()
        for name, part in weights.items()
    }


def pseudo(
    network: Network, young: Weights, data: ClientData, device: torch.device | str = "cpu"
) -> ClientData:
    """Return the rows with the classes that a model predicts for them (or their pixels)."""
    module = with_weights(network, young, device).eval()
    with torch.no_grad():
        parts = [module(part.to(device)).cpu() for part in torch.split(data.inputs, BATCH)]
    return ClientData(data.inputs, torch.cat(parts).argmax(1))
