"""Certify: compare the judgement with the log, then sign, log and store the certificate."""

import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlmodel import Session, select

from app.keys.issuer import require_unchanged, signing_issuer
from app.ledger.journal import record_request_event
from app.ledger.transaction import Transaction
from app.reconcile.judgement import score_parts
from app.service.context import Services
from app.steps import reached
from lethe.certificates.bundle import hashedrekord_leaf, sign_envelope
from lethe.certificates.cost import JUDGED
from lethe.certificates.evidence import evidence_part
from lethe.certificates.statement import (
    MethodPart,
    ModelPart,
    Predicate,
    RetainedSet,
    Scope,
    SetState,
    Subject,
    VersionPart,
    build_statement,
)
from lethe.errors import LetheError
from models import Certificate, ErasureRequest, Job, Model
from models.database.session import read_by_id
from models.database.types import clock
from workers.errors import RefusedError
from workers.families import base as family
from workers.jobs import endings, held_out
from workers.jobs.leased import leased, pass_on
from workers.jobs.logged_judgement import Passed, passed_all
from workers.leases.checkpoints import clean, release_before
from workers.leases.lease import PACE, JobContext, Turn, advance, load_job, queued_behind
from workers.method_audits.citation import citation
from workers.updates.draft import Draft


@dataclass(frozen=True, slots=True)
class Signed:
    """A signed certificate that is not yet issued."""

    id: str
    judgement: Passed
    envelope: dict[str, Any]
    leaf: bytes


def run(services: Services, job_id: str, turn: Turn | None = None) -> None:
    """Issue the certificate of a verified job, and of the jobs behind it that wait for theirs.

    The envelope, its leaf, the certificate row and the closing event commit together; the row's
    primary key is the request, so there is one certificate however often this runs. If tables
    and log contradict each other, nothing is signed: the model is taken out of service, and the
    request waits for an operator with the reason. Among the jobs behind it, the first that
    cannot be signed waits for its own turn. A second try goes alone: a fault of one job must
    not hold up the others.
    """
    with leased(services, job_id, "certify", turn) as lease:
        if lease is None:
            return
        key, keyid, keys = signing_issuer(services.settings, services.ledger)

        def sign(session: Session, judgement: Passed, now: datetime) -> Signed:
            certificate_id = str(uuid.uuid4())
            payload = _statement(job, session, judgement, certificate_id, now)
            envelope = sign_envelope(payload, key, keyid)
            leaf = hashedrekord_leaf(envelope, key.public_key())
            return Signed(certificate_id, judgement, envelope, leaf)

        try:
            with services.reading() as session:
                job, now = load_job(services, session, lease), clock(session)
                row = session.exec(select(Job).where(Job.id == lease.job_id)).one()
                behind = queued_behind(session, lease.job_id, "certify")
                others = behind if lease.tries == 1 else []
                judgements = passed_all(job, session, [row, *others])
                signed = [sign(session, next(judgements), now)]
                with suppress(RefusedError, LetheError, OSError):
                    for judgement in judgements:
                        signed.append(sign(session, judgement, now))
        except RefusedError as refusal:
            endings.give_up(job, f"not certified: {refusal}")
            return
        reached("certify.signed")

        def effect(tx: Transaction) -> None:
            # Otherwise it could be issued after its key was revoked.
            require_unchanged(tx, keys.size)
            _issue(job, tx, signed, keyid)
            moved = [(one.judgement.job_id, one.judgement.token) for one in signed[1:]]
            advance(tx, lease, "done", moved)
            row = tx.session.exec(select(Job).where(Job.id == lease.job_id)).one()
            for before_id in {one.judgement.plan.before_id for one in signed}:
                release_before(services, tx, row, before_id)

        services.ledger.transact(effect)
        reached("certify.committed")
        pass_on(services, lease)
        clean(services)
        PACE.note(lease, len(signed))


def _issue(job: JobContext, tx: Transaction, signed: Sequence[Signed], keyid: str) -> None:
    """Store and log certificates, and destroy the files kept to make them."""
    services = job.services
    ids = [one.judgement.request.id for one in signed]
    requests = {one.id: one for one in read_by_id(tx.session, ErasureRequest, ids)}
    for one in signed:
        request, result = (
            requests[one.judgement.request.id],
            one.judgement.evidence.report.result,
        )
        index = tx.append(one.leaf)
        issued = Certificate(
            request_id=request.id,
            id=one.id,
            envelope=one.envelope,
            issuer_keyid=keyid,
            result=result,
            log_index=index,
            issued_at=tx.now,
        )
        tx.insert(Certificate, issued.model_dump())
        request.state = "certified"
        closing = {"certificate": index, "result": result}
        record_request_event(tx, request, "request.certified", closing)
    services.artifacts.shred_all(tx.session, [one.judgement.draft_id for one in signed])
    for one in signed:
        family.of(one.judgement.model).certified(services, tx, one.judgement.request.id)


def _statement(
    job: JobContext, session: Session, judgement: Passed, certificate_id: str, now: datetime
) -> bytes:
    request, model, plan = judgement.request, judgement.model, judgement.plan
    after, evidence, received = judgement.after, judgement.evidence, judgement.received
    assert received.commitment is not None
    removal, kind = evidence.removal, family.of(model)
    part = evidence_part("erasure-evidence", judgement.evidence_file)
    predicate = Predicate(
        certificate_id=certificate_id,
        request_ref=request.ref,
        request_log_index=request.log_index,
        request_commitment=received.commitment,
        completed_at=now.replace(microsecond=0),
        supersedes=None,
        model=ModelPart(
            model.ref, VersionPart(plan.head_before), VersionPart(after.head_digest)
        ),
        scope=Scope(request.scope["level"], len(removal.records), removal.records_root),
        retained_set=RetainedSet(
            before=SetState(removal.before.root, removal.before.count),
            after=SetState(removal.after.root, removal.after.count),
            removal_proof=part.digest,
        ),
        method=MethodPart(
            id=plan.method,
            version=plan.method_version,
            parameters={
                **plan.parameters,
                **kind.registered(model),
                **_cited(job.services, session, model, plan),
                **_measured(judgement),
                **_seconds(judgement),
            },
            code_digest=plan.code,
            environment=plan.environment,
        ),
        guarantee=kind.guarantee(plan),
        checks=evidence.report.checks,
        result=evidence.report.result,
        purged=plan.purged(),
        evidence=(part, *score_parts(judgement.events, plan.claim)),
        verifier=evidence.report.verifier,
    )
    subject = Subject(f"{model.ref}/versions/{after.number}", after.head_digest)
    return build_statement([subject], predicate)


def _measured(judgement: Passed) -> dict[str, str]:
    """Return what the versions score on held-out rows, as published and as judged."""
    before, after = judgement.before.held_out, judgement.after.held_out
    if before is None and after is None:
        return {}
    judged = judgement.evidence.report.details.get("heldOut", "not compared")
    return {
        "heldOutBefore": held_out.spelled(before),
        "heldOutAfter": held_out.spelled(after),
        "heldOutJudged": judged,
    }


def _seconds(judgement: Passed) -> dict[str, str]:
    """Return the verifier's seconds, from its evidence."""
    details = judgement.evidence.report.details
    return {JUDGED: details[JUDGED]} if JUDGED in details else {}


def _cited(services: Services, session: Session, model: Model, plan: Draft) -> dict[str, str]:
    # Audits run the registered settings; an attempt with different settings was never audited.
    if not family.of(model).audited or plan.name != plan.method:
        return {}
    return citation(services, session, model, plan.method, plan.method_version, plan.code)
