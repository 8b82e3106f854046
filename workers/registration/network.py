"""Pack labelled rows as the registration of a network for POST /v1/models."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.identity import HELD_OUT
from workers.data.federation import counted
from workers.data.identities import rows_to_send, to_send
from workers.data.images import LabelledImages, SegmentedImages
from workers.data.opening import some
from workers.data.owners import dealt_names
from workers.data.partition import dirichlet
from workers.errors import RefusedError
from workers.judge.policy.document import to_document
from workers.judge.policy.policy import Policy, default
from workers.libraries import require

PIXELS = "res-unet"  # as in app.api.models: the network whose labels are masks
DENSE = ("logistic", "mlp")  # networks that take features, not images


@dataclass(frozen=True, slots=True, eq=False)
class NetworkOptions:
    """How a network is trained and tested, and what its erasures must show.

    training, settings: as in the manifest. policy None: the default for the largest client,
    which may require more rows than there are; then approximate erasures escalate to
    retraining. canary: as in the manifest, empty for none. shape: of the network, except what
    the rows determine. send_held_out: send the rows that the data hold out, to measure every
    version on; `held_out` is another share, of the rows that are sent to train on.
    """

    network: str = "simple-cnn"
    method: str = "retrain"
    training: Mapping[str, Any] | None = None
    settings: Mapping[str, Any] | None = None
    held_out: float = 0.2
    policy: Policy | None = None
    canary: Mapping[str, Any] | None = None
    shape: Mapping[str, int] | None = None
    send_held_out: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class NetworkRegistration:
    """A registration: manifest and rows, with the id and the client of each row.

    held_out: the number of rows sent for measuring versions. inputs (h, ...), labels (h, ...):
    the rows that the data hold out, as the network takes them. lines: which columns and rows
    of the data are used, for people.
    """

    manifest: dict[str, Any]
    npz: bytes
    records: list[str]
    clients: list[str]
    held_out: int = 0
    inputs: NDArray[Any] | None = None
    labels: NDArray[Any] | None = None
    lines: tuple[str, ...] = ()

    def summary(self) -> str:
        """Return a description of what is sent, for people."""
        records, clients = len(self.records), len(set(self.clients))
        found = f"{counted(records, 'record')} of {counted(clients, 'client')}"
        if not self.held_out:
            return found
        sent = counted(self.held_out, "held-out row")
        return f"{found}; {sent} sent too, sealed: every version is measured on them"


def predicted(file: bytes, inputs: NDArray[Any]) -> NDArray[Any]:
    """Return the classes that a network's file predicts for inputs, for masks of each pixel.

    Raises RefusedError: torch is not installed, or the file is no network's.
    """
    require("torch", "torch")
    from workers.training.fedavg.client.data import tensors_of
    from workers.training.fedavg.evaluate import logits_of
    from workers.training.networks.weights import decode_weights

    network, weights = decode_weights(file)
    if inputs.dtype != np.uint8 or inputs.ndim == 2:
        inputs = inputs.astype(np.float32)  # as the service stores them
    found: NDArray[Any] = logits_of(network, weights, tensors_of(inputs)).argmax(1).numpy()
    return found


def with_report(
    found: NetworkRegistration,
    lines: Sequence[str],
    *,
    left_out: int = 0,
    inputs: NDArray[Any] | None = None,
    labels: NDArray[Any] | None = None,
) -> NetworkRegistration:
    """Return a registration with a summary of its data, and the rows that these hold out.

    lines: of a table; for other data empty. left_out: rows of clients that are not chosen.
    inputs, labels: of the rows that the data hold out.
    """
    held_out = 0 if inputs is None else len(inputs)
    if not lines:
        rows = len(found.records) + held_out + left_out
        shape = " x ".join(map(str, found.manifest["input_shape"]))
        classes = found.manifest["classes"]
        lines = [
            f"{counted(rows, 'row')} of {shape} numbers",
            f"label: {len(classes):,} classes, {some(classes)}",
            f"held out: {counted(held_out, 'row')} (by the data)",
        ]
    if left_out:
        lines = [*lines, f"left out: {counted(left_out, 'row')} of clients not chosen"]
    return replace(found, lines=tuple(lines), inputs=inputs, labels=labels)


def deal_out(images: LabelledImages, clients: int, alpha: float, seed: int) -> NDArray[np.str_]:
    """Return an owner for each row, by Dirichlet(alpha) over labels (Hsu et al., 2019)."""
    return dealt_names(dirichlet(images.labels, clients, alpha, seed))


def prepare_network(
    images: LabelledImages,
    clients: NDArray[np.str_],
    *,
    ref: str,
    options: NetworkOptions,
) -> NetworkRegistration:
    """Pack the rows that the data set does not hold out, each with its client.

    A record's id is the number of its row in the file. For a head on features, a row's pixels
    are concatenated as float32 in -1…1, as other networks see them.

    Raises RefusedError if there is not one client for each row, or no row to train on.
    """
    if clients.shape != images.labels.shape:
        raise RefusedError("clients: must hold exactly one entry for each row")
    learned = learned_rows(images)
    owned = replace(images, clients=clients.astype(np.str_))
    return prepare_images(owned, learned, clients[learned], ref=ref, options=options)


def held_out_images(
    images: LabelledImages, network: str
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return inputs and labels of the rows that the data set holds out."""
    held = images.is_test
    return _inputs(images.images[held], network), images.labels[held].astype(np.int64)


def learned_rows(images: LabelledImages) -> NDArray[np.int64]:
    """Return the rows that the data set does not hold out. Raises RefusedError for none."""
    learned = np.flatnonzero(~images.is_test)
    if not len(learned):
        raise RefusedError("the data hold out every row: leave some to train on")
    return learned


def prepare_images(
    images: LabelledImages,
    rows: NDArray[np.int64],
    clients: NDArray[np.str_],
    *,
    ref: str,
    options: NetworkOptions,
) -> NetworkRegistration:
    """Pack these rows (m,) of images with their clients (m,), as `prepare_network`.

    Of rows that the data set holds out, only ids and hashed identities are sent.
    """
    arrays = {
        "inputs": _inputs(images.images[rows], options.network),
        "labels": images.labels[rows].astype(np.int64),
        "clients": clients.astype(np.str_),
        "records": _ids(rows),
    }
    if options.send_held_out:
        inputs = _inputs(images.images, options.network)
        owners = {
            "clients": images.clients if images.clients is not None else unowned(len(inputs)),
            "records": _ids(np.arange(len(inputs))),
        }
        subjects = owners["clients"] if images.subjects is None else images.subjects
        arrays |= rows_to_send(
            inputs,
            images.labels.astype(np.int64),
            {**owners, "subjects": subjects},
            images.is_test,
        )
    if images.subjects is not None:
        arrays["subjects"] = images.subjects[rows]
    held_out = np.flatnonzero(images.is_test)
    both = np.concatenate([rows, held_out])
    people = {kind: column[both] for kind, column in images.identities.items()}
    arrays |= to_send(people, _ids(both), np.arange(len(both)) >= len(rows))
    return pack(arrays, [str(name) for name in images.label_names], ref=ref, options=options)


def unowned(rows: int) -> NDArray[np.str_]:
    """Return the placeholder client of held-out rows in data without clients."""
    return np.full(rows, "held-out")


def _inputs(images: NDArray[np.uint8], network: str) -> NDArray[Any]:
    """Return images as planes; for a head on features as flat float32 in -1…1."""
    planes = _planes(images)
    if network not in DENSE:
        return planes
    half = np.float32(0.5)
    # Not -1: there may be no row.
    flat = planes.reshape(len(planes), prod(planes.shape[1:])).astype(np.float32)
    scaled: NDArray[Any] = (flat / np.float32(255) - half) / half
    return scaled


def prepare_masks(
    images: SegmentedImages,
    rows: NDArray[np.int64],
    clients: NDArray[np.str_],
    classes: Sequence[str],
    *,
    ref: str,
    options: NetworkOptions,
) -> NetworkRegistration:
    """Pack these rows (m,) of images with their masks and clients (m,); names are the ids.

    Raises RefusedError as `pack`, or if held-out rows were to be sent: a folder has none.
    """
    if options.send_held_out:
        raise RefusedError(
            "--send-holdout: a folder of masks has no held-out rows: write inputs, labels, "
            "clients "
            "and is_test as an .npz"
        )
    arrays = {
        "inputs": _planes(images.images[rows]),
        "labels": images.masks[rows].astype(np.uint8),  # grey values: an eighth of the upload
        "clients": clients.astype(np.str_),
        "records": images.names[rows],
    }
    return pack(arrays, list(classes), ref=ref, options=options)


def _ids(rows: NDArray[np.int64]) -> NDArray[np.str_]:
    return np.array([f"record-{row}" for row in rows.tolist()], dtype=np.str_)


def _planes(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return images (n, h, w, c) as the planes (n, c, h, w) that the service scales."""
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def pack(
    arrays: Mapping[str, NDArray[Any]],
    classes: list[str],
    *,
    ref: str,
    options: NetworkOptions,
) -> NetworkRegistration:
    """Pack arrays for POST /v1/models, with the manifest for them.

    Raises RefusedError if masks are for another network, or the shape names what rows
    determine.
    """
    if arrays["labels"].ndim == 3 and options.network != PIXELS:
        raise RefusedError(f"only {PIXELS} learns masks: choose it with --network")
    if arrays["labels"].ndim == 1 and options.network == PIXELS:
        raise RefusedError(f"{PIXELS} learns masks: choose another network for labels of rows")
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **arrays)
    input_shape = [int(size) for size in arrays["inputs"].shape[1:]]
    sides = ("channels", "height", "width") if len(input_shape) == 3 else ("features",)
    shape = {**dict(zip(sides, input_shape, strict=True)), "classes": len(classes)}
    extra = dict(options.shape or {})
    if shape.keys() & extra.keys():
        raise RefusedError(f"shape: leave out {', '.join(shape)}: the data say them")
    owners = arrays["clients"].astype(np.str_)
    largest = int(np.unique(owners, return_counts=True)[1].max())
    erased = int(largest * min(options.held_out, 0.5))
    policy = options.policy or default(erased, method=options.method)
    manifest = {
        "family": "network",
        "ref": ref,
        "method": options.method,
        "classes": classes,
        "network": {"id": options.network, "parameters": {**shape, **extra}},
        "input_shape": input_shape,
        "training": dict(options.training or {"rounds": 10}),
        "held_out": options.held_out,
        "settings": dict(options.settings or {}),
        "policy": to_document(policy),
    }
    if options.canary:
        manifest["canary"] = dict(options.canary)
    records = [str(record) for record in arrays["records"].tolist()]
    held_out = len(arrays.get(HELD_OUT + "labels", ()))
    return NetworkRegistration(manifest, packed.getvalue(), records, owners.tolist(), held_out)
