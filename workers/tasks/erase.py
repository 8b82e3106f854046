"""Erase: subtract the claimed records, publish the next version, destroy what held them."""

from collections import defaultdict

import numpy as np
from sqlalchemy import delete, insert
from sqlmodel import col, select

from app.certificates.retained import prove_removal
from app.ledger.journal import record_request_event
from app.ledger.sequencer import Transaction
from app.schemas.requests import Scope
from app.service.context import Services
from app.service.scope import claim_owner, open_tombstone_key, record_tag
from app.steps import reached
from models import ErasureRequest, FeatureBlock, Model, Record, Subject, Tombstone
from workers.arrays import Rows
from workers.errors import RefusedError
from workers.methods import registry
from workers.tasks import draft, versions
from workers.tasks.blocks import Block, decode_block, encode_block
from workers.tasks.draft import Draft, RewrittenBlock
from workers.tasks.lease import Lease, LeaseLostError, advance
from workers.tasks.versions import RetainedSet


def run(services: Services, lease: Lease) -> None:
    """Remove a request's claimed records from its model.

    Raises:
        RefusedError: The method declined; nothing was changed.
        LeaseLostError: Another worker holds the job now.
    """
    services.ledger.transact(lambda tx: _claim(tx, lease), checkpoint=False)
    with services.reading() as session:
        request = session.get_one(ErasureRequest, lease.request_id)
        model = session.get_one(Model, lease.model_id)
        config = versions.ridge_config(model)
        before = versions.current(session, model)
        assert before is not None
        state = versions.load_state(services, session, before)
        claimed = list(session.exec(select(Record).where(Record.claimed_by == request.id)))
        if not claimed:
            raise RefusedError("an earlier request erased all that this one asks for")
        salts = {record.record: bytes(record.salt) for record in claimed}
        retained = versions.commitments(session, lease.model_id)
        owned: dict[int, set[str]] = defaultdict(set)
        for record in claimed:
            owned[record.subject_id].add(record.record)
        blocks = {
            subject: decode_block(services.features.load(session, subject)) for subject in owned
        }
        method = registry.get(request.method)
        tombstone_key = open_tombstone_key(services.master, model)
    forgotten = _rows(blocks, owned)
    outcome = method.forget(config, state, forgotten)
    encoded = versions.encode(outcome.state, config)
    removal = prove_removal(retained, salts)
    tombstones = [
        {
            "model_id": lease.model_id,
            "tag": record_tag(tombstone_key, record),
            "request_id": request.id,
        }
        for record in salts
    ]
    gone = {bytes(record.commitment) for record in claimed}
    after = RetainedSet.of([value for value in retained if value not in gone])
    remaining = {subject: blocks[subject].without(ids) for subject, ids in owned.items()}
    reached("execute.computed")

    def effect(tx: Transaction) -> None:
        session = tx.session
        model = session.get_one(Model, lease.model_id)
        request = session.get_one(ErasureRequest, lease.request_id)
        if model.current_version != before.number:
            raise LeaseLostError(lease.job_id)
        rewritten = []
        for subject_id, rest in remaining.items():
            rewritten.append(_rewrite(services, tx, subject_id, rest))
        session.flush()
        session.connection().execute(insert(Tombstone), tombstones)
        erased = delete(Record).where(col(Record.claimed_by) == request.id)
        session.connection().execute(erased)
        version = versions.publish(services, tx, model, lease, encoded, after)
        shredded = versions.withdraw_earlier(services, tx, model, version)
        plan = Draft(
            removal=removal,
            before_number=before.number,
            head_before=before.head_digest,
            statistics_before=before.statistics_digest,
            statistics_after=encoded.statistics,
            method=method.id,
            method_version=method.version,
            claim=outcome.claim,
            parameters={**versions.parameters(config), **outcome.notes},
            bounds={"head": repr(outcome.state.bound)},
            artifacts=shredded,
            blocks=rewritten,
            feature_rows=len(salts),
        )
        draft_id = draft.store(services, session, plan)
        reached("execute.written")
        request.state = "verifying"
        record_request_event(
            tx,
            request,
            "request.executed",
            {"head": encoded.head_digest, "statistics": encoded.statistics},
        )
        session.flush()
        advance(tx, lease, "verify", draft_id=draft_id)

    services.ledger.transact(effect)


def _claim(tx: Transaction, lease: Lease) -> None:
    assert lease.request_id is not None
    request = tx.session.get_one(ErasureRequest, lease.request_id)
    scope = Scope.model_validate(request.scope)
    claim_owner(tx.session, lease.model_id, scope, request.id)


def _rows(blocks: dict[int, Block], owned: dict[int, set[str]]) -> Rows:
    parts = []
    for subject, ids in owned.items():
        block = blocks[subject]
        mask = np.array([record in ids for record in block.records])
        parts.append(block.take(mask).rows)
    return Rows(
        np.concatenate([part.codes for part in parts]),
        np.concatenate([part.labels for part in parts]),
    )


def _rewrite(
    services: Services, tx: Transaction, subject_id: int, rest: Block | None
) -> RewrittenBlock:
    subject = tx.session.get_one(Subject, subject_id)
    block = tx.session.get_one(FeatureBlock, subject_id)
    old = RewrittenBlock(
        subject_id, block.key_generation, draft.sha256_hex(bytes(block.ciphertext))
    )
    payload = None if rest is None else encode_block(rest)
    rows = 0 if rest is None else len(rest.records)
    services.features.rewrite(tx.session, subject, payload, rows)
    return old
