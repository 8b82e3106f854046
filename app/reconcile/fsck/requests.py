"""fsck of openings, requests and cases, certificates and the rows behind them."""

from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import load_der_public_key
from sqlalchemy import func, literal
from sqlmodel import Session, col, select

from app.ledger.journal import opening
from app.reconcile.approval import ON_BEHALF
from app.reconcile.findings import FsckReport, is_stored
from app.reconcile.fsck.audits import citation_problem
from app.reconcile.judgement import (
    CERTIFIED,
    DUE,
    RECEIVED,
    Event,
    contradiction,
    escalation_problem,
    scores_problem,
)
from app.reconcile.model_events import CLOSED
from app.reconcile.retention import ended_refs
from app.schemas.base import format_time
from lethe import canonical
from lethe.canonical import parse_base64
from lethe.certificates.bundle import check_envelope, hashedrekord_leaf, spki_of
from lethe.certificates.evidence import ESCALATION_SCORES, SCORES
from lethe.certificates.issuers import IssuerKeys
from lethe.certificates.statement import Predicate, parse_statement
from lethe.errors import LetheError
from lethe.log.entries import ERASURE_EVENT, HASHEDREKORD, check_commitment, parse_leaf
from models import (
    Artifact,
    Case,
    Certificate,
    ErasureRequest,
    LogEntry,
    Model,
    ModelVersion,
    RequestEvent,
    Verification,
)

FETCH = 500  # rows in memory at once
COLUMNS = "a certificate's columns say otherwise than what was signed"
EVIDENCE = "the evidence that a certificate names is not stored"
SCORED = "the scores that a certificate names are not stored"
UNVERIFIED = "the verification of a certificate is missing"
OTHERWISE = "the stored verification is another than the certificate's"


def check_openings(session: Session, report: FsckReport, first: int) -> dict[str, int]:
    """Open every commitment whose request and key still exist: retention destroys the key.

    first: The log index of the first event to open. Returns the refs of requests without a
    key, each with the log index of its first event from there on.
    """
    query = (
        select(RequestEvent, ErasureRequest, LogEntry.leaf)
        .join(ErasureRequest, col(ErasureRequest.id) == col(RequestEvent.request_id))
        .join(LogEntry, col(LogEntry.index) == col(RequestEvent.log_index), isouter=True)
        .where(col(RequestEvent.log_index) >= first)
        .order_by(col(RequestEvent.log_index))
        .execution_options(yield_per=FETCH)
    )
    ended = dict[str, int]()
    for event, request, leaf in session.exec(query):
        if not request.event_key:  # the column is sealed: a writer without keys cannot fake it
            ended.setdefault(request.ref, event.log_index)
            continue
        problem = _opening_problem(event, request, leaf) or _row_problem(
            session, event, request
        )
        if problem is not None:
            report.add("opening", problem, event.log_index)
    report.ended = len(ended)
    unopened = (
        select(LogEntry.index)
        .join(ErasureRequest, col(ErasureRequest.ref) == col(LogEntry.ref))
        .join(RequestEvent, col(RequestEvent.log_index) == col(LogEntry.index), isouter=True)
        .where(LogEntry.kind == ERASURE_EVENT, col(RequestEvent.log_index).is_(None))
        .where(col(LogEntry.index) >= first)
        .order_by(col(LogEntry.index))
    )
    report.add_all(
        "opening",
        "the request exists but its event's opening is missing",
        session.exec(unopened),
    )
    return ended


def _opening_problem(
    event: RequestEvent, request: ErasureRequest, leaf: bytes | None
) -> str | None:
    if leaf is None:
        return "an event is stored whose entry is not in the log"
    try:
        entry = parse_leaf(leaf)
        if (entry.kind, entry.event, entry.ref) != (ERASURE_EVENT, event.event, request.ref):
            return "the stored event is not the one in the log"
        assert entry.commitment is not None
        document = opening(request.ref, event.event, event.at, event.payload)
        check_commitment(request.event_key, document, entry.commitment)
    except LetheError as error:
        return f"the commitment does not open: {error.detail}"
    return None


def _row_problem(session: Session, event: RequestEvent, request: ErasureRequest) -> str | None:
    """Return how a request's row differs from its opened event. Holds use these columns."""
    if event.event == RECEIVED:
        model = session.get(Model, request.model_id)
        if model is None or model.ref != event.payload.get("model"):
            return "a request belongs to another model than its entry says"
    if event.event == ON_BEHALF and request.case_ref != event.payload.get("case"):
        return "a request belongs to another case than its entry says"
    return None


def check_requests(session: Session, report: FsckReport) -> None:
    """Check that each request was logged as received and certified at most once.

    A certified request must have its certificate. Time of receipt and end are those of the log:
    the end of retention follows both.
    """
    unlogged = (
        select(ErasureRequest.log_index)
        .join(
            RequestEvent,
            (col(RequestEvent.log_index) == col(ErasureRequest.log_index))
            & (col(RequestEvent.request_id) == col(ErasureRequest.id))
            & (col(RequestEvent.event) == RECEIVED),
            isouter=True,
        )
        .where(col(RequestEvent.log_index).is_(None))
    )
    report.add_all(
        "request",
        "a request does not point at the entry that received it",
        session.exec(unlogged),
    )
    moved = (
        select(ErasureRequest.log_index)
        .join(RequestEvent, col(RequestEvent.log_index) == col(ErasureRequest.log_index))
        .where(
            col(RequestEvent.request_id) == col(ErasureRequest.id),
            col(RequestEvent.at) != col(ErasureRequest.received_at),
        )
    )
    report.add_all(
        "request",
        "a request was received at another time than its entry says",
        session.exec(moved),
    )
    end = select(LogEntry.index).where(
        LogEntry.ref == ErasureRequest.ref, LogEntry.kind == ERASURE_EVENT
    )
    own = col(LogEntry.event) == literal("request.") + col(ErasureRequest.state)
    any_end = col(LogEntry.event).in_([f"request.{state}" for state in CLOSED])
    is_closed = col(ErasureRequest.state).in_(CLOSED)
    ended = select(ErasureRequest.log_index).where(
        (is_closed & ~end.where(own).exists()) | (~is_closed & end.where(any_end).exists())
    )
    report.add_all(
        "request",
        "whether and how a request has ended is stored otherwise than in the log",
        session.exec(ended),
    )
    bare = (
        select(ErasureRequest.log_index)
        .join(Certificate, col(Certificate.request_id) == col(ErasureRequest.id), isouter=True)
        .where(ErasureRequest.state == "certified", col(Certificate.id).is_(None))
    )
    report.add_all("certificate", "a certified request has no certificate", session.exec(bare))
    twice = (
        select(func.max(col(LogEntry.index)))
        .where(LogEntry.kind == ERASURE_EVENT, LogEntry.event == CERTIFIED)
        .group_by(col(LogEntry.ref))
        .having(func.count() > 1)
    )
    report.add_all("certificate", "a request was certified more than once", session.exec(twice))


def check_deadlines(session: Session, report: FsckReport) -> None:
    """Check that each open request's row has the deadline of its last event that set one.

    Lists of requests use the row.
    """
    query = (
        select(RequestEvent, ErasureRequest)
        .join(ErasureRequest, col(ErasureRequest.id) == col(RequestEvent.request_id))
        .where(col(RequestEvent.event).in_(DUE), col(ErasureRequest.state).not_in(CLOSED))
        .order_by(col(RequestEvent.request_id), col(RequestEvent.log_index).desc())
        .execution_options(yield_per=FETCH)
    )
    seen = None
    for event, request in session.exec(query):
        if request.id == seen or not request.event_key:
            continue
        seen = request.id
        if event.payload.get("due_at") != format_time(request.due_at):
            problem = "an open request is due at another time than its entries say"
            report.add("request", problem, event.log_index)


def check_answered(session: Session, report: FsckReport) -> None:
    """Check that a case is marked as answered exactly if no request of it is open.

    The queue hides answered cases.
    """
    open_ = select(ErasureRequest.id).where(
        ErasureRequest.case_ref == Case.ref, col(ErasureRequest.state).not_in(CLOSED)
    )
    wrong = select(Case).where(col(Case.answered).is_(True) == open_.exists())
    for case in session.exec(wrong):
        index = case.parts[0]["log_index"] if case.parts else None
        report.add("case", "whether a case is answered is stored otherwise than it is", index)


def check_certificates(
    session: Session,
    issuers: Mapping[str, EllipticCurvePublicKey],
    report: FsckReport,
    first: int,
    keys: IssuerKeys | None = None,
) -> None:
    """Check each certificate's leaf and judgement, and that each certificate leaf has a row.

    first: The log index of the first certificate to open. keys: The issuer's keys by the log.
    """
    destroyed = ended_refs(session, "evidence")
    query = (
        select(Certificate, LogEntry.leaf)
        .join(LogEntry, col(LogEntry.index) == col(Certificate.log_index), isouter=True)
        .where(col(Certificate.log_index) >= first)
        .order_by(col(Certificate.log_index))
        .execution_options(yield_per=FETCH)
    )
    for certificate, leaf in session.exec(query):
        problem = _certificate_problem(session, certificate, leaf, issuers, keys, destroyed)
        if problem is not None:
            report.add("certificate", problem, certificate.log_index)
    # A worker's second run that logged its own envelope would show here, like a deleted row.
    orphans = (
        select(LogEntry.index)
        .join(Certificate, col(Certificate.log_index) == col(LogEntry.index), isouter=True)
        .where(LogEntry.kind == HASHEDREKORD, col(Certificate.id).is_(None))
        .order_by(col(LogEntry.index))
    )
    report.add_all(
        "certificate",
        "the log holds a certificate that the database lacks",
        session.exec(orphans),
    )


def _certificate_problem(
    session: Session,
    row: Certificate,
    leaf: bytes | None,
    issuers: Mapping[str, EllipticCurvePublicKey],
    keys: IssuerKeys | None,
    destroyed: Collection[str],
) -> str | None:
    if leaf is None:
        return "a certificate's entry is not in the log"
    key = _issuer_in(leaf)
    if key is None:
        return "a certificate's entry is not a certificate's leaf"
    expected = issuers.get(row.issuer_keyid, key)
    try:
        payload = check_envelope(row.envelope, expected, row.issuer_keyid)
        if hashedrekord_leaf(row.envelope, expected) != leaf:
            return "the leaf is another certificate's"
        # A certificate issued since `keys` was read is left for the next run.
        if keys is not None and row.log_index < keys.size:
            keys.check(spki_of(expected), row.log_index)
        certificate = parse_statement(payload).predicate
        return (
            _judgement_problem(session, row, certificate)
            or citation_problem(session, row.log_index, certificate)
            or _evidence_problem(session, row, certificate, destroyed)
        )
    except LetheError as error:
        return f"the envelope does not hold: {error.detail}"


def _judgement_problem(
    session: Session, row: Certificate, certificate: Predicate
) -> str | None:
    """Return why the request's events before a certificate do not allow it.

    This reads events as stored: `check_openings` compares each with its leaf.
    """
    request = session.get(ErasureRequest, row.request_id)
    if request is None:
        return None
    if certificate.request_ref != request.ref:
        return "the certificate belongs to another request than its row says"
    if not request.event_key:  # retention has ended: no commitment can be opened
        return None
    if certificate.result != "PASS":
        return "the certificate's own result is no PASS"
    query = (
        select(RequestEvent)
        .where(
            RequestEvent.request_id == request.id, col(RequestEvent.log_index) < row.log_index
        )
        .order_by(col(RequestEvent.log_index))
    )
    events = [Event(one.log_index, one.event, one.payload) for one in session.exec(query)]
    claim = certificate.guarantee.class_
    return (
        contradiction(events, certificate.retained_set.removal_proof, claim)
        or escalation_problem(events, certificate.method.id, certificate.method.parameters)
        or scores_problem(events, claim, certificate.evidence)
    )


def _issuer_in(leaf: bytes) -> EllipticCurvePublicKey | None:
    """Return the issuer's key in a hashedrekord leaf, None for any other leaf."""
    try:
        signature = canonical.decode(leaf)["spec"]["hashedRekordV002"]["signature"]
        spki = parse_base64(signature["verifier"]["publicKey"]["rawBytes"])
        key = load_der_public_key(spki)
    except (
        canonical.NotCanonicalError,
        LookupError,
        TypeError,
        ValueError,
        UnsupportedAlgorithm,
    ):
        return None
    return key if isinstance(key, EllipticCurvePublicKey) else None


def _evidence_problem(
    session: Session, row: Certificate, certificate: Predicate, destroyed: Collection[str]
) -> str | None:
    """Return what is wrong with the rows beside a certificate, None if nothing is.

    Returns None if the request is gone. The end of retention destroys evidence, scores and the
    key of the request's events. destroyed: refs of requests whose evidence was destroyed early.
    """
    request = session.get(ErasureRequest, row.request_id)
    if request is None:
        return None
    ended = not request.event_key
    same = (row.id, row.result) == (certificate.certificate_id, certificate.result)
    if not same or not (ended or _has_logged_time(session, row)):
        return COLUMNS
    for part in () if ended or request.ref in destroyed else certificate.evidence:
        scores = part.name in (SCORES, ESCALATION_SCORES)
        if not is_stored(session, part.digest, "scores" if scores else "evidence"):
            return SCORED if scores else EVIDENCE
    return _verification_problem(session, request, certificate)


def _has_logged_time(session: Session, row: Certificate) -> bool:
    """Return whether a certificate's time and index are those of its logged event.

    `check_openings` reports events that are missing or differ from the log.
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
        # A model without any version is reported by `check_models`.
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
