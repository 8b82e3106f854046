"""Certificates that workers issued, one for each method: both verifiers, and changed bytes."""

import json
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from hypothesis import given
from hypothesis import strategies as st

from lethe import canonical
from lethe.certificates.bundle import parse_bundle
from lethe.certificates.statement import parse_statement
from lethe.log.note import parse_log_vkey
from tests.fuzz import fuzz
from tests.lethe.certificates.build import Office
from tests.lethe.log.vectors import ROOT, read_cases
from tests.lethe.web.second import needs_node, verify_both

pytestmark = needs_node
VECTORS = ROOT / "tests" / "vectors" / "certificates"


@dataclass(frozen=True)
class Recorded:
    """A certificate with its evidence, and the keys that verify it."""

    name: str
    bundle: bytes
    evidence: bytes
    keys: Mapping[str, Any]

    @classmethod
    def of(cls, case: Mapping[str, Any]) -> "Recorded":
        issuer = load_pem_public_key(case["issuer"].encode())
        assert isinstance(issuer, EllipticCurvePublicKey)
        keys = {"log": parse_log_vkey(case["log"]), "issuer": issuer}
        return cls(case["name"], b64decode(case["bundle"]), b64decode(case["evidence"]), keys)


RECORDED = [Recorded.of(case) for case in read_cases(VECTORS)]
each = pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: recorded.name)
any_recorded = st.sampled_from(RECORDED)


@each
def test_what_was_issued_verifies_with_its_evidence(recorded: Recorded) -> None:
    verdict = verify_both(recorded.bundle, evidence=recorded.evidence, **recorded.keys)
    assert verdict.result == "PASS", verdict.failed
    assert all(not step.detail.startswith("not checked") for step in verdict.steps[8:])
    assert verdict.statement is not None
    number = verdict.statement.predicate.scope.records
    noun = "record" if number == 1 else "records"
    assert verdict.steps[8].detail.startswith(f"{number} {noun} in the set of ")


@each
def test_evidence_of_another_is_refused(recorded: Recorded) -> None:
    other = next(one for one in RECORDED if one.evidence != recorded.evidence)
    failed = verify_both(recorded.bundle, evidence=other.evidence, **recorded.keys).failed
    assert failed is not None
    assert failed.number == 9


def test_every_class_and_scope_is_among_them() -> None:
    predicates = [
        parse_statement(parse_bundle(one.bundle).payload).predicate for one in RECORDED
    ]
    classes = {one.guarantee.class_ for one in predicates}
    assert classes >= {
        "exact",
        "exact-retrained",
        "retrained",
        "numerically-exact",
        "certified-approximate",
        "empirical-approximate",
    }


def changed_bytes(data: st.DataObject, document: bytes) -> bytes:
    """Return the document after one to four cuts, flips, doublings and insertions."""
    changed = bytearray(document)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, max(len(changed) - 1, 0)))
        length = data.draw(st.integers(1, 40))
        match data.draw(st.sampled_from(["flip", "cut", "double", "insert", "move"])):
            case "flip" if changed:
                changed[at] ^= 1 << data.draw(st.integers(0, 7))
            case "cut":
                del changed[at : at + length]
            case "double":
                changed[at:at] = changed[at : at + length]
            case "move":
                part = changed[at : at + length]
                del changed[at : at + length]
                place = data.draw(st.integers(0, len(changed)))
                changed[place:place] = part
            case _:
                inserted = st.sampled_from(
                    [b"\\u0000", b"\xed\xa0\x80", b"null", b"1e400", b" "]
                )
                changed[at:at] = data.draw(inserted | st.binary(max_size=8))
    return bytes(changed)


def test_of_two_mistakes_in_a_file_both_name_the_same() -> None:
    recorded = RECORDED[0]
    members = canonical.decode(recorded.bundle)
    del members["dsseEnvelope"]["payload"]
    proof = members["verificationMaterial"]["tlogEntries"][0]["inclusionProof"]
    proof["hashes"] = ["not base64"]
    failed = verify_both(canonical.encode(members), **recorded.keys).failed
    assert failed is not None
    assert "hashes[0] must be standard base64" in failed.detail  # the schema's order


@fuzz(600)
@given(any_recorded, st.data())
def test_changed_bytes_of_a_file_get_the_same_verdict(
    recorded: Recorded, data: st.DataObject
) -> None:
    bundle = changed_bytes(data, recorded.bundle)
    verdict = verify_both(bundle, evidence=recorded.evidence, **recorded.keys)
    assert (verdict.result == "PASS") == (bundle == recorded.bundle)


@fuzz(300)
@given(any_recorded, st.data())
def test_changed_bytes_of_a_signed_statement_get_the_same_verdict(
    recorded: Recorded, data: st.DataObject
) -> None:
    payload = changed_bytes(data, parse_bundle(recorded.bundle).payload)
    if not payload:
        return  # no envelope holds nothing
    office = Office()
    for number in range(int(recorded_index(recorded))):
        office.log.append(b"%d" % number)
    failed = verify_both(
        office.seal(payload),
        log=office.log.verifier,
        issuer=office.key.public_key(),
        evidence=recorded.evidence,
    ).failed
    assert failed is None or failed.number >= 7


@fuzz(300)
@given(any_recorded, st.data())
def test_changed_bytes_of_certified_evidence_get_the_same_verdict(
    recorded: Recorded, data: st.DataObject
) -> None:
    evidence = changed_bytes(data, recorded.evidence)
    statement = json.loads(parse_bundle(recorded.bundle).payload)
    predicate = statement["predicate"]
    before, after = predicate["retainedSet"]["removalProof"], sha256(evidence).hexdigest()
    predicate["retainedSet"]["removalProof"] = {"sha256": after}
    for part in predicate["evidence"]:
        if part["digest"] == before:
            part["digest"] = {"sha256": after}
    office = Office()
    for number in range(int(recorded_index(recorded))):
        office.log.append(b"%d" % number)
    failed = verify_both(
        office.seal(canonical.encode(statement)),
        log=office.log.verifier,
        issuer=office.key.public_key(),
        evidence=evidence,
    ).failed
    assert failed is None or failed.number == 9


def recorded_index(recorded: Recorded) -> int:
    """Return where the request of a certificate is in its log."""
    return parse_statement(parse_bundle(recorded.bundle).payload).predicate.request_log_index
