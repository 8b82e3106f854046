"""Alarms about stored keys, tokens, webhooks and log entries that fail authentication."""

from sqlmodel import Session

from app.ledger.guard import GuardError
from app.notices import endpoints, outbox
from app.notices.writing import put, write
from app.reconcile.findings import FsckReport
from app.reconcile.fsck.keys import check_keys
from app.service.context import Services

# `log-entry-N`, an entry without a MAC, is found by the outbox itself.
ROWS = {"key": "requester-keys-row", "token": "bearer-tokens-row", "webhook": "webhooks-row"}
GUARD = "log-not-signed"


def look(services: Services) -> None:
    """Compare keys, tokens and webhooks with their MACs, and the log with its guard.

    Each finding is reported once a day.
    """
    found = _found(services)
    if not found:
        return

    def effect(session: Session) -> None:
        hooks = endpoints.enabled(services)
        for alarm in sorted(found):
            put(services, session, outbox.alarms(services, hooks, alarm, session))

    write(services, effect)


def _found(services: Services) -> set[str]:
    report = FsckReport()
    with services.reading() as session:
        check_keys(session, report)
    found = {ROWS[one.check] for one in report.findings}
    try:
        services.ledger.publish_checkpoint()
    except GuardError:
        found.add(GUARD)
    return found
