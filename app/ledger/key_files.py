"""Files of signing keys: a private key in PEM, or the PKCS#11 URI of a key in an HSM.

Reading either kind of file gives an object that can sign and that has a public key. Rotations
rename both kinds, so the next key may be of the other kind.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeGuard

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from app.hsm.errors import HsmError
from app.hsm.uri import KeyUri, is_uri, parse_uri
from app.settings import Settings
from lethe.errors import LetheError
from lethe.files import write_durably
from lethe.install import with_extra
from lethe.log.note import NoteKey
from lethe.signing.errors import KeyFormatError
from lethe.signing.keys import (
    Algorithm,
    P256Key,
    algorithm_of,
    generate_key,
    load_private_key,
    private_pem,
)

SigningKey = NoteKey | P256Key
IN_FILE = "file"  # the one place that is not a URI


class KeyPlaceError(LetheError):
    """A key cannot be created in this place."""

    slug, title, status = "key-place", "The key cannot be made there", 409


def read_key(settings: Settings, path: Path) -> SigningKey:
    """Return the key of a file.

    Raises:
        FileNotFoundError: There is no file.
        KeyFormatError: The file holds neither a private key nor a PKCS#11 URI.
        HsmError: The key that the URI names cannot be reached.
    """
    data = path.read_bytes()
    if not is_uri(data):
        return load_private_key(data)
    return _open(settings, parse_uri(data.decode(errors="replace")))


def is_ed25519(key: SigningKey) -> TypeGuard[NoteKey]:
    """Return whether a key can sign for a log."""
    return isinstance(key.public_key(), Ed25519PublicKey)


def is_p256(key: SigningKey) -> TypeGuard[P256Key]:
    """Return whether a key can sign envelopes; P-256 is the only curve that is read."""
    return isinstance(key.public_key(), EllipticCurvePublicKey)


def named_by(path: Path) -> KeyUri | None:
    """Return the URI in a key file, None if it holds the key itself or does not exist.

    Raises HsmError: the URI is malformed.
    """
    with suppress(FileNotFoundError):
        if is_uri(data := path.read_bytes()):
            return parse_uri(data.decode(errors="replace"))
    return None


def in_tokens(folder: Path) -> list[str]:
    """Return the names of the key files whose keys are in an HSM: backups lack those keys."""
    files = (one for one in sorted(folder.glob("*.key")) if one.is_file())
    return [one.name for one in files if is_uri(one.read_bytes())]


def ensure_key(
    settings: Settings, path: Path, algorithm: Algorithm, place: KeyUri | None
) -> SigningKey:
    """Return the first key of a role: read from its file, or else created in `place`.

    place: None for the file itself.

    Raises:
        KeyPlaceError: The file has a key that is in another place.
        KeyFormatError, HsmError: As `read_key`; or `place` has a key of another algorithm.
    """
    if not path.exists():
        _make(settings, path, algorithm, place)
    elif place is not None and named_by(path) != place:
        raise KeyPlaceError(f"{path} has another key already: leave the option out to keep it")
    return read_key(settings, path)


def make_next(
    settings: Settings,
    current: Path,
    path: Path,
    algorithm: Algorithm,
    *,
    to: str | None,
    known: Sequence[bytes],
) -> SigningKey:
    """Create the next key of a role and return it. Called under the log's lock.

    current: the file of the key in use. path: the file of the next key; its content is
    replaced, since somebody else may know that key. to: `file`, a URI, or None for the place of
    the key in use. known: SubjectPublicKeyInfo of all keys of the role, the one in use last.
    In a token, the next key is numbered after them, so that a key pair left by a crash is found
    again: it has signed nothing and cannot be copied.

    Raises:
        KeyPlaceError: The log already names the key in the file or in that place; or the file
            is a directory.
        KeyFormatError, HsmError: As `ensure_key`.
    """
    if to is None:
        here = named_by(current)
        place = None if here is None else here.numbered(len(known) + 1)
    else:
        place = None if to == IN_FILE else parse_uri(to)
    require_no_folder(path)
    # If the key in use is in its file, no interrupted rotation needs the next key's file.
    if not has_key(settings, current, known[-1]):
        left = read_next(settings, path)
        if left is not None and _spki(left) in known:
            raise KeyPlaceError(
                f"{path.name} is a key that the log names already: finish that rotation first"
            )
    return _make(settings, path, algorithm, place, known, replace=True)


def has_key(settings: Settings, path: Path, spki: bytes) -> bool:
    """Return whether a file has the key with this SubjectPublicKeyInfo and it is reachable."""
    try:
        return _spki(read_key(settings, path)) == spki
    except (FileNotFoundError, KeyFormatError, HsmError):
        return False


def read_next(settings: Settings, path: Path) -> SigningKey | None:
    """Return the next key of an unfinished rotation, None if the file is missing or no key.

    Raises KeyPlaceError: the path is a directory; HsmError: the key that the URI names cannot
    be reached.
    """
    require_no_folder(path)
    try:
        return read_key(settings, path)
    except (FileNotFoundError, KeyFormatError):
        return None
    except HsmError as error:  # the log may name this key
        raise HsmError(
            f"{path}: {error.detail}. If no rotation wrote this file, remove it, and run this "
            "again"
        ) from None


def require_no_folder(path: Path) -> None:
    """Raises KeyPlaceError if the path of a key file is a directory."""
    if path.is_dir():
        raise KeyPlaceError(f"{path} is a directory: remove it, and run this again")


def _make(
    settings: Settings,
    path: Path,
    algorithm: Algorithm,
    place: KeyUri | None,
    known: Collection[bytes] = (),
    *,
    replace: bool = False,
) -> SigningKey:
    made: SigningKey
    if place is None:
        private = generate_key(algorithm)
        made, data = private, private_pem(private).encode()
    else:
        _generate(settings, place, algorithm)
        # Check before writing the file: one naming a wrong key would need removing by hand.
        made = _open(settings, place)
        if algorithm_of(made.public_key()) != algorithm:
            raise HsmError(f"the key {place.object} is none of the kind {algorithm}")
        if _spki(made) in known:
            raise KeyPlaceError(
                f"the log names the key {place.object} already: give another --to"
            )
        data = f"{place}\n".encode()
    with suppress(FileExistsError):
        write_durably(path, data, replace=replace)
    return made


def _spki(key: SigningKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _open(settings: Settings, uri: KeyUri) -> SigningKey:
    with _need_pkcs11():
        from app.hsm.token_keys import open_key
    return open_key(settings, uri)


def _generate(settings: Settings, uri: KeyUri, algorithm: Algorithm) -> None:
    with _need_pkcs11():
        from app.hsm.token_keys import generate
    generate(settings, uri, algorithm)


@contextmanager
def _need_pkcs11() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "pkcs11":
            raise
        raise HsmError(f"a key is in a PKCS#11 token; {with_extra('pkcs11')}") from None
