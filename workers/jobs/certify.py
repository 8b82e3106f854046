"""Certify: compare the judgement with the log, then sign, log and store the certificate."""

import uuid

from sqlmodel import Session, select

from app.ledger.journal import record_request_event
from app.ledger.sequencer import Transaction
from app.ledger.startup import load_issuer
from app.reconcile.escalation import score_parts
from app.service.context import Services
from app.steps import reached
from lethe.certificates.bundle import hashedrekord_leaf
from lethe.certificates.dsse import sign_envelope
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
from models import Certificate, ErasureRequest, Job, Model
from models.types import utcnow
from workers.errors import RefusedError
from workers.families import base as family
from workers.jobs import endings
from workers.jobs.checkpoints import release_before
from workers.jobs.draft import Draft
from workers.jobs.lease import advance
from workers.jobs.leased import leased
from workers.jobs.logged_judgement import Passed, passed
from workers.jobs.sweep import clean, nudge_next
from workers.method_audits.citation import citation
from workers.provenance import code_digest, environment


def run(services: Services, job_id: str) -> None:
    """Issue the certificate of a verified job.

    The envelope, its leaf, the certificate row and the closing event commit together; the
    row's primary key is the request, so there is one certificate however often this runs.
    Where tables and log contradict each other nothing is signed: the model is taken out of
    service, and the request waits for an operator with the reason.
    """
    with leased(services, job_id, "certify") as lease:
        if lease is None:
            return
        certificate_id = str(uuid.uuid4())
        try:
            with services.reading() as session:
                judgement = passed(services, session, lease)
                payload = _statement(services, session, judgement, certificate_id)
        except RefusedError as refusal:
            endings.give_up(services, lease, f"not certified: {refusal}")
            return
        kind, result = family.of(judgement.model), judgement.evidence.report.result
        key, keyid = load_issuer(services.settings)
        envelope = sign_envelope(payload, key, keyid)
        leaf = hashedrekord_leaf(envelope, key.public_key())
        reached("certify.signed")

        def effect(tx: Transaction) -> None:
            assert lease.request_id is not None
            request = tx.session.get_one(ErasureRequest, lease.request_id)
            index = tx.append(leaf)
            tx.session.add(
                Certificate(
                    request_id=request.id,
                    id=certificate_id,
                    envelope=envelope,
                    issuer_keyid=keyid,
                    result=result,
                    log_index=index,
                    issued_at=tx.now,
                )
            )
            request.state = "certified"
            record_request_event(
                tx,
                request,
                "request.certified",
                {"certificate": index, "result": result},
            )
            job = tx.session.exec(select(Job).where(Job.id == lease.job_id)).one()
            if job.draft_id is not None:
                services.artifacts.shred(tx.session, job.draft_id)
            release_before(services, tx, job)
            kind.certified(services, tx, request.id)
            tx.session.flush()
            advance(tx, lease, "done")

        services.ledger.transact(effect)
        reached("certify.committed")
        nudge_next(services, lease.model_id)
        clean(services)


def _statement(
    services: Services, session: Session, judgement: Passed, certificate_id: str
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
        completed_at=utcnow().replace(microsecond=0),
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
                **_cited(services, session, model, plan),
            },
            code_digest=code_digest(*kind.rooms),
            environment=environment(),
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


def _cited(services: Services, session: Session, model: Model, plan: Draft) -> dict[str, str]:
    # Audits run the registered settings; an attempt that differs from them was never audited.
    if not family.of(model).audited or plan.name != plan.method:
        return {}
    return citation(services, session, model, plan.method, plan.method_version)
