"""Legal holds in force by the log, and the rows that they protect.

Anyone with write access to the database could delete a hold or mark it as released. So a hold
ends only with its logged release. If the log has a hold that no row opens, or whose target no
row has, nothing at all is destroyed, since what the hold protects is unknown.

The conditions for queries use columns that such a writer can change too. What destroys a
request therefore also calls `Held.keeps`, with the model and case of its log entries.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, false, or_
from sqlmodel import Session, col, select

from app.ledger.journal import opening
from app.ledger.sequencer import Ledger
from app.reconcile.case_parts import logged_parts
from app.reconcile.model_events import hold_events
from app.reconcile.retention import ended_refs
from lethe.errors import LetheError
from lethe.log.entries import CommitmentError, EntryError, Leaf, check_commitment
from models import Case, ErasureRequest, LegalHold, Model
from models.database.session import rows_in

PLACED, RELEASED = "hold.placed", "hold.released"
CASE, REQUEST, MODEL = "case", "request", "model"
ENDED = "hold"  # the kind of `lethe.catalogue.RETAINED`
LOST = "the log has a legal hold that the database lacks: restore legal_holds from a backup"
OTHERWISE = "legal_holds has a hold otherwise than the log: restore it from a backup"
UNTARGETED = (
    "a legal hold keeps a case, request or model that the database lacks under this reference, "
    "or has otherwise than the log: restore cases, erasure_requests or models from a backup"
)
UNLOGGED = "legal_holds says of a hold what the log does not: restore it from a backup"


class HoldsChangedError(LetheError):
    """Table and log disagree on legal holds; nothing that a hold could protect is destroyed."""

    slug, title, status = "holds-changed", "The database and the log disagree on holds", 503


@dataclass(frozen=True, slots=True)
class Held:
    """What legal holds protect.

    requests, model_refs: by ref; models: ids of the rows that have these refs now; parts: ids
    of the held cases' requests.
    """

    models: frozenset[int] = frozenset()
    cases: frozenset[str] = frozenset()
    requests: frozenset[str] = frozenset()
    parts: frozenset[str] = frozenset()
    model_refs: frozenset[str] = frozenset()

    def keeps(self, request: ErasureRequest, model: str, case: str | None) -> bool:
        """Return whether a request is held. model, case: references, by its log entries."""
        return (
            request.ref in self.requests
            or request.id in self.parts
            or model in self.model_refs
            or case in self.cases
        )

    def request(self) -> ColumnElement[bool]:
        """Return the condition for requests held directly or through their case or model."""
        kept: list[ColumnElement[bool]] = [
            column.in_(named)
            for column, named in (
                (col(ErasureRequest.ref), self.requests),
                (col(ErasureRequest.id), self.parts),
                (col(ErasureRequest.model_id), self.models),
            )
            if named  # an empty condition would still be evaluated for each row
        ]
        if self.cases:
            # NULL for a request without a case: the negation would be NULL too.
            case = col(ErasureRequest.case_ref)
            kept.append(case.is_not(None) & case.in_(self.cases))
        return or_(false(), *kept)

    def case(self) -> ColumnElement[bool]:
        """Return the condition for cases held directly or through a request."""
        # A correlated subquery per case: a held model may have a hundred thousand requests.
        own = select(ErasureRequest.id).where(
            ErasureRequest.case_ref == Case.ref, self.request()
        )
        return or_(col(Case.ref).in_(self.cases), own.correlate(Case).exists())


NOTHING = Held()


def held(ledger: Ledger, session: Session) -> Held:
    """Return what is protected by the holds in force, including holds not signed yet.

    Raises:
        HoldsChangedError: The table lacks a logged hold, or differs from the log; or what a
            logged hold keeps has no row, or is a case that differs from the log.
        ForkedError, LogDamagedError, GuardError: As `model_events`.
    """
    logged = hold_events(ledger)
    rows = {row.id: row for row in session.exec(select(LegalHold))}
    standing, problems = compare(rows, logged, ended_refs(session, ENDED))
    for _, problem in problems:
        if problem != UNLOGGED:
            raise HoldsChangedError(problem)
    for hold in standing:
        # A row that no entry has keeps what it names, and must not stop everything else.
        if hold.id in logged and not _is_as_placed(ledger, session, hold):
            raise HoldsChangedError(UNTARGETED)
    return kept_by(session, standing)


def _is_as_placed(ledger: Ledger, session: Session, hold: LegalHold) -> bool:
    if hold.kind != CASE:
        return has_target(session, hold)
    case = session.get(Case, hold.target)
    # The parts name the requests of a held case.
    return case is not None and logged_parts(ledger, case) is not None


def has_target(session: Session, hold: LegalHold) -> bool:
    """Return whether a row has the reference of what a hold keeps."""
    if hold.kind == CASE:
        return session.get(Case, hold.target) is not None
    of = ErasureRequest if hold.kind == REQUEST else Model
    return session.exec(select(of.id).where(of.ref == hold.target)).first() is not None


def kept_by(session: Session, holds: Iterable[LegalHold]) -> Held:
    """Return what some holds protect."""
    targets: dict[str, set[str]] = {CASE: set(), REQUEST: set(), MODEL: set()}
    for hold in holds:
        targets[hold.kind].add(hold.target)
    models = select(Model.id).where(col(Model.ref).in_(targets[MODEL]))
    parts = set[str]()
    for ref in targets[CASE]:
        if (case := session.get(Case, ref)) is not None:
            parts |= {part["request"] for part in case.parts if part["request"] is not None}
    return Held(
        frozenset(one for one in session.exec(models) if one is not None),
        frozenset(targets[CASE]),
        frozenset(targets[REQUEST]),
        frozenset(parts),
        frozenset(targets[MODEL]),
    )


def among(session: Session, found: Held, refs: Sequence[str]) -> set[str]:
    """Return the refs of those requests and cases that are held."""
    if found == NOTHING:
        return set()
    requests = select(ErasureRequest.ref).where(found.request())
    cases = select(Case.ref).where(found.case())
    return {
        *rows_in(session, requests, col(ErasureRequest.ref), refs),
        *rows_in(session, cases, col(Case.ref), refs),
    }


def stored(session: Session) -> list[LegalHold]:
    """Return the holds in force by the table: for display only, never to destroy anything."""
    query = select(LegalHold).where(col(LegalHold.released_at).is_(None))
    return list(session.exec(query.order_by(col(LegalHold.log_index))))


def is_released(hold: LegalHold, leaves: Sequence[tuple[int, Leaf]], before: datetime) -> bool:
    """Return whether a hold is as logged, and by the log was released before a time."""
    standing, problems = compare({hold.id: hold}, {hold.id: leaves} if leaves else {})
    if standing or problems or hold.released_at is None:
        return False
    return hold.released_at < before


def compare(
    rows: Mapping[str, LegalHold],
    logged: Mapping[str, Sequence[tuple[int, Leaf]]],
    ended: Collection[str] = (),
) -> tuple[list[LegalHold], list[tuple[int, str]]]:
    """Return the holds in force, and the problems, each with a log index.

    A hold is in force until the log has its release, even if the log does not have it yet.
    ended: ids of the holds whose retention is listed as ended; a released one needs no row.
    """
    standing, problems = [], []
    for ref, leaves in logged.items():
        row, (placed, leaf) = rows.get(ref), leaves[0]
        if row is None and ref in ended and any(one.event == RELEASED for _, one in leaves):
            continue
        if row is None:
            problems.append((placed, LOST))
            continue
        if leaf.event != PLACED or not _opens(row, leaf):
            problems.append((placed, OTHERWISE))
            continue
        releases = [one for one in leaves[1:] if one[1].event == RELEASED]
        if not releases:
            standing.append(row)
            if row.released_at is not None:
                problems.append((placed, UNLOGGED))
        elif not _opens(row, releases[0][1]):
            problems.append((releases[0][0], OTHERWISE))
    for ref, row in rows.items():
        if ref not in logged:
            standing.append(row)
            problems.append((row.log_index, UNLOGGED))
    return standing, problems


def said(hold: LegalHold, event: str) -> dict[str, Any]:
    """Return the payload that the log entry of a hold's event commits to."""
    if event == RELEASED:
        return {"by": hold.released_by}
    return {
        "of": hold.kind,
        "target": hold.target,
        "reason": hold.reason,
        "by": hold.placed_by,
    }


def _opens(hold: LegalHold, leaf: Leaf) -> bool:
    at = hold.placed_at if leaf.event == PLACED else hold.released_at
    if at is None or leaf.commitment is None or leaf.event is None:
        return False
    try:
        document = opening(hold.id, leaf.event, at, said(hold, leaf.event))
        check_commitment(bytes(hold.key), document, leaf.commitment)
    except (CommitmentError, EntryError):
        return False
    return True
