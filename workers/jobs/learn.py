"""Learn an upload: add to the statistics, seal what came by its owner, shred the upload."""

import secrets
from collections.abc import Mapping

from sqlalchemy import insert
from sqlmodel import Session, col, select

from app.ledger.journal import record_model_event
from app.ledger.sequencer import Transaction
from app.service.context import Services
from app.service.scope import (
    ADD_BACK,
    chunks,
    has_tombstone,
    is_add_back,
    may_return,
    open_tombstone_key,
    record_tag,
    tags_digest,
)
from app.steps import reached
from lethe.certificates.retained import record_commitment
from models import Contribution, Model, Record, Tombstone
from workers.errors import RefusedError
from workers.families import base as family
from workers.families.ridge.blocks import AnyBlock, decode_block, encode_block, join
from workers.jobs import (
    checkpoints,
    subjects,
    versions,
)
from workers.jobs.lease import Lease, LeaseLostError, advance
from workers.jobs.lesson import Owner
from workers.jobs.registered import as_registered
from workers.jobs.versions import RetainedSet

# A tombstone that only the erasure journal brought back, after a restore, says of nobody whose
# the record was: it never comes back.
ERASED = (
    "a record id was erased: use new ids. It comes back only to its client, with "
    "add_back=true, and not at all where only the erasure journal knows of it since the "
    "database was restored"
)
NOT_BACK = (
    "a record id was erased from another client, or only the erasure journal knows of it since "
    "the database was restored: use new ids"
)


def run(services: Services, lease: Lease, model: Model) -> None:
    """Fold a contribution into its model's next version.

    model: its row as it was compared with the log.

    Raises:
        RefusedError: The rows cannot be learned, or the model's row was changed meanwhile;
            nothing was learned.
        LeaseLostError: Another worker holds the job now.
    """
    with services.reading() as session:
        contribution = session.get_one(Contribution, lease.contribution_id)
        upload = services.artifacts.get(session, contribution.upload_id)
        before = versions.current(session, model)
        base = model.current_version
        add_back = is_add_back(session, contribution)
        tombstone_key = open_tombstone_key(services.master, model)
        retained = versions.commitments(session, lease.model_id)
    kind = family.of(model)
    lesson = kind.read(model, upload)
    with services.reading() as session:
        clients = {
            record: owner[0]
            for owner, block in lesson.blocks.items()
            for record in block.records
        }
        _refuse_known(session, lease.model_id, clients, tombstone_key, add_back)
    salts = {record: secrets.token_bytes(32) for record in lesson.records}
    made = kind.learn(services, lease, model, before, lesson, salts)
    fresh = {record: record_commitment(salt, record) for record, salt in salts.items()}
    after = RetainedSet.of([*retained, *fresh.values()])
    reached("execute.computed")

    def effect(tx: Transaction) -> None:
        model = as_registered(services.ledger, tx.session, lease.model_id)
        if model.current_version != base:
            raise LeaseLostError(lease.job_id)
        added: list[dict[str, object]] = []
        for owner, block in lesson.blocks.items():
            subject = _seal(services, tx.session, model, owner, block)
            added += [
                {
                    "model_id": lease.model_id,
                    "subject_id": subject,
                    "record": record,
                    "salt": salts[record],
                    "commitment": fresh[record],
                }
                for record in block.records
            ]
        tx.session.flush()
        tx.session.connection().execute(insert(Record), added)
        version = versions.publish(services, tx, model, lease, made.encoded, after)
        if made.repeated:
            versions.record_repeated(tx, model, version)
        if before is not None:
            # The head stays until an erasure; the state of a past version serves nothing.
            versions.shred(services, tx.session, before.state_id)
        contribution = tx.session.get_one(Contribution, lease.contribution_id)
        versions.shred(services, tx.session, contribution.upload_id)
        contribution.state = "learned"
        contribution.saturated = lesson.saturated
        lifted: list[bytes] = []
        if add_back:
            tags = [record_tag(tombstone_key, record) for record in lesson.records]
            lifted = _lift(tx.session, lease.model_id, tags)
        digests = {ADD_BACK: tags_digest(lifted)} if lifted else {}
        index = record_model_event(tx, model.ref, "contribution.learned", digests)
        if lifted:
            said = digests[ADD_BACK]
            services.journal.returned(tx.session, model.ref, lifted, index, said)
        tx.session.flush()
        reached("execute.written")
        checkpoints.let_go(services, tx, lease)
        advance(tx, lease, "done")

    services.ledger.transact(effect)


def _seal(
    services: Services, session: Session, model: Model, owner: Owner, block: AnyBlock
) -> int:
    """Add to its owner's block, under a new key; return the owner's id."""
    assert model.id is not None
    subject = subjects.named(session, model.id, owner)
    assert subject.id is not None
    sealed = services.features.load(session, subject.id) if subject.wrapped_key else None
    bits = model.config.get("bits", 0)
    whole = join(decode_block(sealed), block, bits=bits) if sealed else block
    payload = encode_block(whole)
    if sealed is None:
        services.features.store(session, subject, payload, len(whole.records))
    else:
        services.features.rewrite(session, subject, payload, len(whole.records))
    return subject.id


def _refuse_known(
    session: Session,
    model_id: int,
    clients: Mapping[str, str],
    tombstone_key: bytes,
    add_back: bool,
) -> None:
    """Refuse what is in the training set, and what was erased and may not come back.

    Both were checked when the rows arrived, but jobs before this one have run since.
    """
    for chunk in chunks(list(clients)):
        known = select(Record.id).where(
            Record.model_id == model_id, col(Record.record).in_(chunk)
        )
        if session.exec(known).first() is not None:
            raise RefusedError("a record id is already in the training set: use new ids")
        if not add_back and has_tombstone(session, model_id, tombstone_key, chunk):
            raise RefusedError(ERASED)
        returning = {record: clients[record] for record in chunk}
        if add_back and not may_return(session, model_id, tombstone_key, returning):
            raise RefusedError(NOT_BACK)


def _lift(session: Session, model_id: int, tags: list[bytes]) -> list[bytes]:
    """Delete the tombstones of records that come back; return the tags of those there were."""
    lifted: list[bytes] = []
    for chunk in chunks(tags):
        stones = session.exec(
            select(Tombstone).where(
                Tombstone.model_id == model_id, col(Tombstone.tag).in_(chunk)
            )
        ).all()
        for stone in stones:
            lifted.append(bytes(stone.tag))
            session.delete(stone)
    session.flush()
    return lifted
