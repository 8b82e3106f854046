"""Salted digests of a ridge head's rows: the contents of the leaves of its retained set.

    SHA256(ROW | H(client) | H(subject) | H(record) | salt | label | codes)

H is SHA-256 of UTF-8, a label int64 and codes int16, little-endian. The root of each version's
retained set, which the log has, so commits to its rows. The salts lie sealed with the rows and
are destroyed with them: no evidence file has them, and without them a digest confirms nobody's
guess of a row.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from sqlmodel import Session, col, select

from app.ledger.sequencer import Ledger
from lethe.certificates.retained_tree import EMPTY_ROOT
from models import Model, ModelVersion, Record, Subject
from models.session import chunks
from workers.families.ridge.blocks import RidgeBlock, RowBlock
from workers.jobs.case import ExecutedJob
from workers.jobs.logged_model import logged_leaf, versions_of
from workers.jobs.update import Owner
from workers.judge.ridge.claim import BlockClaim, RowsClaim

ROW = b"lethe/row/v1\0"


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


def stored_digests(block: RowBlock, owner: Owner) -> list[RowDigest]:
    """Return the digest of each row of a block, with its record and version."""
    digests = row_digests(block, owner)
    return list(map(RowDigest, block.records, block.learned.tolist(), digests))


def owners(session: Session, subjects: Iterable[int]) -> dict[int, Owner]:
    """Return (client, subject) of subjects who have records, by their ids."""
    found: dict[int, Owner] = {}
    for chunk in chunks(sorted(subjects)):
        for one in session.exec(select(Subject).where(col(Subject.id).in_(chunk))):
            if one.client is not None and one.subject is not None:
                found[one.id or 0] = (one.client, one.subject)
    return found


def claim_of(
    ledger: Ledger,
    session: Session,
    case: ExecutedJob,
    stored: Sequence[tuple[int, RidgeBlock]],
) -> RowsClaim | None:
    """Return the claim that an update's rows are those of the log, None if none are here.

    stored: the model's blocks, each with the id of its subject.
    """
    model, plan = case.model, case.plan
    if model.config["data"] != "rows":
        return None
    blocks = {subject: block for subject, block in stored if isinstance(block, RowBlock)}
    known = owners(session, blocks)
    query = select(Record.record, Record.commitment).where(Record.model_id == model.id)
    leaves = {record: bytes(commitment) for record, commitment in session.exec(query)}
    learned = dict(zip(plan.rows_gone, plan.rows_learned, strict=True))
    since, before = _before(ledger, model, case.before)
    return RowsClaim(
        blocks=[
            BlockClaim(
                *known[subject],
                block.records,
                block.salts,
                block.learned,
                [leaves.get(record, b"") for record in block.records],
            )
            for subject, block in blocks.items()
        ],
        gone=[
            (commitment, content, learned.get(content.hex(), -1))
            for commitment, content in plan.gone()
        ],
        since=since,
        before=before,
        after=logged_leaf(ledger, model, case.after).digests.get("retained"),
    )


def _before(ledger: Ledger, model: Model, last: ModelVersion) -> tuple[int, list[str | None]]:
    """Return the number of the last version that no contribution made, and roots in the log.

    They are of the retained sets of this version and of all up to `last`. Version 0 has none.
    """
    found: list[str | None] = []
    logged = versions_of(ledger, model)
    for number in range(last.number, 0, -1):
        digests = logged[number - 1][1].digests
        found.append(digests.get("retained"))
        if "added" not in digests:
            return number, found[::-1]
    return 0, [EMPTY_ROOT.hex(), *found[::-1]]
