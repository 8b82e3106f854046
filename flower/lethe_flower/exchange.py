"""The adapter's transport interface: bytes to nodes, bytes or a fault from each.

The rest of the adapter uses Flower only through this, so it is tested without Flower.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from workers.training.fedavg.base import Reason

Kind = Literal["query", "train"]  # Flower's message types: describe the node, do a task


@dataclass(frozen=True, slots=True)
class Reply:
    """A node's answer: its bytes, or a fault and the name of an error, never its text."""

    content: bytes | None
    fault: Reason | None = None
    detail: str = ""


class Exchange(Protocol):
    """Carries bytes to the online nodes and their answers back."""

    def nodes(self) -> Sequence[int]:
        """Return the ids of the nodes that are online."""

    def ask(
        self, kind: Kind, contents: Mapping[int, bytes], *, timeout: float
    ) -> Mapping[int, Reply]:
        """Send each node its bytes; return the replies within `timeout` seconds (0: all).

        A node without an answer is missing, one known to be gone is a fault "no-answer".
        """
