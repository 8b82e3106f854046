"""Rotates the log's key, with an overlap in which both keys sign.

    log.next.key     the new key                                       durable
    key.rotated      an entry under the old key: announces the new     signed
    log.KEYID.announced.json  the proof of that                        durable
    log.next.vkey    from now on checkpoints have both signatures
    key.revoked      an entry under both keys: the overlap ends        signed
    log.key          the new key in its place; the old file is gone

A crash between two lines leaves a working log. Running the same command again continues at the
following line. The second key, ML-DSA-44, rotates independently in the same steps; its files
begin with log-mldsa.
"""

from contextlib import suppress

from app.keys.alone import Rotated, alone
from app.keys.announced import keep_announcement
from app.keys.issuer import KeysChangedError, is_announced, require_unchanged
from app.keys.log import logged_keys
from app.ledger.entry_macs import KeyMissingError
from app.ledger.journal import record_service_key_event
from app.ledger.key_files import KeyPlaceError, is_ed25519, make_next, require_no_folder
from app.ledger.log_files import (
    RoleFiles,
    load_cosigner,
    load_signer,
    make_ml_dsa,
    read_previous,
)
from app.ledger.sequencer import Ledger
from app.ledger.transaction import Transaction
from app.problems import ConflictError
from app.reconcile.model_events import service_key_events
from app.settings import Settings
from lethe.files import sync_directory, write_durably
from lethe.log.key_changes import ANNOUNCED, LOG, ML_DSA, REVOKED, ROTATED, KeyChange
from lethe.log.log_keys import LogKey, LogKeys, spki_of_log
from lethe.log.note import NoteError, NoteSigner, NoteVerifier
from lethe.signing.errors import KeyFormatError


def rotate_log(
    settings: Settings, ledger: Ledger, *, to: str | None = None, role: str = LOG
) -> Rotated[LogKey]:
    """Announce a new key of the log, which signs checkpoints too from then on.

    to: the new key's place, as for `make_next`. role: LOG, or ML_DSA for the second key, which
    is always in a file.

    Raises:
        KeysBusyError: Another command is changing the keys.
        KeyPlaceError, KeyAwayError: As `make_next`.
        ConflictError: Two keys sign already, and the older must be revoked first; or the key in
            use is not here; or the latest checkpoint lacks its signature.
        NoSecondKeyError: There is no second key.
        KeyMissingError: The new key's file is malformed.
        KeysChangedError: Another rotation was faster.
        UnpublishedError: The entry is stored but not signed yet: run the command again.
        ForkedError, LogDamagedError, GuardError: As `model_events`.
    """
    with alone(settings.keys_dir):
        return _rotate(settings, ledger, to, role)


def _rotate(settings: Settings, ledger: Ledger, to: str | None, role: str) -> Rotated[LogKey]:
    size, files = service_key_events(ledger).size, RoleFiles(role)
    chain = logged_keys(ledger, role=role)
    known = chain.keys
    if len(in_use := [one for one in known if one.revoked is None]) > 1:
        if not (settings.keys_dir / files.next_vkey).exists():
            _publish_next(settings, ledger, chain, files)
            return Rotated(in_use[-1], True)
        raise ConflictError(
            f"two keys of the log sign already: run `lethe service-key revoke {role}` first, "
            "then rotate"
        )
    old = known[-1].verifier
    _require_signing(ledger, known[-1], chain, role)
    announced = is_announced(ledger, role)

    def effect(tx: Transaction) -> NoteVerifier:
        require_unchanged(tx, size)
        if not announced:
            record_service_key_event(tx, ANNOUNCED, _change(ANNOUNCED, old, role))
        # Under the lock, so as never to replace the file of a key that another rotation logged.
        new = _fresh(settings, files, known, to)
        said = _change(ROTATED, new, role, replaces=spki_of_log(old))
        record_service_key_event(tx, ROTATED, said)
        return new

    new = ledger.transact(effect)
    chain = logged_keys(ledger, role=role)
    if chain.keys[-1].verifier != new:
        raise KeysChangedError("another rotation finished first: see `lethe service-key list`")
    _publish_next(settings, ledger, chain, files)
    return Rotated(chain.keys[-1], False)


def revoke_log(
    settings: Settings, ledger: Ledger, reason: str, *, role: str = LOG
) -> Rotated[LogKey]:
    """End the overlap: the older key's signatures over this entry no longer count.

    Raises:
        KeysBusyError: Another command is changing the keys.
        ConflictError: Only one key signs, or the new key does not sign yet.
        NoSecondKeyError: There is no second key.
        KeysChangedError: A key was rotated or revoked meanwhile.
        KeyMissingError: No key file has the new key.
        UnpublishedError: The entry is stored but not signed yet: run the command again.
        ForkedError, LogDamagedError, GuardError: As `model_events`.
    """
    with alone(settings.keys_dir):
        return _revoke(settings, ledger, reason, role)


def _revoke(settings: Settings, ledger: Ledger, reason: str, role: str) -> Rotated[LogKey]:
    size, files = service_key_events(ledger).size, RoleFiles(role)
    known = logged_keys(ledger, role=role).keys
    if len(in_use := [one for one in known if one.revoked is None]) == 1:
        if len(known) == 1 or (
            _load(settings, role, files.key) == in_use[-1].verifier
            and not (settings.keys_dir / files.next_vkey).exists()
        ):
            raise ConflictError(
                f"only one key of the log signs: run `lethe service-key rotate {role}` first"
            )
        _take_over(settings, files, known[-2].verifier, known[-1].verifier)
        return Rotated(known[-2], True)
    old, new = (one.verifier for one in in_use)
    if new not in ledger.known(role):
        raise ConflictError(
            "the new key of the log does not sign yet: run `lethe service-key rotate "
            f"{role}` again"
        )

    def effect(tx: Transaction) -> None:
        require_unchanged(tx, size)
        record_service_key_event(tx, REVOKED, _change(REVOKED, old, role, reason=reason))

    ledger.transact(effect)
    _take_over(settings, files, old, new)
    found = logged_keys(ledger, role=role).keys
    return Rotated(next(one for one in found if one.verifier == old), False)


def _require_signing(ledger: Ledger, key: LogKey, chain: LogKeys, role: str) -> None:
    """Check that the key signs here and that the latest checkpoint has its signature.

    Without that signature, verifiers could not follow the announcement to the new key.
    """
    if key.verifier not in ledger.signing(role):
        raise ConflictError(
            f"{role}.key is not the key {key.verifier.key_id.hex()} that the log has: restore "
            "the newest backup of the keys directory"
        )
    try:
        LogKeys((key,), chain.kind).open(ledger.latest().note)
    except NoteError:
        raise ConflictError(
            "the latest checkpoint lacks the signature of the key in use: restart the "
            "processes that started before `lethe log ml-dsa`, and rotate after the next entry"
        ) from None


def _fresh(
    settings: Settings, files: RoleFiles, known: tuple[LogKey, ...], to: str | None
) -> NoteVerifier:
    """Create the next key and return it; a key left in its file by a crash is replaced."""
    folder, verifiers = settings.keys_dir, [one.verifier for one in known]
    path = folder / files.next_key
    if files.role == ML_DSA:
        require_no_folder(path)
        with suppress(KeyMissingError):  # not a key: the file is replaced
            if path.exists() and _load(settings, ML_DSA, path.name) in verifiers:
                raise KeyPlaceError(
                    f"{path.name} is a key that the log names already: finish that rotation "
                    "first"
                )
        return make_ml_dsa(settings, path.name).verifier
    spkis = list(map(spki_of_log, verifiers))
    try:
        key = make_next(settings, folder / files.key, path, "ed25519", to=to, known=spkis)
    except KeyFormatError as error:
        raise KeyMissingError(f"{path}: {error.detail}") from None
    assert is_ed25519(key), "it was made as one"
    return NoteSigner(settings.origin, key).verifier


def _publish_next(settings: Settings, ledger: Ledger, chain: LogKeys, files: RoleFiles) -> None:
    keep_announcement(settings, ledger, chain)
    vkey = f"{chain.keys[-1].verifier.vkey}\n"
    write_durably(settings.keys_dir / files.next_vkey, vkey.encode(), mode=0o644)


def _take_over(
    settings: Settings, files: RoleFiles, old: NoteVerifier, new: NoteVerifier
) -> None:
    """Move the new key into the old key's place, and keep the old public half."""
    folder = settings.keys_dir
    lines = [one.vkey for one in read_previous(settings, files.role)]
    if old.vkey not in lines:
        kept = "".join(f"{line}\n" for line in [*lines, old.vkey])
        write_durably(folder / files.previous, kept.encode(), mode=0o644)
    if _load(settings, files.role, files.key) != new:
        if not (folder / files.next_key).exists() or (
            _load(settings, files.role, files.next_key) != new
        ):
            raise KeyMissingError(
                f"neither {files.key} nor {files.next_key} is the key {new.key_id.hex()} that "
                "the log has: restore the newest backup of the keys directory"
            )
        (folder / files.next_key).replace(folder / files.key)
    write_durably(folder / files.vkey, f"{new.vkey}\n".encode(), mode=0o644)
    (folder / files.next_vkey).unlink(missing_ok=True)
    sync_directory(folder)


def _load(settings: Settings, role: str, name: str) -> NoteVerifier:
    load = load_cosigner if role == ML_DSA else load_signer
    return load(settings, name).verifier


def _change(
    event: str,
    key: NoteVerifier,
    role: str,
    replaces: bytes | None = None,
    reason: str | None = None,
) -> KeyChange:
    return KeyChange(event, key.key_id.hex(), spki_of_log(key), role, replaces, reason)
