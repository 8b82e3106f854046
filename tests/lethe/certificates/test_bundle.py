"""The certificate file: the published format, one spelling, nothing left unpinned."""

import base64
import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import load_der_public_key

from lethe import canonical
from lethe.canonical import NotCanonicalError
from lethe.certificates.bundle import (
    MAX_BUNDLE,
    build_bundle,
    hashedrekord_leaf,
    pae,
    parse_bundle,
    sign_envelope,
)
from lethe.certificates.errors import ShapeError
from lethe.errors import LetheError
from lethe.log.entries import parse_leaf
from tests.lethe.certificates.build import KEYID, LocalLog, Office, issuer_key, log_signer

OFFICE = Office()
CERTIFIED = OFFICE.certify()


def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(CERTIFIED.bundle)
    return found


def entry(bundle: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = bundle["verificationMaterial"]["tlogEntries"][0]
    return found


def test_the_file_is_canonical_without_a_final_newline() -> None:
    assert CERTIFIED.bundle == canonical.encode(document())
    assert CERTIFIED.bundle.endswith(b"}")


def test_the_members_are_those_of_the_format() -> None:
    bundle = document()
    found = entry(bundle)
    proof = found["inclusionProof"]
    log_id = sha256(
        OFFICE.log.signer.name.encode() + b"\n\x01" + OFFICE.log.verifier.key.public_bytes_raw()
    ).digest()
    assert bundle.keys() == {"mediaType", "verificationMaterial", "dsseEnvelope"}
    assert bundle["mediaType"] == "application/vnd.dev.sigstore.bundle.v0.3+json"
    assert bundle["verificationMaterial"]["publicKey"] == {"hint": KEYID}
    assert found["logId"] == {"keyId": base64.b64encode(log_id).decode()}
    assert found["kindVersion"] == {"kind": "hashedrekord", "version": "0.0.2"}
    assert (found["logIndex"], proof["logIndex"], proof["treeSize"]) == ("3", "3", "7")
    assert found["integratedTime"] == "0"
    assert proof["checkpoint"]["envelope"].splitlines()[1:3] == ["7", proof["rootHash"]]


def test_the_leaf_is_a_hashedrekord_of_the_envelope() -> None:
    envelope = sign_envelope(b"payload", issuer_key(), KEYID)
    leaf = hashedrekord_leaf(envelope, issuer_key().public_key())
    record = json.loads(leaf)
    assert canonical.encode(record) == leaf
    assert (record["apiVersion"], record["kind"]) == ("0.0.2", "hashedrekord")
    (spec,) = record["spec"].values()
    assert record["spec"].keys() == {"hashedRekordV002"}
    digest = sha256(pae("application/vnd.in-toto+json", b"payload")).digest()
    assert spec["data"] == {
        "algorithm": "SHA2_256",
        "digest": base64.b64encode(digest).decode(),
    }
    assert spec["signature"]["content"] == envelope["signatures"][0]["sig"]
    verifier = spec["signature"]["verifier"]
    assert verifier["keyDetails"] == "PKIX_ECDSA_P256_SHA_256"
    spki = base64.b64decode(verifier["publicKey"]["rawBytes"])
    assert load_der_public_key(spki) == issuer_key().public_key()


def test_the_log_recognises_the_leaf() -> None:
    leaf = parse_leaf(OFFICE.log.leaves[3])
    assert leaf.kind == "hashedrekord"
    signed = parse_bundle(CERTIFIED.bundle).dsse_envelope.signed
    assert leaf.digests == {"sha256": sha256(signed).hexdigest()}


def test_a_file_parses_into_its_parts() -> None:
    bundle = parse_bundle(CERTIFIED.bundle)
    assert bundle.keyid == KEYID
    assert bundle.entry.canonicalized_body == OFFICE.log.leaves[3]
    assert json.loads(bundle.payload)["_type"] == "https://in-toto.io/Statement/v1"


def put(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(bundle: dict[str, Any]) -> None:
        place: Any = bundle
        *parents, last = path.split("/")
        for name in parents:
            place = place[int(name) if name.isdigit() else name]
        if value is None:
            del place[last]
        else:
            place[last] = value

    return change


ENTRY = "verificationMaterial/tlogEntries/0"
PROOF = f"{ENTRY}/inclusionProof"
SIGNED = "dsseEnvelope/signatures/0"

BAD: dict[str, Callable[[dict[str, Any]], None]] = {
    "bundle version 0.2": put("mediaType", "application/vnd.dev.sigstore.bundle.v0.2+json"),
    "unknown member": put("note", "x"),
    "timestamps beside the entry": put("verificationMaterial/timestampVerificationData", {}),
    "no hint": put("verificationMaterial/publicKey/hint", None),
    "another hint": put("verificationMaterial/publicKey/hint", "issuer-2027"),
    "another keyid": put(f"{SIGNED}/keyid", "issuer-2027"),
    "no keyid": put(f"{SIGNED}/keyid", None),
    "no log entry": put("verificationMaterial/tlogEntries", []),
    "two log entries": lambda b: b["verificationMaterial"]["tlogEntries"].append(entry(b)),
    "outer index": put(f"{ENTRY}/logIndex", "4"),
    "inner index": put(f"{PROOF}/logIndex", "4"),
    "index as a number": put(f"{ENTRY}/logIndex", 3),
    "index with a zero": put(f"{ENTRY}/logIndex", "03"),
    "integrated time": put(f"{ENTRY}/integratedTime", "1"),
    "inclusion promise": put(f"{ENTRY}/inclusionPromise", {"signedEntryTimestamp": "AA=="}),
    "dsse entry": put(f"{ENTRY}/kindVersion/kind", "dsse"),
    "entry version 0.0.1": put(f"{ENTRY}/kindVersion/version", "0.0.1"),
    "key id of four bytes": put(f"{ENTRY}/logId/keyId", "AAAAAA=="),
    "root of 31 bytes": put(f"{PROOF}/rootHash", base64.b64encode(bytes(31)).decode()),
    "hashes as an object": put(f"{PROOF}/hashes", {}),
    "no checkpoint": put(f"{PROOF}/checkpoint", None),
    "empty leaf": put(f"{ENTRY}/canonicalizedBody", ""),
    "another payload type": put("dsseEnvelope/payloadType", "application/json"),
    "empty payload": put("dsseEnvelope/payload", ""),
    "two signatures": lambda b: b["dsseEnvelope"]["signatures"].append(
        b["dsseEnvelope"]["signatures"][0]
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_another_shape_is_refused(name: str) -> None:
    bundle = document()
    BAD[name](bundle)
    with pytest.raises(ShapeError):
        parse_bundle(canonical.encode(bundle))


RAW: dict[str, bytes] = {
    "nothing": b"",
    "a newline at the end": CERTIFIED.bundle + b"\n",
    "a space inside": CERTIFIED.bundle.replace(b":", b": ", 1),
    "a byte order mark": b"\xef\xbb\xbf" + CERTIFIED.bundle,
    "UTF-16": CERTIFIED.bundle.decode().encode("utf-16"),
    "an escaped letter": CERTIFIED.bundle.replace(b'"mediaType"', b'"\\u006dediaType"'),
    "a member twice": CERTIFIED.bundle.replace(b'{"dsse', b'{"dsseEnvelope":{},"dsse', 1),
    "cut short": CERTIFIED.bundle[:-1],
    "twice": CERTIFIED.bundle * 2,
    "not text": b"\xff\x00" * 50,
    "null": b"null",
    "an infinite number": b'{"mediaType":1e999}',
    "deep": b"[" * 100_000,
    "a long number": b'{"a":' + b"9" * 10_000 + b"}",
    "a lone surrogate": b'{"mediaType":"\\ud800"}',
}


@pytest.mark.parametrize("name", RAW)
def test_other_bytes_are_refused(name: str) -> None:
    with pytest.raises((ShapeError, NotCanonicalError)):
        parse_bundle(RAW[name])


def test_a_file_beyond_the_limit_is_refused_unread() -> None:
    with pytest.raises(ShapeError, match="exceed"):
        parse_bundle(b" " * (MAX_BUNDLE + 1))


def test_a_bundle_that_would_not_verify_is_not_built() -> None:
    envelope = sign_envelope(b"payload", issuer_key(), KEYID)
    leaf = hashedrekord_leaf(envelope, issuer_key().public_key())
    log = LocalLog()
    index = [log.append(b"first"), log.append(leaf)][1]
    right: dict[str, Any] = {
        "issuer_keyid": KEYID,
        "leaf": leaf,
        "index": index,
        "proof": log.proof(index),
        "checkpoint_note": log.checkpoint(),
        "log": log.verifier,
    }
    assert parse_bundle(build_bundle(envelope, **right))
    wrong: dict[str, Any] = {
        "issuer_keyid": "issuer-2027",
        "leaf": leaf + b" ",
        "index": 0,
        "proof": [bytes(32)],
        "checkpoint_note": log.checkpoint().replace("2", "3", 1),
        "log": log_signer(seed=b"other").verifier,
    }
    for name, value in wrong.items():
        with pytest.raises(LetheError):
            build_bundle(envelope, **right | {name: value})
