"""A case with its clients' data in memory: for tests, benchmarks, the demonstration."""

from typing import Any

import torch

from workers.errors import RefusedError
from workers.methods.network.base import Side, UnlearningCase, UnlearningRequest
from workers.training.fedavg.base import ClientData, Clients
from workers.training.fedavg.client.data import data_digest
from workers.training.fedavg.config import TrainingConfig
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import sizes
from workers.training.networks.registry import Network
from workers.training.networks.weights import Weights


def divide(
    clients: Clients, request: UnlearningRequest
) -> tuple[dict[str, ClientData], dict[str, ClientData]]:
    """Return (retained, to forget) by client; a client with no row left is not retained.

    Raises RefusedError for an unknown client or row.
    """
    stays, goes = dict(clients), {}
    for name in request.targets:
        if name not in clients:
            raise RefusedError(
                "the request names a client that has no rows in the federation: check its name"
            )
        if name in request.clients:
            goes[name] = stays.pop(name)
            continue
        places = request.rows[name]
        if places[-1] >= len(clients[name]):
            raise RefusedError(
                "the request names a row position that its client does not have: "
                "positions count from 0"
            )
        leaving = torch.zeros(len(clients[name]), dtype=torch.bool)
        leaving[list(places)] = True
        goes[name] = clients[name].only(leaving)
        if bool(leaving.all()):
            del stays[name]
        else:
            stays[name] = clients[name].only(~leaving)
    return stays, goes


def local_case(
    network: Network,
    weights: Weights,
    request: UnlearningRequest,
    config: TrainingConfig,
    clients: Clients,
    *,
    device: torch.device | str = "cpu",
    threads: int | None = None,
    **more: Any,
) -> UnlearningCase:
    """Return the case of a federation in this process, everybody online.

    more: further fields of the case by name. Raises RefusedError as `divide` and
    `UnlearningCase`.
    """
    stays, goes = divide(clients, request)
    retained = Side(InProcess(stays, device, threads), sizes(stays))
    targets = Side(InProcess(goes, device, threads), sizes(goes))
    given = {"targets": targets, "data": data_digest(stays), **more}
    return UnlearningCase(network, weights, request, config, retained, **given)
