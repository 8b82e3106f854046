"""The evidence file of a certificate: proofs with personal data, bound by their digest.

The certificate is public and names nobody. The evidence opens the erased records' commitments,
so it is given only to those entitled to it; the certificate's `retainedSet.removalProof` holds
its digest.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal

from lethe.certificates import shape
from lethe.certificates.errors import RemovalError
from lethe.certificates.retained import Removal, check_sets
from lethe.certificates.shape import Sha256
from lethe.certificates.statement import (
    CheckPart,
    EvidencePart,
    Outcome,
    Predicate,
    VerifierPart,
)
from lethe.records import dataclass

MEDIA_TYPE = "application/json"
SCORES_TYPE = "application/octet-stream"  # safetensors has no registered type
SCORES = "scores"  # of the certified verdict
ESCALATION_SCORES = "escalation.scores"  # of an earlier attempt


@dataclass(frozen=True, slots=True)
class Report:
    """The verifier's own report; `details` are further measurements, as strings."""

    verifier: VerifierPart
    result: Outcome
    checks: tuple[CheckPart, ...]
    details: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Evidence:
    """A whole evidence file; `statistics` are digests of the data that the method updated."""

    api_version: Literal["2"]
    kind: Literal["erasure-evidence"]
    removal: Removal
    report: Report
    statistics: Mapping[str, Sha256]


def build_evidence(
    removal: Mapping[str, Any], report: Report, statistics: Mapping[str, str]
) -> bytes:
    """Return the evidence file (RFC 8785 bytes).

    `removal` is what `prove_removal` returned, `statistics` maps names such as "gram.before" to
    SHA-256 in hexadecimal. Raises ShapeError: a part does not fit the format.
    """
    section = shape.read(Removal, dict(removal))
    return shape.encode(Evidence("2", "erasure-evidence", section, report, statistics))


def parse_evidence(data: bytes) -> Evidence:
    """Parse an evidence file; nothing is verified yet.

    Raises NotCanonicalError: the bytes are not RFC 8785 canonical JSON; ShapeError: a member is
    missing, unknown or misspelled.
    """
    return shape.decode(Evidence, data)


def evidence_part(name: str, evidence: bytes) -> EvidencePart:
    """Return a certificate's entry for an evidence file: name, digest, media type."""
    return EvidencePart(name, sha256(evidence).hexdigest(), MEDIA_TYPE)


def scores_part(digest: str, *, certified: bool) -> EvidencePart:
    """Return a certificate's entry for a scores file (hex SHA-256).

    certified: the scores belong to the certified verdict, not to an earlier attempt.
    """
    return EvidencePart(SCORES if certified else ESCALATION_SCORES, digest, SCORES_TYPE)


def check_evidence(
    evidence: bytes, predicate: Predicate, parsed: Evidence | None = None
) -> None:
    """Check an evidence file against the certificate that names it.

    parsed: what `parse_evidence` returned for these bytes, if the caller has it.

    Raises RemovalError: the digest is not the certificate's, a proof does not verify, or the
    report is not the certified one; NotCanonicalError, ShapeError: the file that the
    certificate names is not evidence.
    """
    retained, scope = predicate.retained_set, predicate.scope
    if sha256(evidence).hexdigest() != retained.removal_proof:
        raise RemovalError("this is not the evidence file that the certificate names")
    if parsed is None:
        parsed = parse_evidence(evidence)
    check_sets(
        parsed.removal, retained.before, retained.after, scope.records, scope.records_root
    )
    said: Sequence[object] = (predicate.verifier, predicate.result, predicate.checks)
    if said != (parsed.report.verifier, parsed.report.result, parsed.report.checks):
        raise RemovalError("the evidence reports other checks than the certificate")
