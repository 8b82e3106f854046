"""Baselines that need all rows in one place: how they get them, or why not.

Their objectives need a teacher besides the model, both sets of rows in one step, or each
row's own gradient: no message between server and clients asks for these. So they run only
where an engine holds its clients' rows in this process, and refuse by name elsewhere. Such an
engine is recognised by its interface (`RowHolder`), not its class: `InProcess` is one.

Bytes count the rows, which a federation would have to send to one place, just as the
in-process engine counts messages that never leave the process.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch

from workers.errors import RefusedError
from workers.methods.network.base import (
    Hooks,
    Need,
    Side,
    Tick,
    Unlearned,
    UnlearningCase,
    UnmetNeedError,
    check_needs,
)
from workers.methods.network.recovery import (
    Recovery,
    Step,
    named_out_of_memory,
    step_and_recover,
)
from workers.training.fedavg.base import ClientData, Clients, Work, check_data
from workers.training.fedavg.determinism import deterministic
from workers.training.fedavg.seeds import derive

Pool = Literal["forget", "retained"]
Tell = Callable[[int, int, float], None]  # epochs done, epochs in all, mean loss of the last


class RowsElsewhereError(UnmetNeedError):
    """The rows that a central baseline needs are not in this process."""


@runtime_checkable
class RowHolder(Protocol):
    """An engine whose clients' rows are in this process."""

    @property
    def clients(self) -> Clients:
        """The rows by client."""

    @property
    def device(self) -> torch.device | str:
        """Where to compute with them."""

    @property
    def threads(self) -> int | None:
        """The number of CPU threads that equal bits were promised for, None: unchanged."""


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """The rows in one place, clients sorted by name; None for a pool not requested.

    Every random choice of the method is derived from seed.
    """

    retained: ClientData | None
    forget: ClientData | None
    device: torch.device | str
    threads: int | None
    seed: int
    bytes: int

    @property
    def retained_rows(self) -> ClientData:
        """The retained rows, if requested."""
        assert self.retained is not None, "a method asks for the pools it declares"
        return self.retained

    @property
    def forget_rows(self) -> ClientData:
        """The rows to forget, if requested."""
        assert self.forget is not None, "a method asks for the pools it declares"
        return self.forget

    def notes(self) -> dict[str, str]:
        """Return how many rows were in one place."""
        pools = {"retained": self.retained, "forget": self.forget}
        return {
            f"central.{name}-rows": str(len(rows))
            for name, rows in sorted(pools.items())
            if rows is not None
        }


class CentralMethod(Protocol):
    """A baseline that computes on pooled rows. `pools` are all the rows it ever sees."""

    @property
    def id(self) -> str:
        """The name requests and certificates use."""

    @property
    def version(self) -> str:
        """Changes whenever the same case may give other weights."""

    @property
    def needs(self) -> frozenset[Need]:
        """What a case must have."""

    @property
    def pools(self) -> frozenset[Pool]:
        """Whose rows must be in this process."""

    @property
    def recovery(self) -> Recovery:
        """Ordinary rounds afterwards; none of the papers has them, so 0 by default."""

    def step(self, case: UnlearningCase, rows: Gathered, tell: Tell) -> Step:
        """Return the weights after the method, inside `deterministic`, without seconds."""


def unlearn(
    method: CentralMethod, case: UnlearningCase, hooks: Hooks | None = None
) -> Unlearned:
    """Return the model after a central method. `resume` continues after it, never within.

    Raises UnmetNeedError, RowsElsewhereError where rows are not here, DivergedError,
    OutOfMemoryError, and as `step_and_recover`. The case's weights are never written to.
    """
    check_needs(method.needs, case)

    def step() -> Step:
        started = time.perf_counter()
        with named_out_of_memory():
            rows = gather(case, method.pools, method.id)
            with deterministic(rows.threads):
                made = method.step(case, rows, told(hooks))
        spent = Work(bytes_up=rows.bytes, seconds=time.perf_counter() - started)
        return Step(made.weights, made.work + spent, {**rows.notes(), **made.notes})

    spelled = f"{method.id}/{method.version} {method!r}"
    return step_and_recover(case, spelled, step, method.recovery, hooks)


def gather(case: UnlearningCase, pools: frozenset[Pool], purpose: str) -> Gathered:
    """Return the rows of these pools and no others: the other side is never read.

    The seed is derived from config.seed, its rounds and `purpose`.
    Raises RowsElsewhereError, and RefusedError for rows that are not the network's.
    """
    sides = {"retained": case.retained, "forget": case.targets}
    found: dict[str, ClientData] = {}
    holder: RowHolder | None = None
    for pool in sorted(pools):
        side = sides[pool]
        if side is None:
            raise RowsElsewhereError("a target client is offline: use hf-kcu or retrain")
        holder = _holder(side)
        found[pool] = _pooled(side.rows, holder.clients)
        check_data(case.network, found[pool])
    if holder is None:
        raise RefusedError("a central method must declare whose rows it needs")
    return Gathered(
        found.get("retained"),
        found.get("forget"),
        holder.device,
        holder.threads,
        derive(case.config.seed, "central", purpose, case.config.rounds),
        sum(rows.inputs.nbytes + rows.targets.nbytes for rows in found.values()),
    )


def _holder(side: Side) -> RowHolder:
    engine: object = side.engine
    if isinstance(engine, RowHolder) and isinstance(engine.clients, Mapping):
        return engine
    raise RowsElsewhereError(
        "this baseline needs the rows in one place, and they stay with their clients: run it "
        "on an in-process engine, or use puf-special, hf-kcu or retrain"
    )


def _pooled(registered: Mapping[str, int], clients: Clients) -> ClientData:
    """Return all rows of the registered clients, sorted by name."""
    parts = []
    for name in sorted(registered):
        rows = clients.get(name)
        if rows is None:
            raise RowsElsewhereError(
                "the rows of a client are not in this process: bring them here, or use "
                "hf-kcu or retrain"
            )
        if len(rows) != registered[name]:
            raise RefusedError(
                "a client holds another number of rows than it is registered with: "
                "bring its registered rows here"
            )
        parts.append(rows)
    if len({(part.inputs.shape[1:], part.targets.shape[1:]) for part in parts}) > 1:
        raise RefusedError(
            "the clients' rows are of different shapes: bring rows of one network here"
        )
    return ClientData.joined(parts)


def told(hooks: Hooks | None) -> Tell:
    """Return a function that reports finished epochs to `hooks.tell`, if set."""

    def tell(done: int, total: int, loss: float) -> None:
        if hooks is not None and hooks.tell is not None:
            hooks.tell(Tick("step", done, total, loss))

    return tell
