"""fsck of what stands behind a certificate: its columns, its evidence, its verification."""

from dataclasses import asdict
from typing import Any

from sqlmodel import Session, col, select

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

CERTIFIED = "request.certified"
COLUMNS = "a certificate's columns say otherwise than what was signed"
EVIDENCE = "the evidence that a certificate names is not stored"
SCORED = "the scores that a certificate names are not stored"
UNVERIFIED = "the verification of a certificate is missing"
OTHERWISE = "the stored verification is another than the certificate's"


def evidence_problem(session: Session, row: Certificate, said: Predicate) -> str | None:
    """Return what is wrong with the rows beside a certificate, None if nothing is.

    None also where the request is gone. At the end of its retention evidence and scores are
    destroyed, and what opens its events.
    """
    request = session.get(ErasureRequest, row.request_id)
    if request is None:
        return None
    ended = not request.event_key
    said_so = (row.id, row.result) == (said.certificate_id, said.result)
    if not said_so or not (ended or _at(session, row)):
        return COLUMNS
    for part in () if ended else said.evidence:
        scores = part.name in (SCORES, ESCALATION_SCORES)
        if not _is_stored(session, part.digest, "scores" if scores else "evidence"):
            return SCORED if scores else EVIDENCE
    return _verification_problem(session, request, said)


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


def _is_stored(session: Session, digest: str, kind: str) -> bool:
    query = select(Artifact.id).where(
        Artifact.digest == digest,
        Artifact.kind == kind,
        col(Artifact.wrapped_key).is_not(None),
    )
    return session.exec(query).first() is not None


def _verification_problem(
    session: Session, request: ErasureRequest, said: Predicate
) -> str | None:
    found = session.get(Verification, request.id)
    if found is None:
        # That a model has no version at all is told by `check_models`.
        query = select(ModelVersion.id).where(ModelVersion.model_id == request.model_id)
        return UNVERIFIED if session.exec(query).first() is not None else None
    evidence = session.get(Artifact, found.evidence_id)
    digest = None if evidence is None else evidence.digest
    checks = [_spelled(asdict(check)) for check in said.checks]
    stored = found.report.get("checks") if isinstance(found.report, dict) else None
    same = isinstance(stored, list) and [_spelled(check) for check in stored] == checks
    if (found.result, digest) != (said.result, said.retained_set.removal_proof) or not same:
        return OTHERWISE
    version = session.get(ModelVersion, found.version_id)
    if version is None or version.head_digest != said.model.version_after.digest:
        return OTHERWISE
    return None


def _spelled(check: Any) -> Any:
    """Return a check as JSON stores it."""
    if not isinstance(check, dict):
        return check
    return {k: list(v) if isinstance(v, tuple) else v for k, v in check.items()}
