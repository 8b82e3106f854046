"""What officers do, and what ends by itself: decisions, cases, legal holds, retention."""

from collections.abc import Sequence
from typing import Any

from sqlmodel import Session, select

from app.purge import retention
from benchmarks.faults.clients import answered, submitted
from benchmarks.faults.workload import StuckError, Told, tried, work
from lethe.identity import digests
from models import Case, ErasureRequest, LegalHold
from tests.installation import Installation, make_token
from tests.small import MODEL, Caller

RECORDS = ("r1", "r2")
REASON = "a court asked for it"
PERSON = {
    "kind": "email",
    "sha256": digests("email", "ann@example.org")["sha256"].hex(),
}
REVIEWED = "reviewed"  # a model whose requests an officer approves
DUE: dict[str, Any] = {"request_retention_days": 0, "evidence_retention_days": 0}


def reviewed(made: Installation) -> None:
    """Register a model whose requests an officer approves."""
    assert made.caller.register_model(ref=REVIEWED, decide="review").status_code == 201
    made.drain()


def decide(made: Installation, told: Told) -> None:
    """Submit a request, and have an officer approve it."""
    request_id = submitted(made, told, RECORDS, REVIEWED)
    with made.services.reading() as session:
        ref = session.get_one(ErasureRequest, request_id).ref
    path = f"/v1/cases/{ref}/approve"
    # Nothing is left to decide if it was approved before the fault.
    answered(lambda: _officer(made).operator("POST", path), 200, 409)
    told("approved", ref)


def case(made: Installation, told: Told) -> None:
    """Open a case for a person, wait for its certificate, read the address and close it."""
    if not _cases(made):
        name(made)
        wanted = {"person": PERSON, "ticket": "T-1", "contact": "Ann, 1 High Street"}
        answered(lambda: _officer(made).operator("POST", "/v1/cases", json=wanted), 201)
    work(made, is_answered)
    for ref in _cases(made):
        told("case", ref)
        _close(made, told, ref)


def _close(made: Installation, told: Told, ref: str) -> None:
    path = f"/v1/cases/{ref}"
    # There is no address left if the case was closed before the fault.
    answered(lambda: _officer(made).operator("POST", f"{path}/contact"), 200, 404, 409)
    answered(lambda: _officer(made).operator("POST", f"{path}/close"), 200)
    told("closed", ref)


def name(made: Installation) -> None:
    """Say whose the records are."""
    named = [{"record": record, "person": PERSON} for record in RECORDS]
    wanted = {"model": MODEL, "identities": named}
    answered(lambda: made.caller.operator("POST", "/v1/people/import", json=wanted), 200)


def is_answered(session: Session) -> bool:
    """Return whether the only request is certified."""
    return session.exec(select(ErasureRequest.state)).all() == ["certified"]


def are_closed(session: Session) -> bool:
    """Return whether all cases are closed, and the request is certified."""
    closed = session.exec(select(Case.closed_at)).all()
    return None not in closed and is_answered(session)


def _cases(made: Installation) -> Sequence[str]:
    with made.services.reading() as session:
        return session.exec(select(Case.ref)).all()


def hold(made: Installation, told: Told) -> None:
    """Place a hold on the model, and have a second person release it."""
    body = {"ref": MODEL, "reason": REASON}
    # A hold that was placed before the fault is not placed again.
    held = _held(made)
    if held is None:
        answered(lambda: made.caller.operator("POST", "/v1/holds", json=body), 201, 409)
        held = _held(made)
    if held is None:
        raise StuckError("the hold that was placed is not there")
    released = f"/v1/holds/{held}/release"
    answered(lambda: _officer(made).operator("POST", released), 200, 409)
    told("released", held)


def erased(made: Installation) -> None:
    """Have a request certified, whose retention is over at once."""
    made.caller.erase_records(*RECORDS)
    made.drain()


def retain(made: Installation, told: Told) -> None:
    """Run retention, as its schedule does."""
    done = tried(lambda: retention.run(made.services))
    told("retained", done.log_index)


def has_ended(session: Session) -> bool:
    """Whether the retention of every request has ended."""
    return None not in session.exec(select(ErasureRequest.forgotten_at)).all()


def _held(made: Installation) -> str | None:
    with made.services.reading() as session:
        return session.exec(select(LegalHold.id)).first()


def _officer(made: Installation) -> Caller:
    return Caller(made.caller.http, make_token(made.services, "officer"))
