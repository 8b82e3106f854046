"""fsck of what stands behind a certificate: its columns, its evidence, its verification."""

from collections.abc import Collection
from dataclasses import asdict
from typing import Any

from sqlmodel import Session, select

from app.reconcile.findings import is_stored
from app.reconcile.judgement import CERTIFIED
from lethe.certificates.evidence import ESCALATION_SCORES, SCORES
from lethe.certificates.statement import Predicate
from models import (
    Artifact,
    Certificate,
    ErasureRequest,
    ModelVersion,
    RequestEvent,
    Verification,
)

COLUMNS = "a certificate's columns say otherwise than what was signed"
EVIDENCE = "the evidence that a certificate names is not stored"
SCORED = "the scores that a certificate names are not stored"
UNVERIFIED = "the verification of a certificate is missing"
OTHERWISE = "the stored verification is another than the certificate's"


def evidence_problem(
    session: Session, row: Certificate, certificate: Predicate, destroyed: Collection[str]
) -> str | None:
    """Return what is wrong with the rows beside a certificate, None if nothing is.

    None also where the request is gone. At the end of its retention evidence and scores are
    destroyed, and what opens its events. destroyed: refs of requests whose evidence went first.
    """
    request = session.get(ErasureRequest, row.request_id)
    if request is None:
        return None
    ended = not request.event_key
    same = (row.id, row.result) == (certificate.certificate_id, certificate.result)
    if not same or not (ended or _at(session, row)):
        return COLUMNS
    for part in () if ended or request.ref in destroyed else certificate.evidence:
        scores = part.name in (SCORES, ESCALATION_SCORES)
        if not is_stored(session, part.digest, "scores" if scores else "evidence"):
            return SCORED if scores else EVIDENCE
    return _verification_problem(session, request, certificate)


def _at(session: Session, row: Certificate) -> bool:
    """Return whether it was issued when its event says; the log commits to that time.

    That an event is not stored, or is another than the log has, `check_openings` tells.
    """
    query = select(RequestEvent.at, RequestEvent.payload).where(
        RequestEvent.request_id == row.request_id, RequestEvent.event == CERTIFIED
    )
    events = list(session.exec(query))
    return not events or (row.issued_at, row.log_index) in [
        (at, payload.get("certificate")) for at, payload in events
    ]


def _verification_problem(
    session: Session, request: ErasureRequest, certificate: Predicate
) -> str | None:
    found = session.get(Verification, request.id)
    if found is None:
        # That a model has no version at all is told by `check_models`.
        query = select(ModelVersion.id).where(ModelVersion.model_id == request.model_id)
        return UNVERIFIED if session.exec(query).first() is not None else None
    evidence = session.get(Artifact, found.evidence_id)
    digest = None if evidence is None else evidence.digest
    checks = [_spelled(asdict(check)) for check in certificate.checks]
    stored = found.report.get("checks") if isinstance(found.report, dict) else None
    same = isinstance(stored, list) and [_spelled(check) for check in stored] == checks
    if (found.result, digest) != (
        certificate.result,
        certificate.retained_set.removal_proof,
    ) or not same:
        return OTHERWISE
    version = session.get(ModelVersion, found.version_id)
    if version is None or version.head_digest != certificate.model.version_after.digest:
        return OTHERWISE
    return None


def _spelled(check: Any) -> Any:
    """Return a check as JSON stores it."""
    if not isinstance(check, dict):
        return check
    return {k: list(v) if isinstance(v, tuple) else v for k, v in check.items()}
