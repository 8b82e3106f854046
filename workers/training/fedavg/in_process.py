"""All clients in this process, one after the other: tests, benchmarks, the embedded server."""

from collections.abc import Mapping, Sequence

import torch

from workers.errors import RefusedError
from workers.training.fedavg.base import Answers, Clients, ClientUpdate, Fault, RoundTask
from workers.training.fedavg.determinism import deterministic
from workers.training.fedavg.device import choose, facts
from workers.training.fedavg.messages import (
    decode_task,
    decode_update,
    encode_task,
    encode_update,
)
from workers.training.fedavg.respond import respond


class InProcess:
    """An engine whose clients' data are in memory.

    Tasks and answers pass through their bytes as on any other engine: what is measured is
    what would be sent, and what a message cannot carry does not work here either. A device
    by name is chosen, and tested, by `device.choose`. Raises as that.
    """

    def __init__(
        self,
        clients: Clients,
        device: torch.device | str = "cpu",
        threads: int | None = None,
    ) -> None:
        self.clients = clients
        self.device = choose(device) if isinstance(device, str) else device
        self.threads = threads  # equal bits need an equal number

    @property
    def environment(self) -> Mapping[str, str]:
        """Where the clients compute, and whether with deterministic kernels only."""
        with deterministic(self.threads):
            return facts(self.device, "float32")

    def run(self, tasks: Sequence[RoundTask], *, timeout: float = 0.0) -> Answers:
        """Return the answers; nothing is cut short here, so `timeout` is not looked at."""
        updates: dict[str, ClientUpdate] = {}
        faults: list[Fault] = []
        down = up = 0
        with deterministic(self.threads):
            for task in sorted(tasks, key=lambda task: task.client):
                sent = encode_task(task)
                down += len(sent)
                if task.client not in self.clients:
                    faults.append(Fault(task.client, "no-answer", "unknown here"))
                    continue
                try:
                    answer = encode_update(self._answer(decode_task(sent)))
                except (RefusedError, RuntimeError, MemoryError) as error:
                    # Rows that do not fit, a device out of memory: this client only.
                    faults.append(Fault(task.client, "client-error", type(error).__name__))
                    continue
                up += len(answer)
                updates[task.client] = decode_update(answer)
        return Answers(updates, faults, down, up)

    def _answer(self, task: RoundTask) -> ClientUpdate:
        return respond(task, self.clients[task.client], self.device)
