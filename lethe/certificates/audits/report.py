"""An audit report: an in-toto Statement v1 about an unlearning algorithm.

Its subject is the file of the pairs' numbers. Field by field: docs/method-audits.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from lethe.certificates import shape
from lethe.certificates.shape import Moment, Name, Sha256, Uuid
from lethe.certificates.statement import STATEMENT_TYPE, Subject, VerifierPart

PREDICATE_TYPE: Final = "https://w3id.org/lethe-ledger/method-audit/v1"
MAX_REPORT = 1 << 20  # bytes

AuditResult = Literal["LEAK", "NOTHING-FOUND", "INCONCLUSIVE"]


@dataclass(frozen=True, slots=True)
class AuditedMethod:
    """The audited unlearning method, and the digests of the training and method code."""

    id: str
    version: str
    code_digest: Sha256


@dataclass(frozen=True, slots=True)
class BoundPart:
    """Errors of a test on `trials` models from each world, and the ε that they prove.

    epsilon is a lower bound. Both upper limits hold together at the audit's confidence.
    """

    false_positives: int
    false_negatives: int
    trials: int
    fpr_upper: str
    fnr_upper: str
    epsilon: str


@dataclass(frozen=True, slots=True)
class AuditPredicate:
    """An audit of one method on one model's stored rows.

    configuration is what the log's `audit.started` commits to; registration is the digest of
    the model's own, which fixes network, training and the method's settings. versions: the
    first and the last model version whose rows were used. after: unlearned against retrained;
    before: the positive control. resolution: the ε that the same number of trials with no error
    would have shown.
    """

    audit_id: Uuid
    model: str
    registration: Sha256
    configuration: Mapping[str, str]
    method: AuditedMethod
    auditor: VerifierPart
    started_at: Moment
    reported_at: Moment
    versions: tuple[int, int]
    environments: tuple[Mapping[str, str], ...]
    pairs: int
    gave_way: int
    after: BoundPart
    before: BoundPart
    resolution: str
    result: AuditResult
    statement: str


@dataclass(frozen=True, slots=True)
class AuditStatement:
    """The signed payload: the file of the pairs' numbers by its digest, and the predicate."""

    type_: Annotated[Literal["https://in-toto.io/Statement/v1"], Name("_type")]
    subject: tuple[Subject]
    predicate_type: Literal["https://w3id.org/lethe-ledger/method-audit/v1"]
    predicate: AuditPredicate


def build_report(statistics: str, predicate: AuditPredicate) -> bytes:
    """Return the payload (RFC 8785); statistics: hex SHA-256 of the pairs' numbers.

    Raises ShapeError: a part does not fit the format.
    """
    subject = Subject(f"audits/{predicate.audit_id}/statistics", statistics)
    return shape.encode(AuditStatement(STATEMENT_TYPE, (subject,), PREDICATE_TYPE, predicate))


def parse_report(payload: bytes) -> AuditStatement:
    """Parse a payload; nothing is verified yet.

    Raises NotCanonicalError: the bytes are not RFC 8785 canonical JSON; ShapeError: a member is
    missing, unknown or misspelled.
    """
    return shape.decode(AuditStatement, payload)


def in_short(report: AuditPredicate) -> str:
    """Return a report as one line, which certificates repeat."""
    asked = report.configuration
    return (
        f"{report.result}: epsilon at least {report.after.epsilon} "
        f"(delta {asked['delta']}) at confidence {asked['confidence']}; "
        f"{report.after.trials} trials can show {report.resolution} at most"
    )


def words(result: AuditResult, after: str, before: str, resolution: str) -> str:
    """Return the meaning of a result; the other arguments are spelled values of ε."""
    if result == "LEAK":
        return (
            f"The method leaves traces of what it unlearns: its epsilon is {after} at least. "
            "How much larger it is, no audit shows."
        )
    if result == "NOTHING-FOUND":
        return (
            f"An attack that finds the targets before unlearning (epsilon {before} at least) "
            "does not find them after it. Models without a single error would have shown "
            f"{resolution}: an epsilon below that may have been missed, as may other attacks."
        )
    return (
        "The attack does not find the targets even before unlearning: this says nothing "
        "about the method."
    )
