"""fsck of executions: each that needed an officer's approval follows a logged approval.

This reads events as stored: `check_openings` compares each with its leaf.
"""

from datetime import timedelta

from sqlmodel import Session, col, select

from app.ledger.journal import registered_policy
from app.reconcile.approval import APPROVED, keys_named, permission, person, submitters
from app.reconcile.findings import FsckReport
from app.reconcile.fsck.models import registration
from app.reconcile.judgement import EXECUTED, RECEIVED, Event
from app.reconcile.registrations import stored_registrations
from models import ErasureRequest, Model, RequestEvent

CHECK = "approval"
FETCH = 500  # rows in memory at once
UNAPPROVED = "a request was executed that no officer had approved"
EARLY = "a request was executed before its cooling-off time was over"
OWN = "a request was approved by who submitted it"
UNKNOWN = "a request was approved although the log does not say who registered its key"


def check_approvals(session: Session, report: FsckReport, first: int) -> None:
    """Check each execution and each approval from the log index `first` on.

    The model comes from the receipt and its policy from the logged registration, since anyone
    with write access to the database could move a request to another model.
    """
    policies = _policies(session)
    held = any(policy != ("at-once", 0) for policy in policies.values())
    query = (
        select(RequestEvent, ErasureRequest)
        .join(ErasureRequest, col(ErasureRequest.id) == col(RequestEvent.request_id))
        .where(col(RequestEvent.event).in_((APPROVED, EXECUTED) if held else (APPROVED,)))
        .where(col(RequestEvent.log_index) >= first)
        .order_by(col(RequestEvent.log_index))
        .execution_options(yield_per=FETCH)
    )
    for event, request in session.exec(query):
        if not request.event_key:  # retention has ended: no commitment can be opened
            continue
        before = _before(session, event)
        if event.event == APPROVED:
            by = submitters(before, stored_registrations(session, keys_named(before)))
            if by is None:
                report.add(CHECK, UNKNOWN, event.log_index)
            elif person(str(event.payload.get("by"))) in by:
                report.add(CHECK, OWN, event.log_index)
        elif (problem := _problem(session, event, before, policies)) is not None:
            report.add(CHECK, problem, event.log_index)


def _policies(session: Session) -> dict[str, tuple[str, int]]:
    """Return each model's registered policy; `check_models` reports changed rows."""
    found = {}
    for model in session.exec(select(Model).order_by(col(Model.id))).all():
        logged = registration(session, model)
        policy = None
        if logged is not None and logged[1] is not None:
            policy = registered_policy(model, logged[1])
        if policy is not None:
            found[str(model.ref)] = policy
    return found


def _before(session: Session, event: RequestEvent) -> list[Event]:
    query = (
        select(RequestEvent)
        .where(RequestEvent.request_id == event.request_id)
        .where(col(RequestEvent.log_index) < event.log_index)
        .order_by(col(RequestEvent.log_index))
    )
    return [Event(one.log_index, one.event, one.payload) for one in session.exec(query)]


def _problem(
    session: Session,
    executed: RequestEvent,
    before: list[Event],
    policies: dict[str, tuple[str, int]],
) -> str | None:
    received = before[0].payload if before and before[0].event == RECEIVED else {}
    model = str(received.get("model"))
    if model not in policies:
        return None
    decide, cooling_off = policies[model]
    registered = stored_registrations(session, keys_named(before))
    permitted = permission(before, model, decide, registered)
    if permitted is None:
        return UNAPPROVED
    begun = session.get_one(RequestEvent, permitted.index).at
    return EARLY if executed.at < begun + timedelta(seconds=cooling_off) else None
