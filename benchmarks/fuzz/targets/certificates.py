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
def certified() -> Certified:
    """Return a certificate that passes, with its files and keys."""
    return Office().certify()


def bundles() -> Sequence[bytes]:
    """Return that certificate and the published vectors."""
    found = [path.read_bytes() for path in sorted(VECTORS.glob("*.json"))]
    return [certified().bundle, *(one for one in found if _is_bundle(one))]


def _is_bundle(data: bytes) -> bool:
    return "verificationMaterial" in json.loads(data)


def _statements() -> Sequence[bytes]:
    return [parse_bundle(one).payload for one in bundles()]


def _verdict(data: bytes) -> object:
    """Verify a file; whatever it is, there is a verdict."""
    known = certified()
    verdict = verify_certificate(data, log=known.log, issuer=known.issuer)
    assert verdict.result in ("PASS", "FAIL")
    return verdict.to_json()


def trust_root() -> bytes:
    """Return a trust root that is valid."""
    office = Published()
    office.say(FIRST, SECOND)
    return office.root()


def signed(data: bytes) -> bytes:
    """Return a trust root of these members, signed by its log.

    Raises LetheError: they are no JSON object.
    """
    members = canonical.decode(data)
    if not isinstance(members, dict):
        raise TrustRootError("no object")
    members.pop("signature", None)
    digest = sha256(canonical.encode(members)).digest()
    return canonical.encode({**members, "signature": line(log_signer(), digest)})


def _resigned(data: bytes) -> object:
    return parse_trust_root(signed(data))


def _trusted(data: bytes) -> object:
    verdict = verify(certified().bundle, trust_root=data)
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
    Target("certificate", parse_bundle, bundles, (CertificateError, LetheError), JSON),
    Target("certificate-verdict", _verdict, bundles, (), JSON),
    Target("statement", parse_statement, _statements, (LetheError,), JSON),
    Target("evidence", parse_evidence, lambda: [certified().evidence], (LetheError,), JSON),
    Target("trust-root", parse_trust_root, lambda: [trust_root()], (TrustRootError,), JSON),
    Target("trust-root-signed", _resigned, lambda: [trust_root()], (LetheError,), (as_json,)),
    Target("audit-report", parse_report, _report, (LetheError,), JSON),
    Target("public-key", load_public_key, _pem(public_pem), (KeyFormatError,)),
    Target("private-key", load_private_key, _pem(private_pem), (KeyFormatError,)),
    Target(
        "canonical-json",
        canonical.decode,
        lambda: [certified().bundle],
        (canonical.NotCanonicalError,),
        JSON,
    ),
)
