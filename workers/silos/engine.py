"""An engine whose clients are behind queues: silo-0, silo-1, … each with its own worker.

A broker's message is the id of a row. Task and answer are stored sealed in the vault, which
the silos share: they are one trust domain, spread over processes or machines. A silo signs
its answer together with the digest of the task, and only answers signed by the registered key
for this task are combined.
"""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from app.dispatch import silo_queue
from app.service.access import silo_keys
from app.service.context import Services
from lethe.errors import LetheError
from models import Model, SiloTask
from workers import devices
from workers.silos import keys, table
from workers.silos.answer import DEVICE, THREADS
from workers.silos.collect import UNSIGNED, SilentError, Waiting, opened, over, trusted_keys
from workers.silos.message import Positions, encode_message
from workers.training.fedavg.base import (
    Answers,
    ClientData,
    ClientUpdate,
    Engine,
    Fault,
    RoundTask,
)
from workers.training.fedavg.determinism import deterministic
from workers.training.fedavg.device import facts
from workers.training.fedavg.errors import MessageError
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.messages import decode_update, encode_task

DIGEST = 32  # bytes of the task's SHA-256, before the update


def silo_of(client: str, silos: int) -> int:
    """Return the silo of a client, the same on every machine: its SHA-256 modulo `silos`."""
    return int.from_bytes(sha256(client.encode()).digest()) % silos


@dataclass(frozen=True, slots=True)
class Sent:
    """A sent task: its row, its silo, and the SHA-256 of its message."""

    row: str
    silo: int
    digest: bytes


class SiloEngine:
    """Carries a job's round tasks through the vault to the silos' workers.

    `selection` names the clients of this side and the positions of their training rows to
    use; None: all.
    """

    def __init__(
        self,
        services: Services,
        job_id: str,
        model_id: int,
        selection: Mapping[str, Positions],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._services = services
        self._job_id = job_id
        self._model_id = model_id
        self._selection = selection
        self._clock = clock
        self._waiting = Waiting(services, job_id, clock, sleep)

    @property
    def environment(self) -> Mapping[str, str]:
        """Where the clients compute, in the form of `workers.training.fedavg.device.facts`."""
        with deterministic(THREADS):
            return facts(DEVICE, "float32")

    def run(self, tasks: Sequence[RoundTask], *, timeout: float = 0.0) -> Answers:
        """Return the answers within `timeout` seconds; 0: LETHE_ROUND_TIMEOUT_SECONDS.

        No round lasts longer than 12 hours. When this returns or raises, the round's rows are
        removed and its artifacts shredded.
        """
        limit = timeout or float(self._services.settings.round_timeout_seconds)
        limit = min(limit, table.LONGEST_ROUND.total_seconds())
        faults: list[Fault] = []
        sent: dict[str, Sent] = {}  # by client
        queues: dict[str, str] = {}  # by the id of the row
        down = 0
        try:
            deadline = self._clock() + limit
            for task in sorted(tasks, key=lambda task: task.client):
                data = encode_task(task)
                down += len(data)
                if task.client not in self._selection:
                    faults.append(Fault(task.client, "no-answer", "unknown here"))
                    continue
                silo = silo_of(task.client, self._services.settings.silos)
                queue, row = silo_queue(silo), str(uuid.uuid4())
                message = encode_message(
                    self._job_id,
                    row,
                    silo,
                    self._model_id,
                    self._selection[task.client],
                    data,
                )
                whose = (self._services, self._job_id, self._model_id)
                table.post(*whose, queue, message, row)
                sent[task.client] = Sent(row, silo, sha256(message).digest())
                queues[row] = queue
            rows = self._waiting.until(queues, deadline)
            updates, up = self._read(sent, rows, faults)
        finally:
            # Only these rows of the job: a worker that lost its lease without noticing must
            # not remove the rows that the next worker waits for.
            table.settle(self._services, queues)
        return Answers(updates, faults, down, up)

    def _logged(self) -> dict[int, tuple[str, ...]]:
        """Return the model's accepted keys, looked up after answers arrived.

        A new silo registers its key before it answers.
        """
        with self._services.reading() as session:
            ref = session.get_one(Model, self._model_id).ref
        return silo_keys.accepted(self._services, ref)

    def _read(
        self, sent: Mapping[str, Sent], rows: Mapping[str, SiloTask], faults: list[Fault]
    ) -> tuple[dict[str, ClientUpdate], int]:
        """Return the updates by client and their bytes; anything else becomes a fault."""
        updates: dict[str, ClientUpdate] = {}
        up = 0
        logged = self._logged() if any(over(row) for row in rows.values()) else {}
        with self._services.reading() as session:
            for client, posted in sent.items():
                row = rows.get(posted.row)
                if row is None or not over(row):
                    taken = row is not None and row.taken_at is not None
                    detail = "not answered" if taken else "not taken"
                    faults.append(Fault(client, "no-answer", detail))
                    continue
                if row.answer_id is None:
                    faults.append(Fault(client, "client-error", row.fault or ""))
                    continue
                try:
                    trusted = trusted_keys(self._services, posted.silo, logged)
                    data = self._services.artifacts.get(session, row.answer_id)
                    signed, _ = opened(trusted, data, keys.UPDATE)
                    if signed[:DIGEST] != posted.digest:
                        faults.append(Fault(client, "unsigned", "to another task"))
                        continue
                    updates[client] = decode_update(signed[DIGEST:])
                    up += len(signed) - DIGEST
                except SilentError as why:
                    faults.append(Fault(client, "unsigned", str(why)))
                except keys.NotSignedError:
                    faults.append(Fault(client, "unsigned", UNSIGNED))
                except (LetheError, MessageError) as error:
                    faults.append(Fault(client, "unreadable", type(error).__name__))
        return updates, up


def engine_for(
    services: Services,
    job_id: str,
    model_id: int,
    clients: Mapping[str, ClientData],
    selection: Mapping[str, Positions],
) -> Engine:
    """Return the engine for a job's rounds; on CPUs both give the same bits.

    In this process it uses the device chosen by `devices`, like the verifier's repetition.

    `clients` are one side's rows in memory, `selection` the same as positions among each
    client's training rows (None: all). Only one of the two is used.
    """
    if services.settings.silos == 0:
        return InProcess(clients, devices.for_training(), THREADS)
    return SiloEngine(services, job_id, model_id, selection)
