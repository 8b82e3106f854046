"""Verification of callbacks: Standard Webhooks, signature scheme v1a.

Source: "Verifying webhook authenticity" of the specification (standard-webhooks). The signed
text is `webhook-id.webhook-timestamp.body`.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from lethe.client.errors import NoticeError

PREFIX = "whpk_"
TOLERANCE_S = 300  # between both clocks, as the specification's libraries allow


def verify_callback(
    key: str, headers: Mapping[str, str], body: bytes, now: datetime | None = None
) -> dict[str, Any]:
    """Return a callback's JSON if the service's key signed it recently.

    key: of `Client.callback_key`, `whpk_…`. body: the bytes as they came. Raises NoticeError:
    it was not signed by this key, is too old, or is not a JSON object.
    """
    named = {name.lower(): value for name, value in headers.items()}
    try:
        raw = base64.b64decode(key.removeprefix(PREFIX), validate=True)
        public = Ed25519PublicKey.from_public_bytes(raw)
    except (binascii.Error, ValueError):
        raise NoticeError(
            f"the key must be the service's public key, which begins with {PREFIX}"
        ) from None
    try:
        name, stamp = named["webhook-id"], named["webhook-timestamp"]
        signatures, sent = named["webhook-signature"].split(), int(stamp)
    except (KeyError, ValueError):
        raise NoticeError(
            "webhook-id, webhook-timestamp or webhook-signature is missing or "
            "malformed: pass the headers of the call"
        ) from None
    signed = f"{name}.{stamp}.".encode() + body
    if not any(_is_signed(public, one, signed) for one in signatures):
        raise NoticeError("the service's key did not sign this callback")
    if abs(int((now or datetime.now(UTC)).timestamp()) - sent) > TOLERANCE_S:
        raise NoticeError(
            f"the callback's time is more than {TOLERANCE_S} seconds from now: it "
            "is old, or a clock is wrong"
        )
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise NoticeError("the callback is no JSON object")
    return said


def _is_signed(public: Ed25519PublicKey, signature: str, signed: bytes) -> bool:
    version, _, value = signature.partition(",")
    if version != "v1a":
        return False
    try:
        public.verify(base64.b64decode(value, validate=True), signed)
    except (ValueError, InvalidSignature):  # not base64; binascii.Error is a ValueError
        return False
    return True
