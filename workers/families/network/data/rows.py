"""A deep model's rows by client: training rows, held-out rows, and their salted digests.

A client's rows are ordered by subject and arrival. The order determines the minibatches, so a
retraining repeats it.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import BinaryIO
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from sqlmodel import Session, col, select

from app.service.context import Services
from app.service.queue import head_of_queue
from models import Contribution, Model, Subject
from workers.errors import RefusedError
from workers.families.network.config import NetworkConfig, network_config
from workers.families.network.data.blocks import InputBlock, decode_block
from workers.lineage import versions
from workers.lineage.logged import open_received
from workers.training.fedavg.base import ClientData, check_data
from workers.training.fedavg.client.data import tensors_of
from workers.updates.update import Owner


@dataclass(frozen=True, slots=True)
class RowDigestParts:
    """The salted digest of a row, in two parts, so that it can be opened without the row.

    A silo that scores a row sends the digest of its inputs. With the record's id, its salt and
    the label, the judge, who has no row, computes the digest that the version commits to: it
    learns which record a score is of, whether that was held out, and which class it has.

    inputs: digest of the row's inputs and client; row: the digest that the version commits to.
    """

    inputs: bytes
    row: bytes


def inputs_digest(client: str, data: ClientData, place: int, salt: bytes) -> bytes:
    """Return SHA-256(salt || SHA-256(client) || inputs), 32 bytes, of the row at a place.

    Without the salt, which is destroyed with its record, the digest confirms no guess of a row.
    """
    found = hashlib.sha256(salt + hashlib.sha256(client.encode()).digest())
    found.update(np.ascontiguousarray(data.inputs[place].numpy()).tobytes())
    return found.digest()


def row_digest(inputs: bytes, record: str, salt: bytes, targets: bytes, *, held: bool) -> bytes:
    """Return SHA-256(inputs || salt || SHA-256(record) || held-out or trained || targets).

    targets: the bytes of the row's int64 target or targets.
    """
    found = hashlib.sha256(inputs + salt + hashlib.sha256(record.encode()).digest())
    found.update(b"held-out" if held else b"trained")
    found.update(targets)
    return found.digest()


def label_bytes(label: int) -> bytes:
    """Encode a class as `row_digest` takes it."""
    return np.int64(label).tobytes()


@dataclass(frozen=True, slots=True, eq=False)
class ClientRows:
    """One client's rows, with what is held out; records[i] is the id of row i.

    held (n,) bool: never trained on.
    """

    records: Sequence[str]
    data: ClientData
    held: NDArray[np.bool_]

    def trained(self) -> list[str]:
        """Return the ids of the training rows, in their order: positions index this list."""
        return [record for record, out in zip(self.records, self.held, strict=True) if not out]

    def training(self) -> ClientData | None:
        """Return the training rows, None if there are none."""
        return _some(self.data, ~self.held)

    def held_out(self) -> ClientData | None:
        """Return the held-out rows, None if there are none."""
        return _some(self.data, self.held)


def _some(data: ClientData, mask: NDArray[np.bool_]) -> ClientData | None:
    return data.only(torch.from_numpy(mask)) if mask.any() else None


Holdings = Mapping[str, ClientRows]


def holdings(held: "Iterable[Held]", config: NetworkConfig) -> Holdings:
    """Return the rows of some blocks by client, in their order.

    Raises RefusedError if a block is not of the network's shape.
    """
    parts: dict[str, list[InputBlock]] = {}
    for one in held:
        parts.setdefault(one.client, []).append(one.block)
    return {client: client_of(own, config) for client, own in sorted(parts.items())}


def client_of(blocks: Sequence[InputBlock], config: NetworkConfig) -> ClientRows:
    """Return one client's blocks as its rows. Raises as `holdings`."""
    records = [record for block in blocks for record in block.records]
    data = ClientData.joined(
        [
            ClientData(tensors_of(block.inputs), torch.from_numpy(block.labels))
            for block in blocks
        ]
    )
    check_data(config.network, data)
    held = np.array([config.is_held_out(record) for record in records], dtype=np.bool_)
    return ClientRows(records, data, held)


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """One subject's block as it is stored, or as it will be once it is learned."""

    subject: int | None  # None for a new subject
    client: str
    block: InputBlock


def assemble(
    services: Services,
    session: Session,
    model_id: int,
    upload: Mapping[Owner, InputBlock] = MappingProxyType({}),
    client: str | None = None,
) -> list[Held]:
    """Return all blocks of a model, or of one client, in training order.

    With an upload, as they will be once it is learned: new rows of a subject follow its stored
    ones, and new subjects come last, as `learn` stores them.
    """
    query = select(Subject).where(Subject.model_id == model_id).order_by(col(Subject.id))
    if client is not None:
        query = query.where(Subject.client_tag == client)
    found: list[Held] = []
    waiting = {owner: block for owner, block in upload.items() if client in (None, owner[0])}
    returning = _returning(session, model_id, waiting)
    for subject in session.exec(query).all():
        owner = returning.get(subject.id) or (subject.client or "", subject.subject or "")
        block = waiting.pop(owner, None)
        if subject.wrapped_key is not None:
            assert subject.id is not None
            has = decode_block(services.features.load(session, subject.id))
            block = has if block is None else has.joined(block)
        if block is not None:
            found.append(Held(subject.id, owner[0], block))
    found += [Held(None, owner[0], block) for owner, block in waiting.items()]
    return found


def _returning(
    session: Session, model_id: int, upload: Mapping[Owner, InputBlock]
) -> dict[int | None, Owner]:
    """Return owners in an upload that were erased before, by the id of their nameless row."""
    nameless = select(Subject.id).where(
        Subject.model_id == model_id, col(Subject.client).is_(None)
    )
    if not upload or session.exec(nameless.limit(1)).first() is None:
        return {}
    found = [(versions.find_subject(session, model_id, owner), owner) for owner in upload]
    return {row.id: owner for row, owner in found if row is not None and row.client is None}


def by_owner(upload: BinaryIO) -> dict[Owner, InputBlock]:
    """Return an upload's rows by client and subject. Raises RefusedError if unreadable."""
    try:
        with np.load(upload, allow_pickle=False) as arrays:
            rows = InputBlock(arrays["records"].tolist(), arrays["inputs"], arrays["labels"])
            clients, subjects = arrays["clients"].tolist(), arrays["subjects"].tolist()
    except (OSError, ValueError, KeyError, BadZipFile):
        raise RefusedError("the stored upload cannot be read: send it again") from None
    places: dict[Owner, list[int]] = defaultdict(list)
    for place, owner in enumerate(zip(clients, subjects, strict=True)):
        places[owner].append(place)
    return {
        owner: InputBlock([rows.records[i] for i in own], rows.inputs[own], rows.labels[own])
        for owner, own in places.items()
    }


def client_rows(
    services: Services,
    session: Session,
    model: Model,
    client: str,
    positions: Sequence[int] | None,
) -> ClientData:
    """Return a client's training rows, from which its silo answers.

    These are the stored rows and, while the model's queue is at a contribution, the rows being
    learned. positions: which of them, in their order; None: all.

    Raises RefusedError if the client has no such rows, or an upload is not as it was received.
    """
    assert model.id is not None
    config = network_config(model)
    upload: dict[Owner, InputBlock] = {}
    job = head_of_queue(session, model.id)
    if job is not None and job.kind == "learn":
        contribution = session.get_one(Contribution, job.contribution_id)
        with open_received(services, session, model, contribution).file as file:
            upload = by_owner(file)
    held = assemble(services, session, model.id, upload, client)
    training = client_of([one.block for one in held], config).training() if held else None
    if training is None:
        raise RefusedError(
            "the client has no training rows: it holds held-out rows alone, or none"
        )
    if positions is None:
        return training
    if not positions or positions[-1] >= len(training):
        raise RefusedError("the client has fewer rows than the round is about")
    return training.only(torch.tensor(positions, dtype=torch.int64))


def row_digests(rows: Holdings, salted: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the salted SHA-256 of each row, trained on or not, by record.

    Without the salts, which are destroyed with their records, a digest confirms no guess of a
    row. A record without a salt gets a digest that matches nothing.
    """
    return {
        record: found.row
        for client, own in rows.items()
        for record, found in digests_of(client, own, salted).items()
    }


def digests_of(
    client: str, own: ClientRows, salted: Mapping[str, bytes]
) -> dict[str, RowDigestParts]:
    """Return both parts of the digest of each row of a client, by record."""
    found = {}
    for place, record in enumerate(own.records):
        salt = salted.get(record, b"")
        inputs = inputs_digest(client, own.data, place, salt)
        targets = np.ascontiguousarray(own.data.targets[place].numpy()).tobytes()
        row = row_digest(inputs, record, salt, targets, held=bool(own.held[place]))
        found[record] = RowDigestParts(inputs, row)
    return found


def rows_digest(digests: Iterable[bytes]) -> str:
    """Return the hex SHA-256 over the sorted digests of rows: the input of a version.

    The order is not part of it: training uses the stored order, which a re-execution checks.
    """
    return hashlib.sha256(b"".join(sorted(digests))).hexdigest()
