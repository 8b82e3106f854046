"""Which client is at which node: the first round of every run."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from lethe_flower.exchange import Exchange
from workers.errors import RefusedError

KIND = "flower-member/1"
PAUSE = 1.0  # seconds between two polls for nodes that are still starting


@dataclass(frozen=True, slots=True)
class Member:
    """A node's description: its client, rows, their digest, and its environment."""

    client: str
    rows: int
    digest: str  # hex SHA-256, as `data_digest` of this client only
    environment: str  # JSON, as `determinism.environment`


@dataclass(frozen=True, slots=True)
class Members:
    """The clients of a run: node ids and members, both by client."""

    nodes: Mapping[str, int]
    members: Mapping[str, Member]

    def rows(self, without: frozenset[str] = frozenset()) -> dict[str, int]:
        """Return the numbers of rows of all clients except some, sorted."""
        return {name: self.members[name].rows for name in self._names(without)}

    def digest(self, without: frozenset[str] = frozenset()) -> str:
        """Return the hex SHA-256 over the clients' digests except some: a training's `data`."""
        parts = [[name, self.members[name].digest] for name in self._names(without)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def environments(self) -> list[str]:
        """Return the distinct environments, sorted. More than one: bits may differ."""
        return sorted({member.environment for member in self.members.values()})

    def _names(self, without: frozenset[str]) -> list[str]:
        return sorted(self.members.keys() - without)


def format_member(member: Member) -> bytes:
    """Return a node's canonical description."""
    return json.dumps({"kind": KIND, **asdict(member)}, sort_keys=True).encode()


def parse_member(data: bytes) -> Member | None:
    """Return the member of a description, None for any other bytes: one node's fault."""
    try:
        fields = json.loads(data)
        del fields["kind"]
        member = Member(**fields)
        kinds = [type(value) for value in (member.client, member.digest, member.environment)]
        whole = kinds == [str] * 3 and type(member.rows) is int and member.rows >= 1
        if whole and member.client and format_member(member) == data:
            return member
    except (KeyError, RecursionError, TypeError, ValueError):
        pass  # handled like bytes that parse and differ
    return None


def meet(
    exchange: Exchange,
    count: int,
    *,
    wait: float,
    pinned: Mapping[str, int] | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Members:
    """Return the members: at least `count` clients, and any others online.

    pinned: node ids by client, known to the operator from registering their keys: only these
    nodes are asked, and none may answer as another client. Without it, a node's own claim is
    believed. Raises RefusedError if that takes longer than `wait` seconds, if two nodes
    answer as one client, or a pinned node as another client.
    """
    deadline = clock() + wait
    found: dict[int, Member] = {}
    owners = None if pinned is None else {node: client for client, node in pinned.items()}
    while True:
        online = [node for node in exchange.nodes() if owners is None or node in owners]
        new = {node: b"" for node in online if node not in found}
        left = max(deadline - clock(), PAUSE)
        for node, reply in (exchange.ask("query", new, timeout=left) if new else {}).items():
            member = None if reply.content is None else parse_member(reply.content)
            if member is not None:
                found[node] = member
        late = clock() >= deadline
        if len(found) >= count and (late or all(node in found for node in online)):
            return _members(found, owners)
        if late:
            raise RefusedError(
                f"{len(found)} of {count} SuperNodes answered in time: look at their logs, "
                "start the others, or ask for fewer clients"
            )
        sleep(PAUSE)


def _members(found: Mapping[int, Member], owners: Mapping[int, str] | None) -> Members:
    nodes: dict[str, int] = {}
    for node, member in found.items():
        if owners is not None and owners[node] != member.client:
            raise RefusedError(
                "a SuperNode answers as a client that its key does not belong to"
            )
        if member.client in nodes:
            raise RefusedError("two SuperNodes answer as one client: stop one of them")
        nodes[member.client] = node
    return Members(nodes, {member.client: member for member in found.values()})
