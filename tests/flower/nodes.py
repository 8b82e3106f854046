"""An exchange whose nodes are files of rows in this process, and nodes that misbehave."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from lethe_flower.answers import answer
from lethe_flower.exchange import Kind, Reply
from tests.workers.training.fedavg.small import CLIENTS
from workers.training.fedavg.base import Clients

Trouble = Callable[[Kind, bytes], Reply | None]
FIRST = 100  # the node ids are 100, 101, ... in the order of the clients' names


def write(directory: Path, clients: Clients = CLIENTS) -> dict[int, dict[str, str]]:
    """Write each client's rows; returns the node configurations by node id."""
    configs = {}
    for node, (name, data) in enumerate(sorted(clients.items()), start=FIRST):
        path = directory / f"{node}.npz"
        np.savez(path, inputs=data.inputs.numpy(), targets=data.targets.numpy())
        configs[node] = {"client": name, "data": str(path)}
    return configs


class Nodes:
    """Answers as SuperNodes do; `trouble` replaces the answers of some nodes, None loses one."""

    def __init__(
        self,
        configs: Mapping[int, Mapping[str, str]],
        trouble: Mapping[int, Trouble] | None = None,
    ) -> None:
        self.configs: Mapping[int, Mapping[str, str]] = configs
        self.trouble = dict(trouble or {})
        self.asked: list[tuple[Kind, frozenset[int]]] = []

    def nodes(self) -> Sequence[int]:
        return sorted(self.configs)

    def ask(
        self, kind: Kind, contents: Mapping[int, bytes], *, timeout: float
    ) -> Mapping[int, Reply]:
        self.asked.append((kind, frozenset(contents)))
        found: dict[int, Reply] = {}
        for node, content in reversed(list(contents.items())):  # no order is promised
            reply: Reply | None
            if node in self.trouble:
                reply = self.trouble[node](kind, content)
            else:
                reply = Reply(answer(kind, content, self.configs[node]))
            if reply is not None:
                found[node] = reply
        return found
