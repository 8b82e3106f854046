"""Learn an upload: update the model, seal the rows by owner, shred the upload."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

from sqlmodel import Session, col, select

from app.ledger.journal import record_model_event
from app.ledger.transaction import Transaction
from app.reconcile.case_parts import was_opened_since
from app.reconcile.inputs import was_learned
from app.service.context import Services
from app.service.desk import people
from app.service.desk.people import RecordIdentity
from app.service.models import held_out as rows
from app.service.scope import has_tombstone, holds_any, may_return
from app.steps import reached
from app.vault.master import ADD_BACK, UPLOAD, open_tombstone_key, record_tag, tags_digest
from lethe import identity
from lethe.catalogue import data_of
from models import Artifact, Contribution, Model, Record, Tombstone
from models.database.session import chunks, rows_in
from models.person import HELD_OUT, LEARNED
from models.record import MOST_BLOCK
from workers.errors import RefusedError
from workers.families import base as family
from workers.jobs import held_out, publish
from workers.jobs.held_out import VersionFigure
from workers.leases import checkpoints
from workers.leases.lease import JobContext, advance
from workers.lineage import versions
from workers.lineage.chain import Chain, grown
from workers.lineage.logged import ReceivedUpload, open_received
from workers.updates.update import FreshRecords, Owner, StoredBlock, Update

# A tombstone that only the erasure journal restored, after a restore of the database, does not
# name the record's owner: that record can never be added back.
ERASED = (
    "a record id was erased: use new ids. It comes back only to its client, with "
    "add_back=true, and not at all where only the erasure journal knows of it since the "
    "database was restored"
)
NOT_BACK = (
    "a record id was erased from another client, or only the erasure journal knows of it since "
    "the database was restored: use new ids"
)

AGAIN = (
    "the log has these rows as learned before, and some may have been erased since: send those "
    "that are left as a new contribution, and find out who writes to the database"
)
ANSWERED = (
    "a person was looked up in the model while these rows waited and the database did not show "
    "them: send them again, and find out who writes to the database"
)


def run(job: JobContext) -> None:
    """Fold a contribution into its model's next version.

    Raises:
        RefusedError: The rows cannot be learned or are not those that were received, or the
            model's row was changed meanwhile; nothing was learned.
        LeaseLostError: Another worker holds the job now.
    """
    services, lease = job.services, job.lease
    with services.reading() as session:
        contribution = session.get_one(Contribution, lease.contribution_id)
        sent = open_received(services, session, job.model, contribution)
        again = was_learned(services.ledger, sent.tag, sent.log_index)
    with sent.file:
        if again:
            raise RefusedError(AGAIN)
        _learn(job, sent)


def _learn(job: JobContext, sent: ReceivedUpload) -> None:
    import numpy as np  # keeps numpy out of a worker's start

    services, lease, model = job.services, job.lease, job.model
    file, add_back = sent.file, sent.add_back
    with services.reading() as session:
        before = versions.current(session, model)
        base = model.current_version
        tombstone_key = open_tombstone_key(services.root_secret, model)
        size = session.get_one(Artifact, sent.artifact).size
    kind = family.of(model)
    upload = kind.read(model, file)
    if size > MOST_BLOCK // 2:  # as soon as a block of it may be too large
        for block in upload.blocks.values():
            _encode(block)
    with services.reading() as session:
        clients = (
            (record, owner[0])
            for owner, block in upload.blocks.items()
            for record in block.records
        )
        refuse_known(session, lease.model_id, clients, tombstone_key, add_back)
    salts = upload.salts()
    result = kind.learn(job, before, upload, salts)
    fresh = FreshRecords.salted(upload.records, salts, result.contents)
    with services.reading() as session:
        retained = grown(services.ledger, session, model, before, fresh)
    chain = Chain.grown(fresh, retained)
    head = result.encoded.head
    # If clients keep their rows, held-out rows were already stored at registration.
    first = before is None and data_of(model.config).rows_here
    measured = (
        held_out.of_upload(job, head, rows.uploaded(file))
        if first
        else held_out.measure(job, head)
    )
    _refuse_claims(file, upload.records, measured)
    reached("execute.computed")

    def effect(tx: Transaction) -> None:
        model = publish.unchanged(job, tx, base)
        # No case is opened while rows wait to be learned: the table was changed meanwhile.
        if was_opened_since(services.ledger, model.ref, sent.log_index):
            raise RefusedError(ANSWERED)
        owners = [
            owner
            for some in chunks(list(upload.blocks))
            for owner in _seal(
                services, tx.session, model, {one: upload.blocks[one] for one in some}
            )
        ]
        counts = [len(block.records) for block in upload.blocks.values()]
        subjects = np.repeat(np.array(owners, dtype=np.int64), counts)
        versions.add_records(
            tx.session, lease.model_id, fresh, subjects, keep_order=kind.audited
        )
        lifted: list[bytes] = []
        back: dict[bytes, str] = {}
        if add_back:
            by_tag = {record_tag(tombstone_key, record): record for record in upload.records}
            lifted = _lift(tx.session, lease.model_id, list(by_tag))
            back = {tag: by_tag[tag] for tag in lifted}
        people.add(services, tx, model, identities(file), returned=back)
        update = Update(result, rest={})
        version = publish.publish(job, tx, before, [], update, chain, measured=measured).version
        if result.repeated:
            versions.record_repeated(tx, model, version)
        contribution = tx.session.get_one(Contribution, lease.contribution_id)
        versions.shred(services, tx.session, sent.artifact)
        contribution.state = "learned"
        contribution.saturated = upload.saturated
        digests = {UPLOAD: sent.tag}
        if lifted:
            digests[ADD_BACK] = tags_digest(lifted)
        index = record_model_event(tx, model.ref, "contribution.learned", digests)
        if lifted:
            digest = digests[ADD_BACK]
            services.journal.returned(tx.session, model.ref, lifted, index, digest)
        tx.session.flush()
        checkpoints.let_go(job, tx)
        advance(tx, lease, "done")

    services.ledger.transact(effect)


def _seal(
    services: Services, session: Session, model: Model, blocks: Mapping[Owner, StoredBlock]
) -> list[int]:
    """Add to each owner's block, under a new key; return the owners' ids."""
    assert model.id is not None
    subjects = versions.named_subjects(session, model.id, list(blocks))
    keyed = [one.id for one in subjects if one.id is not None and one.wrapped_key]
    stored = services.features.load_each(session, keyed)
    ids = []
    for subject, block in zip(subjects, blocks.values(), strict=True):
        assert subject.id is not None
        sealed = stored.get(subject.id)
        whole = block if sealed is None else family.of(model).join(model, sealed, block)
        write = services.features.store if sealed is None else services.features.rewrite
        write(session, subject, _encode(whole), len(whole.records))
        ids.append(subject.id)
    session.flush()
    return ids


def _encode(block: StoredBlock) -> bytes:
    """Return an owner's rows as they are sealed. Raises RefusedError: more than MOST_BLOCK."""
    data = block.encode()
    if len(data) > MOST_BLOCK:
        raise RefusedError(
            f"the rows of one client and subject take more than {MOST_BLOCK} bytes, which "
            "databases cannot hold: name the subject of each row, so that each has fewer"
        )
    return data


def _refuse_claims(file: BinaryIO, records: Iterable[str], measured: VersionFigure) -> None:
    """Refuse to learn rows that are stored held-out rows, or identities of them.

    Otherwise versions would be measured on rows that they learned. And if a client assigned
    such an identity to a person, that person's case would remove somebody else's row.
    """
    if measured.before is None:
        return
    claimed = set(records)
    claimed |= {one.record for one in identities(file) if one.state == HELD_OUT}
    if not claimed.isdisjoint(measured.before.records):
        raise RefusedError("a held-out record id is that of a registered row: use new ids")


def refuse_known(
    session: Session,
    model_id: int,
    clients: Iterable[tuple[str, str]],
    tombstone_key: bytes,
    add_back: bool,
) -> None:
    """Refuse records in the training set, and erased records that may not come back.

    Both were checked when the rows arrived, but other jobs have run since.
    """
    held = select(Record.id).where(Record.model_id == model_id).limit(1)
    buried = select(Tombstone.tag).where(Tombstone.model_id == model_id).limit(1)
    if session.exec(held).first() is None and session.exec(buried).first() is None:
        return  # a first contribution: no lookup per record needed
    known_of = dict(clients)
    for chunk in chunks(list(known_of)):
        if holds_any(session, model_id, chunk):
            raise RefusedError("a record id is already in the training set: use new ids")
        if not add_back and has_tombstone(session, model_id, tombstone_key, chunk):
            raise RefusedError(ERASED)
        returning = {record: known_of[record] for record in chunk}
        if add_back and not may_return(session, model_id, tombstone_key, returning):
            raise RefusedError(NOT_BACK)


def _lift(session: Session, model_id: int, tags: list[bytes]) -> list[bytes]:
    """Delete the tombstones of records that come back; return the tags that were found."""
    lifted: list[bytes] = []
    query = select(Tombstone).where(Tombstone.model_id == model_id)
    for stone in rows_in(session, query, col(Tombstone.tag), tags):
        lifted.append(bytes(stone.tag))
        session.delete(stone)
    session.flush()
    return lifted


def identities(file: BinaryIO) -> Iterator[RecordIdentity]:
    """Yield each identity in an upload packed by `app.uploads`; held-out rows may have some."""
    file.seek(0)
    import numpy as np  # keeps numpy out of a worker's start

    with np.load(file, allow_pickle=False) as arrays:
        for prefix, state in (("", LEARNED), (identity.HELD_OUT, HELD_OUT)):
            columns = [
                name for name in arrays.files if name.startswith(prefix + identity.COLUMN)
            ]
            records: list[str] = arrays[f"{prefix}records"].tolist() if columns else []
            for name in columns:
                kind, rows = name.removeprefix(prefix + identity.COLUMN), arrays[name]
                yield from _of_column(kind, state, records, rows)


def _of_column(
    kind: str, state: str, records: list[str], rows: Any
) -> Iterator[RecordIdentity]:
    for record, row in zip(records, rows, strict=True):
        if found := identity.unpack(row.tobytes()):
            yield RecordIdentity(record, state, kind, found)
