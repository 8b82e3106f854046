"""What the verifier compares a network with: the model before, and the rows that go.

It is the erased data themselves, so it is sealed with the erasure and destroyed with the last
certificate, as the statistics before are for ridge heads.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load, save

from workers.fedavg.base import ClientData
from workers.tasks.network_rows import Holdings


@dataclass(frozen=True, slots=True, eq=False)
class Before:
    """The model file before, and the rows that went with their ids, clients and use.

    held (n,) bool: those that were never trained on.
    """

    model: bytes
    records: list[str]
    clients: list[str]
    held: NDArray[np.bool_]
    data: ClientData


def encode(model: bytes, rows: Holdings, leaving: Collection[str]) -> bytes:
    """Return the file of a model and of those of `rows` that leave."""
    records: list[str] = []
    clients: list[str] = []
    held: list[bool] = []
    parts: list[ClientData] = []
    for client, own in rows.items():
        out = [place for place, record in enumerate(own.records) if record in leaving]
        if not out:
            continue
        records += [own.records[place] for place in out]
        clients += [client] * len(out)
        held += [bool(own.held[place]) for place in out]
        parts.append(own.data.only(torch.tensor(out, dtype=torch.int64)))
    arrays = {
        "held": np.array(held, dtype=np.uint8),
        "inputs": torch.cat([part.inputs for part in parts]).numpy(),
        "model": np.frombuffer(model, dtype=np.uint8),
        "targets": torch.cat([part.targets for part in parts]).numpy(),
    }
    return save(arrays, {"clients": json.dumps(clients), "records": json.dumps(records)})


def decode(data: bytes) -> Before:
    """Return what `encode` wrote."""
    arrays = load(data)
    length = int.from_bytes(data[:8], "little")
    metadata = json.loads(data[8 : 8 + length])["__metadata__"]
    return Before(
        arrays["model"].tobytes(),
        json.loads(metadata["records"]),
        json.loads(metadata["clients"]),
        arrays["held"].astype(np.bool_),
        ClientData(torch.from_numpy(arrays["inputs"]), torch.from_numpy(arrays["targets"])),
    )
