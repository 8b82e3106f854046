"""Checks that the log's signing keys are the keys that its entries name.

Key files only vouch for each other: an attacker who writes all of them could have the log
signed by their own key. The entries are found by a column that an attacker with the database
could write; what an attacker with both gets signed is rejected by verifiers.
"""

from collections.abc import Iterable, Sequence

from sqlmodel import Session, col, select

from app.ledger.entry_macs import KeyMissingError
from app.ledger.storage import latest_checkpoint
from lethe.errors import LetheError
from lethe.log.entries import SERVICE_KEY_EVENT, parse_leaf
from lethe.log.key_changes import LOG
from lethe.log.key_history import Change, replay
from lethe.log.log_keys import LogKey, LogKeys, spki_of_log
from lethe.log.note import NoteVerifier
from models import LogEntry

RESTORE = "restore the newest backup of the keys directory"


def require_named(session: Session, signing: Sequence[NoteVerifier]) -> None:
    """Check that the log's entries name all signing keys and have not revoked all of them.

    signing: the log's Ed25519 keys whose private halves are in the key files. Before the first
    rotation no entry names a key, and the only key must have signed the latest checkpoint.

    Raises KeyMissingError: the log names other keys, or revoked all of these.
    """
    said = _changes(session)
    if not said:
        latest = latest_checkpoint(session)
        try:
            if latest is not None:
                LogKeys.of(signing[0]).open(latest.note)
        except LetheError:
            raise _unnamed(signing[0]) from None
        if len(signing) > 1:
            raise _unnamed(signing[1])
        return
    named = {one.spki: one for one in replay(said, ("", b""), LOG)}
    for key in signing:
        if spki_of_log(key) not in named:
            raise _unnamed(key)
    if all(named[spki_of_log(key)].revoked is not None for key in signing):
        raise KeyMissingError(f"log.key was revoked, and nothing signs by it: {RESTORE}")


def spanned(session: Session, keys: LogKeys) -> LogKeys:
    """Return the log's keys with the tree sizes that each may sign, by the log's entries.

    keys: the keys without these limits. A caller needs the limits to judge a signature: a
    revoked key may sign no tree that includes its revocation, as somebody else may have it.
    """
    try:
        return spanned_by(_changes(session), keys)
    except LetheError:  # the entries were tampered with: fsck reports it, no key is limited
        return keys


def spanned_by(changes: Iterable[Change], keys: LogKeys) -> LogKeys:
    """Return the log's keys with the tree sizes that each may sign, by these key changes.

    Raises KeyHistoryError: the entries contradict each other.
    """
    first = keys.verifiers[0]
    spans = replay(changes, (first.key_id.hex(), spki_of_log(first)), LOG)
    named = {one.spki: one for one in spans}
    found = [(one, named.get(spki_of_log(one.verifier))) for one in keys.keys]
    return LogKeys(
        tuple(
            one if span is None else LogKey(one.verifier, span.start, span.revoked, span.reason)
            for one, span in found
        ),
        keys.kind,
    )


def _changes(session: Session) -> list[Change]:
    query = select(LogEntry.index, LogEntry.leaf).where(col(LogEntry.kind) == SERVICE_KEY_EVENT)
    rows = session.exec(query.order_by(col(LogEntry.index)))
    found = [(index, parse_leaf(leaf).key) for index, leaf in rows]
    return [(index, key) for index, key in found if key is not None and key.role == LOG]


def _unnamed(key: NoteVerifier) -> KeyMissingError:
    return KeyMissingError(
        f"no entry of the log names the key {key.key_id.hex()} in the key files: {RESTORE}"
    )
