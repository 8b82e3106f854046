"""Compares items that the tables have as due with the log, before they are destroyed.

Anyone with write access to the database can move an open request or case into the past, and
the end of its retention would be signed. So an item is destroyed only if its own log entries
say that it was due, and that no hold keeps it; any other is left, and reported.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any

from sqlmodel import Session, col, select

from app.reconcile.case_parts import contact_digest, logged_part, logged_parts
from app.reconcile.holds import Held, is_released
from app.reconcile.logged_requests import LoggedRequest, logged_requests, part_requests
from app.reconcile.model_events import hold_events, proven_leaves
from app.reconcile.retention import ended_refs
from app.reconcile.undecided import is_undecided
from app.service.context import Services
from lethe.certificates import shape
from lethe.certificates.bundle import Envelope
from lethe.certificates.evidence import SCORES
from lethe.certificates.statement import parse_statement
from lethe.errors import LetheError
from lethe.log.entries import HASHEDREKORD
from models import Artifact, Case, Certificate, ErasureRequest, Verification


def confirmed(
    services: Services,
    session: Session,
    kind: str,
    items: Sequence[Any],
    before: datetime,
    held: Held,
    *,
    planned: bool = False,
) -> list[Any]:
    """Return those of the due items of a kind that are due by the log too.

    A key's row has a MAC, and is not compared. planned: requests of a case that are still
    stored count as destroyed, because the same run destroys them. Raises as `model_events`.
    """
    if kind in ("contact", "case"):
        return [
            one
            for one in items
            if _is_due(services, session, one, before, held, kind=kind, planned=planned)
        ]
    if kind == "key":
        return list(items)
    if kind == "hold":
        events = hold_events(services.ledger)
        return [one for one in items if is_released(one, events.get(one.id, ()), before)]
    logged = logged_requests(services.ledger, services.root_secret, session, items)
    if kind == "undecided":
        return [
            one
            for one in items
            if is_undecided(services.ledger, session, one, logged.get(one.id), before, held)
        ]
    return [
        one
        for one in items
        if (
            _has_ended(one, logged.get(one.id), before, held)
            and (kind != "evidence" or _is_own(services, session, one, logged[one.id]))
        )
        or (kind == "evidence" and _was_put_back(services, session, one))
    ]


def _has_ended(
    request: ErasureRequest, said: LoggedRequest | None, before: datetime, held: Held
) -> bool:
    if said is None or said.ended is None or said.ended >= before:
        return False
    return not held.keeps(request, said.model, said.case)


def _is_own(
    services: Services, session: Session, request: ErasureRequest, said: LoggedRequest
) -> bool:
    """Return whether the files that the tables name are those of the request's judgements."""
    if _content_digest(services, session, _evidence(session, request)) != said.evidence:
        return False
    return scores_files(services, session, said.scores) is not None


def scores_files(
    services: Services, session: Session, digests: Iterable[str]
) -> list[str] | None:
    """Return the id of a file for each digest of scores, no file twice; None if one is missing.

    Another request may have the same scores in a file of its own.
    """
    found: list[str] = []
    for digest in digests:
        stored = select(Artifact.id).where(
            Artifact.kind == SCORES,
            Artifact.digest == digest,
            col(Artifact.wrapped_key).is_not(None),
            col(Artifact.id).not_in(found),
        )
        files = (
            one
            for one in session.exec(stored.order_by(Artifact.id))
            if _content_digest(services, session, one) == digest
        )
        if (file := next(files, None)) is None:
            return None
        found.append(file)
    return found


def _evidence(session: Session, request: ErasureRequest) -> str:
    return session.get_one(Verification, request.id).evidence_id


def _content_digest(services: Services, session: Session, artifact: str) -> str | None:
    """Return the SHA-256 of a file's content in hex, None if it cannot be opened.

    Whoever writes the tables can give any other file, also a held one, the id and the digest of
    one that is due: only the content counts.
    """
    try:
        return sha256(services.artifacts.get(session, artifact)).hexdigest()
    except LetheError:
        return None


def _was_put_back(services: Services, session: Session, request: ErasureRequest) -> bool:
    """Return whether it is the evidence of a request whose scope was destroyed.

    Nothing opens the entries of such a request, but its certificate, by the log, names its
    evidence.
    """
    if request.event_key or request.ref not in ended_refs(session, "scope"):
        return False
    query = select(Certificate).where(Certificate.request_id == request.id)
    if (row := session.exec(query).first()) is None:
        return False
    try:
        envelope = shape.read(Envelope, row.envelope)
        leaf = proven_leaves(services.ledger, [row.log_index]).get(row.log_index)
        signed = sha256(envelope.signed).hexdigest()
        if leaf is None or (leaf.kind, leaf.digests.get("sha256")) != (HASHEDREKORD, signed):
            return False
        certificate = parse_statement(envelope.payload).predicate
    except LetheError:
        return False
    if certificate.request_ref != request.ref:
        return False
    digest = _content_digest(services, session, _evidence(session, request))
    return digest == certificate.retained_set.removal_proof


def _is_due(
    services: Services,
    session: Session,
    case: Case,
    before: datetime,
    held: Held,
    *,
    kind: str,
    planned: bool,
) -> bool:
    """Return whether a case, or its contact address, is due by the log."""
    parts = logged_parts(services.ledger, case)
    if parts is None or case.key is None or case.ref in held.cases:
        return False
    if (case.due_at if kind == "contact" else case.received_at) >= before:
        return False
    if kind == "contact":
        contact = contact_digest(case.key, case.contact)
        if any(logged_part(services.ledger, one).get("contact") != contact for one in parts):
            return False
    named = part_requests(services.ledger, services.root_secret, session, parts)
    if named is None:
        return False
    own = [one for one in named if one[1].case == case.ref]
    followed = [said.ended for _, said in named if said.case != case.ref]
    if any(ended is None or ended >= before for ended in followed):
        return False
    if kind == "case" and own:
        return planned and all(_has_ended(one, said, before, held) for one, said in own)
    if any(said.ended is None or max(said.due, said.ended) >= before for _, said in own):
        return False
    return not any(held.keeps(one, said.model, said.case) for one, said in own)
