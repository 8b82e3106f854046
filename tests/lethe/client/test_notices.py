"""`verify_callback`: only what the service's key signed, lately, is believed."""

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lethe.client import NoticeError, verify_callback

PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
KEY = f"whpk_{base64.b64encode(PRIVATE.public_key().public_bytes_raw()).decode()}"
NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
BODY = b'{"type":"request.state"}'


def signed(changes: dict[str, str] = {}, body: bytes = BODY) -> dict[str, str]:  # noqa: B006
    stamp = str(int(NOW.timestamp()))
    signature = PRIVATE.sign(f"msg_1.{stamp}.".encode() + body)
    return {
        "Webhook-Id": "msg_1",
        "webhook-timestamp": stamp,
        "webhook-signature": f"v1a,{base64.b64encode(signature).decode()}",
        **changes,
    }


def test_what_the_key_signed_is_returned() -> None:
    assert verify_callback(KEY, signed(), BODY, NOW) == json.loads(BODY)
    several = signed()
    several["webhook-signature"] = f"v1,AAAA v1a,AAAA {several['webhook-signature']}"
    assert verify_callback(KEY, several, BODY, NOW + timedelta(seconds=300))


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("another body", {"body": b"{}"}, "did not sign"),
    ("another id", {"headers": signed({"Webhook-Id": "msg_2"})}, "did not sign"),
    ("another time", {"headers": signed({"webhook-timestamp": "1"})}, "did not sign"),
    ("no signature", {"headers": {}}, "missing"),
    ("no number", {"headers": signed({"webhook-timestamp": "now"})}, "missing"),
    ("no base64", {"headers": signed({"webhook-signature": "v1a,?"})}, "did not sign"),
    ("no ASCII", {"headers": signed({"webhook-signature": "v1a,\xff"})}, "did not sign"),
    ("another scheme", {"headers": signed({"webhook-signature": "v1,AAAA"})}, "did not sign"),
    ("too old", {"now": NOW + timedelta(seconds=301)}, "seconds from now"),
    ("of the future", {"now": NOW - timedelta(seconds=301)}, "seconds from now"),
    ("another key", {"key": f"whpk_{'A' * 43}="}, "did not sign"),
    ("no key", {"key": "whsec_AAAA"}, "whpk_"),
    ("no object", {"body": b"[]", "headers": signed(body=b"[]")}, "JSON"),
    ("no JSON", {"body": b"{", "headers": signed(body=b"{")}, "JSON"),
    ("too deep", {"body": b"[" * 9999, "headers": signed(body=b"[" * 9999)}, "JSON"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "says"), [one[1:] for one in REFUSED], ids=[one[0] for one in REFUSED])  # fmt: skip
def test_anything_else_is_refused(changes: dict[str, Any], says: str) -> None:
    given: dict[str, Any] = {
        "key": KEY,
        "headers": signed(),
        "body": BODY,
        "now": NOW,
    } | changes
    with pytest.raises(NoticeError, match=says):
        verify_callback(**given)
