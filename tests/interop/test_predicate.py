"""docs/predicate.md is enough: a verifier written from it agrees with Lethe's on every vector."""

import ast
import base64
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.interop import predicate
from tests.interop.test_certificates import TAMPERED
from tests.lethe.certificates.build import Certified, Office

VECTORS = Path(__file__).parents[1] / "vectors"
CERTIFICATES = sorted((VECTORS / "certificates").glob("*.json"))
REMOVALS = sorted((VECTORS / "retained-set" / "removals").glob("*.json"))
PROOFS = sorted((VECTORS / "log" / "inclusion").glob("*.json"))


def opened(path: Path) -> tuple[bytes, str, bytes, bytes]:
    """Return the bundle, the keys and the evidence of a vector."""
    vector = json.loads(path.read_text())
    bundle, evidence = (base64.b64decode(vector[name]) for name in ("bundle", "evidence"))
    return bundle, vector["log"].strip(), vector["issuer"].encode(), evidence


def test_it_imports_nothing_of_lethe() -> None:
    tree = ast.parse(Path(predicate.__file__).read_text())
    names = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert not names & {"lethe", "app", "workers", "models", "tests", ""}


@pytest.mark.parametrize("path", CERTIFICATES, ids=lambda path: path.stem)
def test_every_certificate_verifies_and_no_changed_byte_does(path: Path) -> None:
    bundle, vkey, pem, evidence = opened(path)
    assert predicate.verify(bundle, vkey, pem, evidence=evidence) == 0
    draw = random.Random(path.stem)
    for _ in range(40):
        changed = bytearray(bundle)
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
        assert predicate.verify(bytes(changed), vkey, pem) != 0
    for _ in range(10):
        other = bytearray(evidence)
        other[draw.randrange(len(other))] ^= 1 << draw.randrange(8)
        assert predicate.verify(bundle, vkey, pem, evidence=bytes(other)) == 9
    assert predicate.verify(bundle, vkey, pem, model=b"another") == 8


@pytest.fixture(scope="module")
def certified() -> Certified:
    return Office().certify()


def verdict(certified: Certified, bundle: bytes, **files: bytes) -> tuple[int, int]:
    """Return the failing step by the document's verifier and by Lethe's."""
    from lethe.signing.keys import public_pem

    pem = public_pem(certified.issuer).encode()
    failed = certified.verify(bundle, **{"model": None, "evidence": None, **files}).failed
    own = 0 if failed is None else failed.number
    return predicate.verify(bundle, certified.log.vkey, pem, **files), own


def test_a_genuine_one_verifies_with_its_files(certified: Certified) -> None:
    files = {"model": certified.model, "evidence": certified.evidence}
    assert verdict(certified, certified.bundle, **files) == (0, 0)


@pytest.mark.parametrize("name", TAMPERED)
def test_it_fails_at_the_step_that_lethe_fails_at(certified: Certified, name: str) -> None:
    change, _, number = TAMPERED[name]
    bundle = json.loads(certified.bundle)
    change(bundle)
    data = json.dumps(bundle, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    assert verdict(certified, data.encode()) == (number, number)


def payload(said: Any) -> bytes:
    return json.dumps(said, separators=(",", ":"), sort_keys=True).encode()


def set_at(*path: Any, value: Any) -> Callable[[Any], None]:
    """Return a change of one member of a statement."""

    def change(said: Any) -> None:
        for name in path[:-1]:
            said = said[name]
        said[path[-1]] = value

    return change


def drop(said: Any) -> None:
    del said["predicate"]["supersedes"]


def before_too(said: Any) -> None:
    digest = said["predicate"]["model"]["versionBefore"]["digest"]
    said["subject"].append({"name": "before", "digest": digest})


def twice(said: Any) -> None:
    said["subject"].append(said["subject"][0])


NONE: dict[str, Any] = {
    "number": None,
    "method": "m",
    "result": "NONE",
    "reason": "r",
    "checks": [],
}
CHECK = {"number": "1", "name": "c", "quantity": "q", "value": "v", "interval": None, "threshold": None, "passed": False}  # fmt: skip
FAIL: dict[str, Any] = {
    "number": "1",
    "method": "m",
    "result": "FAIL",
    "reason": None,
    "checks": [CHECK],
}


def tell(*attempts: Any, certified: str | None = "1") -> Callable[[Any], None]:
    """Return a change that puts attempts, and the certified number, into a statement."""

    def change(said: Any) -> None:
        parameters = said["predicate"]["method"]["parameters"]
        parameters["escalation.attempts"] = payload({"attempts": list(attempts)}).decode()
        if certified is not None:
            parameters["attempt"] = certified

    return change


STATEMENTS: dict[str, Callable[[Any], None]] = {
    "another type": set_at("predicateType", value=f"{predicate.TYPE}2"),
    "an unknown member": set_at("predicate", "exceptions", value="x"),
    "a missing member": drop,
    "a number": set_at("predicate", "requestLogIndex", value=1),
    "a leading zero": set_at("predicate", "requestLogIndex", value="01"),
    "too large a number": set_at("predicate", "purged", "featureRows", value=str(2**63)),
    "an empty string": set_at("predicate", "model", "ref", value=""),
    "an empty name": set_at("predicate", "method", "parameters", "", value="x"),
    "no such day": set_at("predicate", "completedAt", value="2026-02-30T00:00:00Z"),
    "another zone": set_at("predicate", "completedAt", value="2026-02-20T00:00:00+00:00"),
    "an upper-case digest": set_at("predicate", "model", "versionAfter", "digest", "sha256", value="A" * 64),
    "an upper-case id": set_at("predicate", "certificateId", value="5F8D5C0E-6A53-4D0E-B7A4-0A6F0F9F2B11"),
    "a short hash": set_at("predicate", "requestCommitment", value="AAAA"),
    "an unknown class": set_at("predicate", "guarantee", "class", value="perfect"),
    "another result": set_at("predicate", "result", value="pass"),
    "a subject twice": twice,
    "the model before": before_too,
    "no records": set_at("predicate", "scope", "records", value="0"),
    "checks out of order": set_at("predicate", "checks", 0, "number", value="2"),
    "a check that failed": set_at("predicate", "checks", 0, "passed", value=False),
    "no checks": set_at("predicate", "checks", value=[]),
    "an interval of one": set_at("predicate", "checks", 0, "interval", value=["1"]),
    "the removal proof not listed": set_at("predicate", "evidence", value=[]),
    "logged before it was asked for": set_at("predicate", "requestLogIndex", value="99"),
    "an escalation that is none": set_at("predicate", "method", "parameters", "escalation.attempts", value="[]"),
    "an attempt that passed": tell({**FAIL, "result": "PASS"}, certified="2"),
    "an attempt without a reason": tell({**NONE, "reason": None}),
    "a verdict as a reason": tell({**NONE, "reason": "FAIL (x)"}),
    "a verdict without checks": tell({**FAIL, "checks": []}, certified="2"),
    "a verdict without a number": tell({**FAIL, "number": None}),
    "attempts from 2": tell({**FAIL, "number": "2"}, certified="3"),
    "a gap between attempts": tell(FAIL, {**FAIL, "number": "3"}, certified="4"),
    "two attempts of one number": tell(FAIL, FAIL, certified="3"),
    "another certified number": tell(FAIL, NONE, certified="3"),
    "no certified number": tell(FAIL, certified=None),
    "a certified number alone": set_at("predicate", "method", "parameters", "attempt", value="1"),
}  # fmt: skip


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_wrong_statement_fails_at_step_7_of_both(certified: Certified, name: str) -> None:
    """It is signed and logged by the right keys: nothing but its content is wrong."""
    bundle = json.loads(certified.bundle)
    said = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
    STATEMENTS[name](said)
    assert verdict(certified, Office().seal(payload(said))) == (7, 7)


def test_an_open_name_is_taken(certified: Certified) -> None:
    bundle = json.loads(certified.bundle)
    said = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
    said["predicate"]["method"]["parameters"]["of-a-later-release"] = "x"
    tell(NONE, FAIL, NONE, {**FAIL, "number": "2"}, certified="3")(said)
    assert verdict(certified, Office().seal(payload(said))) == (0, 0)


def fails(check: Callable[[], object]) -> bool:
    try:
        check()
    except (ValueError, TypeError, KeyError, AttributeError):
        return True
    return False


@pytest.mark.parametrize("path", REMOVALS, ids=lambda path: path.stem)
def test_the_removals_of_the_vectors(path: Path) -> None:
    vector = json.loads(path.read_text())
    certificate = vector["certificate"]

    def check() -> None:
        predicate.typed(predicate.EVIDENCE["removal"], vector["removal"])
        predicate.removed(vector["removal"], certificate, certificate)

    assert fails(check) == vector["wantErr"]


@pytest.mark.parametrize("path", PROOFS, ids=lambda path: path.stem)
def test_the_inclusion_proofs_of_the_vectors(path: Path) -> None:
    vector = json.loads(path.read_text())

    def check() -> None:
        for name in ("index", "size"):
            predicate.typed(predicate.COUNT, str(vector[name]))
        leaf, *proof = (bytes.fromhex(one) for one in (vector["leaf"], *vector["proof"]))
        predicate.need(all(len(one) == 32 for one in (leaf, *proof)))
        root = predicate.inclusion(leaf, vector["index"], vector["size"], proof)
        predicate.need(root == bytes.fromhex(vector["root"]))

    assert fails(check) == vector["wantErr"]
