"""The key that callbacks are signed with (Standard Webhooks, v1a): one for the installation.

It is derived from `entries.key`, so it is in that key's backup and in no table. It signs
nothing else.
"""

import base64
from datetime import UTC, datetime

from app.ledger.entry_macs import EntryKey
from app.notices.signatures import Secret, shown, sign

LABEL = "lethe callbacks 1: v1a"


def headers_of(key: EntryKey, message_id: str, now: datetime, body: bytes) -> dict[str, str]:
    """Return the headers of Standard Webhooks for a body."""
    stamp = int(now.timestamp())
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(stamp),
        "webhook-signature": sign([_secret(key)], now.astimezone(UTC), message_id, stamp, body),
    }


def public_key(key: EntryKey) -> str:
    """Return the public key that receivers verify with, `whpk_…`."""
    return shown(_secret(key))


def _secret(key: EntryKey) -> Secret:
    return {"kind": "v1a", "key": base64.b64encode(key.derive(LABEL)).decode(), "until": None}
