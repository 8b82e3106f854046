"""Rotating a silo's key, with an overlap in which signatures of both keys are accepted.

    silo-K.next.key      the new key, beside the silo's own             durable
    model.silos          an entry for each network: new, and previous   signed
    silo-K.previous.pem  the public half of the old key
    silo-K.pem           that of the new one: from now on it signs
    model.silos          an entry for each network: new                 signed
    silo-K.previous.pem  gone: the old key's signatures are refused
    silo-K.key           the new key in its place

A process that dies between two lines leaves a silo whose signatures are accepted. The same
command, run again, resumes.
"""

import os
from contextlib import AbstractContextManager, nullcontext, suppress

from app.keys.alone import KeysBusyError, locked
from app.ledger.journal import record_model_event
from app.ledger.sequencer import Ledger
from app.ledger.transaction import Transaction
from app.problems import ConflictError
from app.service.access.silo_keys import (
    CHANGED,
    digest_of,
    entries,
    logged,
    networks,
    next_path,
    previous,
    previous_path,
    private_path,
    public_key,
    public_path,
    read_private,
    read_public,
    spans,
)
from app.settings import Settings
from lethe.files import sync_directory, write_durably
from lethe.signing.keys import generate_key, private_pem, public_pem

LOCK = "silos.lock"  # empty, beside the private keys


def rotate_silo(settings: Settings, ledger: Ledger, silo: int) -> str:
    """Give a silo a new key, which is accepted beside the one in use.

    Runs where the silo's private key is stored. Returns the key's digest in the log.

    Raises:
        ConflictError: Two keys are accepted already, or the silo's key is not here.
        KeysBusyError: Another command changes the keys of silos.
        ForkedError, LogDamagedError, GuardError: As `model_events`.
    """
    with _alone(settings, silo):
        return _rotate(settings, ledger, silo)


def _rotate(settings: Settings, ledger: Ledger, silo: int) -> str:
    _promote(settings, silo)  # ends an interrupted revocation
    old, following = public_key(settings, silo), next_path(settings, silo)
    if old is not None and read_public(previous_path(settings, silo)) is not None:
        new = read_private(following)
        if new is None or new.public_key() == old:
            raise ConflictError(
                f"silo {silo} has two valid keys already: run `lethe service-key revoke silo "
                f"{silo}` first"
            )
    own = read_private(private_path(settings, silo))
    if old is None or own is None or own.public_key() != old:
        raise ConflictError(
            f"the registered key of silo {silo} is not here: start its worker once, and run "
            "this where LETHE_SILO_KEY_DIR has its private key"
        )
    new = read_private(following)
    if (
        new is None
        or new.public_key() == old  # a thief's copy of the key that is to be replaced
        or not _is_logged(ledger, silo, digest_of(new.public_key()))
    ):
        # It is not in the log, and whoever put it there may have a copy.
        write_durably(following, private_pem(generate_key("ed25519")).encode())
        new = read_private(following)
        assert new is not None, "it was just made"
    digest, before = digest_of(new.public_key()), digest_of(old)

    def say() -> None:
        refs = [ref for ref in networks(ledger) if logged(ledger, ref).get(silo) != digest]
        _log(ledger, refs, entries({silo: digest}, {silo: before}))

    say()
    public = public_path(settings, silo)
    write_durably(previous_path(settings, silo), public.read_bytes(), mode=0o644)
    write_durably(public, public_pem(new).encode(), mode=0o644)
    say()  # for a model registered meanwhile
    return digest


def revoke_silo(settings: Settings, ledger: Ledger, silo: int) -> str:
    """End the overlap: signatures of the older key are refused. Returns that key's digest.

    Raises:
        ConflictError: Only one key is accepted, or a rotation did not end.
        KeysBusyError: Another command changes the keys of silos.
        ForkedError, LogDamagedError, GuardError: As `model_events`.
    """
    with _alone(settings, silo):
        return _revoke(settings, ledger, silo)


def _revoke(settings: Settings, ledger: Ledger, silo: int) -> str:
    old, new = read_public(previous_path(settings, silo)), public_key(settings, silo)
    if _promote(settings, silo) and (done := _revoked_last(ledger, silo)) is not None:
        return done  # the command was interrupted before its last step
    if old is None or new is None:
        raise ConflictError(
            f"silo {silo} has only one valid key: run `lethe service-key rotate silo {silo}` "
            "first"
        )
    if old == new:
        raise ConflictError(
            f"the rotation was not completed: run `lethe service-key rotate silo {silo}` again"
        )
    digest = digest_of(old)

    def say() -> None:
        refs = [ref for ref in networks(ledger) if previous(ledger, ref).get(silo) == digest]
        _log(ledger, refs, entries({silo: digest_of(new)}))

    say()
    previous_path(settings, silo).unlink()
    sync_directory(settings.keys_dir)
    say()  # for a model registered meanwhile
    _promote(settings, silo)
    return digest


def promote(settings: Settings, silo: int) -> None:
    """Install a silo's next private key once it is the only one registered.

    Left to a command that rotates or revokes meanwhile: it could replace the next key between
    reading and moving it here.
    """
    if next_path(settings, silo).exists():
        with suppress(KeysBusyError), _alone(settings, silo):
            _promote(settings, silo)


def _promote(settings: Settings, silo: int) -> bool:
    """Do the work of `promote`; return whether there was anything to do."""
    path = next_path(settings, silo)
    key = read_private(path)
    if key is None or read_public(previous_path(settings, silo)) is not None:
        return False
    if key.public_key() != public_key(settings, silo):
        return False
    path.replace(private_path(settings, silo))
    sync_directory(path.parent)
    return True


def _alone(settings: Settings, silo: int) -> AbstractContextManager[None]:
    """Keep other processes from moving keys of silos meanwhile.

    The lock has a file of its own: the key's file is replaced, so one process could lock the
    new file while another still holds the old one.
    """
    folder = private_path(settings, silo).parent
    if not folder.is_dir():  # nothing is rotated here; `rotate_silo` says so
        return nullcontext()
    return locked(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)  # NFS: writable


def _revoked_last(ledger: Ledger, silo: int) -> str | None:
    """Return the digest of the silo's key that was revoked last, None if none was."""
    ended = [
        (one.revoked, one.digest)
        for one in spans(ledger)
        if one.silo == silo and one.revoked is not None
    ]
    return max(ended)[1] if ended else None


def _is_logged(ledger: Ledger, silo: int, digest: str) -> bool:
    return any(logged(ledger, ref).get(silo) == digest for ref in networks(ledger))


def _log(ledger: Ledger, refs: list[str], digests: dict[str, str]) -> None:
    def effect(tx: Transaction) -> None:
        for ref in refs:
            record_model_event(tx, ref, CHANGED, digests)

    if refs:
        ledger.transact(effect)
