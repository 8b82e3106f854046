"""The model before an erasure and the rows it removed, sealed for the verifier.

The file contains the erased rows themselves, so it is sealed at the erasure and destroyed with
the last certificate, as the statistics before are for ridge heads.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from safetensors.numpy import load, save

from workers.arrays import metadata_of
from workers.families.network.data.rows import ClientRows, Holdings
from workers.training.fedavg.base import ClientData


@dataclass(frozen=True, slots=True, eq=False)
class Before:
    """The model file before, and the erased rows, with their clients, ids and salts.

    Which of them are held out is not stored: the reader computes it.
    """

    model: bytes
    records: list[str]
    clients: list[str]
    salts: list[bytes]
    data: ClientData

    def holdings(self, is_held_out: Callable[[str], bool]) -> Holdings:
        """Return the rows as their clients held them."""
        found = {}
        for client in sorted(set(self.clients)):
            own = [place for place, name in enumerate(self.clients) if name == client]
            records = [self.records[place] for place in own]
            held = np.array([is_held_out(record) for record in records], dtype=np.bool_)
            found[client] = ClientRows(records, self.data.only(torch.tensor(own)), held)
        return found


def encode(
    model: bytes, rows: Holdings, salted: Mapping[str, bytes], leaving: Collection[str]
) -> bytes:
    """Return the file of a model and of those of `rows` that are erased."""
    records: list[str] = []
    clients: list[str] = []
    parts: list[ClientData] = []
    for client, own in rows.items():
        out = [place for place, record in enumerate(own.records) if record in leaving]
        if not out:
            continue
        records += [own.records[place] for place in out]
        clients += [client] * len(out)
        parts.append(own.data.only(torch.tensor(out, dtype=torch.int64)))
    data = ClientData.joined(parts)
    arrays = {
        "inputs": data.inputs.numpy(),
        "model": np.frombuffer(model, dtype=np.uint8),
        "targets": data.targets.numpy(),
    }
    words = {
        "clients": clients,
        "records": records,
        "salts": [salted[r].hex() for r in records],
    }
    return save(arrays, {name: json.dumps(value) for name, value in words.items()})


def decode(data: bytes) -> Before:
    """Decode the bytes of `encode`."""
    arrays = load(data)
    metadata = metadata_of(data)
    return Before(
        arrays["model"].tobytes(),
        json.loads(metadata["records"]),
        json.loads(metadata["clients"]),
        [bytes.fromhex(salt) for salt in json.loads(metadata["salts"])],
        ClientData(torch.from_numpy(arrays["inputs"]), torch.from_numpy(arrays["targets"])),
    )
