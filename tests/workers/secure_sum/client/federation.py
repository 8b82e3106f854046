"""A masked model in one installation: clients that join rounds, and an oracle with all rows."""

import json
from copy import deepcopy
from typing import Any, Self

from lethe.signing.keys import public_of
from tests.installation import Installation
from tests.remote import Remote
from tests.small import MODEL
from workers.secure_sum.client.join import Joining
from workers.secure_sum.client.record import Least, Record
from workers.secure_sum.client.service import RoundClient
from workers.secure_sum.local import LocalRows


class Masked(Remote):
    """`Remote`, with clients that send only round messages."""

    def __init__(self, installation: Installation, **changes: Any) -> None:
        # One erasure at a time, as most tests have it, is a sum of one contributor.
        alone = {"contributors": 1, "rows": 1}
        super().__init__(installation, **{"data": "masked", "masked": alone, **changes})
        self.records = {client: Record() for client in self.clients}
        self.register()
        self.say: list[str] = []

    def at(self, installation: Installation) -> Self:
        """The same clients with a copy of their installation, before any message."""
        moved = super().at(installation)
        moved.say = []
        moved.records = deepcopy(self.records)
        return moved

    def keyids(self, *clients: str) -> list[str]:
        return [self.clients[client].keyid for client in clients]

    def open(self, *clients: str, **changes: Any) -> Any:
        body = {"model": MODEL, "members": self.keyids(*clients), **changes}
        return self.installation.caller.operator("POST", "/v1/rounds", json=body)

    def view(self, round_id: str) -> dict[str, Any]:
        answer = self.installation.caller.operator("GET", f"/v1/rounds/{round_id}")
        assert answer.status_code == 200, answer.text
        shown: dict[str, Any] = answer.json()
        return shown

    def local(self, client: str) -> LocalRows:
        """The rows of one client."""
        keep = [i for i, name in enumerate(self.rows.clients) if name == client]
        return LocalRows(
            self.rows.features[keep],
            self.rows.labels[keep],
            [client] * len(keep),
            [self.rows.records[i] for i in keep],
            [self.rows.subjects[i] for i in keep],
        )

    def joining(self, round_id: str, client: str, **changes: Any) -> Joining:
        caller = self.clients[client]
        service = RoundClient(
            str(caller.http.base_url),
            caller.keyid,
            caller.key,
            transport=caller.http._transport,
        )
        roster = {one.keyid: public_of(one.key) for one in self.clients.values()}
        fields: dict[str, Any] = {
            "rows": self.local(client),
            "record": self.records[client],
            "least": Least(1, 1),
            "say": self.say.append,
            **changes,
        }
        return Joining(service, round_id, caller.keyid, caller.key, roster, **fields)

    def take(self, joining: list[Joining], steps: int = 5) -> None:
        """Let each take `steps` steps, all members together at each step."""
        for _ in range(steps):
            for one in joining:
                one.step()

    def round(self, *clients: str, **changes: Any) -> str:
        """Open a round, let all its members take part, and run the jobs that follow."""
        opened = self.open(*clients)
        assert opened.status_code == 201, opened.text
        round_id: str = opened.json()["id"]
        joining = [self.joining(round_id, client, **changes) for client in clients]
        self.take(joining)
        self.installation.drain()
        self.take(joining, 1)  # they learn how it ended
        return round_id

    def end_step(self, round_id: str) -> None:
        """Let the open step's time run out, and sweep."""
        from sqlalchemy import update
        from sqlmodel import Session, col

        from models import Round
        from models.database.types import utcnow

        with Session(self.installation.services.engine) as session:
            past = utcnow().replace(year=2020)
            session.connection().execute(
                update(Round).where(col(Round.id) == round_id).values(step_until=past)
            )
            session.commit()
        self.installation.dispatcher.sweep(self.installation.services)
        self.installation.drain()


def read_json(data: bytes) -> Any:
    return json.loads(data)
