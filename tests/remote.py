"""A model whose rows stay with its clients: the clients, and an oracle that sees all rows."""

from copy import copy, deepcopy
from dataclasses import replace
from typing import Any, Self

import numpy as np

from lethe.signing.keys import generate_key
from tests.installation import Installation
from tests.small import CLASSES, CLIENTS, MODEL, Caller, manifest, rows
from workers.artifacts import encode_head
from workers.methods.ridge.base import RidgeConfig
from workers.methods.ridge.ridge_exact import METHOD
from workers.secure_sum.local import LocalRows, message_of, quantise

NPZ = "application/x-npz"


def local_rows(seed: int = 0) -> LocalRows:
    """Return the small federation's rows; those of one client are one subject's."""
    arrays = rows(seed)
    clients = arrays["clients"].tolist()
    return LocalRows(
        arrays["features"], arrays["labels"], clients, arrays["records"].tolist(), clients
    )


class Remote:
    """Clients "c0"… with keys of their own, each knowing its rows of one federation."""

    def __init__(self, installation: Installation, **changes: Any) -> None:
        self.installation = installation
        self.rows = local_rows()
        self.manifest = manifest(**{"data": "statistics", **changes})
        self.clients: dict[str, Caller] = {}
        for number in range(CLIENTS):
            name = f"c{number}"
            caller = replace(
                installation.caller, keyid=f"key-{name}", key=generate_key("ed25519")
            )
            assert caller.register_key(role="client", client=name).status_code == 201
            self.clients[name] = caller

    def at(self, installation: Installation) -> Self:
        """Return the same clients, before a copy of their installation."""
        moved = copy(self)
        moved.installation = installation
        moved.rows, moved.manifest = deepcopy((self.rows, self.manifest))
        moved.clients = {
            name: replace(installation.caller, keyid=caller.keyid, key=caller.key)
            for name, caller in self.clients.items()
        }
        installation.caller.key = self.installation.caller.key
        return moved

    def register(self) -> None:
        """Register the model, without rows, and the key of a requester."""
        import json

        self.installation.caller.register_key()
        answer = self.installation.caller.operator(
            "POST", "/v1/models", files={"manifest": (None, json.dumps(self.manifest))}
        )
        assert answer.status_code == 201, answer.text

    def owned(self, client: str) -> list[str]:
        """Return the ids of a client's rows."""
        return self.rows.owned(client, client)

    def message(self, records: list[str], **form: Any) -> bytes:
        """Return the message of some rows of one client."""
        return message_of(self.rows, records, self.manifest, **form)

    def contribute(self, client: str, data: bytes) -> Any:
        """Send a message as a client."""
        return self.clients[client].signed(
            "POST", f"/v1/models/{MODEL}/contributions", data, content_type=NPZ
        )

    def contribute_all(self, **form: Any) -> None:
        """Every client sends all its rows in one message, and they are learned."""
        for client in self.clients:
            answer = self.contribute(client, self.message(self.owned(client), **form))
            assert answer.status_code == 202, answer.text
        self.installation.drain()

    def asked(self, client: str) -> list[dict[str, Any]]:
        """Return what a client is asked to release."""
        answer = self.clients[client].signed("GET", "/v1/releases/asked")
        assert answer.status_code == 200, answer.text
        items: list[dict[str, Any]] = answer.json()["items"]
        return items

    def answer(self, client: str, release: str, data: bytes) -> Any:
        """Answer a release."""
        path = f"/v1/releases/{release}/answer"
        return self.clients[client].signed("POST", path, data, content_type=NPZ)

    def head_without(self, erased: set[str]) -> bytes:
        """Return the head file that training on the other rows gives, rows in hand."""
        config = RidgeConfig(
            len(self.manifest["exponents"]),
            CLASSES,
            tuple(self.manifest["exponents"]),
            self.manifest["bits"],
            self.manifest["penalty"],
        )
        kept = [i for i, record in enumerate(self.rows.records) if record not in erased]
        codes = quantise(self.rows, kept, self.manifest)
        assert len(np.unique(codes.labels)) == CLASSES
        return encode_head(METHOD.refit(config, [codes]).state.head, config)
