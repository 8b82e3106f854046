"""The exchange over a Flower grid: SuperLink and SuperNodes (flwr 1.41, Message API)."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from lethe_flower.exchange import Kind, Reply
from workers.training.fedavg.base import Reason

# The bytes are in an Array, not a ConfigRecord: Flower cuts arrays into chunks of 5 MiB and
# sends any other record as one request.
CONTENT, FAULT = "lethe", "lethe-fault"
PAUSE = 0.2  # seconds between two polls for answers; Flower's own loop takes 3
# Flower's ErrorCode: message, reply or node unavailable. The other codes are failures of the
# client.
_GONE = (3, 4, 5)


def pack(content: bytes) -> RecordDict:
    """Return a message's content."""
    array = Array("uint8", (len(content),), "lethe", content)
    return RecordDict({CONTENT: ArrayRecord({CONTENT: array})})


def pack_fault(error: Exception) -> RecordDict:
    """Return the name of an error: its text may quote rows and stays with the client."""
    return RecordDict({FAULT: ConfigRecord({"error": type(error).__name__})})


def unpack(message: Message) -> Reply:
    """Return the content of a message."""
    if message.has_error():
        code = int(message.error.code)
        fault: Reason = "no-answer" if code in _GONE else "client-error"
        return Reply(None, fault, f"flower error {code}")
    records: Any = message.content
    if FAULT in records:
        return Reply(None, "client-error", _name(records[FAULT].get("error")))
    try:
        return Reply(bytes(records[CONTENT][CONTENT].data))
    except (AttributeError, KeyError, TypeError):
        return Reply(None, "unreadable")


def _name(value: Any) -> str:
    # Accept only an identifier as the error's name: it is kept with the round.
    fits = isinstance(value, str) and value.isidentifier() and len(value) <= 64
    return value if fits else ""


class GridExchange:
    """The messages of one run, through its grid."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def nodes(self) -> Sequence[int]:
        """Return the ids of the nodes that are online."""
        return sorted(self._grid.get_node_ids())

    def ask(
        self, kind: Kind, contents: Mapping[int, bytes], *, timeout: float
    ) -> Mapping[int, Reply]:
        """Send each node its bytes; return the replies within `timeout` seconds (0: all).

        Flower's `send_and_receive` is not used: without a timeout it waits forever for a
        node that the SuperLink does not know, as its message has no id.
        """
        order = sorted(contents)
        deadline = time.monotonic() + timeout if timeout else float("inf")
        ids = self._grid.push_messages(
            [Message(pack(contents[node]), node, kind, ttl=timeout or None) for node in order]
        )
        found: dict[int, Reply] = {}
        waiting: dict[str, int] = {}
        for node, identity in zip(order, ids, strict=True):
            if identity:
                waiting[identity] = node
            else:
                found[node] = Reply(None, "no-answer", "unknown to the SuperLink")
        while waiting:
            for message in self._grid.pull_messages(list(waiting)):
                answered = waiting.pop(message.metadata.reply_to_message_id, None)
                if answered is not None:
                    found[answered] = unpack(message)
            if not waiting or time.monotonic() >= deadline:
                break
            time.sleep(PAUSE)
        return found
