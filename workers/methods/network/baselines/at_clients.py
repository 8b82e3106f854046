"""Local procedures that no round message can request, at clients in this process.

Ascent, other labels, a part of the network: a client runs these on its own rows and answers
with an ordinary update. Engines carry training and derivatives only, so the procedures run
where an engine holds its clients' rows in this process, and refuse by name elsewhere. Task
and answer are still encoded to bytes, so the counts are those of a federation.
"""

from collections.abc import Callable, Iterable

import torch

from workers.methods.network.base import Side, TargetError, UnlearningCase
from workers.methods.network.baselines.central import RowHolder, RowsElsewhereError
from workers.training.fedavg.base import ClientData, ClientUpdate, Fault, RoundTask
from workers.training.fedavg.config import LocalConfig
from workers.training.fedavg.errors import DivergedError
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import CollectedRound, collect, make_tasks
from workers.training.networks.weights import Weights

Answer = Callable[[RoundTask, ClientData, torch.device | str], ClientUpdate]


class Procedure(InProcess):
    """An in-process engine whose clients answer a task with a procedure of their own."""

    def __init__(self, holder: RowHolder, answer: Answer) -> None:
        super().__init__(holder.clients, holder.device, holder.threads)
        self._procedure = answer

    def _answer(self, task: RoundTask) -> ClientUpdate:
        return self._procedure(task, self.clients[task.client], self.device)


def holder_of(side: Side) -> RowHolder:
    """Return the side's engine as a RowHolder. Raises RowsElsewhereError."""
    engine: object = side.engine
    if isinstance(engine, RowHolder):
        return engine
    raise RowsElsewhereError(
        "this baseline changes what clients do in a round, and their rows are elsewhere: run "
        "it on an in-process engine, or use puf-special, hf-kcu or retrain"
    )


def ask(
    case: UnlearningCase,
    side: Side,
    answer: Answer,
    local: LocalConfig,
    *,
    seed: int,
    weights: Weights | None = None,
    clients: Iterable[str] | None = None,
    round: int | None = None,
) -> CollectedRound:
    """Ask clients of a side (None: all) once, at `weights` (None: the case's).

    The norm is not bounded: max_norm is for training. Raises RowsElsewhereError.
    """
    tasks = make_tasks(
        case.network,
        case.weights if weights is None else weights,
        side.rows if clients is None else clients,
        local,
        round=case.config.rounds + 1 if round is None else round,
        seed=seed,
    )
    return collect(tasks, Procedure(holder_of(side), answer), rows=side.rows, min_clients=0)


def check_targets(faults: tuple[Fault, ...]) -> None:
    """Raise DivergedError or TargetError, naming the remedy, if a target's answer is lost."""
    reasons = {fault.reason for fault in faults}
    if "not-finite" in reasons:
        raise DivergedError(
            "the targets' steps diverged and the model was left as it was: lower "
            "learning_rate or epochs, clip the gradient, or use puf-special or retrain"
        )
    if reasons:
        said = ", ".join(sorted(reasons))
        raise TargetError(
            f"a target client's answer cannot be used ({said}): use hf-kcu or retrain"
        )
