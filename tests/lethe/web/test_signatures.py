"""Signatures in other spellings: what the first verifier refuses, the second refuses too."""

import base64
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey, MLDSA44PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from hypothesis import given
from hypothesis import strategies as st

from lethe.canonical import format_base64
from lethe.certificates.bundle import build_bundle, hashedrekord_leaf, sign_envelope
from lethe.log.note import COSIGNATURE, NoteError, NoteVerifier, open_note
from tests.fuzz import fuzz
from tests.lethe.certificates.build import KEYID, Office
from tests.lethe.certificates.test_verify import build_payload
from tests.lethe.web.second import RefusedError, ask, needs_node, verify_both

pytestmark = needs_node


def integer(value: bytes) -> bytes:
    return bytes([2, len(value)]) + value


def der(*numbers: bytes) -> bytes:
    body = b"".join(map(integer, numbers))
    return bytes([0x30, len(body)]) + body


def shortest(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "big")


# ECDSA-Sig-Value with r and s spelled otherwise than DER spells them, or not in range.
RESPELLED: dict[str, Callable[[int, int], bytes]] = {
    "negative": lambda r, s: der(r.to_bytes(32, "big"), shortest(s)),
    "a zero more": lambda r, s: der(b"\0" + shortest(r), shortest(s)),
    "r is zero": lambda r, s: der(b"\0", shortest(s)),
    "s is zero": lambda r, s: der(shortest(r), b"\0"),
    "no number": lambda r, s: der(b"", shortest(s)),
    "one number": lambda r, s: der(shortest(r)),
    "three numbers": lambda r, s: der(shortest(r), shortest(s), b"\1"),
    "a byte more": lambda r, s: der(shortest(r), shortest(s)) + b"\0",
    "a byte less": lambda r, s: der(shortest(r), shortest(s))[:-1],
    "a long length": lambda r, s: b"\x30\x81" + der(shortest(r), shortest(s))[1:],
    "another tag": lambda r, s: b"\x31" + der(shortest(r), shortest(s))[1:],
    "raw": lambda r, s: r.to_bytes(32, "big") + s.to_bytes(32, "big"),
    "too large": lambda r, s: der(shortest(r + 2**264), shortest(s)),
}


def sealed(respell: Callable[[int, int], bytes]) -> dict[str, Any]:
    """Return a logged certificate whose signature is spelled otherwise, and its keys."""
    office = Office()
    while True:  # until r has its highest bit: only then is it negative without a zero
        envelope = sign_envelope(build_payload(), office.key, KEYID)
        signature = envelope["signatures"][0]
        r, s = decode_dss_signature(base64.b64decode(signature["sig"]))
        if r >> 255:
            break
    signature["sig"] = format_base64(respell(r, s))
    leaf = hashedrekord_leaf(envelope, office.key.public_key())
    index = office.log.append(leaf)
    bundle = build_bundle(
        envelope,
        issuer_keyid=KEYID,
        leaf=leaf,
        index=index,
        proof=office.log.proof(index),
        checkpoint_note=office.log.checkpoint(),
        log=office.log.verifier,
    )
    keys = {"log": office.log.verifier, "issuer": office.key.public_key()}
    return {"bundle": bundle, **keys}


@pytest.mark.parametrize("name", RESPELLED)
def test_a_signature_that_is_not_der_is_none(name: str) -> None:
    failed = verify_both(**sealed(RESPELLED[name])).failed
    assert failed is not None
    assert failed.number == 3


def test_the_same_signature_in_der_is_one() -> None:
    verdict = verify_both(**sealed(lambda r, s: der(shortest(r), shortest(s))))
    assert verdict.result == "PASS"


@pytest.mark.parametrize("time", [0, 2**63 - 1, 2**63, 2**64 - 1])
def test_a_cosignature_has_a_time_that_the_format_allows(time: int) -> None:
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    witness = NoteVerifier.of("w.example", key.public_key(), COSIGNATURE)
    text = "log.example\n0\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n"
    signature = key.sign(f"cosignature/v1\ntime {time}\n{text}".encode())
    line = witness.key_id + time.to_bytes(8, "big") + signature
    note = f"{text}\n— {witness.name} {format_base64(line)}\n"
    if time < 2**63:
        assert ask("note", note=note, vkeys=[witness.vkey]) == open_note(note, [witness])
        return
    with pytest.raises(NoteError):
        open_note(note, [witness])
    with pytest.raises(RefusedError):
        ask("note", note=note, vkeys=[witness.vkey])


# --- ML-DSA-44: the library's verdict beside the second verifier's own ---------------------
KEY = MLDSA44PrivateKey.from_seed_bytes(bytes(32))
PUBLIC = KEY.public_key()


def both_say(signature: bytes, message: bytes, public: MLDSA44PublicKey = PUBLIC) -> bool:
    try:
        public.verify(signature, message)
        first = True
    except InvalidSignature:
        first = False
    second = ask(
        "mldsa44",
        key=public.public_bytes_raw().hex(),
        signature=signature.hex(),
        message=message.hex(),
    )
    assert second == first
    return first


@fuzz(60)
@given(st.binary(max_size=300), st.binary(min_size=32, max_size=32))
def test_any_message_of_any_key(message: bytes, seed: bytes) -> None:
    key = MLDSA44PrivateKey.from_seed_bytes(seed)
    assert both_say(key.sign(message), message, key.public_key())
    assert not both_say(key.sign(message), message + b"\0", key.public_key())


@fuzz(150)
@given(st.integers(0, 8 * 2420 - 1))
def test_any_flipped_bit(bit: int) -> None:
    signature = bytearray(KEY.sign(b"message"))
    signature[bit // 8] ^= 1 << bit % 8
    assert not both_say(bytes(signature), b"message")


@pytest.mark.parametrize("length", [0, 2419, 2421])
def test_another_length(length: int) -> None:
    assert not both_say(KEY.sign(b"message").ljust(2421, b"\0")[:length], b"message")


def test_hints_have_one_order() -> None:
    # FIPS 204, algorithm 21: the positions of a polynomial ascend, or they could be respelled.
    for number in range(50):
        message = bytes([number])
        signature = bytearray(KEY.sign(message))
        hints, ends = signature[-84:-4], signature[-4:]
        if ends[0] < 2:
            continue
        assert both_say(bytes(signature), message)
        hints[0], hints[1] = hints[1], hints[0]
        assert not both_say(bytes(signature[:-84] + hints + ends), message)
        hints[1] = hints[0]
        assert not both_say(bytes(signature[:-84] + hints + ends), message)
        return
    raise AssertionError("no signature had two hints")


@pytest.mark.parametrize("escape", [b"\\ud800", b"\\udfff", b"\\ud800\\ud800", b"\xed\xa0\x80"])
def test_a_lone_surrogate_is_no_text(escape: bytes) -> None:
    office = Office()
    payload = build_payload().replace(b'"bits":"16"', b'"bits":"' + escape + b'"')
    assert escape in payload
    keys = {"log": office.log.verifier, "issuer": office.key.public_key()}
    failed = verify_both(office.seal(payload), **keys).failed
    assert failed is not None
    assert failed.number == 7
