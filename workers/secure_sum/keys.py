"""Keys of one round: agreed by X25519, derived by HKDF-SHA256, each used for one purpose.

Every derivation names the plan, its purpose and the parties, each with its length, so two
uses never share a key (RFC 5869 section 3.2).
"""

import secrets
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from workers.secure_sum.errors import MalformedMessageError
from workers.secure_sum.plan import RoundPlan

SEED_BYTES = 16  # the size of shared secrets; X25519 has 128-bit strength too
KEY_BYTES = 32


def derive(secret: bytes, plan: RoundPlan, purpose: str, *parties: str) -> bytes:
    """Return 32 bytes for one purpose of one round between these parties, in this order."""
    parts = [b"lethe/masked-round/v1", purpose.encode(), *(name.encode() for name in parties)]
    info = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return HKDF(SHA256(), KEY_BYTES, salt=plan.digest, info=info).derive(secret)


def public_bytes(key: X25519PrivateKey) -> bytes:
    """Return the 32 bytes of a private key's public half."""
    return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def agree(own: X25519PrivateKey, peer: bytes) -> bytes:
    """Return the 32 bytes that both sides compute (RFC 7748 section 6.1).

    Raises MalformedMessageError if the peer's key is not 32 bytes, or a point of small order,
    with which every agreement gives zeros.
    """
    try:
        return own.exchange(X25519PublicKey.from_public_bytes(peer))
    except ValueError:
        raise MalformedMessageError(
            "a member advertised a key that is no X25519 public key: open a new "
            "round without it"
        ) from None


def mask_key(seed: bytes, plan: RoundPlan, member: str) -> X25519PrivateKey:
    """Return the pairwise mask key derived from a 16-byte seed.

    The seed is secret-shared among the members and recovered if this member drops out.
    """
    return X25519PrivateKey.from_private_bytes(derive(seed, plan, "mask key", member))


def commit_self_seed(seed: bytes, plan: RoundPlan, member: str) -> bytes:
    """Return the commitment to a self mask's seed, used to check shares.

    The seed is 16 uniform bytes, so the commitment hides it as well as any 128-bit key.
    """
    return derive(seed, plan, "self mask commitment", member)


@dataclass(frozen=True, slots=True)
class Secrets:
    """A member's secrets of one round, generated fresh and never stored."""

    cipher: X25519PrivateKey = field(default_factory=X25519PrivateKey.generate)
    mask_seed: bytes = field(
        default_factory=lambda: secrets.token_bytes(SEED_BYTES), repr=False
    )
    self_seed: bytes = field(
        default_factory=lambda: secrets.token_bytes(SEED_BYTES), repr=False
    )
