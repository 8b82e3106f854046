"""A recipe's stored rows: blocks by owner, their order in a fit, their salted digests.

A fit uses the rows in the order of their records' commitments. So a refit without some rows
gets the same input as if they had never been there, whoever sent them and when.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save
from sqlmodel import Session

from app.service.context import Services
from lethe.certificates.evidence import record_commitment
from models import Model
from workers.arrays import metadata_of
from workers.errors import RefusedError
from workers.leases.lease import JobContext
from workers.lineage.chain import BatchMember, owned_by_subject
from workers.lineage.logged import OTHER_ROWS
from workers.lineage.versions import OtherModelError, salts_of
from workers.training.recipes.fit import FitRows
from workers.updates.update import Owner, ParsedUpload, StoredBlock

ROW, WEIGHTED = b"lethe/recipe-row/1\0", b"lethe/weighted-row/1\0"


@dataclass(frozen=True, slots=True, eq=False)
class TableBlock:
    """One owner's rows: features (m, d) float; labels (m,) int64 class indices, or float64.

    `records[i]` is the id of row i. weights (m,) float64, for models registered with weights;
    in a forest whose bins come from rows, 0 for the rows that make the bins, which no tree
    learns, else 1.
    """

    records: list[str]
    features: NDArray[np.floating[Any]]
    labels: NDArray[Any]
    weights: NDArray[np.float64] | None = None

    def without(self, erased: set[str]) -> "TableBlock | None":
        """Return the block without some records, None if nothing remains."""
        keep = np.array([record not in erased for record in self.records])
        return self.only(keep) if keep.any() else None

    def only(self, keep: NDArray[np.bool_]) -> "TableBlock":
        """Return the block's rows selected by (m,)."""
        return TableBlock(
            [record for record, kept in zip(self.records, keep, strict=True) if kept],
            self.features[keep],
            self.labels[keep],
            None if self.weights is None else self.weights[keep],
        )

    def encode(self) -> bytes:
        """Return the block as safetensors; the ids travel as JSON in its metadata."""
        arrays = {
            "features": np.ascontiguousarray(self.features),
            "labels": np.ascontiguousarray(self.labels),
        }
        if self.weights is not None:
            arrays["weights"] = np.ascontiguousarray(self.weights)
        return save(arrays, metadata={"records": json.dumps(self.records)})

    def digests(self, salts: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return the salted SHA-256 of each row, by record.

        Without the salts, which are destroyed with their records, a digest confirms no guess of
        a row. A record without a salt gets a digest that matches nothing.
        """
        features = self.features.astype("<f8", order="C")
        start = ROW
        if self.weights is not None:
            start = WEIGHTED
            features = np.hstack([features, self.weights.astype("<f8")[:, None]])
        labels = self.labels.astype("<i8" if self.labels.dtype.kind == "i" else "<f8")
        found = {}
        for place, record in enumerate(self.records):
            one = hashlib.sha256(start + salts.get(record, b""))
            one.update(hashlib.sha256(record.encode()).digest())
            one.update(labels[place].tobytes() + features[place].tobytes())
            found[record] = one.digest()
        return found


def decode_block(data: bytes) -> TableBlock:
    """Decode the bytes of `TableBlock.encode`."""
    arrays = load(data)
    metadata = metadata_of(data)
    records = json.loads(metadata["records"])
    return TableBlock(records, arrays["features"], arrays["labels"], arrays.get("weights"))


def join(stored: TableBlock, fresh: StoredBlock) -> TableBlock:
    """Return both blocks of one owner as one. Raises RefusedError for another kind of block."""
    if not isinstance(fresh, TableBlock) or fresh.labels.dtype != stored.labels.dtype:
        raise RefusedError(
            "labels: all rows of a client must have the type that the model is registered with"
        )
    weights = None
    if stored.weights is not None and fresh.weights is not None:
        weights = np.concatenate([stored.weights, fresh.weights])
    elif stored.weights is not None or fresh.weights is not None:
        raise RefusedError(
            "weights: all rows of a client must have a weight, or none: send what "
            "was sent before"
        )
    return TableBlock(
        stored.records + fresh.records,
        np.concatenate([stored.features, fresh.features]),
        np.concatenate([stored.labels, fresh.labels]),
        weights,
    )


def read(model: Model, upload: BinaryIO) -> ParsedUpload:
    """Return the rows that `app.uploads.rows` packed, by owner. Raises RefusedError."""
    try:
        with np.load(upload, allow_pickle=False) as arrays:
            features, labels = arrays["features"], arrays["labels"]
            weights = arrays["weights"] if _has_weights(model) else None
            records = arrays["records"].tolist()
            owners = list(
                zip(arrays["clients"].tolist(), arrays["subjects"].tolist(), strict=True)
            )
    except (KeyError, OSError, ValueError, BadZipFile):
        raise RefusedError("the upload cannot be read: send the rows again") from None
    if features.shape[1:] != (model.config["columns"],):
        raise RefusedError(
            "the rows have other columns than the model: correct and resend them"
        )
    places: dict[Owner, list[int]] = defaultdict(list)
    for place, owner in enumerate(owners):
        places[owner].append(place)
    blocks = {
        owner: TableBlock(
            [records[i] for i in own],
            features[own],
            labels[own],
            None if weights is None else weights[own],
        )
        for owner, own in places.items()
    }
    return ParsedUpload(blocks, saturated=0)


def stored(services: Services, session: Session, model_id: int) -> dict[int, TableBlock]:
    """Return the stored blocks of a model by their subjects' ids."""
    found = services.features.load_many(session, model_id)
    return {subject: decode_block(payload) for subject, payload in found}


def current_rows(job: JobContext) -> tuple[dict[int, TableBlock], dict[str, bytes]]:
    """Return the stored blocks of a job's model by subject, and the salts of its records."""
    with job.services.reading() as session:
        blocks = stored(job.services, session, job.lease.model_id)
        return blocks, salts_of(session, job.lease.model_id)


def table(blocks: Iterable[TableBlock], salts: Mapping[str, bytes], model: Model) -> FitRows:
    """Return rows in the order of their commitments, which is the fitting order."""
    parts = list(blocks)
    records = [record for block in parts for record in block.records]
    width = model.config["columns"]
    kind = np.int64 if model.classes else np.float64
    features = np.concatenate([np.empty((0, width)), *(block.features for block in parts)])
    labels = np.concatenate([np.empty(0, kind), *(block.labels for block in parts)])
    commitments = [
        record_commitment(salts[record], record) if record in salts else b""
        for record in records
    ]
    order = sorted(range(len(records)), key=lambda place: (commitments[place], place))
    weights = None
    if _has_weights(model):
        found = [one.weights for one in parts if one.weights is not None]
        weights = np.concatenate([np.empty(0), *found])[order]
    return FitRows(
        np.ascontiguousarray(features[order]),
        np.ascontiguousarray(labels[order]),
        weights,
        [records[place] for place in order],
    )


def _has_weights(model: Model) -> bool:
    return bool(model.config.get("weighted")) or "bins" in model.config


@dataclass(frozen=True, slots=True, eq=False)
class Departure:
    """A model's rows when some records are erased.

    blocks: as they are stored, by subject. rest: the changed blocks without the erased rows;
    None: nothing is left of it. leaving: the erased rows. salts, digests: of all records,
    including the erased ones. gone: hex digests of the erased rows, sorted.
    """

    blocks: dict[int, TableBlock]
    rest: dict[int, TableBlock | None]
    leaving: list[TableBlock]
    salts: dict[str, bytes]
    digests: dict[str, bytes]
    gone: tuple[str, ...]

    @property
    def left(self) -> dict[int, TableBlock]:
        """All remaining blocks, by subject."""
        every = {**self.blocks, **self.rest}
        return {subject: block for subject, block in every.items() if block is not None}

    @property
    def retained_digests(self) -> dict[str, bytes]:
        """The digests of the remaining rows, by record."""
        gone = {record for block in self.leaving for record in block.records}
        return {record: own for record, own in self.digests.items() if record not in gone}

    @property
    def retained(self) -> list[TableBlock]:
        """All remaining blocks."""
        return list(self.left.values())


def departure(job: JobContext, members: Sequence[BatchMember]) -> Departure:
    """Return the stored rows of a job's model without the members' records.

    Raises OtherModelError as `all_digests`.
    """
    leaving = {record for member in members for record in member.salts}
    blocks, salts = current_rows(job)
    digests = all_digests(list(blocks.values()), salts)
    owned = owned_by_subject(members)
    rest = {subject: blocks[subject].without(set(own)) for subject, own in owned.items()}
    parts = [
        blocks[subject].only(np.isin(blocks[subject].records, list(own)))
        for subject, own in owned.items()
    ]
    gone = tuple(sorted(digests[record].hex() for record in leaving))
    return Departure(blocks, rest, parts, salts, digests, gone)


def digest_of_rows(digests: Iterable[bytes]) -> str:
    """Return the hex SHA-256 over the sorted digests of rows: the input of a version."""
    return hashlib.sha256(b"".join(sorted(digests))).hexdigest()


def all_digests(blocks: Sequence[TableBlock], salts: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the digest of each row of some blocks, by record.

    Raises OtherModelError if a record has two rows. A version's digest would cover only one of
    them, and a restored old block of an erased record could be learned beside the one added
    back.
    """
    found = {record: own for one in blocks for record, own in one.digests(salts).items()}
    if len(found) < sum(len(one.records) for one in blocks):
        raise OtherModelError(OTHER_ROWS)
    return found
