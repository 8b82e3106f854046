"""What the adapter asks of a transport: bytes to nodes, bytes or a fault from each.

The rest of the adapter knows Flower only through this: it is tested without it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from workers.training.fedavg.base import Reason

Kind = Literal["query", "train"]  # Flower's message types: describe yourself, do a task


@dataclass(frozen=True, slots=True)
class Reply:
    """A node's answer: its bytes, or a fault and the name of an error, never its text."""

    content: bytes | None
    fault: Reason | None = None
    detail: str = ""


class Exchange(Protocol):
    """Carries bytes to the nodes that are there and their answers back."""

    def nodes(self) -> Sequence[int]:
        """Return the ids of the nodes that are online."""

    def ask(
        self, kind: Kind, contents: Mapping[int, bytes], *, timeout: float
    ) -> Mapping[int, Reply]:
        """Send each node its bytes; return what came back within `timeout` seconds (0: all).

        A node without an answer is left out, one known to be gone is a fault "no-answer".
        """
