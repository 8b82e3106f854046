"""A model's sealed secret, and the keys derived from it: for tags, uploads, noise and audits.

A certified removal draws its noise from a key that the log's entry `model.registered` commits
to, before the first row and the first request. So the key cannot be chosen once the rows to
remove are known. The key would allow removing the noise from every version, so it is never
published.
"""

import hashlib
import hmac
from collections.abc import Collection
from typing import Any

from app.vault.master import RootSecret
from models import Model

CERTIFIED_NEWTON, NOISY_FINETUNING = "certified-newton", "noisy-finetuning"
NOISE_DIGEST = "noise"  # its name in the entry `model.registered`
# Tags are HMACs of record ids under the same key. These labels are not UTF-8, unlike any id.
_NOISE = b"\xfflethe certified noise key 1"
_AUDITS = b"\xfflethe audit pair key 1"
_UPLOADS = b"\xfflethe upload key 1"
# workers/judge/certified/logistic_noise.py computes the commitment independently.
_COMMITMENT = b"lethe certified noise key 1\x00"
UPLOAD = "upload"  # its name in the entry of a contribution, or of a registration with rows
ADD_BACK = "addBack"  # digest in the log's entry of a contribution that adds records back


def record_tag(tombstone_key: bytes, record: str) -> bytes:
    """Return the tag that replaces an erased record's id: HMAC-SHA256 under the model's key."""
    return hmac.new(tombstone_key, record.encode(), hashlib.sha256).digest()


def open_tombstone_key(root_secret: RootSecret, model: Model) -> bytes:
    """Unseal the key that tags a model's erased records."""
    return root_secret.open(model.tombstone_key, aad=f"tombstone|{model.ref}".encode())


def tags_digest(tags: Collection[bytes]) -> str:
    """Return the hex SHA-256 of the concatenated tags in ascending order."""
    return hashlib.sha256(b"".join(sorted(tags))).hexdigest()


def upload_tag(root_secret: RootSecret, model: Model, contribution: str, digest: str) -> str:
    """Return an upload's tag in the log: hex HMAC-SHA256 under a key of the model.

    contribution: its id. digest: hex SHA-256 of the upload, which without a key would let
    anyone confirm a guess of the rows.
    """
    key = hmac.digest(open_tombstone_key(root_secret, model), _UPLOADS, "sha256")
    return hmac.digest(key, f"{contribution}|{digest}".encode(), "sha256").hex()


def has_noise(config: dict[str, Any]) -> bool:
    """Return whether a model with this configuration uses noise."""
    settings = config.get("settings", {})
    return NOISY_FINETUNING in settings or bool(settings.get(CERTIFIED_NEWTON, {}).get("sigma"))


def noise_key(root_secret: RootSecret, model: Model) -> bytes:
    """Return a model's noise key: 32 secret bytes."""
    return hmac.new(open_tombstone_key(root_secret, model), _NOISE, hashlib.sha256).digest()


def noise_commitment(root_secret: RootSecret, model: Model) -> dict[str, str]:
    """Return the named digest for the log; empty for a model without noise."""
    if not has_noise(model.config):
        return {}
    return {
        NOISE_DIGEST: hashlib.sha256(_COMMITMENT + noise_key(root_secret, model)).hexdigest()
    }


def audit_mac_key(root_secret: RootSecret, model: Model) -> bytes:
    """Return the key of a model's audits: 32 secret bytes."""
    return hmac.new(open_tombstone_key(root_secret, model), _AUDITS, hashlib.sha256).digest()
