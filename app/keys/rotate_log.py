"""Rotating the log's key, with an overlap in which both keys sign.

    log.next.key     the new key                                       durable
    key.rotated      an entry under the old key: it leads to the new   signed
    log.KEYID.announced.json  the proof of that                        durable
    log.next.vkey    from now on checkpoints have both lines
    key.revoked      an entry under both keys: the overlap ends        signed
    log.key          the new key in its place; the old file is gone

A process that dies between two lines leaves a log that goes on. The same command, run again,
goes on at the following line.
"""

from dataclasses import dataclass

from app.keys.announced import keep_announcement
from app.keys.issuer import KeysChangedError, is_announced, require_unchanged
from app.keys.log import logged_keys
from app.ledger.entry_macs import KeyMissingError
from app.ledger.journal import record_service_key_event
from app.ledger.key_files import ensure_next
from app.ledger.log_files import (
    LOG_KEY,
    LOG_VKEY,
    NEXT_KEY,
    NEXT_VKEY,
    PREVIOUS,
    load_signer,
    read_previous,
)
from app.ledger.sequencer import Ledger
from app.ledger.transaction import Transaction
from app.problems import ConflictError
from app.reconcile.model_events import service_key_events
from app.settings import Settings
from lethe.files import sync_directory, write_durably
from lethe.log.key_changes import ANNOUNCED, LOG, REVOKED, ROTATED, KeyChange
from lethe.log.log_keys import LogKey, spki_of_log
from lethe.log.note import NoteVerifier
from lethe.signing.errors import KeyFormatError


@dataclass(frozen=True, slots=True)
class LogRotated:
    """A key of the log; `finished`: the command had been interrupted, and is done now."""

    key: LogKey
    finished: bool


def rotate_log(settings: Settings, ledger: Ledger, *, to: str | None = None) -> LogRotated:
    """Announce a fresh key of the log, which signs checkpoints too from then on.

    to: where it is made, as `ensure_next` has it.

    Raises:
        KeyPlaceError, HsmError: As `ensure_next`.
        ConflictError: Two keys sign already: the older one must be revoked first.
        KeyMissingError: The new key's file holds something else.
        KeysChangedError: Another rotation was faster.
        UnpublishedError: The entry is stored and not signed yet: run it again.
        ForkedError, LogDamagedError, GuardError: As `model_events`.
    """
    size, folder = service_key_events(ledger).size, settings.keys_dir
    known = logged_keys(ledger).keys
    if len(in_use := [one for one in known if one.revoked is None]) > 1:
        if not (folder / NEXT_VKEY).exists():
            _publish_next(settings, ledger, in_use[-1])
            return LogRotated(in_use[-1], True)
        raise ConflictError(
            "two keys of the log sign already: first `lethe service-key revoke log`, then "
            "rotate"
        )
    old = known[-1].verifier
    spkis = [spki_of_log(one.verifier) for one in known]
    try:  # one that a crash left before its entry has signed nothing yet
        ensure_next(
            settings, folder / LOG_KEY, folder / NEXT_KEY, "ed25519", to=to, known=spkis
        )
    except KeyFormatError as error:
        raise KeyMissingError(f"{folder / NEXT_KEY}: {error.detail}") from None
    new = load_signer(settings, NEXT_KEY).verifier
    announced = is_announced(ledger, LOG)

    def effect(tx: Transaction) -> None:
        require_unchanged(tx, size)
        if not announced:
            record_service_key_event(tx, ANNOUNCED, _change(ANNOUNCED, old))
        record_service_key_event(tx, ROTATED, _change(ROTATED, new, replaces=spki_of_log(old)))

    ledger.transact(effect)
    latest = logged_keys(ledger).keys[-1]
    if latest.verifier != new:
        raise KeysChangedError("another rotation was faster: see `lethe service-key list`")
    _publish_next(settings, ledger, latest)
    return LogRotated(latest, False)


def revoke_log(settings: Settings, ledger: Ledger, reason: str) -> LogRotated:
    """End the overlap: checkpoints over this entry do not count by the older key any more.

    Raises:
        ConflictError: One key signs alone, or the new one does not sign yet.
        KeysChangedError: A key was rotated or revoked meanwhile.
        UnpublishedError: The entry is stored and not signed yet: run it again.
        ForkedError, LogDamagedError, GuardError: As `model_events`.
    """
    size = service_key_events(ledger).size
    known = logged_keys(ledger).keys
    if len(in_use := [one for one in known if one.revoked is None]) == 1:
        if (
            load_signer(settings).verifier == in_use[-1].verifier
            and not (settings.keys_dir / NEXT_VKEY).exists()
        ):
            raise ConflictError(
                "one key of the log signs alone: first `lethe service-key rotate log`"
            )
        _take_over(settings, known[-2].verifier, known[-1].verifier)
        return LogRotated(known[-2], True)
    old, new = (one.verifier for one in in_use)
    if new not in ledger.keys.verifiers:
        raise ConflictError(
            "the new key of the log does not sign yet: run `lethe service-key rotate log` again"
        )

    def effect(tx: Transaction) -> None:
        require_unchanged(tx, size)
        record_service_key_event(tx, REVOKED, _change(REVOKED, old, reason=reason))

    ledger.transact(effect)
    _take_over(settings, old, new)
    found = logged_keys(ledger).keys
    return LogRotated(next(one for one in found if one.verifier == old), False)


def _publish_next(settings: Settings, ledger: Ledger, new: LogKey) -> None:
    keep_announcement(settings, ledger, new)
    path = settings.keys_dir / NEXT_VKEY
    write_durably(path, f"{new.verifier.vkey}\n".encode(), mode=0o644)


def _take_over(settings: Settings, old: NoteVerifier, new: NoteVerifier) -> None:
    """Put the new key in the place of the old one, whose public half is kept."""
    folder = settings.keys_dir
    lines = [one.vkey for one in read_previous(settings)]
    if old.vkey not in lines:
        kept = "".join(f"{line}\n" for line in [*lines, old.vkey])
        write_durably(folder / PREVIOUS, kept.encode(), mode=0o644)
    if load_signer(settings).verifier != new:
        (folder / NEXT_KEY).replace(folder / LOG_KEY)
    write_durably(folder / LOG_VKEY, f"{new.vkey}\n".encode(), mode=0o644)
    (folder / NEXT_VKEY).unlink(missing_ok=True)
    sync_directory(folder)


def _change(
    event: str, key: NoteVerifier, replaces: bytes | None = None, reason: str | None = None
) -> KeyChange:
    return KeyChange(event, key.key_id.hex(), spki_of_log(key), LOG, replaces, reason)
