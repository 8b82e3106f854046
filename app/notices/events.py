"""The events that are notified, and the log entries that each notice is built from."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from lethe.catalogue import NOTICES

CERTIFIED, DECIDED, OVERDUE = "request.certified", "request.decided", "request.overdue"
VERSION, ALARM, TEST = "version.ready", "key.alarm", "webhook.test"

OF_LOG: Final[Mapping[str, str]] = MappingProxyType(
    {
        "request.received": "request.received",
        "request.on-behalf": "request.confirmed",
        "request.approved": DECIDED,
        "request.refused": DECIDED,
        "request.decided": DECIDED,
        "request.extended": "request.extended",
        "request.certified": CERTIFIED,
        "request.withdrawn": "request.withdrawn",
        "request.failed": "request.failed",
        "model.version": VERSION,
    }
)
assert set(OF_LOG.values()) | {OVERDUE, ALARM} == set(NOTICES)

# Callbacks: of requests, and of the protocols, which have their own words for a state.
STATE, STATUS = "request.state", "status.changed"
STATES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "request.awaiting-review": "awaiting-review",
        "request.approved": "approved",
        "request.paused": "paused",
        "request.resumed": "awaiting-review",
        "request.executing": "executing",
        "request.awaiting": "awaiting-client",
        "request.awaiting-round": "awaiting-round",
        "request.executed": "verifying",
        "request.escalated": "escalated",
        "request.needs-decision": "needs-decision",
        "request.certified": "certified",
        "request.refused": "refused",
        "request.withdrawn": "withdrawn",
        "request.failed": "failed",
    }
)
ENDS = ("certified", "refused", "withdrawn", "failed")

# Mail. The first three go to the person of a case.
RECEIVED_MAIL, EXTENDED_MAIL, ANSWERED_MAIL = "mail.received", "mail.extended", "mail.answered"
DIGEST_MAIL, ALARM_MAIL = "mail.digest", "mail.alarm"

WAITING, DELIVERED, FAILED, DROPPED = "waiting", "delivered", "failed", "dropped"
PERSON, OFFICER = "person", "officer-"
