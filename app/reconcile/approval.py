"""The logged permission that a request needs before execution, for the worker and fsck."""

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from app.reconcile.judgement import RECEIVED, Event
from app.reconcile.registrations import KeyRegistration
from lethe.ids import UNSEEN

APPROVED, REFUSED, PAUSE = "request.approved", "request.refused", "request.paused"
RESUMED, HELD_BACK = "request.resumed", "request.awaiting-review"
ON_BEHALF = "request.on-behalf"
_SUBMITTERS = ((RECEIVED, "keyid"), (ON_BEHALF, "by"), (ON_BEHALF, "issued_by"))
_IMPORTERS = "imported_by"  # field of ON_BEHALF: a list, as a person may have many identities
# Field of ON_BEHALF: what it says, of each other case that more records of the request are for.
SHARED_WITH = "shared_with"
_DECISIONS = (APPROVED, REFUSED, PAUSE, RESUMED, HELD_BACK)


FROM_OIDC = "sso:"  # prefix of names that come from the OpenID Connect provider
PAIRED = "drp:"  # prefix of the names of paired agents: their scope is `drp`


def last_decision(events: Sequence[Event]) -> Event | None:
    """Return an officer's newest decision on whether a request is executed."""
    return next((one for one in reversed(events) if one.event in _DECISIONS), None)


def permission(
    events: Sequence[Event], model: str, decide: str, registered: Mapping[str, KeyRegistration]
) -> Event | None:
    """Return the event that permits a request's execution and starts its cooling-off time.

    None if an officer must approve the request first, or if it is for another model. An
    approval by one of the request's submitters does not count.

    Args:
        events: All events of the request so far, in order.
        model: Reference of the model.
        decide: `review` or `at-once`, as the model was registered.
        registered: Those registrations of `keys_named` that the log has.
    """
    if not events or events[0].event != RECEIVED or events[0].payload.get("model") != model:
        return None
    if (last := last_decision(events)) is not None:
        return last if last.event == APPROVED and _is_others(last, events, registered) else None
    received = events[0]
    return received if decide == "at-once" or _is_own_data(received, registered) else None


def keys_named(events: Iterable[Event]) -> set[str]:
    """Return the refs of the key registrations that requests' events name."""
    named = {one.payload.get("registration") for one in _each(events) if one.event in _WITH_KEY}
    return {str(ref) for ref in named if ref is not None}


def submitters(
    events: Sequence[Event], registered: Mapping[str, KeyRegistration]
) -> set[str] | None:
    """Return a request's submitters by the log: keys, tokens and people, as `person`.

    Submitters include the person who registered the signing key, the issuer of the intake code,
    and the importer of the identity by which the person was found; if cases share the request,
    those of each case. None if the log lacks the key's registration: then nobody may approve
    the request.
    """
    said = list(_each(events))
    names = {
        person(str(one.payload[field]))
        for one in said
        for event, field in _SUBMITTERS
        if one.event == event and one.payload.get(field) is not None
    }
    for one in said:
        if one.event == ON_BEHALF:
            names |= {person(str(name)) for name in one.payload.get(_IMPORTERS) or ()}
        if (keyid := _signer(one)) is None:
            continue
        found = _registration(one, keyid, registered)
        if found is None:
            return None
        names.add(person(found.by))
    return names


def _each(events: Iterable[Event]) -> Iterator[Event]:
    """Yield events, and an ON_BEHALF for each other case that shares the request."""
    for one in events:
        yield one
        if one.event == ON_BEHALF:
            for other in one.payload.get(SHARED_WITH) or ():
                yield replace(one, payload=other)


def person(name: str) -> str:
    """Return the person behind a name, ignoring case, spelling and the way of signing in."""
    return folded(name).removeprefix(FROM_OIDC).strip()


def folded(name: str) -> str:
    """Return a name in the form in which names are compared.

    Compatibility caseless matching (Unicode, D146): NFC or NFD, wide or narrow letters do not
    matter, nor do characters that nobody sees and white space at the ends. Letters that look
    alike in two scripts stay two names.
    """
    seen = UNSEEN.sub("", name).strip()
    once = unicodedata.normalize("NFKD", unicodedata.normalize("NFD", seen).casefold())
    return unicodedata.normalize("NFKD", once.casefold())


def is_confirmed(found: KeyRegistration, before: int) -> bool:
    """Return whether a second person confirmed the key's holder before a log index."""
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
    """Return whether the signing key is bound to the data and a second person confirmed it."""
    binding, keyid = received.payload.get("binding"), received.payload.get("keyid")
    if binding is None or keyid is None:
        return False
    found = _registration(received, str(keyid), registered)
    return (
        found is not None and found.binding == binding and is_confirmed(found, received.index)
    )


def _signer(event: Event) -> str | None:
    """Return the id of the key that submitted a request, None if none was used."""
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
    """Return the registration that an event names, if it is earlier and of this key."""
    found = registered.get(str(event.payload.get("registration")))
    if found is None or found.keyid != keyid or found.index >= event.index:
        return None
    return found
