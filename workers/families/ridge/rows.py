"""Salted digests of a ridge head's rows, which each version commits to in the log.

    row     SHA256(ROW | H(client) | H(subject) | H(record) | salt | label | codes)
    rows    SHA256(ROWS | the digests of rows, sorted)
    grown   SHA256(GROWN | rows of the version before | rows of the contribution)

H is SHA-256 of UTF-8, a label int64 and codes int16, little-endian. A contribution makes a
`grown` version, so that learning a row reads no other one; an erasure or a refit begins again
with the `rows` that are stored. The salts lie sealed with the rows and are destroyed with
them: no evidence file has them, and without them a digest confirms nobody's guess of a row.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from sqlmodel import Session, select

from app.ledger.sequencer import Ledger
from models import Model, ModelVersion, Subject
from workers.families.ridge.blocks import RidgeBlock, RowBlock
from workers.jobs.case import ExecutedJob
from workers.jobs.logged_model import logged_leaf, versions_of
from workers.jobs.update import Owner
from workers.judge.ridge.claim import BlockClaim, RowsClaim

ROW, ROWS, GROWN = b"lethe/row/v1\0", b"lethe/rows/v1\0", b"lethe/grown/v1\0"


class RowDigest(NamedTuple):
    """The digest of a stored row; learned: the number of the version that it came with."""

    record: str
    learned: int
    digest: bytes


def row_digests(block: RowBlock, owner: Owner) -> list[bytes]:
    """Return the 32-byte digest of each row of a block, in its order."""
    start = hashlib.sha256(ROW)
    for name in owner:
        start.update(hashlib.sha256(name.encode()).digest())
    count, columns = block.rows.codes.shape
    packed = np.empty((count, 40 + 2 * columns), dtype=np.uint8)
    packed[:, :32] = block.salts
    packed[:, 32:40] = block.rows.labels.astype("<i8").view(np.uint8).reshape(count, 8)
    packed[:, 40:] = block.rows.codes.astype("<i2", order="C").view(np.uint8)
    found = []
    for record, row in zip(block.records, packed, strict=True):
        one = start.copy()
        one.update(hashlib.sha256(record.encode()).digest())
        one.update(row)
        found.append(one.digest())
    return found


def rows_digest(digests: Iterable[bytes]) -> str:
    """Return the hex digest of a set of rows by theirs."""
    return hashlib.sha256(ROWS + b"".join(sorted(digests))).hexdigest()


def grown_digest(before: str, added: str) -> str:
    """Return the hex digest of the rows of a version with those of a contribution."""
    return hashlib.sha256(GROWN + bytes.fromhex(before) + bytes.fromhex(added)).hexdigest()


def stored_digests(
    session: Session, model_id: int, blocks: Iterable[tuple[int, RidgeBlock]]
) -> Iterator[RowDigest]:
    """Yield the digest of each row of a model's blocks, each given with its subject's id."""
    known = owners(session, model_id)
    for subject, block in blocks:
        if isinstance(block, RowBlock):
            digests = row_digests(block, known[subject])
            for found in zip(block.records, block.learned.tolist(), digests, strict=True):
                yield RowDigest(*found)


def owners(session: Session, model_id: int) -> dict[int, Owner]:
    """Return (client, subject) of each subject that a model holds records of, by its id."""
    query = select(Subject).where(Subject.model_id == model_id)
    return {
        one.id or 0: (one.client, one.subject)
        for one in session.exec(query)
        if one.client is not None and one.subject is not None
    }


def published(ledger: Ledger, model: Model, version: ModelVersion) -> str | None:
    """Return the digest of a version's rows as the log has it, None if it has none.

    Raises NotLoggedError where the table says otherwise of the version than the log.
    """
    return logged_leaf(ledger, model, version).digests.get("rows")


def claim_of(
    ledger: Ledger,
    session: Session,
    case: ExecutedJob,
    stored: Iterable[tuple[int, RidgeBlock]],
) -> RowsClaim | None:
    """Return the claim that an update's rows are those of the log, None if none are here.

    stored: the model's blocks, each with the id of its subject.
    """
    model, plan = case.model, case.plan
    assert model.id is not None
    if model.config["data"] != "rows":
        return None
    known = owners(session, model.id)
    since, before = _before(ledger, model, case.before)
    return RowsClaim(
        blocks=[
            BlockClaim(*known[subject], block.records, block.salts, block.learned)
            for subject, block in stored
            if isinstance(block, RowBlock)
        ],
        gone=list(zip(plan.rows_gone, plan.rows_learned, strict=True)),
        since=since,
        before=before,
        after=published(ledger, model, case.after),
    )


def _before(ledger: Ledger, model: Model, last: ModelVersion) -> tuple[int, list[str | None]]:
    """Return the number of the last version that no contribution made, and what the log says.

    That is of the rows of this version and of all up to `last`. Version 0 has no rows.
    """
    found: list[str | None] = []
    logged = versions_of(ledger, model)
    for number in range(last.number, 0, -1):
        digests = logged[number - 1][1].digests
        found.append(digests.get("rows"))
        if "added" not in digests:
            return number, found[::-1]
    return 0, [rows_digest(()), *found[::-1]]
