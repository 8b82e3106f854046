"""The root secret: everything is sealed or tagged under keys derived from it.

Tags are one-way, so a secret that makes tags can never be replaced. A master key can be: it
only seals the root secret. `root.sealed`, beside the keys, has the secret sealed once for each
master key that may open it.

    {"apiVersion":"1","keys":[{"keyid":"…","sealed":"…"}]}     oldest first, two in an overlap

A keyid is random and names the master key in the log; the seal covers it.
"""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.vault.errors import MasterKeyError, SealError
from app.vault.seal import context, new_key, open_sealed, seal
from lethe import canonical
from lethe.canonical import format_base64, parse_base64
from lethe.files import write_durably

FILE = "root.sealed"
_KEYID = re.compile(r"[0-9a-f]{16}")
_MISSHAPEN = (LookupError, TypeError, ValueError, AttributeError)


@dataclass(frozen=True, slots=True)
class SealedRoot:
    """The root secret sealed under the master key named `keyid`."""

    keyid: str
    sealed: bytes


def seal_root(master: bytes, root: bytes) -> SealedRoot:
    """Seal a root secret under a master key, with a new keyid."""
    keyid = secrets.token_hex(8)
    return SealedRoot(keyid, seal(master, root, _place(keyid)))


def open_root(master: bytes, roots: Sequence[SealedRoot]) -> tuple[str, bytes] | None:
    """Return a master key's keyid and the root secret; None if the key opens none of these."""
    for one in roots:
        try:
            return one.keyid, open_sealed(master, one.sealed, _place(one.keyid))
        except SealError:
            continue
    return None


def read_roots(keys: Path) -> tuple[SealedRoot, ...]:
    """Return the sealed roots in the directory `keys`, oldest first.

    Raises MasterKeyError: the file is missing or malformed.
    """
    path = keys / FILE
    try:
        found = canonical.decode(path.read_bytes().removesuffix(b"\n"))
        roots = tuple(
            SealedRoot(one["keyid"], parse_base64(one["sealed"])) for one in found["keys"]
        )
        named = all(_KEYID.fullmatch(one.keyid) for one in roots)
        if not roots or not named or found != _document(roots):
            raise ValueError
    except FileNotFoundError:
        raise MasterKeyError(
            f"{path} is missing: restore it from a backup of the keys directory. After an "
            "upgrade, run `lethe migrate` with the master key"
        ) from None
    except (canonical.NotCanonicalError, *_MISSHAPEN):
        raise MasterKeyError(
            f"{path} is damaged: restore it from a backup of the keys directory"
        ) from None
    return roots


def write_roots(keys: Path, roots: Sequence[SealedRoot], *, replace: bool = True) -> None:
    """Write the sealed roots to the directory `keys`, durably.

    Raises FileExistsError: `replace` is False and the file exists.
    """
    write_durably(keys / FILE, canonical.encode(_document(roots)) + b"\n", replace=replace)


def create_root(keys: Path, master: bytes, root: bytes | None = None) -> None:
    """Write a new root secret sealed under `master`; an existing file is kept.

    root: the secret to seal instead, for an upgraded installation (`app.keys.adopt`).
    """
    try:
        write_roots(keys, [seal_root(master, root or new_key())], replace=False)
    except FileExistsError:
        return


def _document(roots: Sequence[SealedRoot]) -> dict[str, object]:
    listed = [{"keyid": one.keyid, "sealed": format_base64(one.sealed)} for one in roots]
    return {"apiVersion": "1", "keys": listed}


def _place(keyid: str) -> bytes:
    return context("root secret", keyid)
