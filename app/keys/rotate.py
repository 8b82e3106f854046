"""Rotates and revokes the issuer's key: first the log entry, then the key files.

    issuer.next.key     the new key                 durable
    key.rotated         the log's entry             signed
    issuer.key          the new key in its place    the old file is gone

A crash between two lines leaves a working installation: the signer uses the file whose key the
log names. Running the same command again continues at the following line.
"""

import re

from app.keys.alone import Rotated, alone
from app.keys.issuer import (
    NEXT_KEY,
    KeysChangedError,
    is_announced,
    is_key,
    issuer_keys,
    require_unchanged,
)
from app.ledger.entry_macs import KeyMissingError
from app.ledger.journal import record_service_key_event
from app.ledger.key_files import has_key, is_p256, make_next, read_next
from app.ledger.sequencer import Ledger
from app.ledger.startup import ISSUER_KEY, ISSUER_PEM
from app.ledger.transaction import Transaction
from app.problems import ConflictError, NotFoundError
from app.settings import Settings
from lethe.certificates.bundle import spki_of
from lethe.certificates.issuers import IssuerKeys
from lethe.files import sync_directory, write_durably
from lethe.log.key_changes import ANNOUNCED, ISSUER, REVOKED, ROTATED, KeyChange
from lethe.log.key_history import KeySpan
from lethe.signing.errors import KeyFormatError
from lethe.signing.keys import P256Key, public_pem

_NUMBERED = re.compile(r"(.*?)([0-9]{1,6})")


def rotate_issuer(
    settings: Settings, ledger: Ledger, keyid: str | None = None, *, to: str | None = None
) -> Rotated[KeySpan]:
    """Replace the issuer's key by a new one, named `keyid` or by the next number.

    to: the new key's place, as for `make_next`.

    Raises:
        KeysBusyError: Another command is changing the keys.
        KeyPlaceError, KeyAwayError: As `make_next`.
        ConflictError: A key of the issuer has or had this name.
        KeyMissingError: The new key's file is malformed.
        KeysChangedError: Another rotation was faster.
        UnpublishedError: The entry is stored but not signed yet: run the command again.
        ForkedError, LogDamagedError, GuardError: As `model_events`.
    """
    with alone(settings.keys_dir):
        return _rotate(settings, ledger, keyid, to)


def _rotate(
    settings: Settings, ledger: Ledger, keyid: str | None, to: str | None
) -> Rotated[KeySpan]:
    keys = issuer_keys(settings, ledger)
    if _put_in_place(settings, keys):
        return Rotated(keys.keys[-1], True)
    last = keys.keys[-1]
    names = {one.keyid for one in keys.keys}
    if keyid in names:
        raise ConflictError("a key of the issuer has this name already: choose another --keyid")
    chosen = keyid or _next_name(last.keyid, names)
    announced = is_announced(ledger, ISSUER)

    def effect(tx: Transaction) -> None:
        require_unchanged(tx, keys.size)
        if not announced:
            record_service_key_event(tx, ANNOUNCED, KeyChange(ANNOUNCED, last.keyid, last.spki))
        # Under the lock, so as never to replace the file of a key that another rotation logged.
        spki = spki_of(_fresh(settings, keys, to).public_key())
        record_service_key_event(
            tx, ROTATED, KeyChange(ROTATED, chosen, spki, replaces=last.spki)
        )

    ledger.transact(effect)
    now = issuer_keys(settings, ledger)
    if not _put_in_place(settings, now):
        raise KeysChangedError("another rotation finished first: see `lethe service-key list`")
    return Rotated(now.keys[-1], False)


def revoke_issuer(settings: Settings, ledger: Ledger, keyid: str, reason: str) -> int:
    """Revoke a key's signatures from now on, in the log; return the entry's index.

    Raises:
        NotFoundError: The issuer has no such key.
        ConflictError: The key is revoked already.
        KeysChangedError: A key was rotated or revoked meanwhile.
        ForkedError, LogDamagedError, GuardError: As `model_events`.
    """
    keys = issuer_keys(settings, ledger)
    found = next((one for one in keys.keys if one.keyid == keyid), None)
    if found is None:
        raise NotFoundError("the issuer has no key of this name: see `lethe service-key list`")
    if found.revoked is not None:
        raise ConflictError(f"this key was already revoked, at entry {found.revoked}")
    announced = is_announced(ledger, ISSUER)

    def effect(tx: Transaction) -> int:
        require_unchanged(tx, keys.size)
        if not announced:
            record_service_key_event(tx, ANNOUNCED, KeyChange(ANNOUNCED, keyid, found.spki))
        said = KeyChange(REVOKED, keyid, found.spki, reason=reason)
        return record_service_key_event(tx, REVOKED, said)

    return ledger.transact(effect)


def _put_in_place(settings: Settings, keys: IssuerKeys) -> bool:
    """Move the next key into the issuer's place if the log names it; return whether it did."""
    folder, current = settings.keys_dir, keys.keys[-1]
    if has_key(settings, folder / ISSUER_KEY, current.spki):
        return False  # already in place: the other file is not trusted
    key = read_next(settings, folder / NEXT_KEY)
    if key is None or not is_key(key, current.spki):
        return False
    pem = public_pem(key.public_key()).encode()
    write_durably(folder / ISSUER_PEM, pem, mode=0o644)
    (folder / NEXT_KEY).replace(folder / ISSUER_KEY)
    sync_directory(folder)
    return True


def _fresh(settings: Settings, keys: IssuerKeys, to: str | None) -> P256Key:
    """Create the next key and return it; a key left in its file by a crash is replaced."""
    path, current = settings.keys_dir / NEXT_KEY, settings.keys_dir / ISSUER_KEY
    known = [one.spki for one in keys.keys]
    try:
        key = make_next(settings, current, path, "ecdsa-p256-sha256", to=to, known=known)
    except KeyFormatError as error:
        raise KeyMissingError(f"{path}: {error.detail}") from None
    assert is_p256(key), "it was made as one"
    return key


def _next_name(last: str, taken: set[str]) -> str:
    match = _NUMBERED.fullmatch(last)
    stem, number = (match[1], int(match[2])) if match else (f"{last[:70]}-", 1)
    while f"{stem}{number}" in taken:
        number += 1
    return f"{stem}{number}"
