"""Who registered a key and who confirmed whose it is, by the log and not by the key's row.

Each registration has a ref of its own in the log, which requests name that the key signs. The
leaves commit to events whose openings are in `key_events`: whoever deletes an opening has a key
whose registration nobody knows.
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
    """A registration of a key. by: who made it. index: its log entry.

    binding: `client` or `subject`, as in `request.received`; None of an unbound key.
    confirmations: log index and name of each person who confirmed whose key it is.
    """

    index: int
    keyid: str
    binding: str | None
    by: str
    confirmations: tuple[tuple[int, str], ...]


def registrations(
    ledger: Ledger, session: Session, refs: Iterable[str]
) -> dict[str, KeyRegistration]:
    """Return registrations by their refs, without those that the log lacks or none opens.

    Raises:
        ForkedError, LogDamagedError, GuardError: As `model_events`.
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
    """Return registrations as they are stored: for fsck, which opens all of them."""
    found = {}
    for ref in set(refs):
        query = select(KeyEvent).where(KeyEvent.ref == ref).order_by(col(KeyEvent.log_index))
        events = [Event(one.log_index, one.event, one.payload) for one in session.exec(query)]
        if (made := _registration(events)) is not None:
            found[ref] = made
    return found


def binding_of(key: RequesterKey) -> str | None:
    """Return what a key is bound to, `client` or `subject`, as requests are logged with it."""
    return "subject" if key.subject else "client" if key.client else None


def binding_digest(key: RequesterKey) -> str | None:
    """Return the digest by which the log has client and subject of a key, None of neither."""
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
