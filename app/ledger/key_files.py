"""Files of signing keys: a private key in PEM, or the place of a key that is elsewhere.

A place is the PKCS#11 URI of a key in an HSM, or `env:` and the name of an environment
variable. Reading a file of any kind gives an object that can sign and that has a public key.
Rotations rename all kinds, so the next key may be of another kind.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeGuard

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from app.hsm.errors import HsmError, KeyAwayError
from app.hsm.uri import SCHEME as PKCS11
from app.hsm.uri import KeyUri, parse_uri
from app.ledger.key_environment import SCHEME as ENVIRONMENT
from app.ledger.key_environment import EnvironmentKey, parse_environment_key
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
KeyPlace = KeyUri | EnvironmentKey
IN_FILE = "file"


class KeyPlaceError(LetheError):
    """A key cannot be created in this place."""

    slug, title, status = "key-place", "The key cannot be made there", 409


def read_key(settings: Settings, path: Path) -> SigningKey:
    """Return the key of a file.

    Raises:
        FileNotFoundError: There is no file.
        KeyFormatError: The file holds neither a private key nor a place.
        KeyAwayError: The key cannot be reached in its place.
    """
    data = path.read_bytes()
    if (place := _place_in(data)) is None:
        return load_private_key(data)
    return _open(settings, place)


def parse_place(text: str) -> KeyPlace | None:
    """Read the place of a key, None for `file`: the key file itself.

    Raises KeyAwayError: it is malformed.
    """
    if text == IN_FILE:
        return None
    return parse_environment_key(text) if text.startswith(ENVIRONMENT) else parse_uri(text)


def is_ed25519(key: SigningKey) -> TypeGuard[NoteKey]:
    """Return whether a key can sign for a log."""
    return isinstance(key.public_key(), Ed25519PublicKey)


def is_p256(key: SigningKey) -> TypeGuard[P256Key]:
    """Return whether a key can sign envelopes; P-256 is the only curve that is read."""
    return isinstance(key.public_key(), EllipticCurvePublicKey)


def named_by(path: Path) -> KeyPlace | None:
    """Return the place in a key file, None if it holds the key itself or does not exist.

    Raises KeyAwayError: the place is malformed.
    """
    with suppress(FileNotFoundError):
        return _place_in(path.read_bytes())
    return None


def kept_elsewhere(folder: Path) -> list[str]:
    """Return the names of the key files that hold a place: backups lack those keys."""
    files = (one for one in sorted(folder.glob("*.key")) if one.is_file())
    return [one.name for one in files if _names_place(one.read_bytes())]


def ensure_key(
    settings: Settings, path: Path, algorithm: Algorithm, place: KeyPlace | None
) -> SigningKey:
    """Return the first key of a role: read from its file, or else created in `place`.

    place: None for the file itself.

    Raises:
        KeyPlaceError: The file has a key that is in another place.
        KeyFormatError, KeyAwayError: As `read_key`; or `place` has a key of another algorithm.
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
    replaced, since somebody else may know that key. to: as for `parse_place`, or None for the
    place of the key in use. known: SubjectPublicKeyInfo of all keys of the role, the one in use
    last.
    In a token, the next key is numbered after them, so that a key pair left by a crash is found
    again: it has signed nothing and cannot be copied. Any other pair there is refused. The next
    variable is numbered likewise.

    Raises:
        KeyPlaceError: The log already names the key in the file or in that place; or the file
            is a directory.
        KeyFormatError, KeyAwayError: As `ensure_key`.
    """
    if to is None:
        here = named_by(current)
        place = None if here is None else here.numbered(len(known) + 1)
    else:
        place = parse_place(to)
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
    except (FileNotFoundError, KeyFormatError, KeyAwayError):
        return False


def read_next(settings: Settings, path: Path) -> SigningKey | None:
    """Return the next key of an unfinished rotation, None if the file is missing or no key.

    Raises KeyPlaceError: the path is a directory; KeyAwayError: the key cannot be reached in
    its place.
    """
    require_no_folder(path)
    try:
        return read_key(settings, path)
    except (FileNotFoundError, KeyFormatError):
        return None
    except KeyAwayError as error:  # the log may name this key
        raise KeyAwayError(
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
    place: KeyPlace | None,
    known: Collection[bytes] = (),
    *,
    replace: bool = False,
) -> SigningKey:
    made: SigningKey
    if place is None:
        private = generate_key(algorithm)
        made, data = private, private_pem(private).encode()
    else:
        if isinstance(place, KeyUri):  # what supplies a variable makes its key
            _generate(settings, place, algorithm, unknown=replace)
        # Check before writing the file: one naming a wrong key would need removing by hand.
        made = _open(settings, place)
        if algorithm_of(made.public_key()) != algorithm:
            raise KeyAwayError(f"the key {_name(place)} is none of the kind {algorithm}")
        if _spki(made) in known:
            raise KeyPlaceError(
                f"the log names the key {_name(place)} already: give another --to"
            )
        data = f"{place}\n".encode()
    with suppress(FileExistsError):
        write_durably(path, data, replace=replace)
    return made


def _spki(key: SigningKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _names_place(data: bytes) -> bool:
    return data.lstrip().startswith((PKCS11.encode(), ENVIRONMENT.encode()))


def _place_in(data: bytes) -> KeyPlace | None:
    if not _names_place(data):
        return None
    return parse_place(data.decode(errors="replace").strip())


def _name(place: KeyPlace) -> str:
    return place.object if isinstance(place, KeyUri) else place.name


def _open(settings: Settings, place: KeyPlace) -> SigningKey:
    if isinstance(place, EnvironmentKey):
        return place.load()
    with _need_pkcs11():
        from app.hsm.token_keys import open_key
    return open_key(settings, place)


def _generate(settings: Settings, uri: KeyUri, algorithm: Algorithm, *, unknown: bool) -> None:
    with _need_pkcs11():
        from app.hsm.token_keys import generate
    generate(settings, uri, algorithm, unknown=unknown)


@contextmanager
def _need_pkcs11() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "pkcs11":
            raise
        raise HsmError(f"a key is in a PKCS#11 token; {with_extra('pkcs11')}") from None
