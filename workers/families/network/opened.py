"""Rows that a judge opens to train on: those stored, and those that went, kept for it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from app.service.context import Services
from workers.errors import RefusedError
from workers.families.network import before as network_before
from workers.families.network.config import NetworkConfig
from workers.families.network.rows import assemble, holdings, row_digests, salts
from workers.training.fedavg.base import ClientData
from workers.training.replay.models import ScoredRows, joined


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """The retained training rows by client, and those that a claim has scores of."""

    retained: Mapping[str, ClientData]
    tested: Mapping[str, ScoredRows]


def open_rows(
    services: Services,
    model_id: int,
    config: NetworkConfig,
    before: str,
    scored: Sequence[bytes],
) -> Opened:
    """Open a model's rows. before: the id of the artifact with those that went.

    scored: the salted digests of the tested rows, in the order in which they are numbered.
    Raises RefusedError if one of them is none of the rows.
    """
    with services.reading() as session:
        gone = network_before.decode(services.artifacts.get(session, before))
        stored = holdings(assemble(services, session, model_id), config)
        salted = salts(session, model_id)
    old = dict(zip(gone.records, gone.salts, strict=True))
    sides = ((gone.holdings(config.is_held_out), old), (stored, salted))
    numbers = {digest: number for number, digest in enumerate(scored)}
    parts: dict[str, list[ClientData]] = defaultdict(list)
    places: dict[str, list[int]] = defaultdict(list)
    for rows, known in sides:
        digests = row_digests(rows, known)
        for client, own in rows.items():
            at = [
                (place, number)
                for place, record in enumerate(own.records)
                if (number := numbers.get(digests[record])) is not None
            ]
            if at:
                parts[client].append(own.data.only(torch.tensor([place for place, _ in at])))
                places[client] += [number for _, number in at]
    if sorted(number for own in places.values() for number in own) != list(range(len(scored))):
        raise RefusedError("a scored row is not there any more")
    tested = {
        client: ScoredRows(joined(own), np.array(places[client], dtype=np.int64))
        for client, own in parts.items()
    }
    training = {client: own.training() for client, own in stored.items()}
    return Opened({c: data for c, data in training.items() if data is not None}, tested)
