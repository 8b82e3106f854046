"""All clients in this process, a few at once: for tests, benchmarks, the embedded server."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from workers.errors import RefusedError
from workers.training.fedavg.base import Answers, Clients, ClientUpdate, Fault, RoundTask
from workers.training.fedavg.client.respond import respond
from workers.training.fedavg.determinism import deterministic
from workers.training.fedavg.device import choose, facts, ran_out_of_memory
from workers.training.fedavg.messages import (
    decode_task,
    decode_update,
    encode_task,
    encode_update,
)

AT_ONCE = 4  # clients that compute at the same time: each holds a model and its gradients


class InProcess:
    """An engine whose clients' data is in memory.

    Tasks and answers are encoded to bytes as on any other engine: the byte counts are real,
    and what a message cannot carry does not work here either. A device given by name is
    chosen and tested by `device.choose`, which also raises.
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
        self.out_of_memory = False  # whether a client's answer was lost for want of it

    @property
    def environment(self) -> Mapping[str, str]:
        """Where the clients compute, and whether with deterministic kernels only."""
        with deterministic(self.threads):
            return facts(self.device, "float32")

    def run(self, tasks: Sequence[RoundTask], *, timeout: float = 0.0) -> Answers:
        """Return the answers; `timeout` is ignored, because nothing is cut short here."""
        ordered = sorted(tasks, key=lambda task: task.client)
        number = self.at_once(len(ordered))
        with deterministic(self.threads):
            if number == 1:  # starting a thread takes longer than a small client
                done = [self._exchange(task) for task in ordered]
            else:
                with ThreadPoolExecutor(number, initializer=self._begin) as pool:
                    # If the caller is stopped, map cancels the waiting clients.
                    done = list(pool.map(self._exchange, ordered))
        return Answers(
            {one.client: one for one, _, _ in done if isinstance(one, ClientUpdate)},
            [one for one, _, _ in done if isinstance(one, Fault)],
            sum(down for _, down, _ in done),
            sum(up for _, _, up in done),
        )

    def at_once(self, clients: int) -> int:
        """Return how many clients compute at the same time; no bit of an answer depends on it.

        Each is a function of its task and rows on `threads` threads of its own. It is one if
        torch chooses the number of threads, or on a device that works serially.
        """
        if self.threads is None or self.device.type != "cpu":
            return 1
        cores = (os.cpu_count() or 1) // self.threads
        return max(1, min(cores, clients, AT_ONCE))

    def _begin(self) -> None:
        if self.threads is not None:  # of the calling thread alone, under OpenMP
            torch.set_num_threads(self.threads)

    def _exchange(self, task: RoundTask) -> tuple[ClientUpdate | Fault, int, int]:
        """Return one client's answer and the bytes sent to it and back."""
        sent = encode_task(task)
        if task.client not in self.clients:
            return Fault(task.client, "no-answer", "unknown here"), len(sent), 0
        try:
            answer = encode_update(self._answer(decode_task(sent)))
        except (RefusedError, RuntimeError, MemoryError) as error:
            # Rows that do not fit, a device out of memory: this client only.
            if ran_out_of_memory(error):  # clients that fail at once must not unset it
                self.out_of_memory = True
            return Fault(task.client, "client-error", type(error).__name__), len(sent), 0
        return decode_update(answer), len(sent), len(answer)

    def _answer(self, task: RoundTask) -> ClientUpdate:
        return respond(task, self.clients[task.client], self.device)
