"""The data holders of a masked demonstration: each with its own key, rows and secrets.

They share only this process: their messages to each other go over HTTP, encrypted to the
recipient or masked.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from zlib import crc32

import numpy as np

from lethe.client.answers import Document
from lethe.signing.keys import PrivateKey, generate_key, public_of
from workers.data.federation import Federation
from workers.demo.service import DemoError
from workers.secure_sum.client.join import ENDED, Joining
from workers.secure_sum.client.record import Least, Record
from workers.secure_sum.client.service import RoundClient
from workers.secure_sum.local import LocalRows

HOLDERS = 10
ROUND_SECONDS = 300
PAUSE_S = 0.05


def gathered(federation: Federation, holders: int) -> Federation:
    """Return the federation with its clients grouped under `holders` data holders.

    A holder is like a trust of hospitals or a chain of shops; the client's name determines its
    holder. With fewer clients than holders the records are dealt: otherwise there would be too
    few to hide among.
    """
    few = len(set(federation.clients.tolist())) < holders
    owned = (federation.records if few else federation.clients).tolist()
    names = np.array([f"holder-{crc32(name.encode()) % holders}" for name in owned])
    return replace(federation, clients=names)


def rows_of(rows: LocalRows, client: str) -> LocalRows:
    """Return the rows of one client alone."""
    own = np.array([name == client for name in rows.clients])
    places = np.flatnonzero(own).tolist()
    return replace(
        rows,
        features=rows.features[own],
        labels=rows.labels[own],
        clients=[client] * len(places),
        records=[rows.records[place] for place in places],
        subjects=[rows.subjects[place] for place in places],
    )


class DataHolders:
    """One member for each client of some rows; `operator` opens the rounds."""

    def __init__(self, base_url: str, operator: RoundClient, model: str, rows: LocalRows):
        self._base_url, self._operator, self._model = base_url, operator, model
        self._rows = {name: rows_of(rows, name) for name in sorted(set(rows.clients))}
        self._keys: dict[str, PrivateKey] = {name: generate_key() for name in self._rows}
        self._records = {name: Record() for name in self._rows}
        self._keyids = {name: f"holder-{place}" for place, name in enumerate(self._rows)}

    def register(self) -> None:
        """Register a key for each, bound to its client."""
        for name, key in self._keys.items():
            self._operator.register_key(key, "client", keyid=self._keyids[name], client=name)

    def round(self, *, add: bool, say: Callable[[str], None]) -> Document:
        """Open a round of all holders and take part in it; return it as it ended.

        Raises DemoError if it failed, or took longer than ROUND_SECONDS.
        """
        opened = self._operator.open_round(self._model, list(self._keyids.values()))
        round_id = str(opened["id"])
        say(f"Round {round_id}: {len(self._keys)} data holders, masks by X25519 and ChaCha20 …")
        roster = {self._keyids[name]: public_of(key) for name, key in self._keys.items()}
        services = {
            name: RoundClient(self._base_url, self._keyids[name], key)
            for name, key in self._keys.items()
        }
        try:
            joining = [
                Joining(
                    services[name],
                    round_id,
                    self._keyids[name],
                    key,
                    roster,
                    self._rows[name],
                    self._records[name],
                    add=add,
                    least=Least(1, 1),
                )
                for name, key in self._keys.items()
            ]
            return self._take(joining, round_id)
        finally:
            for service in services.values():
                service.close()

    def _take(self, joining: list[Joining], round_id: str) -> Document:
        deadline = time.monotonic() + ROUND_SECONDS
        while time.monotonic() < deadline:
            if self._operator.round(round_id)["state"] in (*ENDED, "summing"):
                shown = self._operator.round(round_id)
                if shown["state"] == "failed":
                    raise DemoError(f"the round failed: {shown['reason']}")
                if shown["state"] == "done":
                    return shown
                time.sleep(PAUSE_S)
                continue
            for one in joining:
                one.step()
        raise DemoError("the round has not ended in time: see service.log")
