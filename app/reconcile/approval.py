"""What the log must say of a request before it is executed, for the worker and for fsck."""

from collections.abc import Iterable, Mapping, Sequence

from app.reconcile.judgement import RECEIVED, Event
from app.reconcile.registrations import KeyRegistration

APPROVED, REFUSED, PAUSE = "request.approved", "request.refused", "request.paused"
RESUMED, HELD_BACK = "request.resumed", "request.awaiting-review"
ON_BEHALF = "request.on-behalf"
_SUBMITTERS = ((RECEIVED, "keyid"), (ON_BEHALF, "by"), (ON_BEHALF, "issued_by"))
_IMPORTERS = "imported_by"  # of ON_BEHALF: a list, because a person may have several identities
_DECISIONS = (APPROVED, REFUSED, PAUSE, RESUMED, HELD_BACK)


FROM_OIDC = "sso:"  # before the name of a person whom the OpenID Connect provider named
PAIRED = "drp:"  # before the name of an agent that paired: its scope is `drp`


def last_decision(events: Sequence[Event]) -> Event | None:
    """Return the newest decision of an officer that says whether a request is executed."""
    return next((one for one in reversed(events) if one.event in _DECISIONS), None)


def permission(
    events: Sequence[Event],
    model: str,
    decide: str,
    registered: Mapping[str, KeyRegistration],
) -> Event | None:
    """Return the event from which on a request may be executed after its cooling-off time.

    None where an officer has to approve it first, or it is not of this model. An approval by
    somebody who submitted the request is none.

    Args:
        events: All of the request so far, in their order.
        model: Reference of the model.
        decide: `review` or `at-once`, as the model was registered.
        registered: The registrations of `keys_named`, as far as the log has them.
    """
    if not events or events[0].event != RECEIVED or events[0].payload.get("model") != model:
        return None
    if (last := last_decision(events)) is not None:
        return last if last.event == APPROVED and _is_others(last, events, registered) else None
    received = events[0]
    return received if decide == "at-once" or _is_own_data(received, registered) else None


def keys_named(events: Iterable[Event]) -> set[str]:
    """Return which registrations of keys the events of requests name, by their refs."""
    named = {one.payload.get("registration") for one in events if one.event in _WITH_KEY}
    return {str(ref) for ref in named if ref is not None}


def submitters(
    events: Sequence[Event], registered: Mapping[str, KeyRegistration]
) -> set[str] | None:
    """Return who submitted a request by the log: keys, tokens and people, as `person`.

    Who registered the key that signed it did, who issued the code that it was asked for with,
    and who imported the identity by which the person was found. None where the log does not say
    who registered the key: nobody may approve then.
    """
    names = {
        person(str(one.payload[field]))
        for one in events
        for event, field in _SUBMITTERS
        if one.event == event and one.payload.get(field) is not None
    }
    for one in events:
        if one.event == ON_BEHALF:
            names |= {person(str(name)) for name in one.payload.get(_IMPORTERS) or ()}
        if (keyid := _signer(one)) is None:
            continue
        found = _registration(one, keyid, registered)
        if found is None:
            return None
        names.add(person(found.by))
    return names


def person(name: str) -> str:
    """Return whom a name stands for: case never counts, nor by which way they signed in."""
    return name.casefold().removeprefix(FROM_OIDC)


def is_confirmed(found: KeyRegistration, before: int) -> bool:
    """Return whether a second person confirmed whose key it is, before a log index."""
    return any(
        index < before and person(by) != person(found.by) for index, by in found.confirmations
    )


_WITH_KEY = (RECEIVED, ON_BEHALF)


def _is_others(
    approved: Event, events: Sequence[Event], registered: Mapping[str, KeyRegistration]
) -> bool:
    by = submitters(events, registered)
    return by is not None and person(str(approved.payload.get("by"))) not in by


def _is_own_data(received: Event, registered: Mapping[str, KeyRegistration]) -> bool:
    """Return whether a key signed that is bound to the data, which two people vouch for."""
    binding, keyid = received.payload.get("binding"), received.payload.get("keyid")
    if binding is None or keyid is None:
        return False
    found = _registration(received, str(keyid), registered)
    return (
        found is not None and found.binding == binding and is_confirmed(found, received.index)
    )


def _signer(event: Event) -> str | None:
    """Return the id of the key with which somebody submitted, None where none was used."""
    if event.event == RECEIVED:
        keyid = event.payload.get("keyid")
        return None if keyid is None else str(keyid)
    by = str(event.payload.get("by"))
    if event.event == ON_BEHALF and by.startswith(PAIRED):
        return by.removeprefix(PAIRED)
    return None


def _registration(
    event: Event, keyid: str, registered: Mapping[str, KeyRegistration]
) -> KeyRegistration | None:
    """Return the registration that an event names, if it is of this key and was before."""
    found = registered.get(str(event.payload.get("registration")))
    if found is None or found.keyid != keyid or found.index >= event.index:
        return None
    return found
