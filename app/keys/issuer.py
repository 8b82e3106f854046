"""The issuer's keys by the signed log, and the private key that signs now.

Only signed log entries decide which key is valid, no table or file. Write access to the
database cannot add a key, and an old key file restored from a backup signs nothing.
"""

from contextlib import suppress
from typing import TypeGuard

from sqlmodel import col, select

from app.hsm.errors import KeyAwayError
from app.ledger.entry_macs import KeyMissingError
from app.ledger.key_files import SigningKey, is_p256, read_key
from app.ledger.sequencer import Ledger
from app.ledger.startup import ISSUER_KEY, ISSUER_PEM, load_issuer
from app.ledger.transaction import Transaction
from app.reconcile.model_events import service_key_events
from app.settings import Settings
from lethe.certificates.bundle import spki_of
from lethe.certificates.issuers import IssuerKeys
from lethe.certificates.keys import PublicKeyError, read_issuer
from lethe.errors import LetheError
from lethe.log.entries import SERVICE_KEY_EVENT, parse_leaf
from lethe.log.key_changes import ISSUER
from lethe.log.key_history import Change, replay
from lethe.signing.errors import KeyFormatError
from lethe.signing.keys import P256Key
from models import LogEntry

NEXT_KEY = "issuer.next.key"  # of an unfinished rotation, whose entry may be logged already


class IssuerRevokedError(LetheError):
    """The log has revoked the key that would sign."""

    slug, title, status = "issuer-revoked", "The issuer's key was revoked", 503


class KeysChangedError(LetheError):
    """A key was rotated or revoked between two reads of the log."""

    slug, title, status = "keys-changed", "The keys changed meanwhile", 503


def is_key(key: SigningKey, spki: bytes) -> TypeGuard[P256Key]:
    """Return whether a private key has this SubjectPublicKeyInfo."""
    return is_p256(key) and spki_of(key.public_key()) == spki


def changes(entries: tuple[tuple[int, bytes], ...]) -> list[Change]:
    """Return the key changes in the log's entries, with their indices."""
    found = [(index, parse_leaf(data).key) for index, data in entries]
    return [(index, change) for index, change in found if change is not None]


def is_announced(ledger: Ledger, role: str) -> bool:
    """Return whether the log names a key of a role. Raises as `model_events`."""
    return any(change.role == role for _, change in changes(service_key_events(ledger).entries))


def first_key(settings: Settings) -> tuple[str, bytes]:
    """Return keyid and SubjectPublicKeyInfo of the key in the keys directory.

    While the log names no issuer key, this is the issuer's first key. Raises KeyMissingError:
    both halves are missing, or it is not an ECDSA P-256 key.
    """
    try:
        return settings.issuer_keyid, spki_of(load_issuer(settings)[0].public_key())
    except KeyMissingError:
        with suppress(PublicKeyError, OSError):  # a lost key must be replaceable
            return settings.issuer_keyid, spki_of(read_issuer(settings.keys_dir / ISSUER_PEM))
        raise


def issuer_keys(settings: Settings, ledger: Ledger) -> IssuerKeys:
    """Return all keys that the issuer ever had, by the signed log.

    Raises KeyMissingError: the log names no key, and the keys directory has none; ForkedError,
    LogDamagedError, GuardError: as `model_events`.
    """
    read = service_key_events(ledger)
    said = changes(read.entries)
    # If the log names the first key, it needs no file.
    named = any(change.role == ISSUER for _, change in said)
    keys = replay(said, ("", b"") if named else first_key(settings))
    return IssuerKeys(keys, read.size, read.root)


def signing_issuer(settings: Settings, ledger: Ledger) -> tuple[P256Key, str, IssuerKeys]:
    """Return the key that signs now, its keyid, and all keys of the issuer.

    Raises:
        IssuerRevokedError: The log revoked the key, and there is no other yet.
        KeyMissingError: No key file has the private half.
        KeyAwayError: The key cannot be reached where a key file says.
        ForkedError, LogDamagedError, GuardError: As `model_events`.
    """
    keys = issuer_keys(settings, ledger)
    current = keys.current
    if current is None:
        raise IssuerRevokedError(
            "the issuer's key was revoked: run `lethe service-key rotate issuer`; jobs that "
            "wait for a signature then resume"
        )
    away: KeyAwayError | None = None
    for name in (ISSUER_KEY, NEXT_KEY):
        try:
            key = read_key(settings, settings.keys_dir / name)
        except (FileNotFoundError, KeyFormatError):
            continue
        except KeyAwayError as error:  # the other may be the key in use
            away = away or error
            continue
        if is_key(key, current.spki):
            return key, current.keyid, keys
    if away is not None:
        raise away
    if len(keys.keys) == 1:
        load_issuer(settings)  # raises the specific problem with the file
    raise KeyMissingError(
        f"{ISSUER_KEY} is not the key {current.keyid} that the log has as the issuer's: "
        "restore the newest backup of the keys directory, or run `lethe service-key rotate "
        "issuer`"
    )


def require_unchanged(tx: Transaction, size: int, kind: str = SERVICE_KEY_EVENT) -> None:
    """Check that there is no entry on keys above the log's first `size` entries.

    Called under the log's lock, so that one of two concurrent rotations is refused. It uses a
    column: an attacker who changes it only gets a certificate that every verifier rejects.

    kind: of entries, SERVICE_KEY_EVENT or MASTER_KEY_EVENT.

    Raises KeysChangedError: there is one.
    """
    later = select(LogEntry.index).where(
        col(LogEntry.kind) == kind, col(LogEntry.index) >= size
    )
    if tx.session.exec(later.limit(1)).first() is not None:
        raise KeysChangedError("a key was rotated or revoked meanwhile: try again")
