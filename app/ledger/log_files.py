"""The log's key files: the key that signs, the next one in an overlap, and those from before.

log.key             signs                      log.vkey        its public half
log.next.key        signs too, once announced  log.next.vkey   there from then on
log.previous.vkeys  public halves of the keys that signed before, a line each

A `.key` file has the private key, or names it in an HSM (`app.ledger.key_files`).
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from app.hsm.errors import HsmError
from app.ledger.entry_macs import KeyMissingError
from app.ledger.key_files import is_ed25519, read_key
from app.ledger.signers import LogSigners
from app.settings import Settings
from lethe.log.cosigner import Cosigner
from lethe.log.log_keys import LogKeys
from lethe.log.note import NoteError, NoteSigner, NoteVerifier, parse_log_vkey
from lethe.signing.errors import KeyFormatError

LOG_KEY, LOG_VKEY = "log.key", "log.vkey"
NEXT_KEY, NEXT_VKEY, PREVIOUS = "log.next.key", "log.next.vkey", "log.previous.vkeys"


class SignerFiles:
    """Gives the keys in the files, also once a rotation has changed these.

    Any other change is none: a process goes on with the keys that it began with, and `/readyz`
    says that the files have others.
    """

    def __init__(self, settings: Settings, cosigner: Cosigner | None) -> None:
        self._settings = settings
        # Asked for several times in each transaction: paths are joined once.
        self._paths = [str(settings.keys_dir / name) for name in (LOG_KEY, NEXT_VKEY, PREVIOUS)]
        self._seen = self._stamp()
        self._loaded = load_signers(settings, cosigner)

    def current(self) -> LogSigners:
        """Return the keys that sign now."""
        if (stamp := self._stamp()) != self._seen:
            # Whoever reads between two steps of a rotation reads again at the next call.
            with suppress(KeyMissingError):
                found = load_signers(self._settings, self._loaded.cosigner)
                held, own = found.signers[0].verifier, self._loaded.signers
                if held in [one.verifier for one in own] or own[0].verifier in found.previous:
                    self._loaded = found
                self._seen = stamp
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


def load_signers(settings: Settings, cosigner: Cosigner | None) -> LogSigners:
    """Return the keys in the files.

    Raises:
        KeyMissingError: One is missing or not an Ed25519 key.
    """
    signer = load_signer(settings)
    following = load_next(settings, signer)
    others = () if following is None else (following,)
    return LogSigners((signer, *others), cosigner, read_previous(settings))


def load_signer(settings: Settings, name: str = LOG_KEY) -> NoteSigner:
    """Return a key of the log.

    Raises:
        KeyMissingError: It is missing, not in reach, or not an Ed25519 key.
    """
    path = settings.keys_dir / name
    try:
        key = read_key(settings, path)
    except FileNotFoundError:
        raise KeyMissingError(
            f"{path} is missing: restore the keys directory from its backup, or, for a new "
            "installation, run `lethe log init`"
        ) from None
    except (KeyFormatError, HsmError) as error:
        raise KeyMissingError(f"{path}: {error.detail}") from None
    if not is_ed25519(key):
        raise KeyMissingError(f"{name} is not an Ed25519 key: restore the keys directory")
    return NoteSigner(settings.origin, key)


def load_next(settings: Settings, signer: NoteSigner) -> NoteSigner | None:
    """Return the next key in an overlap, None outside of one.

    Raises:
        KeyMissingError: Its public half is there and it is not.
    """
    announced = _read(settings.keys_dir / NEXT_VKEY)
    # The end of an overlap was interrupted: the next key is in its place already.
    if not announced or announced == [signer.verifier]:
        return None
    found = load_signer(settings, NEXT_KEY)
    if [found.verifier] != announced:
        raise KeyMissingError(f"{NEXT_KEY} is not the key of {NEXT_VKEY}: restore it")
    return found


def read_previous(settings: Settings) -> list[NoteVerifier]:
    """Return the keys that signed before, oldest first."""
    return _read(settings.keys_dir / PREVIOUS)


def read_log_keys(settings: Settings) -> LogKeys:
    """Return all public keys of the log, oldest first.

    Raises:
        KeyMissingError: A file holds none.
    """
    folder = settings.keys_dir
    found = [*read_previous(settings), *_read(folder / LOG_VKEY), *_read(folder / NEXT_VKEY)]
    if not found:
        raise KeyMissingError(f"{folder / LOG_VKEY} is missing: restore the keys directory")
    return LogKeys.of(*{one.vkey: one for one in found}.values())


def _read(path: Path) -> list[NoteVerifier]:
    return list(_lines(path)) if path.exists() else []


def _lines(path: Path) -> Iterator[NoteVerifier]:
    try:
        for line in path.read_text(encoding="utf-8").split():
            yield parse_log_vkey(line)
    except (NoteError, UnicodeDecodeError):
        raise KeyMissingError(f"{path} holds no key of a log: restore it") from None
