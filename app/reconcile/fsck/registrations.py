"""fsck of keys against the log: each key's registrant, binding and confirmation.

A finding names the table or a log index, never the key: a keyid may identify its holder.
"""

from collections.abc import Iterator

from sqlmodel import Session, col, select

from app.ledger.journal import opening
from app.ledger.key_rows import known_rows, loaded
from app.reconcile.findings import FsckReport
from app.reconcile.judgement import Event
from app.reconcile.registrations import CONFIRMED, REGISTERED, binding_digest, binding_of
from lethe.errors import LetheError
from lethe.log.entries import KEY_EVENT, check_commitment, parse_leaf
from lethe.signing.keys import fingerprint, load_public_key
from models import KeyEvent, LogEntry, RequesterKey

CHECK = "key"
FETCH = 500  # rows in memory at once
UNOPENED = "what is stored about a key does not open the entry in the log"
LOST = "the log has a key that the database lacks"
UNLOGGED = "requester_keys has a row whose registration is not in the log"
OTHERWISE = "requester_keys has a row that the log has registered or confirmed otherwise"


def check_registrations(session: Session, report: FsckReport) -> None:
    """Open each entry about a key, and compare each key's row with its newest registration."""
    if (rows := known_rows(session)) is None:
        return
    newest = dict[str, tuple[str, dict[str, Event]]]()  # by keyid: ref, events by name
    for event in _opened(session, report):
        keyid = str(event.payload.get("keyid"))
        known = newest.get(keyid)
        if event.event == REGISTERED:
            newest[keyid] = event.ref, {REGISTERED: _event(event)}
        elif known is not None and known[0] == event.ref:
            known[1].setdefault(event.event, _event(event))
        else:
            report.add(CHECK, UNOPENED, event.log_index)
    for keyid in session.exec(select(RequesterKey.keyid).order_by(col(RequesterKey.keyid))):
        logged = newest.pop(keyid, None)
        row = loaded(session, RequesterKey, keyid)
        if row is None or not rows.is_written_here(row):
            continue  # reported by `check_keys`
        if logged is None:
            report.add(CHECK, UNLOGGED)
        elif not _agrees(row, *logged):
            report.add(CHECK, OTHERWISE, logged[1][REGISTERED].index)
        session.expunge(row)
    report.add_all(CHECK, LOST, [events[REGISTERED].index for _, events in newest.values()])


def _opened(session: Session, report: FsckReport) -> Iterator[KeyEvent]:
    """Yield the stored key events that open their log entries; report the others."""
    query = (
        select(KeyEvent, LogEntry.leaf)
        .join(LogEntry, col(LogEntry.index) == col(KeyEvent.log_index), isouter=True)
        .order_by(col(KeyEvent.log_index))
        .execution_options(yield_per=FETCH)
    )
    for event, leaf in session.exec(query):
        if _opens(event, leaf):
            yield event
        else:
            report.add(CHECK, UNOPENED, event.log_index)


def _opens(event: KeyEvent, leaf: bytes | None) -> bool:
    if leaf is None:
        return False
    try:
        entry = parse_leaf(leaf)
        if (entry.kind, entry.event, entry.ref) != (KEY_EVENT, event.event, event.ref):
            return False
        assert entry.commitment is not None
        said = opening(event.ref, event.event, event.at, event.payload)
        check_commitment(bytes(event.key), said, entry.commitment)
    except LetheError:
        return False
    return True


def _event(stored: KeyEvent) -> Event:
    return Event(stored.log_index, stored.event, stored.payload)


def _agrees(row: RequesterKey, ref: str, events: dict[str, Event]) -> bool:
    said = events[REGISTERED].payload
    confirmed = events.get(CONFIRMED)
    try:
        public = fingerprint(load_public_key(row.public_key.encode()))
    except LetheError:
        return False
    logged = (ref, said.get("role"), said.get("public_key"), said.get("binding"))
    stored = (row.ref, row.role, public, binding_of(row))
    by = said.get("by"), None if confirmed is None else confirmed.payload.get("by")
    if logged != stored or by != (row.registered_by, row.confirmed_by):
        return False
    # A revoked key's client, subject and salt may be destroyed: the digest cannot be compared.
    destroyed = row.revoked_at is not None and row.salt is None
    return destroyed or binding_digest(row) == said.get("bound")
