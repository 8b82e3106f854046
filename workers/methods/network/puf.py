"""PUF: one more round of the target clients, applied backwards; then ordinary rounds.

Source: "Federated Unlearning Made Practical: Seamless Integration via Negated
Pseudo-Gradients" (PUF), section IV. With Δ⁺ and Δ⁻
the sums Σ (|D_i|/n) Δ_i over the retained clients and the target clients:

    Regular  w + η_r Δ⁺ - η_u Δ⁻     all take part, n counts everyone's rows      (eq. 7, 8)
    Special  w - η_u Δ⁻              only targets do, n counts theirs             (eq. 9)

So with ten balanced clients η_u = 20 Regular is the step of η_u = 2 Special. Algorithm 1,
line 15, leaves |D_i| out, against equations 5 and 6: `weighting="as-printed"` does the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, ClassVar, Literal

import torch

from workers.errors import RefusedError
from workers.methods.network.base import (
    Hooks,
    Need,
    Side,
    TargetError,
    Unlearned,
    UnlearningCase,
    UnmetNeedError,
    check_needs,
    method,
)
from workers.methods.network.cycles import Cycles, step_in_cycles
from workers.methods.network.guard import Ceiling, StepGuard, take_step
from workers.methods.network.recovery import Recovery, Step
from workers.training.fedavg.base import ClientUpdate, Fault
from workers.training.fedavg.config import LocalConfig
from workers.training.fedavg.rounds import CollectedRound, collect, make_tasks, sample
from workers.training.fedavg.seeds import derive
from workers.training.fedavg.server import weighted_mean
from workers.training.networks.weights import Weights, moved

Mode = Literal["special", "regular"]
UNLEARNING_RATE: Mapping[Mode, float] = {"special": 2.0, "regular": 20.0}  # appendix A
# A guarded search starts at this multiple of it. On digits the η_u (Special) that raised the
# retained loss by one nat was 5.4, 2.6 and 0.63 in three trainings of one network: the
# further a model has converged on the forget set, the shorter is Δ⁻, the larger η_u must be.
SEARCH_FROM = 16.0


@dataclass(frozen=True, slots=True)
class Puf:
    """PUF with its settings: η_u, η_r (Regular only), E_u local epochs of the targets.

    With a guard η_u is the largest step tried, None: 16 times the paper's. Without one it is
    the step, None: the paper's 2 (Special) or 20 (Regular). cycles: the number of steps, each
    with its recovery; one in the paper. Raises RefusedError for a value out of range.
    """

    version: ClassVar[str] = "2"
    mode: Mode
    unlearning_rate: float | None = None
    retained_rate: float = 1.0
    epochs: float = 1.0
    guard: StepGuard | None = field(default_factory=StepGuard)
    recovery: Recovery = field(default_factory=Recovery)
    weighting: Literal["rows", "as-printed"] = "rows"
    cycles: int = 1

    def __post_init__(self) -> None:
        if self.mode not in UNLEARNING_RATE:
            raise RefusedError("mode: choose special or regular")
        if self.weighting not in ("rows", "as-printed"):
            raise RefusedError("weighting: choose rows or as-printed")
        if not (isfinite(self.asked) and self.asked > 0):
            raise RefusedError("unlearning_rate: must be a positive number")
        if not (isfinite(self.retained_rate) and self.retained_rate >= 0):
            raise RefusedError("retained_rate: must be a number, 0 or more")
        LocalConfig(epochs=self.epochs)  # refuses what is no number of epochs
        Cycles(self.cycles, self.guard, self.recovery)

    @property
    def asked(self) -> float:
        """The η_u of the step or, with a guard, the first one tried."""
        if self.unlearning_rate is not None:
            return self.unlearning_rate
        return UNLEARNING_RATE[self.mode] * (1.0 if self.guard is None else SEARCH_FROM)

    @property
    def id(self) -> str:
        """The method's name."""
        return f"puf-{self.mode}"

    @property
    def needs(self) -> frozenset[Need]:
        """The targets once more; validation rows where the step is guarded."""
        if self.guard is None:
            return frozenset({"targets"})
        return frozenset({"targets", "validation"})

    def run(self, case: UnlearningCase, hooks: Hooks | None = None) -> Unlearned:
        """Return the model after the negated step and recovery.

        Raises UnmetNeedError and TargetError if a target cannot be asked or answers unusably,
        NoSafeStepError, DivergedError, RoundFailedError.
        """
        check_needs(self.needs, case)
        spelled = f"{self.id}/{self.version} {self!r}"
        cycles = Cycles(self.cycles, self.guard, self.recovery)
        return step_in_cycles(case, spelled, self._step, cycles, hooks)

    def _step(self, case: UnlearningCase, ceiling: Ceiling | None) -> Step:
        assert case.targets is not None  # check_needs
        left = _ask(case, case.targets, list(case.targets.rows), self.epochs)
        if left.faults:
            raise TargetError(_complaint(left.faults))
        work, kept = left.work, None
        if self.mode == "regular":
            # A target keeps its other rows out of this round (section IV-C, sample unlearning).
            others = case.retained.rows.keys() - set(case.request.targets)
            minimum = case.config.min_clients
            if len(others) < minimum:
                raise UnmetNeedError(
                    "too few clients are no targets for a regular round: use puf-special, "
                    "hf-kcu or retrain"
                )
            asked = sample(others, case.config, case.config.rounds + 1)
            kept = _ask(case, case.retained, asked, None, minimum)
            work = replace(work + kept.work, rounds=1)
        base, backward = self._directions(case.weights, left, kept)
        stepped = take_step(
            lambda step: moved(base, backward, step),
            self.asked,
            judge=case.validation,
            guard=self.guard,
            ceiling=ceiling,
        )
        notes = {"puf.weighting": self.weighting, **stepped.notes()}
        if kept is not None and kept.faults:
            notes["puf.dropped"] = str(len(kept.faults))
        return Step(stepped.weights, work + stepped.work, notes)

    def _directions(
        self, weights: Weights, left: CollectedRound, kept: CollectedRound | None
    ) -> tuple[Weights, Mapping[str, torch.Tensor]]:
        """Return w + η_r Δ⁺ (float64, so that the step is rounded once) and -Δ⁻."""
        total = _rows(left.updates) + (_rows(kept.updates) if kept is not None else 0)
        backward = {name: -part for name, part in self._sum(left.updates, total).items()}
        base = {name: part.double() for name, part in weights.items()}
        if kept is not None:
            for name, part in self._sum(kept.updates, total).items():
                base[name] = base[name] + self.retained_rate * part
        return base, backward

    def _sum(
        self, updates: Mapping[str, ClientUpdate], total: int
    ) -> Mapping[str, torch.Tensor]:
        if self.weighting == "as-printed":
            updates = {name: replace(update, samples=1) for name, update in updates.items()}
        return weighted_mean(updates, total)


@method("puf-special")
def special(unlearning_rate: float | None = None, **settings: Any) -> Puf:
    """Return PUF-Special, settings by name. Raises as `Puf`."""
    return Puf("special", unlearning_rate, **settings)


@method("puf-regular")
def regular(unlearning_rate: float | None = None, **settings: Any) -> Puf:
    """Return PUF-Regular, settings by name. Raises as `Puf`."""
    return Puf("regular", unlearning_rate, **settings)


def _ask(
    case: UnlearningCase, side: Side, clients: list[str], epochs: float | None, minimum: int = 0
) -> CollectedRound:
    """Ask one side for an ordinary local update, without augmentation (section V-A)."""
    config = case.config
    local = replace(config.local, augment="none")
    if epochs is not None:
        local = replace(local, epochs=epochs)
    tasks = make_tasks(
        case.network,
        case.weights,
        clients,
        local,
        round=config.rounds + 1,
        seed=derive(config.seed, "unlearning", config.rounds),
    )
    return collect(
        tasks,
        side.engine,
        rows=side.rows,
        min_clients=minimum,
        max_norm=config.max_norm,
        timeout=config.timeout,
    )


def _rows(updates: Mapping[str, ClientUpdate]) -> int:
    return sum(update.samples for update in updates.values())


def _complaint(faults: tuple[Fault, ...]) -> str:
    reasons = {fault.reason for fault in faults}
    if "no-answer" in reasons:
        return "a target client is offline: use hf-kcu or retrain"
    said = ", ".join(sorted(reasons))
    return f"a target client's answer cannot be used ({said}): use hf-kcu or retrain"
