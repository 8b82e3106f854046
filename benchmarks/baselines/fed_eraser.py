"""FedEraser: the training's rounds again, each update as long as it was, in a new direction.

Source: Liu et al., "FedEraser: Enabling Efficient Client-Level Data Removal from Federated
Learning Models", IWQoS 2021, and its published code (`unlearning_step_once`). The paper's text
was not at hand; the settings are those of PUF's appendix A (interval 1, ratio 0.5). With U the
kept update of a client who stays and Û what it answers after r E local epochs from the new
model M̃,

    Ũ = ‖U‖ · Û / ‖Û‖,        M̃ ← M̃ + Σ (n_i / n) Ũ_i

The first round's U are used as they are: nobody had seen the target. The published code takes
both norms of each tensor of the unweighted mean; `norm="tensor"` takes them of each tensor of
each update. The lengths ‖U‖ of later rounds were made on models that knew the target: this
is no retraining.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Literal

from benchmarks.baselines.history import (
    RecordedCase,
    check_history,
    check_whole_clients,
    kept_bytes,
    recorded,
)
from workers.errors import RefusedError
from workers.methods.network.base import Hooks, Need, Tick, Unlearned, UnlearningCase
from workers.methods.network.recovery import Recovery, Step, step_and_recover
from workers.training.fedavg.base import Work
from workers.training.fedavg.rounds import collect, make_tasks
from workers.training.fedavg.seeds import derive
from workers.training.fedavg.server import apply, initial_state, weighted_mean
from workers.training.networks.weights import Weights, norm

Norm = Literal["update", "tensor"]
Tell = Callable[[int, int, float | None], None]


@dataclass(frozen=True, slots=True)
class FedEraser:
    """Calibration of every interval-th round from the first, with ratio · epochs local ones.

    Raises RefusedError for a value out of range.
    """

    interval: int = 1
    ratio: float = 0.5
    norm: Norm = "update"
    recovery: Recovery = field(default_factory=lambda: Recovery(rounds=0))

    def __post_init__(self) -> None:
        if type(self.interval) is not int or self.interval < 1:
            raise RefusedError("interval: must be an integer, 1 or more")
        if not (isfinite(self.ratio) and 0 < self.ratio <= 1):
            raise RefusedError("ratio: must be above 0 and at most 1")
        if self.norm not in ("update", "tensor"):
            raise RefusedError("norm: choose update or tensor")

    @property
    def id(self) -> str:
        """The method's name."""
        return "fed-eraser"

    @property
    def version(self) -> str:
        """The method's version."""
        return "1"

    @property
    def needs(self) -> frozenset[Need]:
        """Nothing that a Case names: a RecordedCase of all rounds."""
        return frozenset()

    def run(self, case: UnlearningCase, hooks: Hooks | None = None) -> Unlearned:
        """Return the calibrated model. `resume` goes on after the calibration, never within.

        Raises UnmetNeedError without history, RefusedError for rows or a history of
        another model, RoundFailedError, DivergedError.
        """
        kept = recorded(case)
        check_whole_clients(case, "fed-eraser")
        check_history(kept)

        def tell(done: int, total: int, loss: float | None) -> None:
            if hooks is not None and hooks.tell is not None:
                hooks.tell(Tick("step", done, total, loss))

        spelled = f"{self.id}/{self.version} {self!r}"
        return step_and_recover(
            case, spelled, lambda: self._step(kept, tell), self.recovery, hooks
        )

    def _step(self, case: RecordedCase, tell: Tell) -> Step:
        config, stay = case.config, case.retained.rows
        local = replace(config.local, epochs=self.ratio * config.local.epochs)
        seed = derive(config.seed, self.id)
        state = initial_state(case.history[0].weights, config.server)
        numbers = range(0, len(case.history), self.interval)
        work, calibrated, dropped = Work(), 0, 0
        for done, number in enumerate(numbers, 1):
            updates = {c: u for c, u in case.history[number].updates.items() if c in stay}
            loss = None
            if number and updates:
                tasks = make_tasks(
                    case.network, state.weights, updates, local, round=number + 1, seed=seed
                )
                found = collect(
                    tasks,
                    case.retained.engine,
                    rows=stay,
                    min_clients=min(config.min_clients, len(updates)),
                    max_norm=config.max_norm,
                    timeout=config.timeout,
                )
                updates = {
                    client: replace(
                        updates[client],
                        delta=calibrate(updates[client].delta, new.delta, self.norm),
                    )
                    for client, new in found.updates.items()
                }
                work, loss = work + found.work, found.loss
                calibrated, dropped = calibrated + 1, dropped + len(found.faults)
            if updates:  # else only targets took part: without them there was no round
                state = apply(state, weighted_mean(updates), config.server)
            tell(done, len(numbers), loss)
        notes = {
            "fed-eraser.interval": str(self.interval),
            "fed-eraser.ratio": f"{self.ratio:.6g}",
            "fed-eraser.calibrated-rounds": str(calibrated),
            "state.bytes": str(kept_bytes(case.history[:: self.interval])),
        }
        if dropped:
            notes["fed-eraser.dropped"] = str(dropped)
        return Step(state.weights, work, notes)


def calibrate(old: Weights, new: Weights, kind: Norm = "update") -> Weights:
    """Return ‖old‖ · new / ‖new‖, over the whole update or tensor by tensor; 0 where new is."""
    if kind == "tensor":
        parts = (calibrate({name: old[name]}, {name: new[name]}) for name in new)
        return {name: part for scaled in parts for name, part in scaled.items()}
    length = norm(new)
    scale = norm(old) / length if length else 0.0
    return {name: (scale * part.double()).float() for name, part in new.items()}


METHODS = {"fed-eraser": FedEraser}
