"""Entries: the bytes of the design, one spelling each, and no field that fits a person."""

import hashlib
import hmac
import json
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe import canonical
from lethe.log.entries import (
    CommitmentError,
    Ended,
    EntryError,
    Leaf,
    check_commitment,
    commit_event,
    event_leaf,
    key_leaf,
    master_key_leaf,
    model_leaf,
    parse_leaf,
    retention_leaf,
)
from lethe.log.key_changes import MasterKeyChange

REF = "1b4e28ba-2fa1-41d2-883f-0016d3cca427"
DAY = date(2026, 11, 21)
COMMITMENT = bytes(range(32))
DIGEST = "ab" * 32
KEY = bytes([7]) * 32
EVENT = {"subject": "s-17", "records": ["r-1", "r-2"], "count": 2}

ERASURE = (
    b'{"apiVersion":"1","kind":"erasure-event","spec":{"at":"2026-11-21T00:00:00Z",'
    b'"commitment":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",'
    b'"event":"request.received","ref":"1b4e28ba-2fa1-41d2-883f-0016d3cca427"}}'
)
MODEL = (
    b'{"apiVersion":"1","kind":"model-event","spec":{"at":"2026-11-21T00:00:00Z",'
    b'"digests":{"artifact":"' + DIGEST.encode() + b'"},"event":"model.registered",'
    b'"ref":"digits-ridge"}}'
)
RETENTION = (
    b'{"apiVersion":"1","kind":"retention-event","spec":{"at":"2026-11-21T00:00:00Z",'
    b'"before":{"evidence":"2023-11-22T00:00:00Z"},"counts":{"evidence":3},'
    b'"event":"retention.ended","items":"' + DIGEST.encode() + b'"}}'
)
MASTER = (
    b'{"apiVersion":"1","kind":"master-key-event","spec":{"at":"2026-11-21T00:00:00Z",'
    b'"event":"master-key.rotated","keyid":"0000000000000000","replaces":"ffffffffffffffff"}}'
)
CERTIFICATE = canonical.encode(
    {
        "apiVersion": "0.0.2",
        "kind": "hashedrekord",
        "spec": {
            "hashedRekordV002": {
                "data": {
                    "algorithm": "SHA2_256",
                    "digest": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
                },
                "signature": {"content": "c2ln", "verifier": {"keyDetails": "x"}},
            }
        },
    }
)


def test_an_erasure_event_is_the_bytes_of_the_format() -> None:
    assert event_leaf("request.received", REF, COMMITMENT, DAY) == ERASURE
    assert parse_leaf(ERASURE) == Leaf(
        "erasure-event", "request.received", REF, COMMITMENT, day=DAY
    )


def test_an_event_of_a_key_is_the_bytes_of_the_format() -> None:
    expected = ERASURE.replace(b"erasure-event", b"key-event").replace(
        b"request.received", b"key.registered"
    )
    assert key_leaf("key.registered", REF, COMMITMENT, DAY) == expected
    assert parse_leaf(expected) == Leaf("key-event", "key.registered", REF, COMMITMENT, day=DAY)
    with pytest.raises(EntryError):
        key_leaf("key.registered", "alice", COMMITMENT, DAY)


def test_a_model_event_is_the_bytes_of_the_format() -> None:
    digests = {"artifact": DIGEST}
    assert model_leaf("model.registered", "digits-ridge", digests, DAY) == MODEL
    assert parse_leaf(MODEL) == Leaf(
        "model-event", "model.registered", "digits-ridge", digests=digests, day=DAY
    )


def test_an_end_of_retention_is_the_bytes_of_the_format() -> None:
    ended = {"evidence": Ended(3, date(2023, 11, 22))}
    assert retention_leaf(ended, DIGEST, DAY) == RETENTION
    assert parse_leaf(RETENTION) == Leaf(
        "retention-event", "retention.ended", digests={"items": DIGEST}, day=DAY, ended=ended
    )


def test_an_event_of_a_master_key_is_the_bytes_of_the_format() -> None:
    rotated = MasterKeyChange("master-key.rotated", "00" * 8, replaces="ff" * 8)
    assert master_key_leaf(rotated, DAY) == MASTER
    assert parse_leaf(MASTER) == Leaf(
        "master-key-event", "master-key.rotated", day=DAY, master=rotated
    )


@pytest.mark.parametrize(
    "change",
    [
        MasterKeyChange("master-key.rotated", "alice", replaces="ff" * 8),
        MasterKeyChange("master-key.rotated", "00" * 8),
        MasterKeyChange("master-key.rotated", "00" * 8, replaces="ff" * 8, reason="superseded"),
        MasterKeyChange("master-key.revoked", "00" * 8, reason="alice"),
        MasterKeyChange("master-key.revoked", "00" * 8),
        MasterKeyChange("key.rotated", "00" * 8, replaces="ff" * 8),
    ],
)
def test_an_event_of_a_master_key_has_its_fields_alone(change: MasterKeyChange) -> None:
    with pytest.raises(EntryError):
        master_key_leaf(change, DAY)


@pytest.mark.parametrize(
    ("kind", "count", "items"),
    [
        ("evidence", 0, DIGEST),
        ("evidence", True, DIGEST),
        ("jo@mail.example", 1, DIGEST),
        ("evidence", 1, "jo"),
    ],
)
def test_an_end_of_retention_has_counts_of_kinds_alone(
    kind: str, count: int, items: str
) -> None:
    with pytest.raises(EntryError):
        retention_leaf({kind: Ended(count, DAY)}, items, DAY)


@pytest.mark.parametrize(
    ("stated", "other"),
    [
        (b'"counts":{"evidence":3}', b'"counts":{"evidence":3,"scope":1}'),
        (b'"counts":{"evidence":3}', b'"counts":{"evidence":3.0}'),
        (b'"counts":{"evidence":3}', b'"counts":{"evidence":true}'),
        (b"retention.ended", b"retention.other"),
        (b'"before":{"evidence":"2023-11-22T00:00:00Z"}', b'"before":{}'),
    ],
)
def test_another_end_of_retention_is_no_entry(stated: bytes, other: bytes) -> None:
    assert stated in RETENTION
    with pytest.raises(EntryError):
        parse_leaf(RETENTION.replace(stated, other))


def test_a_certificate_is_recognised_by_its_digest() -> None:
    expected = Leaf("hashedrekord", digests={"sha256": COMMITMENT.hex()})
    assert parse_leaf(CERTIFICATE) == expected


def test_a_time_of_day_never_reaches_the_log() -> None:
    moment = datetime(2026, 11, 21, 13, 37, 42, tzinfo=UTC)
    assert event_leaf("request.received", REF, COMMITMENT, moment) == ERASURE


BAD_ERASURE: dict[str, tuple[Any, ...]] = {
    "event without a dot": ("received", REF, COMMITMENT, DAY),
    "event in capitals": ("Request.received", REF, COMMITMENT, DAY),
    "event with a space": ("request.received by post", REF, COMMITMENT, DAY),
    "event that is an e-mail": ("jo@mail.example", REF, COMMITMENT, DAY),
    "event with a newline": ("request.received\n", REF, COMMITMENT, DAY),
    "event too long": ("request." + "x" * 60, REF, COMMITMENT, DAY),
    "ref that is a name": ("request.received", "jo", COMMITMENT, DAY),
    "ref in capitals": ("request.received", REF.upper(), COMMITMENT, DAY),
    "ref without hyphens": ("request.received", REF.replace("-", ""), COMMITMENT, DAY),
    "ref of version 1": ("request.received", REF.replace("41d2", "11d2"), COMMITMENT, DAY),
    "short commitment": ("request.received", REF, COMMITMENT[:-1], DAY),
    "long commitment": ("request.received", REF, COMMITMENT + b"x", DAY),
}


@pytest.mark.parametrize("fields", BAD_ERASURE.values(), ids=BAD_ERASURE)
def test_an_erasure_event_holds_nothing_else(fields: tuple[Any, ...]) -> None:
    with pytest.raises(EntryError) as caught:
        event_leaf(*fields)
    assert "jo" not in caught.value.detail.split()  # the message repeats no field


BAD_MODEL: dict[str, tuple[Any, ...]] = {
    "ref with a space": ("model.registered", "my model", {}, DAY),
    "ref that is an e-mail": ("model.registered", "jo@mail.example", {}, DAY),
    "ref empty": ("model.registered", "", {}, DAY),
    "ref too long": ("model.registered", "x" * 81, {}, DAY),
    "digest too short": ("model.registered", "m", {"artifact": "ab" * 31}, DAY),
    "digest in capitals": ("model.registered", "m", {"artifact": "AB" * 32}, DAY),
    "digest that is text": ("model.registered", "m", {"artifact": "jo@mail.example"}, DAY),
    "digest name with a space": ("model.registered", "m", {"jo smith": DIGEST}, DAY),
}


@pytest.mark.parametrize("fields", BAD_MODEL.values(), ids=BAD_MODEL)
def test_a_model_event_holds_nothing_else(fields: tuple[Any, ...]) -> None:
    with pytest.raises(EntryError):
        model_leaf(*fields)


def test_an_entry_has_at_most_65535_bytes() -> None:
    digests = {f"d{number:03}": DIGEST for number in range(882)} | {"e" * 64: DIGEST}
    leaf = model_leaf("model.registered", "m" * 9, digests, DAY)
    assert len(leaf) == 65_535
    assert parse_leaf(leaf).digests == digests
    with pytest.raises(EntryError, match="65535"):
        model_leaf("model.registered", "m" * 10, digests, DAY)
    with pytest.raises(EntryError, match="65535"):
        parse_leaf(b" " * 65_536)


def erasure_with(**spec: Any) -> bytes:
    entry = json.loads(ERASURE)
    entry["spec"].update(spec)
    return canonical.encode(entry)


BAD_LEAVES: dict[str, bytes] = {
    "empty": b"",
    "not JSON": b"{",
    "not UTF-8": b"\xff",
    "UTF-16": ERASURE.decode().encode("utf-16"),
    "a list": b"[]",
    "a string": b'"erasure-event"',
    "null": b"null",
    "nested 100,000 deep": b"[" * 30_000 + b"]" * 30_000,
    "no kind": b'{"apiVersion":"1","spec":{}}',
    "kind that is a list": b'{"kind":[]}',
    "unknown kind": ERASURE.replace(b"erasure-event", b"erasure-evenT"),
    "other version": ERASURE.replace(b'"1"', b'"2"'),
    "version as a number": ERASURE.replace(b'"1"', b"1"),
    "no spec": b'{"apiVersion":"1","kind":"erasure-event"}',
    "spec that is a list": b'{"apiVersion":"1","kind":"erasure-event","spec":[]}',
    "spec that is null": b'{"apiVersion":"1","kind":"model-event","spec":null}',
    "space before": b" " + ERASURE,
    "newline after": ERASURE + b"\n",
    "members in another order": b'{"kind":"erasure-event","apiVersion":"1"' + ERASURE[40:],
    "member twice": ERASURE[:-2] + b',"ref":"' + REF.encode() + b'"}}',
    "escaped letter": ERASURE.replace(b"request", b"\\u0072equest"),
    "member too many": erasure_with(email="jo@mail.example"),
    "event as a number": erasure_with(event=1),
    "ref as null": erasure_with(ref=None),
    "ref as a number": erasure_with(ref=1),
    "commitment as a list": erasure_with(commitment=[]),
    "commitment in hex": erasure_with(commitment=COMMITMENT.hex()),
    "commitment without padding": ERASURE.replace(b"Hh8=", b"Hh8"),
    "commitment with padding bits": ERASURE.replace(b"Hh8=", b"Hh9="),
    "time of day": ERASURE.replace(b"T00:00:00Z", b"T00:00:01Z"),
    "no such day": ERASURE.replace(b"11-21", b"02-30"),
    "year 0": ERASURE.replace(b"2026", b"0000"),
    "day as a number": erasure_with(at=20261121),
    "digests as a list": MODEL.replace(b'{"artifact":"' + DIGEST.encode() + b'"}', b"[1]"),
    "digest as a number": MODEL.replace(b'"' + DIGEST.encode() + b'"', b"1"),
    "certificate of version 0.0.1": CERTIFICATE.replace(b"0.0.2", b"0.0.1"),
    "certificate with SHA-512": CERTIFICATE.replace(b"SHA2_256", b"SHA2_512"),
    "certificate with a short digest": CERTIFICATE.replace(b"AAECAwQF", b""),
    "certificate without a signature": CERTIFICATE.replace(b'"signature"', b'"signaturf"'),
    "certificate with more": CERTIFICATE.replace(b'{"data"', b'{"a":1,"data"'),
}


@pytest.mark.parametrize("data", BAD_LEAVES.values(), ids=BAD_LEAVES)
def test_other_bytes_are_no_entry(data: bytes) -> None:
    assert data not in (ERASURE, MODEL, CERTIFICATE)
    with pytest.raises(EntryError):
        parse_leaf(data)


@pytest.mark.parametrize(
    "leaf",
    [ERASURE, MODEL, RETENTION, MASTER],
    ids=["erasure", "model", "retention", "master"],
)
def test_a_flipped_bit_is_refused_or_another_entry(leaf: bytes) -> None:
    original = parse_leaf(leaf)
    for bit in range(8 * len(leaf)):
        flipped = bytearray(leaf)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            parsed = parse_leaf(bytes(flipped))
        except EntryError:
            continue
        assert parsed != original  # never two spellings of one entry


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_a_verdict(data: bytes) -> None:
    with pytest.raises(EntryError):
        parse_leaf(data)


def test_a_commitment_is_hmac_over_canonical_json() -> None:
    message = b'{"count":2,"records":["r-1","r-2"],"subject":"s-17"}'
    commitment = commit_event(KEY, EVENT)
    assert commitment == hmac.new(KEY, message, hashlib.sha256).digest()
    check_commitment(KEY, EVENT, commitment)


@pytest.mark.parametrize(
    ("key", "event", "flip"),
    [(bytes([8]) * 32, EVENT, 0), (KEY, {**EVENT, "count": 3}, 0), (KEY, EVENT, 1)],
    ids=["other key", "other event", "other commitment"],
)
def test_a_commitment_opens_to_nothing_else(
    key: bytes, event: dict[str, Any], flip: int
) -> None:
    commitment = commit_event(KEY, EVENT)
    commitment = bytes([commitment[0] ^ flip]) + commitment[1:]
    with pytest.raises(CommitmentError):
        check_commitment(key, event, commitment)


def test_a_commitment_of_another_length_is_a_verdict() -> None:
    with pytest.raises(CommitmentError):
        check_commitment(KEY, EVENT, b"")


@pytest.mark.parametrize("length", [0, 16, 31, 33, 64])
def test_a_commitment_key_has_exactly_32_bytes(length: int) -> None:
    # HMAC would take each: and b"k" and b"k\0" would open the same commitment.
    with pytest.raises(EntryError, match="exactly 32 bytes"):
        commit_event(bytes(length), EVENT)


@pytest.mark.parametrize(
    "event",
    [{"a": b"bytes"}, {1: "a"}, {"a": float("nan")}, {"a": 2**60}, {"a": "\ud800"}],
    ids=["bytes", "number as name", "nan", "large number", "lone surrogate"],
)
def test_what_is_no_json_is_not_committed(event: Any) -> None:
    with pytest.raises(EntryError, match="not a JSON object"):
        commit_event(KEY, event)
