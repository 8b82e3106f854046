"""The library below us against the standard's own example, which our profile would refuse."""

import base64
import json
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from http_message_signatures import (
    HTTPMessageSigner,
    HTTPMessageVerifier,
    InvalidSignature,
    MappingKeyResolver,
)
from http_message_signatures.algorithms import ED25519

from lethe.signing.errors import SignatureIncompleteError
from tests.lethe.signing.whole import verify_request

# RFC 9421 appendix B.1.4 (key), B.2 (request) and B.2.6 (signature).
KEY = Ed25519PrivateKey.from_private_bytes(
    base64.b64decode("n4Ni+HpISpVObnQMW0wOhCKROaIKqKtW/2ZYb2p9KcU=")
)
CREATED = datetime.fromtimestamp(1618884473, UTC)
COVERED = ("date", "@method", "@path", "@authority", "content-type", "content-length")
INPUT = (
    'sig-b26=("date" "@method" "@path" "@authority" "content-type" "content-length")'
    ';created=1618884473;keyid="test-key-ed25519"'
)
SIGNATURE = (
    "wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw=="
)
RESOLVER = MappingKeyResolver(
    public_keys={"test-key-ed25519": KEY.public_key()},
    private_keys={"test-key-ed25519": KEY},
)


@dataclass
class Message:
    method: str = "POST"
    url: str = "https://example.com/foo?param=Value&Pet=dog"
    headers: dict[str, str] = field(
        default_factory=lambda: {
            "Host": "example.com",
            "Date": "Tue, 20 Apr 2021 02:07:55 GMT",
            "Content-Type": "application/json",
            "Content-Length": "18",
        }
    )


def signed() -> Message:
    message = Message()
    message.headers["Signature-Input"] = INPUT
    message.headers["Signature"] = f"sig-b26=:{SIGNATURE}:"
    return message


def verify(message: Message) -> None:
    HTTPMessageVerifier(signature_algorithm=ED25519, key_resolver=RESOLVER).verify(
        message, max_age=None
    )


def test_the_library_makes_the_signature_of_the_standard() -> None:
    message = Message()
    HTTPMessageSigner(signature_algorithm=ED25519, key_resolver=RESOLVER).sign(
        message,
        key_id="test-key-ed25519",
        created=CREATED,
        label="sig-b26",
        include_alg=False,
        covered_component_ids=COVERED,
    )
    assert message.headers["Signature"] == f"sig-b26=:{SIGNATURE}:"
    assert message.headers["Signature-Input"] == INPUT


def test_the_library_accepts_it_and_refuses_a_changed_one() -> None:
    verify(signed())
    changed = signed()
    changed.headers["Date"] = "Tue, 20 Apr 2021 02:07:56 GMT"
    with pytest.raises(InvalidSignature):
        verify(changed)


def test_our_profile_refuses_it_as_incomplete() -> None:
    message = signed()
    with pytest.raises(SignatureIncompleteError):
        verify_request(
            "POST",
            message.url,
            message.headers,
            b'{"hello": "world"}',
            lambda keyid: (KEY.public_key(), "ed25519"),
            now=CREATED,
        )


def test_the_shared_vector_is_the_same_if_it_is_there() -> None:
    given = os.environ.get("LETHE_VECTORS")
    shared = Path(__file__).parents[4] / "shared" / "vectors"
    file = (Path(given) if given else shared) / "rfc9421-b26.json"
    if not file.exists():  # an extra check: the constants above are the standard's own
        return
    vector = json.loads(file.read_text())
    assert base64.b64decode(vector["seed"]) == KEY.private_bytes_raw()
    assert vector["signature"] == SIGNATURE
    assert tuple(vector["covers"]) == COVERED
