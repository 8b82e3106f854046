"""From labelled images on disk to what POST /v1/models takes for a network."""

import io
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.datasets.images import LabelledImages
from workers.datasets.partition import dirichlet
from workers.errors import DatasetError, RefusedError
from workers.verifier.policy import Policy, default, to_document

KNOWN = ("inputs", "labels", "clients", "records", "subjects", "label_names")


@dataclass(frozen=True, slots=True, eq=False)
class NetworkOptions:
    """How a network is trained and tested, and what its erasures must show.

    training, settings: as the manifest has them. policy None: the default for the largest
    client, which may ask for more rows than there are; then approximate erasures climb to
    retraining. canary: as the manifest has it, empty for none.
    """

    network: str = "simple-cnn"
    method: str = "puf-special"
    training: Mapping[str, Any] | None = None
    settings: Mapping[str, Any] | None = None
    held_out: float = 0.2
    policy: Policy | None = None
    canary: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PreparedNetwork:
    """A registration: manifest and rows, with the id and the client of each row."""

    manifest: dict[str, Any]
    npz: bytes
    records: list[str]
    clients: list[str]


def deal_out(images: LabelledImages, clients: int, alpha: float, seed: int) -> NDArray[np.str_]:
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

    A record's id is the number of its row in the file. For a logistic head the pixels of a
    row come one after another as float32 in -1…1, as other networks see them.

    Raises:
        RefusedError: There is not one client for each row, or no row to train on.
    """
    if clients.shape != images.labels.shape:
        raise RefusedError("clients: must hold exactly one entry for each row")
    learned = np.flatnonzero(~images.is_test)
    if not len(learned):
        raise RefusedError("the data hold every row out: there is nothing to train on")
    planes: NDArray[Any] = np.ascontiguousarray(images.images[learned].transpose(0, 3, 1, 2))
    if options.network == "logistic":
        half = np.float32(0.5)
        flat = planes.reshape(len(planes), -1).astype(np.float32)
        planes = (flat / np.float32(255) - half) / half
    return _packed(
        {
            "inputs": planes,
            "labels": images.labels[learned].astype(np.int64),
            "clients": clients[learned].astype(np.str_),
            "records": np.array([f"record-{row}" for row in learned.tolist()]),
        },
        [str(name) for name in images.label_names],
        ref,
        options,
    )


def prepare_rows(path: Path, *, ref: str, options: NetworkOptions) -> PreparedNetwork:
    """Pack an .npz with inputs (n, ...), labels and clients; records, subjects, label_names.

    Raises:
        DatasetError: The file is no such .npz. What the arrays must be, the service says.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files if name in KNOWN}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error):
        raise DatasetError("the file is not a readable .npz: save it again") from None
    for name in ("inputs", "labels", "clients"):
        if name not in arrays or arrays[name].ndim < 1 or not len(arrays[name]):
            raise DatasetError(f"{name}: missing or empty")
    if arrays["inputs"].ndim not in (2, 4) or arrays["labels"].dtype.kind not in "iu":
        raise DatasetError("inputs must be (n, features) or (n, c, h, w), labels integers")
    names = arrays.pop("label_names", None)
    known = range(int(arrays["labels"].max()) + 1) if names is None else names.tolist()
    arrays.setdefault("records", np.arange(len(arrays["inputs"])).astype(np.str_))
    return _packed(arrays, [str(name) for name in known], ref, options)


def _packed(
    arrays: dict[str, NDArray[Any]], classes: list[str], ref: str, options: NetworkOptions
) -> PreparedNetwork:
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **arrays)
    input_shape = [int(size) for size in arrays["inputs"].shape[1:]]
    sides = ("channels", "height", "width") if len(input_shape) == 3 else ("features",)
    shape = {**dict(zip(sides, input_shape, strict=True)), "classes": len(classes)}
    owners = arrays["clients"].astype(np.str_)
    largest = int(np.unique(owners, return_counts=True)[1].max())
    erased = int(largest * min(options.held_out, 0.5))
    policy = options.policy or default(erased, method=options.method)
    manifest = {
        "family": "network",
        "ref": ref,
        "method": options.method,
        "classes": classes,
        "network": {"id": options.network, "parameters": shape},
        "input_shape": input_shape,
        "training": dict(options.training or {"rounds": 10}),
        "held_out": options.held_out,
        "settings": dict(options.settings or {}),
        "policy": to_document(policy),
    }
    if options.canary:
        manifest["canary"] = dict(options.canary)
    records = [str(record) for record in arrays["records"].tolist()]
    return PreparedNetwork(manifest, packed.getvalue(), records, owners.tolist())
