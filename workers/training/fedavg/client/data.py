"""Arrays from the dataset readers as clients' tensors."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from workers.errors import RefusedError
from workers.training.fedavg.base import ClientData, Clients


def image_data(
    images: NDArray[np.uint8],
    targets: NDArray[np.integer[Any]],
    *,
    mean: Sequence[float] = (0.5,),
    deviation: Sequence[float] = (0.5,),
) -> ClientData:
    """Return images (n, h, w, c) uint8 as (n, c, h, w) float32: (x / 255 - mean) / deviation.

    mean and deviation have one number, or one for each channel: constants, never taken
    from rows that may have to be forgotten. targets are (n,), or (n, h, w) masks.
    Raises RefusedError for another type or shape.
    """
    if images.ndim != 4 or images.dtype != np.uint8:
        raise RefusedError("images must be (n, height, width, channels) uint8")
    if targets.dtype.kind not in "iu":
        raise RefusedError("targets must be integers")
    scale = [np.asarray(values, dtype=np.float32) for values in (mean, deviation)]
    if any(values.shape not in ((1,), (images.shape[3],)) for values in scale):
        raise RefusedError("mean and deviation must have one number for each channel")
    if not (scale[1] > 0).all():
        raise RefusedError("the deviation must be positive")
    pixels = (images.astype(np.float32) / np.float32(255) - scale[0]) / scale[1]
    planes = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))
    return ClientData(torch.from_numpy(planes), torch.from_numpy(targets.astype(np.int64)))


def tensors_of(inputs: NDArray[Any]) -> torch.Tensor:
    """Return inputs (n, *shape) as a network takes them: pixels of planes scaled to -1…1."""
    if inputs.dtype == np.uint8:
        none = np.zeros(len(inputs), np.int64)
        return image_data(inputs.transpose(0, 2, 3, 1), none).inputs
    return torch.from_numpy(np.ascontiguousarray(inputs))


def split(data: ClientData, owners: NDArray[Any]) -> dict[str, ClientData]:
    """Return each owner's rows, in their order, by str(owner), sorted.

    owners (n,) are names or the numbers of a partition.
    Raises RefusedError unless there is one owner for each row.
    """
    if owners.shape != (len(data),):
        raise RefusedError("there must be exactly one owner for each row")
    names = owners.astype(np.str_)
    return {
        str(name): data.only(torch.from_numpy(np.flatnonzero(names == name)))
        for name in np.unique(names)
    }


def data_digest(clients: Clients) -> str:
    """Return the hex SHA-256 of every client's id and rows, in order: a training's `data`."""
    digest = hashlib.sha256()
    for client in sorted(clients):
        digest.update(json.dumps(client).encode() + b"\n")
        for tensor in (clients[client].inputs, clients[client].targets):
            # The shape first: bytes alone do not show where a tensor ends.
            digest.update(json.dumps(list(tensor.shape)).encode() + b"\n")
            digest.update(np.ascontiguousarray(tensor.cpu().numpy()).data)
    return digest.hexdigest()
