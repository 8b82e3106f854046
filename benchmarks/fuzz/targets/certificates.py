"""Of certificates: bundles, statements, evidence, trust roots, audit reports, keys."""

import json
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path

from benchmarks.fuzz.mutate import as_json, plain
from benchmarks.fuzz.target import Target
from lethe import canonical
from lethe.certificates.audits.report import build_report, parse_report
from lethe.certificates.bundle import parse_bundle
from lethe.certificates.errors import CertificateError
from lethe.certificates.evidence import parse_evidence
from lethe.certificates.statement import parse_statement
from lethe.certificates.trust_root import TrustRootError, parse_trust_root
from lethe.certificates.verify import verify, verify_certificate
from lethe.errors import LetheError
from lethe.signing.errors import KeyFormatError
from lethe.signing.keys import (
    generate_key,
    load_private_key,
    load_public_key,
    private_pem,
    public_pem,
)
from tests.lethe.certificates.build import Certified, Office, log_signer
from tests.lethe.certificates.test_audit_report import predicate, statistics
from tests.lethe.certificates.test_trust_root import FIRST, SECOND, Published, line

VECTORS = Path(__file__).parents[3] / "tests" / "vectors" / "certificates"
JSON = (as_json, as_json, plain)


@cache
def _certified() -> Certified:
    return Office().certify()


def _bundles() -> Sequence[bytes]:
    found = [path.read_bytes() for path in sorted(VECTORS.glob("*.json"))]
    return [_certified().bundle, *(one for one in found if _is_bundle(one))]


def _is_bundle(data: bytes) -> bool:
    return "verificationMaterial" in json.loads(data)


def _statements() -> Sequence[bytes]:
    return [parse_bundle(one).payload for one in _bundles()]


def _verdict(data: bytes) -> object:
    """Verify a file; whatever it is, there is a verdict."""
    known = _certified()
    verdict = verify_certificate(data, log=known.log, issuer=known.issuer)
    assert verdict.result in ("PASS", "FAIL")
    return verdict.to_json()


def _trust_root() -> bytes:
    office = Published()
    office.say(FIRST, SECOND)
    return office.root()


def _resigned(data: bytes) -> object:
    """Read a trust root whose log signed whatever it says."""
    members = canonical.decode(data)
    if not isinstance(members, dict):
        raise TrustRootError("no object")
    members.pop("signature", None)
    digest = sha256(canonical.encode(members)).digest()
    signed = canonical.encode({**members, "signature": line(log_signer(), digest)})
    return parse_trust_root(signed)


def _trusted(data: bytes) -> object:
    verdict = verify(_certified().bundle, trust_root=data)
    return verdict.to_json()


def _report() -> Sequence[bytes]:
    numbers = statistics((1.0, 0.5, 0.25))
    return [build_report(sha256(numbers).hexdigest(), predicate())]


def _pem(make: Callable[..., str]) -> Callable[[], Sequence[bytes]]:
    def seeds() -> Sequence[bytes]:
        keys = [generate_key("ed25519"), generate_key("ecdsa-p256-sha256")]
        return [make(key).encode() for key in keys]

    return seeds


TARGETS = (
    Target("certificate", parse_bundle, _bundles, (CertificateError, LetheError), JSON),
    Target("certificate-verdict", _verdict, _bundles, (), JSON),
    Target("statement", parse_statement, _statements, (LetheError,), JSON),
    Target("evidence", parse_evidence, lambda: [_certified().evidence], (LetheError,), JSON),
    Target("trust-root", parse_trust_root, lambda: [_trust_root()], (TrustRootError,), JSON),
    Target("trust-root-signed", _resigned, lambda: [_trust_root()], (LetheError,), (as_json,)),
    Target("audit-report", parse_report, _report, (LetheError,), JSON),
    Target("public-key", load_public_key, _pem(public_pem), (KeyFormatError,)),
    Target("private-key", load_private_key, _pem(private_pem), (KeyFormatError,)),
    Target(
        "canonical-json",
        canonical.decode,
        lambda: [_certified().bundle],
        (canonical.NotCanonicalError,),
        JSON,
    ),
)
