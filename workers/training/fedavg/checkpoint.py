"""A training checkpoint as bytes: model, optimiser, the record of each round.

The records name clients by id, in clear: who was asked, whose answer was dropped and why. The
weights were trained on their rows. So a checkpoint is personal data and must be sealed when
stored. Decoding runs no code from the bytes and allocates no more memory than their length.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any

import torch

from workers.arrays import decode_tensors, encode_tensors
from workers.errors import RefusedError
from workers.training.fedavg.base import Fault, Work
from workers.training.fedavg.config import ServerConfig, TrainingConfig, to_json
from workers.training.fedavg.errors import CheckpointError
from workers.training.fedavg.server import ServerState, initial_state
from workers.training.networks.registry import Network
from workers.training.networks.weights import (
    Weights,
    check_weights,
    digest_of,
    encode_weights,
    is_finite,
    to_arrays,
    to_tensors,
)

KIND = "fedavg-checkpoint/1"


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One round: clients asked, dropped answers with reasons, mean training loss, work.

    Two runs with equal seeds have equal records: seconds are not compared.
    """

    round: int
    asked: tuple[str, ...]
    faults: tuple[Fault, ...]
    loss: float
    work: Work


def pin_of(
    network: Network,
    clients: Mapping[str, int],
    config: TrainingConfig,
    start: Weights,
    data: str,
) -> str:
    """Return the hex SHA-256 of everything a training's result depends on but its length."""
    pinned = {
        "clients": dict(sorted(clients.items())),
        "config": {**to_json(config), "rounds": None},
        "data": data,
        "network": [network.id, network.parameters],
        "start": digest_of(encode_weights(network.id, network.parameters, start)),
    }
    return hashlib.sha256(json.dumps(pinned, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """The state after the recorded rounds."""

    state: ServerState
    records: tuple[RoundRecord, ...]

    def encode(self, pin: str) -> bytes:
        """Return the canonical bytes, pinned to the run."""
        arrays = {}
        for part in ("weights", "momentum", "variance"):
            for name, array in to_arrays(getattr(self.state, part)).items():
                arrays[f"{part}/{name}"] = array
        records = [_record_json(record) for record in self.records]
        return encode_tensors(arrays, {"kind": KIND, "pin": pin, "records": records})

    @classmethod
    def decode(
        cls, data: bytes, network: Network, config: ServerConfig, pin: str
    ) -> "Checkpoint":
        """Return the checkpoint of a run, ready to continue with its next round.

        Raises CheckpointError for bytes that `encode` would not write, or another pin.
        """
        try:
            arrays, fields = decode_tensors(data)
            if (fields["kind"], type(fields["pin"])) != (KIND, str):
                raise ValueError("kind")
            parts: dict[str, dict[str, torch.Tensor]] = {
                "weights": {},
                "momentum": {},
                "variance": {},
            }
            for name, tensor in to_tensors(arrays).items():
                part, _, weight = name.partition("/")
                parts[part][weight] = tensor
            records = tuple(_record(entry) for entry in fields["records"])
            if [record.round for record in records] != list(range(1, len(records) + 1)):
                raise ValueError("rounds")
            checkpoint = cls(ServerState(**parts), records)
            whole = checkpoint.encode(fields["pin"]) == data
        except (RefusedError, AttributeError, KeyError, TypeError, ValueError, OverflowError):
            whole = False
        if not whole:
            raise CheckpointError("the checkpoint is damaged: resume from an earlier one")
        if fields["pin"] != pin:
            raise CheckpointError(
                "the checkpoint belongs to another run (network, configuration, clients, "
                "start or "
                "data differ): start from the first round"
            )
        _check_state(checkpoint.state, network, config)
        return checkpoint


def _check_state(state: ServerState, network: Network, config: ServerConfig) -> None:
    try:
        check_weights(network, state.weights)
    except RefusedError:
        raise CheckpointError(
            "the checkpoint has other weights than the network: start from the first round"
        ) from None
    fresh = initial_state(state.weights, config)
    for part in ("momentum", "variance"):
        has, wants = getattr(state, part), getattr(fresh, part)
        fits = has.keys() == wants.keys() and all(
            tensor.dtype == torch.float64
            and tensor.shape == wants[name].shape
            and is_finite(tensor)
            for name, tensor in has.items()
        )
        if not fits:
            raise CheckpointError(
                "the checkpoint has the moments of another server optimizer: start "
                "from the first round"
            )


def _record_json(record: RoundRecord) -> dict[str, Any]:
    work = [v.hex() if isinstance(v, float) else v for v in astuple(record.work)]
    return {
        "asked": list(record.asked),
        "faults": [[fault.client, fault.reason, fault.detail] for fault in record.faults],
        "loss": record.loss.hex(),
        "round": record.round,
        "work": work,
    }


def _record(entry: dict[str, Any]) -> RoundRecord:
    *counts, seconds = entry["work"]
    if not all(type(count) is int for count in (entry["round"], *counts)):
        raise ValueError("work")  # True passes as 1 and would be encoded as true
    texts = [*entry["asked"], *(text for fault in entry["faults"] for text in fault)]
    if not all(type(text) is str for text in texts):
        raise ValueError("names")
    return RoundRecord(
        round=entry["round"],
        asked=tuple(entry["asked"]),
        faults=tuple(Fault(*fault) for fault in entry["faults"]),
        loss=float.fromhex(entry["loss"]),
        work=replace(Work(*counts), seconds=float.fromhex(seconds)),
    )
