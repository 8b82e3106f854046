"""What the log must say of a request before it is executed, for the worker and for fsck."""

from collections.abc import Sequence

from app.reconcile.judgement import RECEIVED, Event

APPROVED, REFUSED, PAUSE = "request.approved", "request.refused", "request.paused"
RESUMED, HELD_BACK = "request.resumed", "request.awaiting-review"
ON_BEHALF = "request.on-behalf"
_SUBMITTERS = ((RECEIVED, "keyid"), (ON_BEHALF, "by"), (ON_BEHALF, "issued_by"))
_DECISIONS = (APPROVED, REFUSED, PAUSE, RESUMED, HELD_BACK)


FROM_OIDC = "sso:"  # before the name of a person whom the OpenID Connect provider named


def last_decision(events: Sequence[Event]) -> Event | None:
    """Return the newest decision of an officer that says whether a request is executed."""
    return next((one for one in reversed(events) if one.event in _DECISIONS), None)


def permission(events: Sequence[Event], model: str, decide: str) -> Event | None:
    """Return the event from which on a request may be executed after its cooling-off time.

    None where an officer has to approve it first, or it is not of this model.

    Args:
        events: All of the request so far, in their order.
        model: Reference of the model.
        decide: `review` or `at-once`, as the model was registered.
    """
    if not events or events[0].event != RECEIVED or events[0].payload.get("model") != model:
        return None
    if (last := last_decision(events)) is not None:
        return last if last.event == APPROVED else None
    received = events[0]
    free = decide == "at-once" or received.payload.get("binding") is not None
    return received if free else None


def submitters(events: Sequence[Event]) -> set[str]:
    """Return who submitted a request by the log: keys, tokens and people, as `person`."""
    named = (
        one.payload.get(field)
        for one in events
        for event, field in _SUBMITTERS
        if one.event == event
    )
    return {person(str(name)) for name in named if name is not None}


def person(name: str) -> str:
    """Return whom a name stands for: case never counts, nor by which way they signed in."""
    return name.casefold().removeprefix(FROM_OIDC)
