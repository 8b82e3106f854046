"""Threshold shares of 16-byte secrets, each sealed for its recipient.

Shamir over GF(2^128) from PyCryptodome. Its pitfalls, avoided here: it takes any threshold
and any index, it interpolates any input, so a wrong share silently gives a wrong secret, and
`ssss=True` selects another scheme. So exactly `threshold` shares are combined, indices are
positions on the roster, and the result is checked against the owner's commitment.
"""

from collections.abc import Callable, Mapping
from itertools import combinations, islice

from Crypto.Protocol.SecretSharing import Shamir
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from workers.secure_sum.errors import MaskMismatchError, TooFewSurvivorsError, WrongLengthError
from workers.secure_sum.keys import SEED_BYTES, agree, derive
from workers.secure_sum.plan import RoundPlan
from workers.secure_sum.spelling import spell

SEALED_BYTES = 2 * SEED_BYTES + 16  # two shares and the tag
MAX_TRIES = 64  # subsets of shares, when some are wrong


def split(plan: RoundPlan, secret: bytes) -> dict[str, bytes]:
    """Return a share of a 16-byte secret for each member of the roster."""
    if len(secret) != SEED_BYTES:
        raise WrongLengthError(f"a shared secret has {SEED_BYTES} bytes")
    parts = Shamir.split(plan.threshold, len(plan.members), secret, ssss=False)
    return {plan.members[index - 1]: share for index, share in parts}


def combine(
    plan: RoundPlan,
    shares: Mapping[str, bytes],
    is_secret: Callable[[bytes], bool],
    doubted: set[str],
) -> bytes:
    """Return the secret of shares (by holder), recognised by `is_secret`.

    With spare shares, a wrong one is skipped, and its holder added to `doubted`. Shares of
    those holders are used last: a member that lies about every secret would have each tried up
    to MAX_TRIES times.

    Raises:
        TooFewSurvivorsError: Fewer shares than the threshold.
        MaskMismatchError: No tried subset gives the secret.
    """
    if len(shares) < plan.threshold:
        raise TooFewSurvivorsError(
            f"{len(shares)} shares of a secret and {plan.threshold} are needed: open a new "
            "round, perhaps without the members that dropped out"
        )
    if any(len(share) != SEED_BYTES for share in shares.values()):
        raise WrongLengthError(f"a share must have {SEED_BYTES} bytes")
    holders = sorted(shares, key=lambda holder: (holder in doubted, plan.index(holder)))
    for subset in islice(combinations(holders, plan.threshold), MAX_TRIES):
        points = [(plan.index(holder), shares[holder]) for holder in subset]
        secret = Shamir.combine(points, ssss=False)
        if is_secret(secret):
            doubted.update(set(holders[: plan.threshold]) - set(subset))
            return secret
    raise MaskMismatchError(
        "shares do not make the secret that its owner advertised: a member sent wrong ones; "
        "open a new round"
    )


def seal_shares(
    plan: RoundPlan, own: X25519PrivateKey, me: str, peer: str, key: bytes, shares: bytes
) -> bytes:
    """Encrypt two shares (32 bytes) to a peer by its advertised cipher key.

    The nonce is zero because each key, of one round and one direction, encrypts one message
    only.
    """
    cipher = ChaCha20Poly1305(derive(agree(own, key), plan, "shares", me, peer))
    return cipher.encrypt(bytes(12), shares, _associated(plan, me, peer))


def open_shares(
    plan: RoundPlan, own: X25519PrivateKey, me: str, peer: str, key: bytes, sealed: bytes
) -> bytes:
    """Decrypt shares from `seal_shares`, at their recipient.

    Raises:
        WrongLengthError: It has another length.
        MaskMismatchError: It was changed, or is for other members or another plan.
    """
    if len(sealed) != SEALED_BYTES:
        raise WrongLengthError(f"sealed shares must have {SEALED_BYTES} bytes")
    cipher = ChaCha20Poly1305(derive(agree(own, key), plan, "shares", peer, me))
    try:
        return cipher.decrypt(bytes(12), sealed, _associated(plan, peer, me))
    except InvalidTag:
        raise MaskMismatchError(
            "shares from a member cannot be opened: it follows another plan, or the server "
            "changed them; open a new round"
        ) from None


def _associated(plan: RoundPlan, sender: str, receiver: str) -> bytes:
    return spell({"from": sender, "plan": plan.digest.hex(), "to": receiver})
