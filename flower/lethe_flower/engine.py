"""An engine of federated averaging whose clients are nodes of an exchange."""

from collections.abc import Mapping, Sequence

from lethe_flower.exchange import Exchange
from workers.errors import RefusedError
from workers.training.fedavg.base import Answers, ClientUpdate, Fault, RoundTask
from workers.training.fedavg.errors import MessageError
from workers.training.fedavg.messages import decode_update, encode_task


class FlowerEngine:
    """Sends each client's task to its node; nodes are the node ids by client.

    Bytes are counted as `InProcess` counts them: the lengths of the messages, without
    Flower's overhead. Raises RefusedError if two clients share a node, and the exchange's
    error if the SuperLink cannot be reached.
    """

    def __init__(self, exchange: Exchange, nodes: Mapping[str, int]) -> None:
        if len(set(nodes.values())) != len(nodes):
            raise RefusedError("two clients share a node: start a SuperNode for each")
        self._exchange = exchange
        self._nodes = dict(nodes)

    def run(self, tasks: Sequence[RoundTask], *, timeout: float) -> Answers:
        """Return the clients' answers within `timeout` seconds (0: wait for all)."""
        sent: dict[int, bytes] = {}
        asked: dict[str, int] = {}
        faults: list[Fault] = []
        down = up = 0
        for task in sorted(tasks, key=lambda task: task.client):
            message = encode_task(task)
            down += len(message)
            node = self._nodes.get(task.client)
            if node is None:
                faults.append(Fault(task.client, "no-answer", "unknown here"))
                continue
            sent[node], asked[task.client] = message, node
        replies = self._exchange.ask("train", sent, timeout=timeout) if sent else {}
        updates: dict[str, ClientUpdate] = {}
        for client, node in asked.items():
            reply = replies.get(node)
            if reply is None:
                faults.append(Fault(client, "no-answer"))
            elif reply.content is None:
                faults.append(Fault(client, reply.fault or "client-error", reply.detail))
            else:
                up += len(reply.content)
                try:
                    updates[client] = decode_update(reply.content)
                except MessageError:
                    faults.append(Fault(client, "unreadable"))
        return Answers(updates, faults, down, up)
