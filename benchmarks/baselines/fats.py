"""FATS: so little is sampled in each round that most requests were never touched.

Source: Tao et al., "Communication Efficient and Provable Federated Unlearning", PVLDB 17(5),
2024 (arXiv 2401.11018). Its abstract and a summary were at hand, not its algorithms; rounds and
sample sizes follow the ridge paper's appendix A1 (60 rounds of 5 clients and 64 rows). In each
of R rounds K of M clients are drawn, each takes E local steps on b of its N rows, and the plain
mean of their models is the next. What was never drawn is forgotten by doing nothing; else
training is repeated from the first round that drew it. Training is TV-stable:

    P(client drawn) = 1 - (1 - K/M)^R <= ρ_C = R K / M
    P(row drawn)    = 1 - (1 - K/M (1 - (1 - b/N)^E))^R <= ρ_S = R E K b / (M N)

Why "exact-retrained" is true, and bit for bit where the paper has equality in law: samples are
drawn by rank (`sampling`), so that without a member that was not drawn they are the same, and a
round without it gives the same model; the mean is plain, so that no weight n_i tells of a row
that was not drawn. The repeated rounds are those of a training without it from equal weights.
A history of other settings cannot be told apart by its numbers: it must be `Fats.train`'s.
Rows are their positions at training: a second request of rows needs a training anew.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from benchmarks.baselines.exact_fun import refuse_resume
from benchmarks.baselines.history import PastRound, RecordedCase, recorded, same, start_of
from benchmarks.baselines.sampling import chosen, drawn
from workers.errors import RefusedError
from workers.methods.network.base import (
    Hooks,
    Need,
    Side,
    Tick,
    Unlearned,
    UnlearningCase,
)
from workers.methods.network.baselines.at_clients import Procedure, holder_of
from workers.training.fedavg.base import ClientData, ClientUpdate, RoundTask, Work, check_data
from workers.training.fedavg.client.flops import training_flops
from workers.training.fedavg.config import TrainingConfig
from workers.training.fedavg.evaluate import loss_of
from workers.training.fedavg.rounds import collect, make_tasks
from workers.training.fedavg.seeds import derive
from workers.training.fedavg.server import ServerState, apply, weighted_mean
from workers.training.networks.registry import Network
from workers.training.networks.weights import (
    Weights,
    difference,
    initial_weights,
    size_of,
    weights_of,
    with_weights,
)

Rows = Mapping[str, NDArray[np.int64]]  # what a client's rows were numbered at training


@dataclass(frozen=True, slots=True, eq=False)
class Sampled:
    """A model, the weights before each of its rounds, what it took; rounds trained anew."""

    weights: Weights
    history: tuple[PastRound, ...]
    work: Work
    repeated: int


@dataclass(frozen=True, slots=True)
class Fats:
    """TV-stable training and its exact unlearning; both need the same settings.

    clients K for each round (config.participation must be 1), batch b, steps E. Of the local
    configuration it uses rate, decay, momentum, weight decay, clipping and loss, with SGD.
    Raises RefusedError for a value out of range.
    """

    clients: int = 5
    batch: int = 64
    steps: int = 1

    def __post_init__(self) -> None:
        for name in ("clients", "batch", "steps"):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= 1 << 20:
                raise RefusedError(f"{name}: must be an integer, 1 or more")

    @property
    def id(self) -> str:
        """The method's name."""
        return "fats"

    @property
    def version(self) -> str:
        """The method's version."""
        return "1"

    @property
    def needs(self) -> frozenset[Need]:
        """Nothing that a Case names: a RecordedCase, of which it reads the weights."""
        return frozenset()

    def client_stability(self, clients: int, rounds: int) -> float:
        """Return the probability that one of so many clients is ever drawn."""
        return 1 - (1 - min(1.0, self.clients / clients)) ** rounds

    def row_stability(self, clients: int, rows: int, rounds: int) -> float:
        """Return the probability that one of a client's rows is ever drawn."""
        local = 1 - (1 - min(1.0, self.batch / rows)) ** self.steps
        return 1 - (1 - min(1.0, self.clients / clients) * local) ** rounds

    def train(
        self,
        network: Network,
        side: Side,
        config: TrainingConfig,
        *,
        weights: Weights | None = None,
        numbers: Rows | None = None,
    ) -> Sampled:
        """Return a training of a side's clients whose rows are at hand.

        numbers: what each client's rows are numbered, ascending; 0, 1, … by default. Rows
        keep their numbers when others leave, and draws are by number.

        Raises RefusedError for a configuration it is not for, RowsElsewhereError,
        RoundFailedError if anybody drawn does not answer usably, DivergedError.
        """
        _check(config)
        start = initial_weights(network, config.seed) if weights is None else weights
        if numbers is None:
            numbers = {name: np.arange(rows) for name, rows in side.rows.items()}
        return self._rounds(network, start, side, numbers, config, 1)

    def first_touched(self, case: UnlearningCase) -> int:
        """Return the first round that drew what the request names, 0 if none did."""
        rows, leaving = _numbering(case), case.request
        before: dict[str, NDArray[np.int64]] = {name: kept for name, kept in rows.items()}
        for name, gone in leaving.rows.items():
            before[name] = np.sort(np.append(rows.get(name, np.arange(0)), gone))
        names = before.keys() | leaving.clients
        for number in range(1, case.config.rounds + 1):
            for name in chosen(names, self.clients, case.config.seed, number):
                if name in leaving.clients:
                    return number
                if name in leaving.rows and self._touches(case, name, before[name], number):
                    return number
        return 0

    def replay(self, case: RecordedCase, hooks: Hooks | None = None) -> Sampled:
        """Return the training without what the request names. Raises as `run`."""
        config = case.config
        _check(config)
        whole = len(case.history) == config.rounds
        if not whole or not same(case.history[0].weights, start_of(case)):
            raise RefusedError(
                "the history has not the weights before each round: train with fats first, or "
                "use retrain"
            )
        first = self.first_touched(case)
        if not first:
            return Sampled(case.weights, tuple(case.history), Work(), 0)
        stand = tuple(case.history[: first - 1])
        rest = self._rounds(
            case.network,
            case.history[first - 1].weights,
            case.retained,
            _numbering(case),
            config,
            first,
            hooks,
        )
        return replace(rest, history=(*stand, *rest.history))

    def run(self, case: UnlearningCase, hooks: Hooks | None = None) -> Unlearned:
        """Return the model of the training that never drew what is forgotten.

        Raises UnmetNeedError without history, RowsElsewhereError, RoundFailedError. A run
        is not resumable: it saves nothing, and refuses any `resume`.
        """
        refuse_resume(hooks)
        kept = recorded(case)
        found = self.replay(kept, hooks)
        notes = {
            "fats.clients": str(self.clients),
            "fats.batch": str(self.batch),
            "fats.steps": str(self.steps),
            "fats.rounds-repeated": str(found.repeated),
            "state.bytes": str(len(kept.history) * size_of(case.weights)),
        }
        return Unlearned(found.weights, found.work, "exact-retrained", notes)

    def _rounds(
        self,
        network: Network,
        weights: Weights,
        side: Side,
        rows: Rows,
        config: TrainingConfig,
        first: int,
        hooks: Hooks | None = None,
    ) -> Sampled:
        engine = Procedure(holder_of(side), self._answer(rows))
        history: list[PastRound] = []
        work = Work()
        for number in range(first, config.rounds + 1):
            asked = chosen(side.rows, self.clients, config.seed, number)
            tasks = make_tasks(
                network, weights, asked, config.local, round=number, seed=config.seed
            )
            found = collect(
                tasks,
                engine,
                rows=side.rows,
                min_clients=len(asked),  # one dropped, and the draw would be another
                max_norm=config.max_norm,
            )
            history.append(PastRound(weights, {}))
            plain = {name: replace(u, samples=1) for name, u in found.updates.items()}
            state = ServerState(weights, {}, {})
            weights = apply(state, weighted_mean(plain), config.server).weights
            work = work + found.work
            if hooks is not None and hooks.tell is not None:
                hooks.tell(Tick("retrain", number, config.rounds, found.loss))
        return Sampled(weights, tuple(history), work, len(history))

    def _answer(
        self, rows: Rows
    ) -> Callable[[RoundTask, ClientData, torch.device | str], ClientUpdate]:
        def answer(
            task: RoundTask, data: ClientData, device: torch.device | str
        ) -> ClientUpdate:
            samples = [
                drawn(rows[task.client], self.batch, task.seed, "rows", step)
                for step in range(self.steps)
            ]
            return local_steps(task, data, samples, device)

        return answer

    def _touches(
        self, case: UnlearningCase, name: str, rows: NDArray[np.int64], number: int
    ) -> bool:
        seed = derive(case.config.seed, "client", number, name)  # as `make_tasks`
        gone = case.request.rows[name]
        return any(
            bool(np.isin(rows[drawn(rows, self.batch, seed, "rows", step)], gone).any())
            for step in range(self.steps)
        )


def local_steps(
    task: RoundTask,
    data: ClientData,
    samples: Sequence[NDArray[np.int64]],
    device: torch.device | str = "cpu",
) -> ClientUpdate:
    """Return the update of one SGD step on each of the samples (places of rows)."""
    started = time.perf_counter()
    config = task.config
    module = with_weights(task.network, task.weights, device).train()
    check_data(task.network, data)
    optimizer = torch.optim.SGD(
        module.parameters(),
        config.rate(task.round),
        config.momentum,
        weight_decay=config.weight_decay,
    )
    total, seen = torch.zeros((), dtype=torch.float64, device=device), 0
    for sample in samples:
        at = torch.from_numpy(sample)
        logits = module(data.inputs[at].to(device))
        loss = loss_of(config.loss, logits, data.targets[at].to(device))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if config.clip_norm:
            nn.utils.clip_grad_norm_(module.parameters(), config.clip_norm)
        optimizer.step()
        total += loss.detach().double() * len(sample)
        seen += len(sample)
    return ClientUpdate(
        round=task.round,
        client=task.client,
        base=task.base,
        delta=difference(weights_of(module), task.weights),
        samples=len(data),
        steps=len(samples),
        loss=float(total) / seen,
        flops=seen * training_flops(task.network, config.loss),
        seconds=time.perf_counter() - started,
    )


def _numbering(case: UnlearningCase) -> dict[str, NDArray[np.int64]]:
    """Return the numbers that the rows of those who stay had at training."""
    found: dict[str, NDArray[np.int64]] = {}
    for name, count in case.retained.rows.items():
        gone = np.asarray(case.request.rows.get(name, ()), dtype=np.int64)
        found[name] = np.setdiff1d(np.arange(count + len(gone)), gone)
    return found


def _check(config: TrainingConfig) -> None:
    server = config.server
    if server.optimizer != "sgd" or server.momentum:
        raise RefusedError("fats needs a server without moments: sgd, momentum 0")
    if config.participation != 1:
        raise RefusedError("fats draws `clients` of them itself: set participation to 1")


METHODS = {"fats": Fats}
