"""A key's registrant and the people who confirmed its holder, by the log, not the key's row.

Each registration has its own ref in the log, which requests signed by the key name. The leaves
commit to events whose openings are in `key_events`: deleting an opening makes the registration
unknown.
"""

import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlmodel import Session, col, select

from app.ledger.journal import opening
from app.ledger.sequencer import Ledger
from app.reconcile.judgement import Event
from app.reconcile.model_events import key_events
from lethe import canonical
from lethe.log.entries import CommitmentError, EntryError, check_commitment
from models import KeyEvent, RequesterKey
from models.database.session import read_by_id

REGISTERED, CONFIRMED = "key.registered", "key.confirmed"


@dataclass(frozen=True, slots=True)
class KeyRegistration:
    """A registration of a key. by: the registrant. index: its log entry.

    binding: `client` or `subject`, as in `request.received`; None for an unbound key.
    confirmations: log index and name of each person who confirmed the key's holder.
    """

    index: int
    keyid: str
    binding: str | None
    by: str
    confirmations: tuple[tuple[int, str], ...]


def registrations(
    ledger: Ledger, session: Session, refs: Iterable[str]
) -> dict[str, KeyRegistration]:
    """Return registrations by ref, without those missing from the log or without openings.

    Raises ForkedError, LogDamagedError or GuardError: as `model_events`.
    """
    found = {}
    for ref, leaves in key_events(ledger, set(refs)).items():
        rows = {
            row.log_index: row
            for row in read_by_id(session, KeyEvent, [index for index, _ in leaves])
        }
        events = []
        for index, leaf in leaves:
            row = rows.get(index)
            if row is None or leaf.event is None or leaf.commitment is None:
                break
            try:
                said = opening(ref, leaf.event, row.at, row.payload)
                check_commitment(bytes(row.key), said, leaf.commitment)
            except (CommitmentError, EntryError):
                break
            events.append(Event(index, leaf.event, row.payload))
        else:
            if (made := _registration(events)) is not None:
                found[ref] = made
    return found


def stored_registrations(session: Session, refs: Iterable[str]) -> dict[str, KeyRegistration]:
    """Return registrations as stored, for fsck, which opens all of them."""
    found = {}
    for ref in set(refs):
        query = select(KeyEvent).where(KeyEvent.ref == ref).order_by(col(KeyEvent.log_index))
        events = [Event(one.log_index, one.event, one.payload) for one in session.exec(query)]
        if (made := _registration(events)) is not None:
            found[ref] = made
    return found


def binding_of(key: RequesterKey) -> str | None:
    """Return a key's binding as logged with requests: `client`, `subject`, None if unbound."""
    return "subject" if key.subject else "client" if key.client else None


def binding_digest(key: RequesterKey) -> str | None:
    """Return the logged digest of a key's client and subject, None without a salt."""
    if key.salt is None:
        return None
    said = canonical.encode([key.client, key.subject])
    return hmac.digest(key.salt.encode(), said, "sha256").hex()


def _registration(events: Sequence[Event]) -> KeyRegistration | None:
    if [one.event for one in events] != [REGISTERED, *[CONFIRMED] * (len(events) - 1)]:
        return None
    first, *rest = events
    said = first.payload
    return KeyRegistration(
        first.index,
        str(said.get("keyid")),
        said.get("binding"),
        str(said.get("by")),
        tuple((one.index, str(one.payload.get("by"))) for one in rest),
    )
