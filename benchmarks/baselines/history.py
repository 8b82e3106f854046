"""Updates of past rounds: kept while training, checked before they are believed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import torch

from workers.errors import RefusedError
from workers.methods.network.base import UnlearningCase, UnmetNeedError
from workers.training.fedavg.base import Answers, ClientUpdate, Engine, RoundTask
from workers.training.fedavg.rounds import screen
from workers.training.fedavg.server import apply, initial_state, weighted_mean
from workers.training.networks.weights import Weights, initial_weights, size_of


@dataclass(frozen=True, slots=True, eq=False)
class PastRound:
    """One round of the training."""

    weights: Weights  # before the round
    updates: Mapping[str, ClientUpdate]


@dataclass(frozen=True, slots=True, eq=False)
class RecordedCase(UnlearningCase):
    """A case of a model whose training was recorded, with its rounds from the first kept."""

    history: Sequence[PastRound] = ()


def with_rounds(case: UnlearningCase, history: Sequence[PastRound]) -> RecordedCase:
    """Return the case with the rounds of its training."""
    given = {field.name: getattr(case, field.name) for field in fields(UnlearningCase)}
    return RecordedCase(**given, history=tuple(history))


def recorded(case: UnlearningCase) -> RecordedCase:
    """Return the case as one with history. Raises UnmetNeedError if it has none."""
    if isinstance(case, RecordedCase) and case.history:
        return case
    raise UnmetNeedError(
        "no updates of past rounds were kept: record the training, or use puf-special, "
        "hf-kcu or retrain"
    )


class Recorder:
    """An engine that keeps what clients answered in training, as methods with history need it.

    rows and max_norm are the training's: answers that its screen drops are not kept. With
    `last` only the last round is. The server then can link updates to clients, which is
    what methods without history avoid.
    """

    def __init__(
        self,
        engine: Engine,
        rows: Mapping[str, int],
        *,
        max_norm: float = 0.0,
        last: bool = False,
    ) -> None:
        self.engine, self.rows, self.max_norm, self.last = engine, rows, max_norm, last
        self.history: list[PastRound] = []

    def run(self, tasks: Sequence[RoundTask], *, timeout: float) -> Answers:
        """Return the inner engine's answers; those to a training round are kept."""
        answers = self.engine.run(tasks, timeout=timeout)
        kept: dict[str, ClientUpdate] = {}
        failed = {fault.client for fault in answers.faults}
        for task in sorted(tasks, key=lambda task: task.client):
            update = answers.updates.get(task.client)
            if update is None or task.client in failed:
                continue
            rows = self.rows[task.client]
            if screen(task, update, samples=rows, max_norm=self.max_norm) is None:
                kept[task.client] = update
        if tasks and all(task.operation == "train" for task in tasks):
            if self.last:
                self.history.clear()
            self.history.append(PastRound(tasks[0].weights, kept))
        return answers


def kept_bytes(history: Sequence[PastRound]) -> int:
    """Return the bytes of all updates, 4 for each number: C R P B of PUF's Table VIII."""
    return sum(size_of(u.delta) for past in history for u in past.updates.values())


def same(one: Weights, other: Weights) -> bool:
    """Return whether two models have equal bits (and no NaN)."""
    return one.keys() == other.keys() and all(
        torch.equal(part, other[name]) for name, part in one.items()
    )


def start_of(case: UnlearningCase) -> Weights:
    """Return the weights that the training began with."""
    if case.start is not None:
        return case.start
    return initial_weights(case.network, case.config.seed)


def check_whole_clients(case: UnlearningCase, method: str) -> None:
    """Raise RefusedError for a request of rows: the method forgets clients as a whole."""
    if case.request.rows:
        raise RefusedError(
            f"{method} forgets whole clients, not rows of them: use puf-special, hf-kcu or "
            "retrain"
        )


def check_history(case: RecordedCase) -> None:
    """Raise RefusedError unless the history leads, bit for bit, to the case's weights.

    A history of another model, with a hole or a changed update would calibrate towards
    nothing. For servers without moments a history of the last rounds will do; with moments
    it must begin with the training.
    """
    state = initial_state(case.history[0].weights, case.config.server)
    for past in case.history:
        if not past.updates or not same(past.weights, state.weights):
            raise _foreign()
        state = apply(state, weighted_mean(past.updates), case.config.server)
    if not same(case.weights, state.weights):
        raise _foreign()


def _foreign() -> RefusedError:
    return RefusedError(
        "the history does not lead to this model (of another one, or with a hole): use "
        "puf-special, hf-kcu or retrain"
    )
