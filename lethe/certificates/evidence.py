"""The evidence file of a certificate: proofs that hold personal data, bound by its digest.

The certificate is public and names nobody. This file opens the erased records' commitments,
so it goes only to those entitled to it, and the certificate's `retainedSet.removalProof`
says which file it must be.
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
SCORES_TYPE = "application/octet-stream"  # safetensors have no registered type
SCORES = "scores"  # of the verdict that is certified
ESCALATION_SCORES = "escalation.scores"  # of an attempt before it


@dataclass(frozen=True, slots=True)
class Report:
    """The verifier's own report; `details` are further measurements, as strings."""

    verifier: VerifierPart
    result: Outcome
    checks: tuple[CheckPart, ...]
    details: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Evidence:
    """A whole evidence file; `statistics` are digests of what the method updated."""

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
    """Read an evidence file; proves nothing yet.

    Raises:
        NotCanonicalError: The bytes are not RFC 8785 canonical JSON.
        ShapeError: A member is missing, unknown or misspelled.
    """
    return shape.decode(Evidence, data)


def evidence_part(name: str, evidence: bytes) -> EvidencePart:
    """Return what a certificate says about an evidence file: name, digest, media type."""
    return EvidencePart(name, sha256(evidence).hexdigest(), MEDIA_TYPE)


def scores_part(digest: str, *, certified: bool) -> EvidencePart:
    """Return what a certificate says about a scores file (hex SHA-256).

    certified: it is of the verdict that the certificate gives, and not of an attempt before.
    """
    return EvidencePart(SCORES if certified else ESCALATION_SCORES, digest, SCORES_TYPE)


def check_evidence(
    evidence: bytes, predicate: Predicate, parsed: Evidence | None = None
) -> None:
    """Check an evidence file against the certificate that names it.

    parsed: what `parse_evidence` returned for these bytes, if the caller has it.

    Raises:
        RemovalError: It is another file than the certificate's, its proofs do not hold, or
            its report is not the one that was certified.
        NotCanonicalError, ShapeError: The certificate names a file that is no evidence.
    """
    retained, scope = predicate.retained_set, predicate.scope
    if sha256(evidence).hexdigest() != retained.removal_proof:
        raise RemovalError("this is another file than the certificate's removal proof")
    if parsed is None:
        parsed = parse_evidence(evidence)
    check_sets(
        parsed.removal, retained.before, retained.after, scope.records, scope.records_root
    )
    said: Sequence[object] = (predicate.verifier, predicate.result, predicate.checks)
    if said != (parsed.report.verifier, parsed.report.result, parsed.report.checks):
        raise RemovalError("the evidence reports other checks than the certificate")
