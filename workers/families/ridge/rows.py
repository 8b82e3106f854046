"""Salted digests of a ridge head's rows: the contents of the leaves of its retained set.

    SHA256(ROW | H(client) | H(subject) | salt | label | codes)

H is SHA-256 of UTF-8, a label int64 and codes int16, little-endian. The leaf binds a digest to
the record's commitment, and so to its id. So the root of each version's retained set, which the
log has, commits to its rows. The salts are sealed with the rows and destroyed with them: no
evidence file has them, and without them a digest confirms no guess of a row.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlmodel import Session, col, func, select

from app.ledger.sequencer import Ledger
from app.reconcile.inputs import versions_of
from app.service.context import Services
from app.vault.features import FETCH
from lethe.catalogue import data_of
from lethe.certificates import shape
from lethe.certificates.evidence import Removal
from lethe.certificates.retained_tree import EMPTY_ROOT
from models import FeatureBlock, Model, ModelVersion, Subject
from models.database.session import rows_in
from workers.cases.case import ExecutedJob
from workers.families.ridge.stored import RowBlock, decode_block
from workers.judge.ridge.claim import (
    BlockClaim,
    ChainClaim,
    ContentsClaim,
    LinkClaim,
    RemovedLeaf,
)
from workers.lineage.logged import logged_leaf
from workers.updates.draft import read_leaves
from workers.updates.update import Owner

ROW = b"lethe/row/v2\0"
CHUNK = 4096  # rows hashed at a time
MOST_ROWS = 4096  # of small blocks in memory at once


class RowDigest(NamedTuple):
    """The digest of a stored row; learned: the number of the version that learned it."""

    record: str
    learned: int
    digest: bytes


def row_digests(block: RowBlock, owner: Owner) -> list[bytes]:
    """Return the 32-byte digest of each row of a block, in its order."""
    start = hashlib.sha256(ROW)
    for name in owner:
        start.update(hashlib.sha256(name.encode()).digest())
    found = []
    for first in range(0, len(block.rows), CHUNK):
        for row in _packed(block, slice(first, first + CHUNK)):
            one = start.copy()
            one.update(row)
            found.append(one.digest())
    return found


def _packed(block: RowBlock, own: slice) -> NDArray[np.uint8]:
    """Return the hashed bytes of each row that follow its owner, (m, 40 + 2 d)."""
    codes = block.rows.codes[own]
    count, columns = codes.shape
    packed = np.empty((count, 40 + 2 * columns), dtype=np.uint8)
    packed[:, :32] = block.salts[own]
    packed[:, 32:40] = block.rows.labels[own].astype("<i8").view(np.uint8).reshape(count, 8)
    packed[:, 40:] = codes.astype("<i2", order="C").view(np.uint8)
    return packed


def stored_digests(block: RowBlock, owner: Owner) -> list[RowDigest]:
    """Return the digest of each row of a block, with its record and version."""
    digests = row_digests(block, owner)
    return list(map(RowDigest, block.records, block.learned.tolist(), digests))


def owners(session: Session, subjects: Iterable[int]) -> dict[int, Owner]:
    """Return (client, subject) of the subjects that have records, by their ids."""
    found: dict[int, Owner] = {}
    for one in rows_in(session, select(Subject), col(Subject.id), sorted(subjects)):
        if one.client is not None and one.subject is not None:
            found[one.id or 0] = (one.client, one.subject)
    return found


@dataclass(slots=True)
class RowStream:
    """A model's rows as the verifier reads them: reread on each pass, few in memory at once.

    read: how many rows the last pass read.
    """

    services: Services
    model_id: int
    read: int = 0

    def __iter__(self) -> Iterator[BlockClaim]:
        """Yield what is stored of each subject.

        Raises SealError for another subject's block.
        """
        self.read = 0
        with self.services.reading() as session:
            fetch = _fetch(session, self.model_id)
            stored = self.services.features.load_many(session, self.model_id, fetch)
            while part := list(islice(stored, fetch)):
                known = owners(session, [subject for subject, _ in part])
                for subject, payload in part:
                    block = decode_block(payload)
                    if not isinstance(block, RowBlock):
                        raise ValueError("the vault holds statistics in place of rows")
                    self.read += len(block.records)
                    yield BlockClaim(
                        *known[subject],
                        block.records,
                        block.rows,
                        block.salts,
                        block.id_salts,
                        block.learned,
                    )


def _fetch(session: Session, model_id: int) -> int:
    """Return how many blocks of a model are read at once: MOST_ROWS rows, or one block."""
    query = select(func.count(), func.sum(FeatureBlock.rows)).where(
        FeatureBlock.model_id == model_id
    )
    blocks, rows = session.exec(query).one()
    return max(1, min(FETCH, MOST_ROWS * blocks // (rows or 1)))


def contents_claim(ledger: Ledger, case: ExecutedJob) -> ContentsClaim | None:
    """Return the logged commitments to an update's rows, None if no rows are here."""
    model = case.model
    if not data_of(model.config).rows_here:
        return None
    since, before = _before(ledger, model, case.before)
    after = logged_leaf(ledger, model, case.after).digests.get("retained")
    return ContentsClaim(since, before, after)


def chain_claim(case: ExecutedJob) -> ChainClaim:
    """Return the claim that the sets of an update lead from one version to the next."""
    plan, before, after = case.plan, case.before, case.after
    learned = dict(zip(plan.rows_gone, plan.rows_learned, strict=True))
    return ChainClaim(
        before_root=bytes(before.retained_root),
        before_count=before.retained_count,
        after_root=bytes(after.retained_root),
        after_count=after.retained_count,
        removed=[
            RemovedLeaf(commitment, content, learned.get(content.hex(), -1))
            for commitment, content in plan.gone()
        ],
        added=[commitment for commitment, _ in read_leaves(plan.added)],
    )


def link_claim(case: ExecutedJob) -> LinkClaim:
    """Return the claim that a request's records were removed, and no others."""
    removal = shape.read(Removal, case.plan.removal)
    earlier, later = case.plan.others()
    return LinkClaim(
        erased=[(record.record, record.salt, record.commitment) for record in removal.records],
        earlier=earlier,
        later=later,
        before_root=removal.before.root,
        before_count=removal.before.count,
        after_root=removal.after.root,
        after_count=removal.after.count,
    )


def _before(ledger: Ledger, model: Model, last: ModelVersion) -> tuple[int, list[str | None]]:
    """Return the number of the last version not made by a contribution, and logged roots.

    The roots are of the retained sets of this version and of all up to `last`. Version 0 has
    none.
    """
    found: list[str | None] = []
    logged = versions_of(ledger, model)
    for number in range(last.number, 0, -1):
        digests = logged[number - 1][1].digests
        found.append(digests.get("retained"))
        if "added" not in digests:
            return number, found[::-1]
    return 0, [EMPTY_ROOT.hex(), *found[::-1]]
