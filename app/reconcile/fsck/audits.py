"""fsck of the audits that a certificate counts: it counts them again from the log."""

from collections.abc import Iterator

from sqlmodel import Session, col, func, select

from app.reconcile.judgement import DECIDED, ESCALATED, RECEIVED, VERIFIED
from lethe.canonical import parse_decimal
from lethe.catalogue import METHODS
from lethe.certificates.audits.counts import (
    AUDIT,
    COUNT,
    DONE,
    ENDS,
    MISSING,
    NUMBER,
    SIZE,
    STARTED,
    count,
)
from lethe.certificates.statement import NAMED, Predicate
from lethe.log.entries import MODEL_EVENT, Leaf, parse_leaf
from models import ErasureRequest, LogEntry, RequestEvent

# Events that may name the method of the following executions.
NAMING = (RECEIVED, ESCALATED)
OLDER = "the certificate cites another audit than the newest of its method and code"
OTHERWISE = "the log has other audits of this method than the certificate says"


def citation_problem(session: Session, certified: int, certificate: Predicate) -> str | None:
    """Return what is wrong with the audits on a certificate of log index `certified`.

    The log size that it names must include the certified judgement: a smaller one would leave
    out audits before it. The method that made the model comes from the request's events; the
    certificate only copies it. Raises EntryError for an invalid leaf.
    """
    parameters = certificate.method.parameters
    try:
        size = (
            parse_decimal(parameters[SIZE], certified + 1) if COUNT in parameters else certified
        )
    except (KeyError, ValueError):
        return "the certificate counts audits in a log of no size"
    named = _named(session, certificate, certified)
    method = named.partition("(")[0]
    counts = count(_events(session, certificate.model.ref), method, size)
    cited = parameters.get(AUDIT)
    if cited is not None and cited not in counts.reports:
        return "the log has no start and report of the audit that the certificate cites"
    judged = _judged(session, certificate.request_ref, certified)
    if COUNT not in parameters:
        # Audits cover registered settings only: an attempt with its own settings has no audit
        # to cite.
        audited = cited is not None or named == method
        hidden = audited and any(one.index < judged for one in counts.audits)
        return "the certificate does not say how many audits were started" if hidden else None
    if size <= judged:
        return "the certificate counts audits in a log that ends before its judgement"
    newest = counts.newest(certificate.method.code_digest)
    wanted = None if newest is None else newest.report
    if cited != wanted and (cited is not None or MISSING not in parameters):
        return OLDER
    stated = {
        name: parameters[name] for name in (COUNT, DONE, NUMBER, SIZE) if name in parameters
    }
    return None if stated == counts.parameters(cited) else OTHERWISE


def _events(session: Session, ref: str) -> Iterator[tuple[int, Leaf]]:
    query = select(LogEntry.index, LogEntry.leaf).where(
        LogEntry.kind == MODEL_EVENT,
        LogEntry.ref == ref,
        col(LogEntry.event).in_((STARTED, *ENDS)),
    )
    for index, leaf in session.exec(query.order_by(col(LogEntry.index))):
        yield index, parse_leaf(leaf)


def _named(session: Session, certificate: Predicate, certified: int) -> str:
    """Return the method that made the model, with the attempt's own settings, if any.

    This reads events as stored: `check_openings` compares each with its leaf. If retention has
    ended there are none; then the certificate's settings count, if they match its method.
    """
    query = (
        select(RequestEvent.event, RequestEvent.payload)
        .join(ErasureRequest, col(ErasureRequest.id) == col(RequestEvent.request_id))
        .where(ErasureRequest.ref == certificate.request_ref)
        .where(col(RequestEvent.log_index) < certified)
        .order_by(col(RequestEvent.log_index))
    )
    own, stated = certificate.method.id, certificate.method.parameters.get(NAMED, "")
    named: str | None = None
    anew = False
    for event, payload in session.exec(query):
        if event in NAMING and "method" in payload:
            named, anew = str(payload["method"]), False
        anew = anew or (event == DECIDED and payload.get("decision") == "retry")
    if named is not None:
        # After a `retry` decision the model is retrained or made by the same method; the log
        # does not say which.
        retrained = anew and own in METHODS and METHODS[own].retrains
        return own if retrained else named
    return stated if stated.startswith(f"{own}(") and stated.endswith(")") else own


def _judged(session: Session, ref: str, certified: int) -> int:
    """Return the index of a request's last judgement before its certificate."""
    query = select(func.max(LogEntry.index)).where(
        LogEntry.ref == ref, LogEntry.event == VERIFIED, col(LogEntry.index) < certified
    )
    found = session.exec(query).one()
    return certified if found is None else found
