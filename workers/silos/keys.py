"""Each silo's Ed25519 key: created by its first worker, replaced by rotation.

The private key is in LETHE_SILO_KEY_DIR, the public key in the data directory's `keys/`, next
to the keys of the log and the certificates: anyone who can write there can forge without a
silo. A signature shows which silo's process an answer is from.
"""

from contextlib import suppress

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from app.service.access.rotate_silo import promote
from app.service.access.silo_keys import (
    next_path,
    previous_path,
    private_path,
    public_key,
    public_path,
    read_private,
)
from app.settings import Settings
from lethe.errors import LetheError
from lethe.files import write_durably
from lethe.signing.keys import generate_key
from lethe.signing.keys import private_pem as pem_of
from lethe.signing.keys import public_pem as public_pem_of

__all__ = ["private_path", "public_key", "public_path"]  # the service defines these paths

# All signed data begins with one of these, and nothing else does.
SCORES, UPDATE = b"lethe/silo-answer/v1\0", b"lethe/silo-update/v1\0"
SIGNATURE = 64  # bytes, RFC 8032 section 5.1.6


class SiloKeyError(LetheError):
    """A silo's key is missing, or is not the registered one."""

    slug, title, status = "silo-key", "A silo's key does not fit", 503


class NotThisSiloError(LetheError):
    """A task for a silo that this worker does not serve."""

    slug, title, status = "silo-not-this", "A task for another silo", 403


class NotSignedError(LetheError):
    """Bytes that the silo's registered key did not sign."""

    slug, title, status = "silo-not-signed", "Not signed by the silo", 400


def register(settings: Settings, silo: int) -> None:
    """Create a silo's key if there is none, and register it unless one is registered.

    Raises SiloKeyError if another key is registered, or a file is no Ed25519 key.
    """
    path = private_path(settings, silo)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    promote(settings, silo)
    with suppress(FileExistsError):  # several workers may start for one silo
        write_durably(path, pem_of(generate_key()).encode(), replace=False)
    public = public_pem_of(private_key(settings, silo)).encode()
    with suppress(FileExistsError):
        write_durably(public_path(settings, silo), public, replace=False, mode=0o644)
    before = previous_path(settings, silo)
    registered = [public_path(settings, silo), *((before,) if before.exists() else ())]
    if all(one.read_bytes() != public for one in registered):
        raise SiloKeyError(
            f"another key than this is registered for silo {silo}: give this worker the "
            f"silo's own {path.name} (LETHE_SILO_KEY_DIR), or remove the registered "
            f"{public_path(settings, silo).name} from the keys directory to register this one"
        )


def private_key(settings: Settings, silo: int) -> Ed25519PrivateKey:
    """Return a silo's private key. Raises SiloKeyError if there is none.

    During a rotation this is the new key as soon as it is registered.
    """
    key = read_private(private_path(settings, silo))
    following = read_private(next_path(settings, silo))
    if following is not None and following.public_key() == public_key(settings, silo):
        key = following
    if key is None:
        raise SiloKeyError(
            f"the key of silo {silo} is missing or no Ed25519 key: start `lethe worker --silo "
            f"{silo}` with the LETHE_SILO_KEY_DIR that holds it"
        )
    return key


def sign(key: Ed25519PrivateKey, answer: bytes, context: bytes = SCORES) -> bytes:
    """Return an answer, prefixed with its signature."""
    return key.sign(context + answer) + answer


def opened(key: Ed25519PublicKey, signed: bytes, context: bytes = SCORES) -> bytes:
    """Return the answer of what `sign` returned. Raises NotSignedError."""
    answer = signed[SIGNATURE:]
    try:
        key.verify(signed[:SIGNATURE], context + answer)
    except InvalidSignature:
        raise NotSignedError("the silo's registered key did not sign this answer") from None
    return answer
