"""Signatures of Standard Webhooks: v1 (HMAC-SHA256) and v1a (Ed25519).

Source: the specification's sections "Signature scheme" and "Verifying signatures"
(standard-webhooks/standard-webhooks, spec/standard-webhooks.md). The signed text is
`webhook-id.webhook-timestamp.body`.
"""

import base64
import hmac
import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

Kind = Literal["v1", "v1a"]
SECRET_BYTES = 32  # the specification asks for 24 to 64
Secret = dict[str, Any]  # kind, key (base64) and until (ISO 8601, or None)


def new_secret(kind: Kind) -> Secret:
    """Return a fresh secret in the form that the database seals."""
    key = base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()
    return {"kind": kind, "key": key, "until": None}


def shown(secret: Secret) -> str:
    """Return what the receiver verifies with: `whsec_…`, or the public key `whpk_…` of v1a."""
    if secret["kind"] == "v1":
        return f"whsec_{secret['key']}"
    public = _private(secret).public_key().public_bytes_raw()
    return f"whpk_{base64.b64encode(public).decode()}"


def is_in_use(secret: Secret, now: datetime) -> bool:
    """Return whether a secret still signs."""
    return secret["until"] is None or datetime.fromisoformat(secret["until"]) > now


def sign(
    known: Sequence[Secret], now: datetime, message_id: str, timestamp: int, body: bytes
) -> str:
    """Return the header webhook-signature: one signature of each secret in use."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return " ".join(_sign(one, signed) for one in known if is_in_use(one, now))


def _sign(secret: Secret, signed: bytes) -> str:
    if secret["kind"] == "v1":
        made = hmac.digest(base64.b64decode(secret["key"]), signed, "sha256")
    else:
        made = _private(secret).sign(signed)
    return f"{secret['kind']},{base64.b64encode(made).decode()}"


def _private(secret: Secret) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(base64.b64decode(secret["key"]))
