"""A service of one log in memory: `/v1/log/entries` with proofs, each of them to be damaged."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any
from uuid import UUID

import httpx2

from lethe.canonical import format_base64
from lethe.log.checkpoint import Checkpoint, sign_checkpoint
from lethe.log.entries import event_leaf, model_leaf, parse_leaf
from lethe.log.note import NoteSigner
from lethe.log.proofs import inclusion_proof
from lethe.log.ranges import prove_range, range_members
from tests.lethe.log import oracle
from tests.lethe.log.logs import SIGNER

DAY = date(2026, 3, 4)
Change = Callable[[dict[str, Any]], object]


def ref_of(number: int) -> str:
    return str(UUID(int=number, version=4))


def history(size: int) -> list[bytes]:
    """Return entries: every third one is of a model, the others of two requests in turn."""
    return [
        model_leaf("model.version", "small", {"head": f"{at:064x}"}, DAY)
        if at % 3 == 2
        else event_leaf("request.received", ref_of(at % 2), bytes([at]) * 32, DAY)
        for at in range(size)
    ]


@dataclass
class LogService:
    """change: what is done to each answer. grows: entries that are appended after each."""

    entries: list[bytes]
    signer: NoteSigner = SIGNER
    change: Change = lambda _: None
    grows: int = 0
    page: int = 1000
    seen: list[str] = field(default_factory=list)

    def respond(self, request: httpx2.Request) -> httpx2.Response:
        self.seen.append(str(request.url))
        query = dict(request.url.params)
        size = int(query.get("size", len(self.entries)))
        answer = self.answer(query, self.entries[:size])
        self.entries += [b"one more"] * self.grows
        self.change(answer)
        return httpx2.Response(200, content=json.dumps(answer).encode())

    def answer(self, query: dict[str, str], entries: Sequence[bytes]) -> dict[str, Any]:
        size, first = len(entries), int(query.get("after", "-1")) + 1
        limit = min(int(query["limit"]), self.page)
        wanted = {name: query[name] for name in ("ref", "event", "kind") if name in query}
        found = [
            at
            for at in range(first, size)
            if all(getattr(parse_leaf(entries[at]), name) == wanted[name] for name in wanted)
        ]
        read, start = oracle.StrictReader(entries), min(first, size)
        proof = prove_range(start, min(start + limit, size), size, read)
        checkpoint = Checkpoint(self.signer.name, size, oracle.mth(tuple(entries)))
        return {
            "items": [
                {
                    "log_index": at,
                    "leaf": format_base64(entries[at]),
                    "hashes": [format_base64(one) for one in inclusion_proof(at, size, read)],
                }
                for at in found[:limit]
            ],
            "next": str(found[limit - 1]) if len(found) > limit else None,
            "tree_size": size,
            "checkpoint": sign_checkpoint(checkpoint, self.signer),
            "completeness": {"range": None if wanted else range_members(proof)},
        }
