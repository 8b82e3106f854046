"""The status of a request in OpenDSR's terms, for answers and callbacks."""

from collections.abc import Sequence
from datetime import datetime

from app.protocols.cases import is_left_at_source, is_waiting, outcomes
from app.schemas.base import format_time
from app.schemas.people import CaseView

FINAL = ("completed", "cancelled")


def status_of(views: Sequence[CaseView]) -> str:
    """Return a request's status (section 8).

    Refused is cancelled, as are rows that only their source can delete: no other term fits.
    """
    found = outcomes(views)
    if found & {"in progress", "failed"}:  # an operator still has to decide on failed requests
        return "pending" if is_waiting(views) and "failed" not in found else "in_progress"
    if found & {"refused", "withdrawn"} or is_left_at_source(views):
        return "cancelled"
    return "completed"


def due_of(views: Sequence[CaseView]) -> datetime:
    """Return the latest deadline of the cases."""
    return max(view.due_at for view in views)


def times_of(views: Sequence[CaseView]) -> dict[str, str]:
    """Return when a request was received, and when it is expected to be completed."""
    return {
        "expected_completion_time": format_time(due_of(views)),
        "received_time": format_time(min(view.received_at for view in views)),
    }
