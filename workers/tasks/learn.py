"""Learn an upload: quantise, add to the statistics, seal the rows, shred the upload."""

import secrets
from collections import defaultdict

import numpy as np
from sqlalchemy import insert
from sqlmodel import Session, col, select

from app.certificates.retained import record_commitment
from app.ledger.journal import record_model_event
from app.ledger.sequencer import Transaction
from app.service.context import Services
from app.service.scope import chunks
from app.steps import reached
from models import Contribution, Model, Record, Subject
from workers.arrays import Rows
from workers.errors import RefusedError
from workers.methods import registry
from workers.statistics.quantiser import Quantiser
from workers.tasks import versions
from workers.tasks.blocks import (
    Block,
    Upload,
    decode_block,
    decode_upload,
    encode_block,
)
from workers.tasks.lease import Lease, LeaseLostError, advance
from workers.tasks.versions import RetainedSet

Owner = tuple[str, str]  # client, subject


def run(services: Services, lease: Lease) -> None:
    """Fold a contribution into its model's next version.

    Raises:
        RefusedError: The rows cannot be learned; nothing was changed.
        LeaseLostError: Another worker holds the job now.
    """
    with services.reading() as session:
        contribution = session.get_one(Contribution, lease.contribution_id)
        model = session.get_one(Model, lease.model_id)
        upload = decode_upload(services.artifacts.get(session, contribution.upload_id))
        before = versions.current(session, model)
        state = versions.load_state(services, session, before) if before else None
        config = versions.ridge_config(model)
        base = model.current_version
        _refuse_duplicates(session, lease.model_id, upload.records)
        retained = versions.commitments(session, lease.model_id)
        method = registry.get(model.method)
    codes, saturated = Quantiser(config.exponents, config.bits).quantise(upload.features)
    rows = Rows(codes, upload.labels)
    outcome = method.learn(config, state, rows)
    encoded = versions.encode(outcome.state, config)
    owned = _by_owner(upload, rows)
    salts = {record: secrets.token_bytes(32) for record in upload.records}
    fresh = {record: record_commitment(salt, record) for record, salt in salts.items()}
    after = RetainedSet.of([*retained, *fresh.values()])
    reached("execute.computed")

    def effect(tx: Transaction) -> None:
        model = tx.session.get_one(Model, lease.model_id)
        if model.current_version != base:
            raise LeaseLostError(lease.job_id)
        added: list[dict[str, object]] = []
        for owner, block in owned.items():
            subject = _seal(services, tx.session, lease.model_id, owner, block)
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
        versions.publish(services, tx, model, lease, encoded, after)
        if before is not None:
            # The head stays until an erasure; the state of a past version serves nothing.
            versions.shred(services, tx.session, before.state_id)
        contribution = tx.session.get_one(Contribution, lease.contribution_id)
        versions.shred(services, tx.session, contribution.upload_id)
        contribution.state = "learned"
        contribution.saturated = saturated
        record_model_event(tx, model.ref, "contribution.learned", {})
        tx.session.flush()
        reached("execute.written")
        advance(tx, lease, "done")

    services.ledger.transact(effect)


def _by_owner(upload: Upload, rows: Rows) -> dict[Owner, Block]:
    positions: dict[Owner, list[int]] = defaultdict(list)
    for position, owner in enumerate(zip(upload.clients, upload.subjects, strict=True)):
        positions[owner].append(position)
    return {
        owner: Block(
            [upload.records[position] for position in own],
            Rows(rows.codes[np.array(own)], rows.labels[np.array(own)]),
        )
        for owner, own in positions.items()
    }


def _seal(
    services: Services, session: Session, model_id: int, owner: Owner, block: Block
) -> int:
    """Add rows to their owner's block, under a new key; return the owner's id."""
    subject = session.exec(
        select(Subject).where(
            Subject.model_id == model_id,
            Subject.client == owner[0],
            Subject.subject == owner[1],
        )
    ).first()
    if subject is None:
        subject = Subject(model_id=model_id, client=owner[0], subject=owner[1])
        session.add(subject)
        session.flush()
    assert subject.id is not None
    sealed = services.features.load(session, subject.id) if subject.wrapped_key else None
    whole = decode_block(sealed).joined(block) if sealed else block
    payload = encode_block(whole)
    if sealed is None:
        services.features.store(session, subject, payload, len(whole.records))
    else:
        services.features.rewrite(session, subject, payload, len(whole.records))
    return subject.id


def _refuse_duplicates(session: Session, model_id: int, records: list[str]) -> None:
    for chunk in chunks(records):
        known = select(Record.id).where(
            Record.model_id == model_id, col(Record.record).in_(chunk)
        )
        if session.exec(known).first() is not None:
            raise RefusedError("a record id is already in the training set: use new ids")
