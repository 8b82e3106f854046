"""Masked rounds: unmask the sum, publish the next version, set the waiting erasures going.

Erasures of a masked model cannot be executed alone: they wait, parked, until a round in
which the clients that hold the records release them.
"""

import secrets
from typing import Any

from sqlalchemy import insert, update
from sqlmodel import Session, col

from app.ledger.journal import record_model_event, record_request_event
from app.ledger.sequencer import Transaction
from app.service.context import Services
from app.service.queue import PARKED
from app.service.round_steps import close_round
from app.service.scope import bury, record_tag
from app.steps import reached
from lethe import canonical
from lethe.certificates.retained import record_commitment
from models import ErasureRequest, Job, Model, ModelVersion, Record, Round
from workers.errors import RefusedError
from workers.families.masked.case import (
    Owner,
    RoundCase,
    RoundSum,
    apply_sum,
    counted_round,
    load_case,
    unmask_case,
)
from workers.jobs import (
    batch,
    draft,
    subjects,
    versions,
)
from workers.jobs.draft import Draft, ShreddedArtifact
from workers.jobs.lease import Lease, LeaseLostError, advance
from workers.jobs.registered import as_registered
from workers.jobs.transcript import encode_transcript
from workers.jobs.versions import RetainedSet
from workers.methods.ridge import registry
from workers.methods.ridge.base import Outcome


def run(services: Services, lease: Lease, model: Model) -> None:
    """Add a round's sum to its model and hand its erasures on to the verifier.

    model: its row as it was compared with the log.

    Raises:
        RefusedError: A member's key is not as registered, the masks do not come off, or no
            rows can have what is left; or the model's row was changed meanwhile. Nothing was
            changed; a new round may be opened.
        LeaseLostError: Another worker holds the job now.
    """
    with services.reading() as session:
        case = load_case(services, session, lease, model)
    found = unmask_case(case)
    released = [member for member in case.released if set(member.salts) <= found.releases]
    if sum(len(member.salts) for member in released) != len(found.releases):
        raise RefusedError("records are released that no waiting request is about")
    whole = apply_sum(case, found)
    outcome = registry.get(case.method).refit(case.config, [whole])
    encoded = versions.encode(outcome.state, case.config)
    salts = {record: secrets.token_bytes(32) for record in found.adds}
    fresh = {record: record_commitment(salt, record) for record, salt in salts.items()}
    grown = sorted([*case.retained, *fresh.values()])
    links = batch.prove(grown, released)
    gone = {
        record_commitment(salt, record)
        for member in released
        for record, salt in member.salts.items()
    }
    after = RetainedSet.of([value for value in grown if value not in gone])
    # The log holds the whole chain: the set that grew, if it did, and each link but the last.
    roots = [link.root for link in links[:-1]]
    if fresh and links:
        roots.insert(0, RetainedSet.of(grown).root)
    reached("execute.computed")

    def effect(tx: Transaction) -> None:
        session = tx.session
        model = as_registered(services.ledger, session, lease.model_id)
        if (model.current_version or 0) != case.row.plan["version"]:
            raise LeaseLostError(lease.job_id)
        row = session.get_one(Round, case.row.id)
        _learn(session, lease.model_id, found.adds, salts, fresh)
        version = versions.publish(services, tx, model, lease, encoded, after, roots)
        shredded = _shred(services, tx, model, version, case, erased=bool(released))
        counts = canonical.encode(whole.counts.tolist())
        row.counts_id = services.artifacts.put(session, "counts", counts).id
        if released:
            sealed = encode_transcript(case.transcript)
            row.transcript_id = services.artifacts.put(session, "round", sealed).id
        for member, link in zip(released, links, strict=True):
            plan = Draft(
                **_facts(case, outcome, version),
                ref=session.get_one(ErasureRequest, member.request_id).ref,
                removal=link.removal,
                earlier=draft.write_commitments(link.earlier),
                later=draft.write_commitments(link.later),
                parameters={
                    **versions.parameters(case.config),
                    **outcome.notes,
                    **_cast(case, found),
                    "batch": str(len(released)),
                    **batch.gone_before(member),
                },
                artifacts=shredded,
                added=draft.write_commitments(list(fresh.values())),
            )
            _forget(services, tx, lease, case, member, plan)
        close_round(services, tx, row, "done")
        record_model_event(tx, model.ref, "round.summed", {})
        session.flush()
        reached("execute.written")
        advance(tx, lease, "done")

    services.ledger.transact(effect)


def _learn(
    session: Session,
    model_id: int,
    adds: dict[str, Owner],
    salts: dict[str, bytes],
    fresh: dict[str, bytes],
) -> None:
    owners = sorted(set(adds.values()))
    known = {owner: subjects.named(session, model_id, owner).id for owner in owners}
    rows = [
        {
            "model_id": model_id,
            "subject_id": known[owner],
            "record": record,
            "salt": salts[record],
            "commitment": fresh[record],
        }
        for record, owner in adds.items()
    ]
    if rows:
        session.connection().execute(insert(Record), rows)


def _shred(
    services: Services,
    tx: Transaction,
    model: Model,
    version: ModelVersion,
    case: RoundCase,
    *,
    erased: bool,
) -> list[ShreddedArtifact]:
    """Destroy what tells of the model before: all of it if somebody was erased."""
    shredded: list[ShreddedArtifact] = []
    if erased:
        shredded += versions.withdraw_earlier(services, tx, model, version)
    elif case.before is not None:
        versions.shred(services, tx.session, case.before.state_id)
    counted = counted_round(tx.session, version.model_id)
    if counted is not None and counted.counts_id is not None:
        done = versions.shred(services, tx.session, counted.counts_id)
        shredded += [done] if done is not None else []
        counted.counts_id = None
        tx.session.flush()
    return shredded


def _facts(case: RoundCase, outcome: Outcome, version: ModelVersion) -> dict[str, Any]:
    """Return what the drafts of all requests of a round have in common."""
    assert case.before is not None  # there was something to release
    method = registry.get(case.method)
    return {
        "before_number": case.before.number,
        "number": version.number,
        "head_before": case.before.head_digest,
        "statistics_before": case.before.statistics_digest,
        "statistics_after": version.statistics_digest,
        "method": method.id,
        "method_version": method.version,
        "claim": outcome.claim,
        "bounds": {"head": repr(outcome.state.bound)},
        "blocks": [],
        "feature_rows": 0,
        "round_id": case.row.id,
    }


def _cast(case: RoundCase, found: RoundSum) -> dict[str, str]:
    """Return what a certificate says of the round itself."""
    return {
        "data": "masked",
        "round": case.row.id,
        "members": str(len(found.survivors)),
        "dropped": str(len(case.clients) - len(found.survivors)),
        "threshold": str(case.row.threshold),
        "contributors": str(found.contributors),
        "moved": str(len(found.adds) + len(found.releases)),
        "least-contributors": str(case.row.plan["least_contributors"]),
        "least-rows": str(case.row.plan["least_rows"]),
    }


def _forget(
    services: Services,
    tx: Transaction,
    lease: Lease,
    case: RoundCase,
    member: batch.Member,
    plan: Draft,
) -> None:
    """Remove a request's records and hand it on to the verifier."""
    session = tx.session
    whose = dict.fromkeys(member.salts, member.request_id)
    bury(session, lease.model_id, case.tombstone_key, whose)
    versions.remove_records(session, lease.model_id, list(member.salts))
    request = session.get_one(ErasureRequest, member.request_id)
    model = session.get_one(Model, lease.model_id)
    tags = [record_tag(case.tombstone_key, record) for record in member.salts]
    services.journal.erased(session, model.ref, tags, request.ref)
    request.state = "verifying"
    stored = draft.store(services, session, plan)
    record_request_event(
        tx,
        request,
        "request.executed",
        {
            "head": versions.numbered(session, lease.model_id, plan.number).head_digest,
            "statistics": plan.statistics_after,
            "method": plan.method,
            draft.DRAFT: stored.digest,
        },
    )
    session.flush()
    moved = session.connection().execute(
        update(Job)
        .where(
            col(Job.id) == member.job_id,
            col(Job.lease_token) == member.token,
            col(Job.stage) == PARKED,
            col(Job.done_at).is_(None),
        )
        .values(stage="verify", draft_id=stored.id, attempt=0, deaths=0, lease_until=None)
    )
    if moved.rowcount != 1:
        raise LeaseLostError(member.job_id)
    session.expire_all()
