"""Legal holds: which stand by the log, and what of the tables they keep.

Whoever writes the database can delete a hold, or say that it was released. So a hold ends only
with the log's entry of its release, and where the log has a hold that no row opens, nothing is
destroyed at all: nobody could say what it keeps.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, false, or_
from sqlmodel import Session, col, select

from app.ledger.journal import opening
from app.ledger.sequencer import Ledger
from app.reconcile.model_events import hold_events
from lethe.errors import LetheError
from lethe.log.entries import CommitmentError, EntryError, Leaf, check_commitment
from models import Case, ErasureRequest, LegalHold, Model
from models.database.session import chunks

PLACED, RELEASED = "hold.placed", "hold.released"
CASE, REQUEST, MODEL = "case", "request", "model"
LOST = "the log has a legal hold that the database lacks: restore legal_holds from a backup"
OTHERWISE = "legal_holds has a hold otherwise than the log: restore it from a backup"
UNLOGGED = "legal_holds says of a hold what the log does not: restore it from a backup"


class HoldsChangedError(LetheError):
    """Table and log disagree on legal holds: nothing is destroyed that one could keep."""

    slug, title, status = "holds-changed", "The database and the log disagree on holds", 503


@dataclass(frozen=True, slots=True)
class Held:
    """What legal holds keep. requests: by ref; parts: ids of requests of held cases."""

    models: frozenset[int] = frozenset()
    cases: frozenset[str] = frozenset()
    requests: frozenset[str] = frozenset()
    parts: frozenset[str] = frozenset()

    def request(self) -> ColumnElement[bool]:
        """Return the condition of requests that a hold of their own, case or model keeps."""
        kept: list[ColumnElement[bool]] = [
            column.in_(named)
            for column, named in (
                (col(ErasureRequest.ref), self.requests),
                (col(ErasureRequest.id), self.parts),
                (col(ErasureRequest.model_id), self.models),
            )
            if named  # what names nothing would still be asked of each row
        ]
        if self.cases:
            # NULL of a request without a case: its negation would be NULL too.
            case = col(ErasureRequest.case_ref)
            kept.append(case.is_not(None) & case.in_(self.cases))
        return or_(false(), *kept)

    def case(self) -> ColumnElement[bool]:
        """Return the condition of cases that a hold of their own or of a request keeps."""
        # For each case that is asked about: a held model may have a hundred thousand requests.
        own = select(ErasureRequest.id).where(
            ErasureRequest.case_ref == Case.ref, self.request()
        )
        return or_(col(Case.ref).in_(self.cases), own.correlate(Case).exists())


NOTHING = Held()


def held(ledger: Ledger, session: Session) -> Held:
    """Return what the holds keep that stand by the signed log, and those not signed yet.

    Raises:
        HoldsChangedError: The table lacks a hold of the log, or has it otherwise.
        ForkedError, LogDamagedError, GuardError: As `model_events`.
    """
    logged = hold_events(ledger)
    standing, problems = compare(_rows(session), logged)
    for _, problem in problems:
        if problem != UNLOGGED:
            raise HoldsChangedError(problem)
    return kept_by(session, standing)


def kept_by(session: Session, holds: Iterable[LegalHold]) -> Held:
    """Return what some holds keep."""
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
    )


def among(session: Session, found: Held, refs: Sequence[str]) -> set[str]:
    """Return which of some requests and cases, by their refs, are kept."""
    kept = set[str]()
    if found == NOTHING:
        return kept
    for chunk in chunks(refs):
        requests = select(ErasureRequest.ref).where(
            col(ErasureRequest.ref).in_(chunk), found.request()
        )
        cases = select(Case.ref).where(col(Case.ref).in_(chunk), found.case())
        kept |= {*session.exec(requests), *session.exec(cases)}
    return kept


def stored(session: Session) -> list[LegalHold]:
    """Return the holds that the table has as standing: for people, who destroy nothing."""
    query = select(LegalHold).where(col(LegalHold.released_at).is_(None))
    return list(session.exec(query.order_by(col(LegalHold.log_index))))


def compare(
    rows: Mapping[str, LegalHold], logged: Mapping[str, Sequence[tuple[int, Leaf]]]
) -> tuple[list[LegalHold], list[tuple[int, str]]]:
    """Return the holds that stand, and what is wrong, each with a log index.

    A hold stands until the log has its release. One that the log does not have yet stands too.
    """
    standing, problems = [], []
    for ref, leaves in logged.items():
        row, (placed, leaf) = rows.get(ref), leaves[0]
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
    """Return the payload that the entry of an event of a hold commits to."""
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


def _rows(session: Session) -> dict[str, LegalHold]:
    return {row.id: row for row in session.exec(select(LegalHold))}
