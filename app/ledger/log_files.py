"""The log's key files: the signing key, the next key during an overlap, and the retired keys.

log.key             signs                      log.vkey        its public half
log.next.key        signs too, once announced  log.next.vkey   exists from then on
log.previous.vkeys  public halves of the retired keys, one per line

log-mldsa.key and so on belong to the second key, ML-DSA-44, if `lethe log ml-dsa` created one.
A `.key` file has the private key; log.key and log.next.key may name a key in an HSM or
in the environment instead (`app.ledger.key_files`).
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from app.hsm.errors import KeyAwayError
from app.ledger.entry_macs import KeyMissingError
from app.ledger.key_files import SigningKey, is_ed25519, read_key
from app.settings import Settings
from lethe.files import write_durably
from lethe.log.checkpoint import Checkpoint, sign_checkpoint
from lethe.log.cosigner import Cosigner
from lethe.log.key_changes import LOG, ML_DSA
from lethe.log.log_keys import LogKeys, trust_text
from lethe.log.note import (
    ED25519,
    ML_DSA_44,
    NoteError,
    NoteSigner,
    NoteVerifier,
    parse_vkey,
    sign_note,
)
from lethe.signing.errors import KeyFormatError


class Signers(Protocol):
    """A source of the current signing keys."""

    def current(self) -> "LogSigners":
        """Return the signers for the current keys."""


@dataclass(frozen=True, slots=True)
class LogSigners:
    """The private keys in use, oldest first, and the retired public keys.

    cosigners: the ML-DSA-44 keys; empty if the log has no second key.
    """

    signers: tuple[NoteSigner, ...]
    cosigners: tuple[Cosigner, ...] = ()
    previous: Sequence[NoteVerifier] = ()
    previous_ml_dsa: Sequence[NoteVerifier] = ()

    @property
    def keys(self) -> LogKeys:
        """All public keys, oldest first."""
        return LogKeys.of(*self.known(LOG))

    def known(self, role: str) -> list[NoteVerifier]:
        """The public keys of a role, LOG or ML_DSA, oldest first."""
        previous = self.previous if role == LOG else self.previous_ml_dsa
        found = [*previous, *self.signing(role)]
        return list({one.vkey: one for one in found}.values())

    def signing(self, role: str) -> list[NoteVerifier]:
        """The public halves of a role's private keys."""
        if role == LOG:
            return [one.verifier for one in self.signers]
        return [one.verifier for one in self.cosigners]

    def checkpoint(self, checkpoint: Checkpoint) -> str:
        """Return the note of a checkpoint, with a signature line of each key."""
        return sign_checkpoint(checkpoint, *self.signers, cosigners=self.cosigners)

    def trust_root(self, digest: bytes) -> str:
        """Return the signature lines over the SHA-256 of a trust root."""
        note = sign_note(trust_text(self.signers[0].name, digest), *self.signers)
        return note.rpartition("\n\n")[2]

    @property
    def vkeys(self) -> list[str]:
        """The public halves of the private keys."""
        return [one.vkey for role in (LOG, ML_DSA) for one in self.signing(role)]

    def current(self) -> "LogSigners":
        """Return these signers, which never change."""
        return self


KINDS = {LOG: ED25519, ML_DSA: ML_DSA_44}  # the signature types of the roles


@dataclass(frozen=True, slots=True)
class RoleFiles:
    """The file names of a role, LOG or ML_DSA; they begin with the role's name."""

    role: str

    @property
    def key(self) -> str:
        """The signing key."""
        return f"{self.role}.key"

    @property
    def vkey(self) -> str:
        """Its public half."""
        return f"{self.role}.vkey"

    @property
    def next_key(self) -> str:
        """The next key of a rotation."""
        return f"{self.role}.next.key"

    @property
    def next_vkey(self) -> str:
        """The next key's public half; the next key signs once this file exists."""
        return f"{self.role}.next.vkey"

    @property
    def previous(self) -> str:
        """The public halves of the retired keys."""
        return f"{self.role}.previous.vkeys"


_LOG, _ML_DSA = RoleFiles(LOG), RoleFiles(ML_DSA)
LOG_KEY, LOG_VKEY = _LOG.key, _LOG.vkey
NEXT_KEY, NEXT_VKEY = _LOG.next_key, _LOG.next_vkey
ML_DSA_KEY, ML_DSA_VKEY = _ML_DSA.key, _ML_DSA.vkey


class SignerFiles:
    """The keys in the files, reloaded when a rotation changes them.

    Any other change is ignored: the process keeps the keys it started with, and `/readyz`
    reports that the files have others.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # A process that starts without the second key never uses one.
        has_second = (settings.keys_dir / ML_DSA_KEY).exists()
        roles = (_LOG, _ML_DSA) if has_second else (_LOG,)
        # Join the paths once: `current` runs several times per transaction.
        self._paths = [
            str(settings.keys_dir / name)
            for files in roles
            for name in (files.key, files.next_vkey, files.previous)
        ]
        self._seen = self._stamp()
        self._loaded = load_signers(settings)

    def current(self) -> LogSigners:
        """Return the keys that sign now."""
        if (stamp := self._stamp()) != self._seen:
            # A read between two steps of a rotation fails, and is retried at the next call.
            with suppress(KeyMissingError):
                found = load_signers(self._settings)
                own = self._loaded
                if _follows(own.signers, found.signers, found.previous):
                    own = replace(own, signers=found.signers, previous=found.previous)
                if _follows(own.cosigners, found.cosigners, found.previous_ml_dsa):
                    own = replace(
                        own, cosigners=found.cosigners, previous_ml_dsa=found.previous_ml_dsa
                    )
                self._loaded, self._seen = own, stamp
        return self._loaded

    def _stamp(self) -> list[tuple[int, int] | None]:
        found: list[tuple[int, int] | None] = []
        for path in self._paths:
            try:
                stat = os.stat(path)
            except FileNotFoundError:
                found.append(None)
            else:
                found.append((stat.st_ino, stat.st_mtime_ns))
        return found


def _follows(
    own: Sequence[NoteSigner | Cosigner],
    found: Sequence[NoteSigner | Cosigner],
    previous: Sequence[NoteVerifier],
) -> bool:
    """Return whether a rotation leads from the keys in use to the keys found."""
    if not own or not found:
        return False
    mine = [one.verifier for one in own]
    return found[0].verifier in mine or mine[0] in previous


def load_signers(settings: Settings) -> LogSigners:
    """Return the keys in the files.

    Raises KeyMissingError: a key is missing or of the wrong kind.
    """
    signer, cosigner = load_signer(settings), load_ml_dsa(settings)
    signers: tuple[NoteSigner, ...] = (signer,)
    cosigners: tuple[Cosigner, ...] = () if cosigner is None else (cosigner,)
    if _has_next(settings, LOG, signer.verifier):
        signers = (signer, load_signer(settings, NEXT_KEY))
        _require_next(settings, LOG, signers[-1].verifier)
    if cosigner is not None and _has_next(settings, ML_DSA, cosigner.verifier):
        cosigners = (cosigner, load_cosigner(settings, _ML_DSA.next_key))
        _require_next(settings, ML_DSA, cosigners[-1].verifier)
    previous = read_previous(settings), read_previous(settings, ML_DSA)
    return LogSigners(signers, cosigners, *previous)


def read_present(settings: Settings, path: Path) -> SigningKey:
    """Return the key of a file. Raises KeyMissingError if it cannot be had, with the remedy."""
    try:
        return read_key(settings, path)
    except FileNotFoundError:
        raise KeyMissingError(
            f"{path} is missing: restore the keys directory from its backup, or, for a new "
            "installation, run `lethe log init`"
        ) from None
    except (KeyFormatError, KeyAwayError) as error:
        raise KeyMissingError(f"{path}: {error.detail}") from None


def load_signer(settings: Settings, name: str = LOG_KEY) -> NoteSigner:
    """Return a key of the log.

    Raises KeyMissingError: it is missing, unreachable, or not an Ed25519 key.
    """
    key = read_present(settings, settings.keys_dir / name)
    if not is_ed25519(key):
        raise KeyMissingError(f"{name} is not an Ed25519 key: restore the keys directory")
    return NoteSigner(settings.origin, key)


def load_ml_dsa(settings: Settings) -> Cosigner | None:
    """Return the log's ML-DSA-44 key, None if it has none.

    Raises KeyMissingError: only its public half exists, or it is of another kind.
    """
    folder = settings.keys_dir
    if not (folder / ML_DSA_KEY).exists() and not (folder / ML_DSA_VKEY).exists():
        return None
    return load_cosigner(settings, ML_DSA_KEY)


def load_cosigner(settings: Settings, name: str) -> Cosigner:
    """Return an ML-DSA-44 key of the log.

    Raises KeyMissingError: it is missing, or of another kind.
    """
    path = settings.keys_dir / name
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
        if not isinstance(key, MLDSA44PrivateKey):
            raise ValueError
    except FileNotFoundError:
        raise KeyMissingError(
            f"{path} is missing, and {path.with_suffix('.vkey').name} is there: restore the "
            "keys directory"
        ) from None
    except (TypeError, ValueError, UnsupportedAlgorithm):
        raise KeyMissingError(
            f"{path} is not an ML-DSA-44 key: restore the keys directory"
        ) from None
    return Cosigner(settings.origin, key)


def make_ml_dsa(settings: Settings, name: str) -> Cosigner:
    """Create an ML-DSA-44 key in this file, in place of one that it has."""
    made = MLDSA44PrivateKey.generate()
    pem = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_durably(settings.keys_dir / name, pem)
    return Cosigner(settings.origin, made)


def _has_next(settings: Settings, role: str, signer: NoteVerifier) -> bool:
    announced = _read(settings.keys_dir / RoleFiles(role).next_vkey, role)
    # Equal if a crash interrupted the end of an overlap: the next key has taken its place.
    return bool(announced) and announced != [signer]


def _require_next(settings: Settings, role: str, found: NoteVerifier) -> None:
    files = RoleFiles(role)
    if [found] != _read(settings.keys_dir / files.next_vkey, role):
        raise KeyMissingError(
            f"{files.next_key} is not the key of {files.next_vkey}: restore it"
        )


def read_previous(settings: Settings, role: str = LOG) -> list[NoteVerifier]:
    """Return the retired public keys, oldest first."""
    return _read(settings.keys_dir / RoleFiles(role).previous, role)


def read_log_keys(settings: Settings) -> LogKeys:
    """Return all public keys of the log, oldest first.

    Raises KeyMissingError: a file holds no key of its kind, or no file exists.
    """
    folder = settings.keys_dir
    found = [*read_previous(settings), *_read(folder / LOG_VKEY), *_read(folder / NEXT_VKEY)]
    if not found:
        raise KeyMissingError(f"{folder / LOG_VKEY} is missing: restore the keys directory")
    return LogKeys.of(*{one.vkey: one for one in found}.values())


def _read(path: Path, role: str = LOG) -> list[NoteVerifier]:
    return list(_lines(path, KINDS[role])) if path.exists() else []


def _lines(path: Path, kind: bytes) -> Iterator[NoteVerifier]:
    try:
        for line in path.read_text(encoding="utf-8").split():
            if (found := parse_vkey(line)).kind != kind:
                raise NoteError("a key of another kind")
            yield found
    except (NoteError, UnicodeDecodeError):
        raise KeyMissingError(f"{path} holds no key of a log: restore it") from None
