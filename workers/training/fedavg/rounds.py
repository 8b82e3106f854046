"""Rounds of federated averaging: ask, screen, average, step; resumable from any checkpoint.

`screen` is the server's only defence against a broken client: whether its answer may count.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite, prod, sqrt

import torch

from workers.errors import RefusedError
from workers.training.fedavg.base import (
    PRODUCTS,
    Clients,
    ClientUpdate,
    Engine,
    Fault,
    Operation,
    RoundTask,
    Work,
)
from workers.training.fedavg.checkpoint import Checkpoint, RoundRecord, pin_of
from workers.training.fedavg.config import LocalConfig, TrainingConfig
from workers.training.fedavg.errors import RoundFailedError
from workers.training.fedavg.seeds import derive, stream
from workers.training.fedavg.server import ServerState, apply, initial_state, weighted_mean
from workers.training.networks.registry import Network
from workers.training.networks.weights import (
    Weights,
    digest_of,
    encode_weights,
    initial_weights,
    largest,
    norm,
)

ENORMOUS = 1e6  # no training moves this far from its start, and no honest client comes near


def screen(
    task: RoundTask, update: ClientUpdate, *, samples: int | None = None, max_norm: float = 0.0
) -> Fault | None:
    """Return the fault of an answer to a task, None if it counts.

    samples is the number of rows the client registered: claiming more would give a client
    more weight. max_norm bounds the Euclidean norm of the whole update. If it is 0, a
    training update is still dropped if it is longer than ENORMOUS times the starting weights'
    norm (or 1): though finite, it would drown the average.
    """
    client = task.client
    if (update.round, update.client, update.base) != (task.round, client, task.base):
        return Fault(client, "mismatch", "another round, client or model than asked")
    if update.samples < 1 or samples not in (None, update.samples):
        return Fault(client, "mismatch", "another number of rows than registered")
    evaluated = task.operation == "evaluate"
    if update.flops < 0 or (update.steps < 1) != evaluated:
        return Fault(client, "mismatch", "no step was taken, or one that was not asked for")
    if (update.correct is not None) != evaluated:
        return Fault(client, "mismatch", "another kind of answer than asked")
    if update.correct is not None and not 0 <= update.correct <= _judged(task, update.samples):
        return Fault(client, "mismatch", "more right answers than rows")
    shapes = {} if evaluated else task.network.tensors()
    if update.delta.keys() != shapes.keys():
        return Fault(client, "shape", "other tensors than were asked for")
    for name, part in update.delta.items():
        if part.dtype != torch.float32 or tuple(part.shape) != shapes[name]:
            return Fault(client, "shape", name)
    if not isfinite(update.loss):
        return Fault(client, "not-finite", "loss")
    most = 0.0
    for name, part in update.delta.items():
        if not isfinite(top := largest(part)):
            return Fault(client, "not-finite", name)
        most = max(most, top)
    bound = max_norm or (ENORMOUS if task.operation == "train" else inf)
    # A vector of d entries is at most √d times as long as its largest: enough for most.
    if sqrt(sum(part.numel() for part in update.delta.values())) * most <= bound:
        return None
    if not max_norm:
        bound *= max(1.0, norm(task.weights))
    if (length := norm(update.delta)) > bound:
        return Fault(client, "norm", f"{length:.3g} is longer than {bound:.3g}")
    return None


def _judged(task: RoundTask, rows: int) -> int:
    """Return the number of answers for `rows` rows: one each, or one for each pixel."""
    masks = task.network.task == "segmentation"
    return rows * prod(task.network.input_shape[1:]) if masks else rows


@dataclass(frozen=True, slots=True, eq=False)
class CollectedRound:
    """A round's usable updates by client, sorted, the faults of the others, and the work."""

    updates: Mapping[str, ClientUpdate]
    faults: tuple[Fault, ...]
    work: Work

    @property
    def loss(self) -> float:
        """The clients' mean reported loss, weighted by rows."""
        rows = sum(update.samples for update in self.updates.values())
        return sum(u.loss * u.samples for u in self.updates.values()) / rows


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """The last state of a training and one record for each of its rounds."""

    state: ServerState
    records: tuple[RoundRecord, ...]

    @property
    def weights(self) -> Weights:
        """The global model."""
        return self.state.weights

    @property
    def work(self) -> Work:
        """The work of all rounds, including those before a resumption."""
        return sum((record.work for record in self.records), Work())


def sizes(clients: Clients) -> dict[str, int]:
    """Return the number of rows of each client, as `train` and `collect` take it."""
    return {client: len(clients[client]) for client in sorted(clients)}


def complete(trained: Trained) -> Trained:
    """Return the training if every client answered every task.

    Raises RoundFailedError if a client could not answer (its device was out of memory): a
    model without its rows is a different one. A screened-out answer counts as given.
    """
    for record in trained.records:
        if any(fault.reason in ("no-answer", "client-error") for fault in record.faults):
            raise RoundFailedError(
                f"round {record.round}: a client did not answer or failed, and each is "
                "needed: try again when it is back"
            )
    return trained


def make_tasks(
    network: Network,
    weights: Weights,
    clients: Iterable[str],
    config: LocalConfig,
    *,
    round: int,
    seed: int,
    operation: Operation = "train",
    vector: Weights | None = None,
    share: float = 1.0,
) -> list[RoundTask]:
    """Return one task for each client, sorted, with seeds by (seed, round, client).

    The seed of a product leaves the round out: all products of one seed use the same rows of
    a client, or conjugate gradients would see another matrix each time.
    """
    about: tuple[str | int, ...] = ("rows",) if operation in PRODUCTS else ("client", round)
    base = digest_of(encode_weights(network.id, network.parameters, weights))
    return [
        RoundTask(
            network,
            round,
            client,
            weights,
            base,
            config,
            derive(seed, *about, client),
            operation,
            vector,
            share,
        )
        for client in sorted(clients)
    ]


def collect(
    tasks: list[RoundTask],
    engine: Engine,
    *,
    rows: Mapping[str, int],
    min_clients: int = 1,
    max_norm: float = 0.0,
    timeout: float = 0.0,
) -> CollectedRound:
    """Ask clients once and return the screened answers. Every method asks this way.

    rows: each client's registered number of rows; an answer with another is dropped. Raises
    RoundFailedError if fewer than `min_clients` updates remain.
    """
    started = time.perf_counter()
    answers = engine.run(tasks, timeout=timeout)
    faults = {fault.client: fault for fault in answers.faults}
    updates: dict[str, ClientUpdate] = {}
    for task in tasks:
        update = answers.updates.get(task.client)
        if update is None or task.client in faults:
            faults.setdefault(task.client, Fault(task.client, "no-answer"))
            continue
        fault = screen(task, update, samples=rows[task.client], max_norm=max_norm)
        if fault is None:
            updates[task.client] = update
        else:
            faults[task.client] = fault
    dropped = tuple(faults[client] for client in sorted(faults))
    if len(updates) < min_clients:
        reasons = ", ".join(sorted({fault.reason for fault in dropped})) or "none were asked"
        raise RoundFailedError(
            f"{len(updates)} of {len(tasks)} clients answered usably ({reasons}), "
            f"{min_clients} are needed: resume from the last checkpoint when they are back",
            {fault.reason for fault in dropped},
        )
    # The work of dropped answers is not known, but their bytes were sent.
    work = Work(
        rounds=1,
        steps=sum(update.steps for update in updates.values()),
        flops=sum(update.flops for update in updates.values()),
        bytes_down=answers.bytes_down,
        bytes_up=answers.bytes_up,
        seconds=time.perf_counter() - started,
    )
    return CollectedRound(dict(sorted(updates.items())), dropped, work)


def sample(clients: Iterable[str], config: TrainingConfig, round: int) -> list[str]:
    """Return the clients of a round, sorted: uniform without replacement by (seed, round).

    Raises RefusedError if there are fewer than min_clients.
    """
    names = sorted(clients)
    if len(names) < config.min_clients:
        raise RefusedError(f"{len(names)} clients, but each round needs {config.min_clients}")
    asked = max(config.min_clients, round_half_up(config.participation * len(names)))
    rng = stream(config.seed, "participation", round)
    chosen = rng.choice(len(names), size=min(asked, len(names)), replace=False)
    return [names[index] for index in sorted(chosen.tolist())]


def round_half_up(number: float) -> int:
    """Return the nearest integer; Python's own round takes 2.5 to 2."""
    return int(number + 0.5)


def train(
    network: Network,
    clients: Mapping[str, int],
    config: TrainingConfig,
    engine: Engine,
    *,
    weights: Weights | None = None,
    data: str = "",
    resume: bytes | None = None,
    save: Callable[[bytes], None] | None = None,
    every: int = 1,
    after: Callable[[ServerState, RoundRecord], bool] | None = None,
) -> Trained:
    """Train for config.rounds rounds and return the model.

    clients: the number of rows by client id. Without `weights`, training starts from the
    initial weights of config.seed. `save` receives a checkpoint after every `every` rounds
    and after the last; `resume` is such a checkpoint, and the result equals that of an
    uninterrupted training, bit for bit. A checkpoint is pinned to network, configuration
    (except the number of rounds), clients, their row counts, the starting weights and `data`,
    the caller's digest of the training rows, so that weights trained on a record cannot start
    a training without it. `after` is called after each round and stops the training by
    returning True. Raises RoundFailedError, DivergedError, CheckpointError, and RefusedError
    without clients.
    """
    start = initial_weights(network, config.seed) if weights is None else weights
    pin = pin_of(network, clients, config, start, data)
    if resume is None:
        state, records = initial_state(start, config.server), []
    else:
        checkpoint = Checkpoint.decode(resume, network, config.server, pin)
        state, records = checkpoint.state, list(checkpoint.records)
    for round in range(len(records) + 1, config.rounds + 1):
        state, record = run_round(network, state, clients, config, engine, round)
        records.append(record)
        stopped = after is not None and after(state, record)
        last = stopped or round == config.rounds
        if save is not None and (round % every == 0 or last):
            save(Checkpoint(state, tuple(records)).encode(pin))
        if last:
            break
    return Trained(state, tuple(records))


def run_round(
    network: Network,
    state: ServerState,
    clients: Mapping[str, int],
    config: TrainingConfig,
    engine: Engine,
    round: int,
) -> tuple[ServerState, RoundRecord]:
    """Return the state after one ordinary round, and its record. Raises as `train`."""
    started = time.perf_counter()
    asked = sample(clients, config, round)
    tasks = make_tasks(
        network, state.weights, asked, config.local, round=round, seed=config.seed
    )
    collected = collect(
        tasks,
        engine,
        rows=clients,
        min_clients=config.min_clients,
        max_norm=config.max_norm,
        timeout=config.timeout,
    )
    after = apply(state, weighted_mean(collected.updates), config.server)
    work = replace(collected.work, seconds=time.perf_counter() - started)
    record = RoundRecord(round, tuple(asked), collected.faults, collected.loss, work)
    return after, record
