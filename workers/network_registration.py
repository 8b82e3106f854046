"""From labelled images on disk to what POST /v1/models takes for a network."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.datasets.images import LabelledImages
from workers.datasets.partition import dirichlet
from workers.errors import RefusedError
from workers.verifier.policy import Policy, default, to_document


@dataclass(frozen=True, slots=True, eq=False)
class NetworkOptions:
    """How a network is trained and tested, and what its erasures must show.

    training, settings: as the manifest has them. policy None: the default for the largest
    client, which may ask for more rows than there are; then approximate erasures climb to
    retraining.
    """

    network: str = "simple-cnn"
    method: str = "puf-special"
    training: Mapping[str, Any] | None = None
    settings: Mapping[str, Any] | None = None
    held_out: float = 0.2
    policy: Policy | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PreparedNetwork:
    """A registration: manifest and rows, with the id and the client of each row."""

    manifest: dict[str, Any]
    npz: bytes
    records: list[str]
    clients: list[str]


def deal(images: LabelledImages, clients: int, alpha: float, seed: int) -> NDArray[np.str_]:
    """Return an owner for each row, by Dirichlet(alpha) over labels (Hsu et al., 2019)."""
    owners = dirichlet(images.labels, clients, alpha, seed)
    return np.array([f"client-{owner:02d}" for owner in owners])


def prepare_network(
    images: LabelledImages,
    clients: NDArray[np.str_],
    *,
    ref: str,
    options: NetworkOptions,
) -> PreparedNetwork:
    """Pack the rows that the data set does not hold out, each with its client.

    A record's id is the number of its row in the file.

    Raises:
        RefusedError: There is not one client for each row, or no row to train on.
    """
    if clients.shape != images.labels.shape:
        raise RefusedError("clients: must hold exactly one entry for each row")
    learned = np.flatnonzero(~images.is_test)
    if not len(learned):
        raise RefusedError("the data hold every row out: there is nothing to train on")
    planes = np.ascontiguousarray(images.images[learned].transpose(0, 3, 1, 2))
    owners = clients[learned].astype(np.str_)
    records = [f"record-{row}" for row in learned.tolist()]
    packed = io.BytesIO()
    np.savez(
        packed,
        allow_pickle=False,
        inputs=planes,
        labels=images.labels[learned].astype(np.int64),
        clients=owners,
        records=np.array(records),
    )
    _, channels, height, width = planes.shape
    classes = [str(name) for name in images.label_names]
    shape = {"channels": channels, "classes": len(classes), "height": height, "width": width}
    largest = int(np.unique(owners, return_counts=True)[1].max())
    policy = options.policy or default(int(largest * min(options.held_out, 0.5)))
    manifest = {
        "family": "network",
        "ref": ref,
        "method": options.method,
        "classes": classes,
        "network": {"id": options.network, "parameters": shape},
        "input_shape": [channels, height, width],
        "training": dict(options.training or {"rounds": 10}),
        "held_out": options.held_out,
        "settings": dict(options.settings or {}),
        "policy": to_document(policy),
    }
    return PreparedNetwork(manifest, packed.getvalue(), records, owners.tolist())
