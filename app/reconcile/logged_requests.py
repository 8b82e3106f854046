"""What the log says of requests whose retention the tables have as ended.

Anyone with write access to the database can give an open request the state and the times of one
that ended long ago, or the model of another. So before anything of it is destroyed, its entries
are proven to be in the signed tree, opened, and compared with its row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlmodel import Session, col, select

from app.ledger.sequencer import Ledger
from app.reconcile.approval import ON_BEHALF
from app.reconcile.case_parts import Part
from app.reconcile.judgement import CERTIFIED, RECEIVED, VERIFIED, deadline, opened
from app.reconcile.model_events import proven_leaves
from app.vault.master import RootSecret
from app.vault.request_ref import request_ref
from lethe.certificates.evidence import SCORES
from lethe.log.entries import ERASURE_EVENT, CommitmentError, EntryError, Leaf
from models import Case, ErasureRequest, RequestEvent
from models.database.session import rows_in

# What begins a request's retention. A failed request waits until it is refused
# (`app.purge.undecided`): somebody must still act on it.
ENDS = (CERTIFIED, "request.refused", "request.withdrawn")


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """A request by its opened entries.

    model: its model's reference; case: that of its case, if it has one; due: its last deadline;
    ended: the time of its last event, None while it is open; evidence: hex SHA-256 of the last
    judgement's evidence; scores: that of each judgement's scores; events: log index and name of
    each.
    """

    model: str
    case: str | None
    due: datetime
    ended: datetime | None
    evidence: str | None
    scores: tuple[str, ...]
    events: tuple[tuple[int, str], ...]


def logged_requests(
    ledger: Ledger,
    root_secret: RootSecret,
    session: Session,
    requests: Sequence[ErasureRequest],
) -> dict[str, LoggedRequest]:
    """Return by id what the log says of requests; one whose rows differ from it is left out.

    So is one whose retention has ended: its entries cannot be opened any more. Raises
    GuardError or LogDamagedError: as `proven_leaves`.
    """
    rows: dict[str, list[RequestEvent]] = {}
    query = select(RequestEvent).order_by(col(RequestEvent.log_index))
    opening = [one.id for one in requests if one.event_key]
    for row in rows_in(session, query, col(RequestEvent.request_id), opening):
        rows.setdefault(row.request_id, []).append(row)
    leaves = proven_leaves(ledger, (row.log_index for own in rows.values() for row in own))
    found = {}
    for request in requests:
        own = rows.get(request.id, [])
        if request.ref == request_ref(root_secret, request.id) and own:
            said = _read(session, request, own, leaves)
            if said is not None:
                found[request.id] = said
    return found


def own_requests(
    ledger: Ledger, root_secret: RootSecret, session: Session, case: Case, parts: Sequence[Part]
) -> list[tuple[ErasureRequest, LoggedRequest]] | None:
    """Return a case's requests as `part_requests`, without those of others."""
    found = part_requests(ledger, root_secret, session, parts)
    return None if found is None else [one for one in found if one[1].case == case.ref]


def part_requests(
    ledger: Ledger, root_secret: RootSecret, session: Session, parts: Sequence[Part]
) -> list[tuple[ErasureRequest, LoggedRequest]] | None:
    """Return the requests of parts whose retention has not ended, None if any differs.

    parts: by the log. One may name another's request, which erases, or erased, the same
    records. Raises as `logged_requests`.
    """
    found = [session.get(ErasureRequest, one.request) for one in parts if one.request]
    kept = [one for one in found if one is not None and one.event_key]
    logged = logged_requests(ledger, root_secret, session, kept)
    if None in found or len(logged) < len(kept):
        return None
    return [(one, logged[one.id]) for one in kept]


def _read(
    session: Session,
    request: ErasureRequest,
    rows: Sequence[RequestEvent],
    leaves: dict[int, Leaf],
) -> LoggedRequest | None:
    of_request = (ERASURE_EVENT, request.ref)
    own = [(row.log_index, leaves.get(row.log_index)) for row in rows]
    signed = [
        (index, leaf)
        for index, leaf in own
        if leaf is not None and (leaf.kind, leaf.ref) == of_request
    ]
    if len(signed) < len(rows):
        return None
    try:
        events = opened(session, request, signed)
    except (CommitmentError, EntryError):
        return None
    received = events[0]
    if received.event != RECEIVED or received.index != request.log_index:
        return None
    if request.received_at != rows[0].at:
        return None
    last = {one.event: one.payload for one in events}
    return LoggedRequest(
        model=str(received.payload["model"]),
        case=last.get(ON_BEHALF, {}).get("case"),
        due=datetime.fromisoformat(deadline(events)),
        ended=rows[-1].at if any(one.event in ENDS for one in events) else None,
        evidence=last.get(VERIFIED, {}).get("evidence"),
        scores=tuple(str(one.payload[SCORES]) for one in events if SCORES in one.payload),
        events=tuple((one.index, one.event) for one in events),
    )
