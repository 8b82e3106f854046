"""DSSE: the specification's encoding, and one signature by one key."""

import base64
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key

from lethe.certificates.bundle import PAYLOAD_TYPE, check_envelope, pae, sign_envelope
from lethe.certificates.errors import EnvelopeError, ShapeError
from tests.lethe.certificates.build import KEYID, issuer_key

KEY = issuer_key()


def test_pae_is_the_specifications_example() -> None:
    # secure-systems-lab/dsse, protocol.md, "Test Vectors"
    encoded = pae("http://example.com/HelloWorld", b"hello world")
    assert encoded == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"


def test_pae_counts_bytes_and_keeps_type_and_payload_apart() -> None:
    assert pae("é", b"x") == b"DSSEv1 2 \xc3\xa9 1 x"
    assert pae("a 1", b"b") != pae("a", b"1 b")


def test_a_signed_payload_opens() -> None:
    envelope = sign_envelope(b"payload", KEY, KEYID)
    assert envelope["payloadType"] == PAYLOAD_TYPE
    assert check_envelope(envelope, KEY.public_key(), KEYID) == b"payload"


def changed(path: str, value: Any) -> dict[str, Any]:
    envelope = sign_envelope(b"payload", KEY, KEYID)
    place: Any = envelope
    *parents, last = path.split(".")
    for name in parents:
        place = place[int(name) if name.isdigit() else name]
    place[last] = value
    return envelope


BAD: dict[str, tuple[str, Any, type[Exception]]] = {
    "another payload": ("payload", base64.b64encode(b"Payload").decode(), EnvelopeError),
    "another type": ("payloadType", "application/json", ShapeError),
    "another keyid": ("signatures.0.keyid", "issuer-2025", EnvelopeError),
    "no keyid": ("signatures.0.keyid", "", ShapeError),
    "no signature": ("signatures", [], ShapeError),
    "signature is no DER": ("signatures.0.sig", "AAAA", EnvelopeError),
    "unknown member": ("extra", "x", ShapeError),
}


@pytest.mark.parametrize("name", BAD)
def test_a_changed_envelope_is_refused(name: str) -> None:
    path, value, error = BAD[name]
    with pytest.raises(error):
        check_envelope(changed(path, value), KEY.public_key(), KEYID)


def test_two_signatures_are_refused_even_if_both_hold() -> None:
    envelope = sign_envelope(b"payload", KEY, KEYID)
    envelope["signatures"] *= 2
    with pytest.raises(ShapeError, match="array of 1"):
        check_envelope(envelope, KEY.public_key(), KEYID)


def test_another_key_is_refused() -> None:
    envelope = sign_envelope(b"payload", KEY, KEYID)
    with pytest.raises(EnvelopeError):
        check_envelope(envelope, issuer_key(3).public_key(), KEYID)


def test_a_key_on_another_curve_neither_signs_nor_checks() -> None:
    other = generate_private_key(SECP384R1())
    with pytest.raises(EnvelopeError, match="P-256"):
        sign_envelope(b"payload", other, KEYID)
    with pytest.raises(EnvelopeError, match="P-256"):
        check_envelope(sign_envelope(b"x", KEY, KEYID), other.public_key(), KEYID)
