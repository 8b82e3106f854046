"""Exact-Fun: training on a grid, so that most of it need not be repeated.

Source: Xiong et al., "Exact-Fun: An Exact and Efficient Federated Unlearning Approach", ICDM
2023. Its abstract and the ridge paper's section 7 and appendix A1 were at hand; the step sizes
there are lost, so `step` has a default of ours, and rounding to the nearest is ours too.
Training rounds the model to multiples of `step` after each round (Q-FL):

    w_t = Q(w_{t-1} + Σ (n_i / n) Δ_i)

To forget, each round is aggregated again without the target, from the kept updates of the
others. As long as the rounded model is the one that was, so are all the others' updates, and
the next round is looked at; from the first that differs on, training is repeated.

Why "exact-retrained" is true, bit for bit: an update is a function of w_{t-1}, the client's
rows and a seed of (seed, round, client). By induction over the rounds that are looked at, all
of these are those of a quantised training without the target, which the repeated rounds then
continue. That takes a sample of clients that does not change with who is in it (`sampling`),
everybody's answer in every round, a server without moments, and a history that begins where
training does: `ExactFun.train` has no other form, and another history is refused. It is the
retrained model of *this* training; of one without the grid nothing is claimed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

import torch

from benchmarks.baselines.history import (
    PastRound,
    RecordedCase,
    kept_bytes,
    recorded,
    same,
    start_of,
)
from benchmarks.baselines.sampling import chosen
from workers.errors import RefusedError
from workers.methods.network.base import (
    Hooks,
    Need,
    Tick,
    Unlearned,
    UnlearningCase,
)
from workers.training.fedavg.base import ClientUpdate, Engine, Work
from workers.training.fedavg.config import TrainingConfig
from workers.training.fedavg.errors import CheckpointError
from workers.training.fedavg.rounds import collect, make_tasks
from workers.training.fedavg.server import ServerState, apply, weighted_mean
from workers.training.networks.registry import Network
from workers.training.networks.weights import Weights, initial_weights, size_of


@dataclass(frozen=True, slots=True, eq=False)
class Quantised:
    """A model, the rounds that led to it (what the next request needs), what it took.

    standing: rounds of the old history whose result stands; repeated: rounds trained anew.
    Between the two is the one round that came out otherwise from updates that were kept.
    """

    weights: Weights
    history: tuple[PastRound, ...]
    work: Work
    standing: int = 0
    repeated: int = 0


@dataclass(frozen=True, slots=True)
class ExactFun:
    """Quantised training and its exact unlearning; both need the same settings.

    clients_per_round 0: all; config.participation must be 1. Raises RefusedError for a value
    out of range.
    """

    step: float = 1e-3
    clients_per_round: int = 0

    def __post_init__(self) -> None:
        if not (isfinite(self.step) and self.step > 0):
            raise RefusedError("step: must be a positive number")
        if type(self.clients_per_round) is not int or self.clients_per_round < 0:
            raise RefusedError("clients_per_round: must be an integer, 0 for all")

    @property
    def id(self) -> str:
        """The method's name."""
        return "exact-fun"

    @property
    def version(self) -> str:
        """The method's version."""
        return "1"

    @property
    def needs(self) -> frozenset[Need]:
        """Nothing that a Case names: a RecordedCase of a quantised training, whole."""
        return frozenset()

    def train(
        self,
        network: Network,
        clients: Mapping[str, int],
        config: TrainingConfig,
        engine: Engine,
        *,
        weights: Weights | None = None,
    ) -> Quantised:
        """Return a quantised training of clients with so many rows, all of its rounds kept.

        Raises RefusedError for a configuration that cannot be exact, RoundFailedError if
        anybody asked does not answer usably, DivergedError.
        """
        _check(config)
        start = initial_weights(network, config.seed) if weights is None else weights
        return self._rounds(network, quantise(start, self.step), clients, config, engine, 1)

    def replay(self, case: RecordedCase, hooks: Hooks | None = None) -> Quantised:
        """Return the quantised training without what the request names. Raises as `run`."""
        config, engine, stay = case.config, case.retained.engine, case.retained.rows
        _check(config)
        self._check_history(case)
        history: list[PastRound] = []
        work = Work()
        for number, past in enumerate(case.history, 1):
            asked = chosen(stay, self.clients_per_round, config.seed, number)
            # Of a client who lost rows both its update and its weight are others now.
            updates = {
                name: past.updates[name]
                for name in asked
                if name in past.updates and name not in case.request.rows
            }
            lost = [name for name in asked if name not in updates]
            if lost:
                found = self._ask(
                    case.network, past.weights, lost, stay, config, engine, number
                )
                updates.update(found[0])
                work = work + found[1]
            history.append(PastRound(past.weights, updates))
            after = self._after(past.weights, updates, config)
            if hooks is not None and hooks.tell is not None:
                hooks.tell(Tick("retrain", number, config.rounds))
            was = case.weights if number == config.rounds else case.history[number].weights
            if not same(after, was):
                rest = self._rounds(
                    case.network, after, stay, config, engine, number + 1, hooks
                )
                return Quantised(
                    rest.weights,
                    (*history, *rest.history),
                    work + rest.work,
                    number - 1,
                    config.rounds - number,
                )
        return Quantised(case.weights, tuple(history), work, config.rounds, 0)

    def run(self, case: UnlearningCase, hooks: Hooks | None = None) -> Unlearned:
        """Return the model of the quantised training that never saw what is forgotten.

        Raises UnmetNeedError without history, RefusedError if it is not that of a
        quantised training with these settings, RoundFailedError if anybody who stays does
        not answer. A run is not resumable: it saves nothing, and refuses any `resume`.
        """
        refuse_resume(hooks)
        kept = recorded(case)
        found = self.replay(kept, hooks)
        notes = {
            "exact-fun.step": f"{self.step:.6g}",
            "exact-fun.rounds-standing": str(found.standing),
            "exact-fun.rounds-repeated": str(found.repeated),
            "state.bytes": str(
                kept_bytes(kept.history) + len(kept.history) * size_of(case.weights)
            ),
        }
        return Unlearned(found.weights, found.work, "exact-retrained", notes)

    def _rounds(
        self,
        network: Network,
        weights: Weights,
        clients: Mapping[str, int],
        config: TrainingConfig,
        engine: Engine,
        first: int,
        hooks: Hooks | None = None,
    ) -> Quantised:
        history: list[PastRound] = []
        work = Work()
        for number in range(first, config.rounds + 1):
            asked = chosen(clients, self.clients_per_round, config.seed, number)
            updates, spent = self._ask(network, weights, asked, clients, config, engine, number)
            history.append(PastRound(weights, updates))
            weights, work = self._after(weights, updates, config), work + spent
            if hooks is not None and hooks.tell is not None:
                hooks.tell(Tick("retrain", number, config.rounds))
        return Quantised(weights, tuple(history), work)

    def _ask(
        self,
        network: Network,
        weights: Weights,
        asked: Sequence[str],
        clients: Mapping[str, int],
        config: TrainingConfig,
        engine: Engine,
        number: int,
    ) -> tuple[dict[str, ClientUpdate], Work]:
        tasks = make_tasks(
            network, weights, asked, config.local, round=number, seed=config.seed
        )
        found = collect(
            tasks,
            engine,
            rows=clients,
            min_clients=len(asked),  # one dropped, and the replay would be of another training
            max_norm=config.max_norm,
            timeout=config.timeout,
        )
        return dict(found.updates), found.work

    def _after(
        self, weights: Weights, updates: Mapping[str, ClientUpdate], config: TrainingConfig
    ) -> Weights:
        state = ServerState(weights, {}, {})
        return quantise(apply(state, weighted_mean(updates), config.server).weights, self.step)

    def _check_history(self, case: RecordedCase) -> None:
        """Raise RefusedError unless each round of the history leads to the next."""
        whole = len(case.history) == case.config.rounds
        weights = quantise(start_of(case), self.step)
        for past in case.history:
            whole = whole and bool(past.updates) and same(weights, past.weights)
            weights = self._after(past.weights, past.updates, case.config) if whole else weights
        if not whole or not same(weights, case.weights):
            raise RefusedError(
                "the history is not that of a quantised training with these settings: train "
                "with exact-fun first, or use retrain"
            )


def quantise(weights: Weights, step: float) -> Weights:
    """Return step · round(w / step), float32, and no negative zero. Idempotent for one step."""
    return {
        name: (torch.round(part.double() / step) * step).float() + 0.0
        for name, part in weights.items()
    }


def refuse_resume(hooks: Hooks | None) -> None:
    """Raise CheckpointError for a checkpoint handed to a method that writes none."""
    if hooks is not None and hooks.resume is not None:
        raise CheckpointError("this method saves no checkpoints: start the unlearning anew")


def _check(config: TrainingConfig) -> None:
    server = config.server
    if server.optimizer != "sgd" or server.momentum:
        raise RefusedError("exact-fun needs a server without moments: sgd, momentum 0")
    if config.participation != 1:
        raise RefusedError(
            "exact-fun samples by clients_per_round: set it there and participation to 1"
        )


METHODS = {"exact-fun": ExactFun}
