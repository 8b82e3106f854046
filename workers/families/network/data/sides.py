"""The retained rows and the forget set, by client: in memory, and by position for silos."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch

from workers.families.network.config import NetworkConfig
from workers.families.network.data.rows import Holdings
from workers.methods.network.base import UnlearningRequest
from workers.methods.network.validation import Validation, held_out
from workers.training.fedavg.base import ClientData

Places = dict[str, tuple[int, ...] | None]


@dataclass(frozen=True, slots=True, eq=False)
class ForgetRetainSplit:
    """Training rows by client: those retained, and the targets, which are to be forgotten.

    *_at: their positions among the client's training rows, None for all. request is None if no
    target was ever trained on.
    """

    retained: Mapping[str, ClientData]
    retained_at: Places
    targets: Mapping[str, ClientData]
    targets_at: Places
    request: UnlearningRequest | None


def divide(rows: Holdings, leaving: Collection[str]) -> ForgetRetainSplit:
    """Divide the training rows of all clients by the ids of the records to erase."""
    retained: dict[str, ClientData] = {}
    targets: dict[str, ClientData] = {}
    retained_at: Places = {}
    targets_at: Places = {}
    whole: set[str] = set()
    some: dict[str, tuple[int, ...]] = {}
    for client, own in rows.items():
        training = own.training()
        if training is None:
            continue
        trained = own.trained()
        out = tuple(place for place, record in enumerate(trained) if record in leaving)
        if not out:
            retained[client], retained_at[client] = training, None
        elif len(out) == len(trained):
            targets[client], targets_at[client] = training, None
            whole.add(client)
        else:
            rest = tuple(sorted(set(range(len(trained))) - set(out)))
            retained[client], retained_at[client] = _at(training, rest), rest
            targets[client], targets_at[client] = _at(training, out), out
            some[client] = out
    request = UnlearningRequest(frozenset(whole), some) if targets else None
    return ForgetRetainSplit(retained, retained_at, targets, targets_at, request)


def validation(
    config: NetworkConfig,
    rows: Holdings,
    device: torch.device,
    leaving: Collection[str] = (),
) -> Validation | None:
    """Return the validation on retained held-out rows, on a device, None if there are none."""
    parts = []
    for own in rows.values():
        retained_held_out = torch.tensor(
            [
                bool(out) and record not in leaving
                for record, out in zip(own.records, own.held, strict=True)
            ]
        )
        if bool(retained_held_out.any()):
            parts.append(own.data.only(retained_held_out))
    if not parts:
        return None
    return held_out(config.network, ClientData.joined(parts), device, threads=1)


def _at(data: ClientData, places: tuple[int, ...]) -> ClientData:
    return data.only(torch.tensor(places, dtype=torch.int64))
