"""A witness's directory: its keys, its list of logs, and its state.

witness.key        Ed25519, cosigns with type 0x04        witness.vkey
witness-mldsa.key  ML-DSA-44, cosigns with type 0x06      witness-mldsa.vkey
logs               `lethe.witness.logs`; a line that begins with # is a comment
heads/, evidence/  `lethe.witness.heads`
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from lethe.files import write_durably
from lethe.log.cosigner import Cosigner
from lethe.log.note import NoteError, NoteVerifier, parse_vkey
from lethe.witness.heads import Heads
from lethe.witness.logs import HomeError, LogList, write
from lethe.witness.witness import Witness

KEYS: Mapping[str, type[Ed25519PrivateKey | MLDSA44PrivateKey]] = {
    "witness": Ed25519PrivateKey,
    "witness-mldsa": MLDSA44PrivateKey,
}


def create(directory: Path, name: str, logs: Sequence[NoteVerifier]) -> tuple[Cosigner, ...]:
    """Create a witness: two keys, the list of its logs, and an empty state.

    Raises:
        HomeError: The directory exists and is not empty.
        NoteError: The name cannot be a key's name.
        OSError: The directory cannot be written.
    """
    cosigners = tuple(Cosigner(name, kind.generate()) for kind in KEYS.values())
    vkeys = [one.verifier.vkey for one in cosigners]  # checks the name before files are written
    if len(name.encode()) > 255:
        raise NoteError("a cosigner's name has at most 255 bytes")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise HomeError(f"{directory} is not empty: a witness never gets a second key there")
    for stem, one, vkey in zip(KEYS, cosigners, vkeys, strict=True):
        pem = one.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        write_durably(directory / f"{stem}.key", pem, replace=False)
        write_durably(directory / f"{stem}.vkey", f"{vkey}\n".encode(), mode=0o644)
    write(directory, logs)
    Heads.create(directory)
    return cosigners


def load(directory: Path, clock: Callable[[], float] = time.time) -> Witness:
    """Open a witness for `serve`, exclusively until it is closed.

    Raises HomeError: a key or the list of logs is missing or malformed; StateError: its state
    is missing, or another process uses it.
    """
    cosigners = [_cosigner(directory, stem) for stem in KEYS]
    return Witness(cosigners, LogList(directory).keys, Heads(directory), clock)


def _cosigner(directory: Path, stem: str) -> Cosigner:
    try:
        key = load_pem_private_key((directory / f"{stem}.key").read_bytes(), password=None)
        line = (directory / f"{stem}.vkey").read_text("utf-8").removesuffix("\n")
        verifier = parse_vkey(line)
        if not isinstance(key, (Ed25519PrivateKey, MLDSA44PrivateKey)):
            raise ValueError
        cosigner = Cosigner(verifier.name, key)
        if cosigner.verifier.vkey != verifier.vkey:
            raise ValueError
    except FileNotFoundError:
        raise HomeError(
            f"{directory} has no {stem}.key and {stem}.vkey: run `lethe witness init`"
        ) from None
    except (NoteError, TypeError, ValueError, UnsupportedAlgorithm):
        raise HomeError(
            f"{stem}.key and {stem}.vkey in {directory} are not one key: restore them"
        ) from None
    return cosigner
