"""The client's side, without Flower: from request bytes and own rows to answer bytes.

Rows are an .npz on the client's machine, with inputs (n, *input_shape) float32 and
targets (n,) int64, or (n, height, width) for segmentation.
"""

import json
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lethe_flower.exchange import Kind
from lethe_flower.members import Member, format_member
from workers.errors import DatasetError, RefusedError
from workers.training.fedavg.base import ClientData
from workers.training.fedavg.client.data import data_digest
from workers.training.fedavg.client.respond import respond
from workers.training.fedavg.determinism import deterministic, environment
from workers.training.fedavg.messages import decode_task, encode_update

THREADS = 1  # the number changes the last bits, so all nodes use the same


def answer(kind: Kind, content: bytes, config: Mapping[str, Any]) -> bytes:
    """Return this node's answer; config is the node's: `client`, a name, `data`, a path.

    Raises RefusedError for an invalid configuration, rows or task, RuntimeError and
    MemoryError if computing fails. Only the error's name may reach the server.
    """
    client, path = config.get("client"), config.get("data")
    if not isinstance(client, str) or not isinstance(path, str) or not client:
        raise RefusedError('--node-config must have client="NAME" and data="FILE.npz"')
    return _ANSWERS[kind](client, load_rows(Path(path)), content)


def describe(client: str, data: ClientData, _: bytes) -> bytes:
    """Return this node's client and number of rows."""
    with deterministic(THREADS):
        depends = json.dumps(environment(), sort_keys=True)
    return format_member(Member(client, len(data), data_digest({client: data}), depends))


def work(client: str, data: ClientData, content: bytes) -> bytes:
    """Return the update that a task asks for. Raises RefusedError for another client's task."""
    task = decode_task(content)
    if task.client != client:
        raise RefusedError(
            "the task is for another client than --node-config names: compare the "
            "clients of the nodes"
        )
    with deterministic(THREADS):
        return encode_update(respond(task, data))


_ANSWERS: Mapping[Kind, Callable[[str, ClientData, bytes], bytes]] = {
    "query": describe,
    "train": work,
}


_UNREADABLE = (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error)
_DTYPES = {"inputs": np.float32, "targets": np.int64}


def load_rows(path: Path) -> ClientData:
    """Return the rows in a file. Nothing in it is executed: pickled objects are refused.

    Raises DatasetError naming the array at fault, RefusedError as `ClientData`. The message
    names neither the file nor its content, because it leaves this machine.
    """
    tensors = {}
    for name, dtype in _DTYPES.items():
        try:
            with np.load(path, allow_pickle=False) as archive:
                array = archive[name]
        except _UNREADABLE:
            remedy = "save it with numpy.savez, or repair the path of the node"
            raise DatasetError(f"{name}: missing or unreadable; {remedy}") from None
        if array.dtype != dtype:
            raise DatasetError(f"{name}: must be of the type {np.dtype(dtype).name}")
        tensors[name] = torch.from_numpy(array)
    return ClientData(**tensors)
