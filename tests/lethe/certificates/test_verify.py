"""Nine numbered steps: a genuine file passes them all, a forged one fails at its number."""

import base64
import json
import re
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from lethe import canonical
from lethe.canonical import format_base64
from lethe.certificates.bundle import (
    build_bundle,
    check_envelope,
    hashedrekord_leaf,
    issuer_named_by,
    parse_bundle,
    sign_envelope,
)
from lethe.certificates.statement import Subject, build_statement
from lethe.certificates.verify import STEP_NAMES, Step, Verdict, verify_certificate
from lethe.log.checkpoint import Checkpoint, format_checkpoint, parse_checkpoint
from lethe.log.cosigner import Cosigner
from lethe.log.log_keys import LogKey, LogKeys
from lethe.log.note import COSIGNATURE, ML_DSA_44, NoteVerifier, sign_note
from lethe.log.policy import parse_policy
from tests.lethe.certificates.build import (
    BEFORE,
    KEYID,
    MODEL,
    Certified,
    Office,
    contents,
    digest_of,
    issuer_key,
    log_signer,
)

# FIPS 186-5 / SEC 2: the order of the base point of P-256
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551

DOCS = Path(__file__).parents[3] / "docs"
CERTIFIED = Office().certify()
Bundle = dict[str, Any]


def entry(bundle: Bundle) -> Bundle:
    found: Bundle = bundle["verificationMaterial"]["tlogEntries"][0]
    return found


def changed(change: Callable[[Bundle], None], certified: Certified = CERTIFIED) -> bytes:
    bundle = json.loads(certified.bundle)
    change(bundle)
    return canonical.encode(bundle)


def failed_at(data: bytes, **options: Any) -> int:
    verdict = CERTIFIED.verify(data, **options)
    assert verdict.result == "FAIL"
    assert verdict.statement is None
    assert verdict.failed is not None
    number = verdict.failed.number
    assert [step.passed for step in verdict.steps] == [n < number for n in range(1, 10)]
    assert all(step.detail == "not reached" for step in verdict.steps[number:])
    return number


def test_a_genuine_certificate_passes_nine_steps() -> None:
    verdict = CERTIFIED.verify(issuer_keyid=KEYID)
    assert verdict.result == "PASS"
    assert verdict.failed is None
    assert [step.number for step in verdict.steps] == list(range(1, 10))
    assert [step.name for step in verdict.steps] == list(STEP_NAMES)
    assert verdict.statement is not None
    assert verdict.statement.predicate == CERTIFIED.predicate


@pytest.mark.parametrize("data", [b"{}", CERTIFIED.bundle])
def test_a_verdict_is_no_truth_value(data: bytes) -> None:
    """An object is true by default, also one that says FAIL."""
    with pytest.raises(TypeError, match="compare result with PASS"):
        assert CERTIFIED.verify(data)


def test_what_nobody_asked_for_says_so() -> None:
    verdict = CERTIFIED.verify(model=None, evidence=None)
    assert verdict.result == "PASS"
    assert [step.detail for step in verdict.steps[7:]] == [
        "not checked: no model file given",
        "not checked: no evidence file given",
    ]


def test_the_wire_form_has_exactly_its_members() -> None:
    wire = CERTIFIED.verify(model=None, evidence=None).to_json()
    assert wire.keys() == {"result", "outcome", "steps"}
    members = {"number", "name", "checked", "passed", "detail"}
    assert all(step.keys() == members for step in wire["steps"])
    assert all(type(step["passed"]) is bool for step in wire["steps"])
    # No file was given for the last two: they pass, and were not checked.
    assert [step["checked"] for step in wire["steps"]] == [True] * 7 + [False] * 2


def test_the_model_may_be_a_path(tmp_path: Path) -> None:
    path = tmp_path / "head.safetensors"
    path.write_bytes(MODEL)
    assert CERTIFIED.verify(model=path).result == "PASS"
    path.write_bytes(BEFORE)
    assert failed_at(CERTIFIED.bundle, model=path) == 8


def test_the_documentation_numbers_the_same_steps() -> None:
    text = (DOCS / "certificate.md").read_text()
    rows = re.findall(r"^\| (\d) \| ([^|]+) \|", text, re.MULTILINE)
    assert rows == [(str(n), name) for n, name in enumerate(STEP_NAMES, start=1)]


def test_the_documentation_names_every_member_of_the_predicate() -> None:
    text = (DOCS / "certificate.md").read_text()
    named = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", text, re.MULTILINE)
    members = json.loads(build_payload())["predicate"]
    assert set(re.findall(r"\w+", " ".join(named))) == members.keys()


# --- forgeries of the file: what was done, the step that must catch it -----------------


def mirrored(sig: str) -> str:
    """The other valid ECDSA signature over the same bytes, (r, n - s)."""
    r, s = decode_dss_signature(base64.b64decode(sig))
    return format_base64(encode_dss_signature(r, ORDER - s))


def malleate_envelope(bundle: Bundle) -> None:
    signature = bundle["dsseEnvelope"]["signatures"][0]
    signature["sig"] = mirrored(signature["sig"])


def malleate_both(bundle: Bundle) -> None:
    malleate_envelope(bundle)
    body = json.loads(base64.b64decode(entry(bundle)["canonicalizedBody"]))
    body["spec"]["hashedRekordV002"]["signature"]["content"] = bundle["dsseEnvelope"][
        "signatures"
    ][0]["sig"]
    entry(bundle)["canonicalizedBody"] = format_base64(canonical.encode(body))


def other_payload(bundle: Bundle) -> None:
    payload = base64.b64decode(bundle["dsseEnvelope"]["payload"])
    other = payload.replace(b'"result":"PASS"', b'"result":"FAIL"')
    bundle["dsseEnvelope"]["payload"] = format_base64(other)


def respelled_leaf(bundle: Bundle) -> None:
    body = json.loads(base64.b64decode(entry(bundle)["canonicalizedBody"]))
    entry(bundle)["canonicalizedBody"] = format_base64(json.dumps(body).encode())


def index(bundle: Bundle) -> None:
    entry(bundle)["logIndex"] = entry(bundle)["inclusionProof"]["logIndex"] = "2"


def index_beyond(bundle: Bundle) -> None:
    entry(bundle)["logIndex"] = entry(bundle)["inclusionProof"]["logIndex"] = str(2**62)


def root(bundle: Bundle) -> None:
    entry(bundle)["inclusionProof"]["rootHash"] = format_base64(bytes(32))


def size(bundle: Bundle) -> None:
    entry(bundle)["inclusionProof"]["treeSize"] = "8"


def more_hashes(bundle: Bundle) -> None:
    entry(bundle)["inclusionProof"]["hashes"].append(format_base64(bytes(32)))


def log_id(bundle: Bundle) -> None:
    entry(bundle)["logId"]["keyId"] = format_base64(bytes(32))


def note(change: Callable[[str], str]) -> Callable[[Bundle], None]:
    def apply(bundle: Bundle) -> None:
        checkpoint = entry(bundle)["inclusionProof"]["checkpoint"]
        checkpoint["envelope"] = change(checkpoint["envelope"])

    return apply


def text_of(checkpoint: str) -> str:
    return checkpoint.rpartition("\n\n")[0] + "\n"


def line_by(name: str, checkpoint: str, seed: bytes = b"witness") -> str:
    text = text_of(checkpoint)
    return sign_note(text, log_signer(name, seed)).removeprefix(text + "\n")


def other_origin(checkpoint: str) -> str:
    text = text_of(checkpoint).replace("lethe.example/log", "lethe.example/old")
    return sign_note(text, log_signer())


def other_tree(checkpoint: str) -> str:
    signed = parse_checkpoint(text_of(checkpoint))
    other = Checkpoint(signed.origin, signed.size + 1, signed.root)
    return sign_note(format_checkpoint(other), log_signer())


def extra_bytes(checkpoint: str) -> str:
    return checkpoint + "\n"


FORGED: dict[str, tuple[Callable[[Bundle], None], int]] = {
    "outer index": (lambda b: entry(b).update(logIndex="2"), 1),
    "integrated time": (lambda b: entry(b).update(integratedTime="1"), 1),
    "payload": (other_payload, 2),
    "mirrored signature": (malleate_envelope, 2),
    "leaf respelled": (respelled_leaf, 2),
    "mirrored signature in the leaf too": (malleate_both, 4),
    "index": (index, 4),
    "index beyond the tree": (index_beyond, 4),
    "root": (root, 4),
    "one hash more": (more_hashes, 4),
    "tree size": (size, 5),
    "log id": (log_id, 5),
    "checkpoint by another key": (
        note(lambda c: sign_note(text_of(c), log_signer(seed=b"x"))),
        5,
    ),
    "checkpoint without signature": (note(text_of), 5),
    "checkpoint of another origin": (note(other_origin), 5),
    "checkpoint of another tree": (note(other_tree), 5),
    "checkpoint and a newline": (note(extra_bytes), 5),
    "empty line in the checkpoint": (note(lambda c: c.replace("\n", "\n\n", 1)), 5),
    "log key signed twice": (note(lambda c: c + c.rpartition("\n\n")[2]), 6),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_file_fails_at_its_step(name: str) -> None:
    change, number = FORGED[name]
    assert failed_at(changed(change)) == number


def test_the_mirrored_signature_is_valid_ecdsa() -> None:
    # Else the two tests of it above would show nothing.
    envelope = json.loads(changed(malleate_envelope))["dsseEnvelope"]
    assert check_envelope(envelope, CERTIFIED.issuer, KEYID)


def test_a_logged_envelope_without_a_valid_signature_fails_at_step_3() -> None:
    office = Office()
    envelope = sign_envelope(build_payload(), issuer_key(99), KEYID)
    leaf = hashedrekord_leaf(envelope, CERTIFIED.issuer)  # claims the issuer's key
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
    assert failed_at(bundle) == 3


@pytest.mark.parametrize(
    ("options", "number"),
    [
        ({"issuer_keyid": "issuer-2027"}, 3),
        ({"issuer": issuer_key(5).public_key()}, 2),
        ({"log": log_signer(seed=b"other").verifier}, 5),
        ({"log": log_signer("other.example").verifier}, 5),
        ({"model": BEFORE}, 8),
        ({"model": MODEL + b"\0"}, 8),
        ({"model": b""}, 8),
        ({"evidence": CERTIFIED.evidence + b"\n"}, 9),
        ({"evidence": b""}, 9),
    ],
)
def test_other_keys_and_files_fail_at_their_step(options: dict[str, Any], number: int) -> None:
    assert failed_at(CERTIFIED.bundle, **options) == number


def test_another_issuer_key_is_told_from_a_forgery() -> None:
    given, own = issuer_key(5).public_key(), CERTIFIED.issuer
    short = [
        sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()
        for key in (own, given)
    ]
    failed = CERTIFIED.verify(issuer=given).failed
    assert failed is not None
    assert failed.detail == (
        f"the certificate names issuer key SHA-256 {short[0][:16]}…, yours is "
        f"{short[1][:16]}…: another key file, or another operator"
    )
    # Where more than the key differs, nothing is said of the key.
    for change in (other_payload, malleate_envelope, respelled_leaf):
        for key in (own, given):
            failed = CERTIFIED.verify(changed(change), issuer=key).failed
            assert failed is not None
            assert failed.detail.startswith("the log entry is not this envelope's")


LEAVES = [b"", b"{", b"[]", b"1", b"{}", b'{"spec":[]}', b'{"spec":{"hashedRekordV002":null}}']


@pytest.mark.parametrize("leaf", LEAVES)
def test_a_leaf_that_names_no_key_names_none(leaf: bytes) -> None:
    envelope = parse_bundle(CERTIFIED.bundle).dsse_envelope
    assert issuer_named_by(leaf, envelope) is None


def test_another_file_than_the_model_is_named_beside_the_version_to_download() -> None:
    failed = CERTIFIED.verify(model=MODEL + b"\0").failed
    assert failed is not None
    file, model = sha256(MODEL + b"\0").hexdigest(), sha256(MODEL).hexdigest()
    about = f"this certificate is about digits-head/7, {model}"
    assert failed.detail == f"the file's SHA-256 is {file}; {about}"


def test_the_model_before_the_erasure_is_named_as_such() -> None:
    failed = CERTIFIED.verify(model=BEFORE).failed
    assert failed is not None
    assert failed.detail == "the file is the model before the erasure"


# --- what the issuer itself signs and logs and must not ---------------------------------


def build_payload(**changes: Any) -> bytes:
    predicate = replace(contents()[1], **changes)
    return build_statement([Subject("digits-head/7", digest_of(MODEL))], predicate)


def broken(change: Callable[[Bundle], None]) -> bytes:
    statement = json.loads(build_payload())
    change(statement)
    return canonical.encode(statement)


SIGNED: dict[str, Callable[[], bytes]] = {
    "not JSON": lambda: b"\x00",
    "not canonical": lambda: build_payload() + b" ",
    "a list": lambda: b"[]",
    "another predicate": lambda: broken(lambda s: s.update(predicateType="urn:x")),
    "unknown member": lambda: broken(lambda s: s["predicate"].update(note="x")),
    "a failed check under PASS": lambda: broken(
        lambda s: s["predicate"]["checks"][0].update(passed=False)
    ),
    "request after certificate": lambda: build_payload(request_log_index=3),
}


@pytest.mark.parametrize("name", SIGNED)
def test_a_signed_statement_of_another_shape_fails_at_step_7(name: str) -> None:
    assert failed_at(Office().seal(SIGNED[name]())) == 7


# --- witnesses --------------------------------------------------------------------------

WITNESS = log_signer("witness.example", b"witness").verifier
OTHER = log_signer("second.example", b"second").verifier
WITNESSED = changed(note(lambda c: c + line_by("witness.example", c)))


def test_a_known_witness_counts() -> None:
    options: dict[str, Any] = {"witnesses": [WITNESS, OTHER], "threshold": 1}
    assert CERTIFIED.verify(WITNESSED, **options).result == "PASS"
    assert failed_at(WITNESSED, witnesses=[WITNESS, OTHER], threshold=2) == 6
    assert failed_at(CERTIFIED.bundle, **options) == 6


def test_the_log_is_not_its_own_witness() -> None:
    assert failed_at(CERTIFIED.bundle, witnesses=[WITNESS], threshold=1) == 6


def test_an_unknown_witness_is_ignored_and_named() -> None:
    verdict = CERTIFIED.verify(WITNESSED)
    assert verdict.result == "PASS"
    assert verdict.steps[5].detail == (
        "none required, 0 known witnesses signed; not verified, their keys were not given: "
        f"witness.example+{WITNESS.key_id.hex()}"
    )
    # The line does not count for another witness, nor for one of that name with another key.
    other = log_signer("witness.example", b"second").verifier
    for required in (OTHER, other):
        assert failed_at(WITNESSED, witnesses=[required], threshold=1) == 6


def test_cosignatures_in_both_algorithms_count() -> None:
    # Lines as tlog-cosignature lays them out, by keys that Lethe's own code never signs with.
    ed25519, ml_dsa = Ed25519PrivateKey.generate(), MLDSA44PrivateKey.generate()
    first = NoteVerifier.of("w.example/1", ed25519.public_key(), COSIGNATURE)
    second = NoteVerifier.of("w.example/2", ml_dsa.public_key(), ML_DSA_44)

    def cosign(checkpoint: str) -> str:
        text, stamp = text_of(checkpoint), (1_790_000_000).to_bytes(8, "big")
        origin, size, root = text.split("\n")[:3]
        message = b"subtree/v1\n\0" + b"\x0b" + b"w.example/2" + stamp
        message += bytes([len(origin)]) + origin.encode() + bytes(8)
        message += int(size).to_bytes(8, "big") + base64.b64decode(root)
        signed = [
            (first, ed25519.sign(f"cosignature/v1\ntime 1790000000\n{text}".encode())),
            (second, ml_dsa.sign(message)),
        ]
        return checkpoint + "".join(
            f"— {key.name} {format_base64(key.key_id + stamp + signature)}\n"
            for key, signature in signed
        )

    data = changed(note(cosign))
    verdict = CERTIFIED.verify(data, witnesses=[first, second], threshold=2)
    assert verdict.result == "PASS"
    assert "2 of 2 witnesses signed" in verdict.steps[5].detail
    unknown = CERTIFIED.verify(data)
    assert unknown.result == "PASS"
    assert "not verified" in unknown.steps[5].detail
    stranger = NoteVerifier.of("w.example/1", ed25519.public_key())  # its id as type 0x01
    assert failed_at(data, witnesses=[stranger], threshold=1) == 6


def test_two_keys_of_one_witness_count_once() -> None:
    key = Cosigner("w.example/1", Ed25519PrivateKey.generate())
    next_key = Cosigner("w.example/1", MLDSA44PrivateKey.generate())
    both = [key, next_key]

    def cosign(checkpoint: str) -> str:
        return checkpoint + "".join(
            one.line(text_of(checkpoint), 1_790_000_000) for one in both
        )

    data = changed(note(cosign))
    witnesses = [*(one.verifier for one in both), OTHER]
    verdict = CERTIFIED.verify(data, witnesses=witnesses, threshold=1)
    assert verdict.steps[5].detail == "1 of 2 witnesses signed, 1 required"
    failed = CERTIFIED.verify(data, witnesses=witnesses, threshold=2).failed
    assert failed is not None
    assert failed.detail == "1 of 2 witnesses signed, 2 are required"


def test_a_wrong_line_of_a_known_witness_is_refused_even_if_none_is_required() -> None:
    text = "another.example\n1\n" + format_base64(bytes(32)) + "\n"
    line = sign_note(text, log_signer("witness.example", b"witness")).rpartition("\n\n")[2]
    forged = changed(note(lambda c: c + line))
    assert failed_at(forged, witnesses=[WITNESS]) == 6
    assert CERTIFIED.verify(forged).result == "PASS"  # nobody gave the key


@pytest.mark.parametrize("threshold", [-1, 1])
def test_a_threshold_that_cannot_be_met_is_a_bug_of_the_caller(threshold: int) -> None:
    with pytest.raises(ValueError, match="witnesses"):
        verify_certificate(
            CERTIFIED.bundle,
            log=CERTIFIED.log,
            issuer=CERTIFIED.issuer,
            threshold=threshold,
        )


# --- a policy in place of witnesses -----------------------------------------------------

FIRST, SECOND, THIRD = (
    Cosigner(f"w{number}.example", Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32))
    for number in (1, 2, 3)
)
TWO_OF_THREE = (
    f"log {CERTIFIED.log.vkey}\n"
    f"witness A {FIRST.verifier.vkey}\n"
    f"witness B {SECOND.verifier.vkey}\n"
    f"witness C {THIRD.verifier.vkey}\n"
    "group G 2 A B C\nquorum G\n"
)


def cosigned(*by: Cosigner) -> bytes:
    return changed(
        note(lambda c: c + "".join(one.line(text_of(c), 1_790_000_000) for one in by))
    )


def with_policy(data: bytes, text: str) -> Verdict:
    return CERTIFIED.verify(data, policy=parse_policy(text.encode()))


def test_a_quorum_of_a_policy_passes_and_less_fails_at_step_6() -> None:
    passed = with_policy(cosigned(FIRST, THIRD), TWO_OF_THREE)
    assert passed.result == "PASS"
    assert passed.steps[5].detail == "2 of 3 witnesses of the policy signed: its quorum is met"
    unmet = with_policy(cosigned(SECOND), TWO_OF_THREE)
    assert (unmet.result, unmet.outcome) == ("FAIL", "policy-not-met")
    failed = unmet.failed
    assert failed is not None
    assert (failed.number, failed.detail) == (
        6,
        "1 of 3 witnesses of the policy signed: its quorum is not met",
    )
    none = with_policy(CERTIFIED.bundle, TWO_OF_THREE.replace("quorum G", "quorum none"))
    assert none.steps[5].detail == "0 of 3 witnesses of the policy signed, and it requires none"


def test_a_policy_of_other_logs_fails_and_one_without_logs_accepts_the_given_one() -> None:
    data, log = cosigned(FIRST, SECOND), f"log {CERTIFIED.log.vkey}\n"
    other = f"log {log_signer('other.example', b'other').verifier.vkey}\n"
    failed = with_policy(data, TWO_OF_THREE.replace(log, other)).failed
    assert failed is not None
    assert (failed.number, failed.detail) == (6, "the policy lists other logs than this one")
    assert with_policy(data, TWO_OF_THREE.replace(log, other + log)).result == "PASS"
    assert with_policy(data, TWO_OF_THREE.replace(log, "")).result == "PASS"


def test_a_key_of_the_log_that_the_policy_does_not_list_is_not_enough() -> None:
    """A policy that drops the log's old key must not accept what that key signed alone."""
    old = CERTIFIED.log
    new = log_signer(old.name, b"the next key").verifier
    keys = LogKeys((LogKey(old, 0, 1000), LogKey(new, 0)))
    for listed, result in ((old, "PASS"), (new, "FAIL")):
        policy = parse_policy(f"log {listed.vkey}\nquorum none\n".encode())
        verdict = verify_certificate(
            CERTIFIED.bundle, log=keys, issuer=CERTIFIED.issuer, policy=policy
        )
        assert verdict.result == result
        assert ("no key of the log that the policy lists" in verdict.steps[5].detail) is (
            listed is new
        )


def test_a_wrong_or_repeated_line_of_a_policys_witness_is_refused() -> None:
    elsewhere = "another.example\n1\n" + format_base64(bytes(32)) + "\n"
    wrong = changed(note(lambda c: c + FIRST.line(elsewhere, 1_790_000_000)))
    assert with_policy(wrong, TWO_OF_THREE).failed == Step(
        6, "witness policy", False, "the note carries a wrong signature by a known key"
    )
    twice = with_policy(cosigned(FIRST, FIRST), TWO_OF_THREE).failed
    assert twice is not None
    assert twice.detail == "a key signed the checkpoint twice"


LOG_TOO = Cosigner(CERTIFIED.log.name, MLDSA44PrivateKey.from_seed_bytes(bytes(32)))


def test_the_logs_second_key_is_required_where_it_is_given() -> None:
    both = cosigned(LOG_TOO)
    key = LOG_TOO.verifier
    passed = CERTIFIED.verify(both, log_ml_dsa=key)
    assert passed.result == "PASS"
    size = passed.steps[4].detail.rpartition(" ")[2]
    assert passed.steps[4].detail == (
        f"Ed25519 and ML-DSA-44 by {CERTIFIED.log.name}, size {size}"
    )
    assert passed.steps[5].detail == "none required, 0 known witnesses signed"
    assert failed_at(CERTIFIED.bundle, log_ml_dsa=key) == 5  # stripped, or never signed
    assert failed_at(cosigned(LOG_TOO, LOG_TOO), log_ml_dsa=key) == 5
    elsewhere = "another.example\n1\n" + format_base64(bytes(32)) + "\n"
    wrong = changed(note(lambda c: c + LOG_TOO.line(elsewhere, 1_790_000_000)))
    assert failed_at(wrong, log_ml_dsa=key) == 5
    # It is no witness of its own log.
    named = CERTIFIED.verify(
        cosigned(LOG_TOO, FIRST), log_ml_dsa=key, policy=parse_policy(TWO_OF_THREE.encode())
    ).failed
    assert named is not None
    assert named.detail == "1 of 3 witnesses of the policy signed: its quorum is not met"
    assert CERTIFIED.verify(both).result == "PASS"  # nobody asked


def test_a_policy_and_witnesses_are_one_too_many() -> None:
    with pytest.raises(ValueError, match="policy"):
        CERTIFIED.verify(witnesses=[WITNESS], policy=parse_policy(TWO_OF_THREE.encode()))
