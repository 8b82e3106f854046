"""The statement of a certificate: an in-toto Statement v1 with Lethe's erasure predicate.

The subject is the model *after* the erasure; the model before it is named only inside the
predicate: otherwise a look-up by digest would find a certificate for the model that still holds
the person. Field by field: docs/certificate.md.

What came before the certified attempt is the parameter `escalation.attempts`: canonical JSON,
because parameter values are strings, of every attempt with all checks of its verdict, their
intervals and thresholds, and of every method that made no model. The format rejects a verdict
without checks and a verdict given as a reason: a reader could not compare those with scores.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, Literal

from lethe import canonical
from lethe.catalogue import GuaranteeClass
from lethe.certificates import shape
from lethe.certificates.errors import ShapeError
from lethe.certificates.shape import Moment, Name, Sha256, Uuid
from lethe.records import dataclass

STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "https://w3id.org/lethe-ledger/erasure-certificate/v1"

Level = Literal["sample", "client", "subject"]
Outcome = Literal["PASS", "FAIL", "INCONCLUSIVE"]


@dataclass(frozen=True, slots=True)
class Subject:
    """A model artifact that the certificate is about, identified by its digest."""

    name: str
    digest: Sha256


@dataclass(frozen=True, slots=True)
class VersionPart:
    """One version of the model, by the SHA-256 of its artifact."""

    digest: Sha256


@dataclass(frozen=True, slots=True)
class ModelPart:
    """The model and its versions on both sides of the erasure."""

    ref: str
    version_before: VersionPart
    version_after: VersionPart


@dataclass(frozen=True, slots=True)
class Scope:
    """What was erased: how many records, and the Merkle root of their commitments."""

    level: Level
    records: int
    records_root: bytes


@dataclass(frozen=True, slots=True)
class SetState:
    """A retained set at one moment: the root of its tree and its number of records."""

    root: bytes
    count: int


@dataclass(frozen=True, slots=True)
class RetainedSet:
    """The training set before and after; `removal_proof` is the digest of the evidence file."""

    before: SetState
    after: SetState
    removal_proof: Sha256


@dataclass(frozen=True, slots=True)
class MethodPart:
    """The unlearning method, its parameters and its environment."""

    id: str
    version: str
    parameters: Mapping[str, str]
    code_digest: Sha256
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Guarantee:
    """The method's guarantee: its class, its statement and its named numeric bounds."""

    class_: GuaranteeClass
    statement: str
    bounds: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CheckPart:
    """One measurement of the verifier, numbered from 1 in the order they ran.

    quantity: what `value` is, with its unit. interval: (low, high) if it was measured or
    bounded, else None. threshold: the condition for passing, None if the check is only
    reported. Numbers are strings.
    """

    number: int
    name: str
    quantity: str
    value: str
    interval: tuple[str, str] | None
    threshold: str | None
    passed: bool


@dataclass(frozen=True, slots=True)
class Purged:
    """Personal data purged besides the model: withdrawn artifacts, rows, destroyed keys."""

    artifacts: tuple[Sha256, ...]
    feature_rows: int
    keys_destroyed: int


@dataclass(frozen=True, slots=True)
class EvidencePart:
    """A file that belongs to the certificate, for those entitled to it."""

    name: str
    digest: Sha256
    media_type: str


@dataclass(frozen=True, slots=True)
class VerifierPart:
    """The verifier that ran the checks; it shares no code with the method.

    Where it repeats a training or a fit, that runs the family's own code.
    """

    id: str
    version: str
    code_digest: Sha256


@dataclass(frozen=True, slots=True)
class Predicate:
    """The erasure certificate proper, `https://w3id.org/lethe-ledger/erasure-certificate/v1`.

    `request_log_index` and `request_commitment` identify the request's log entry and repeat its
    content; `supersedes` is the id of the certificate that this one replaces.
    """

    certificate_id: Uuid
    request_ref: Uuid
    request_log_index: int
    request_commitment: bytes
    completed_at: Moment
    supersedes: Uuid | None
    model: ModelPart
    scope: Scope
    retained_set: RetainedSet
    method: MethodPart
    guarantee: Guarantee
    checks: tuple[CheckPart, ...]
    result: Outcome
    purged: Purged
    evidence: tuple[EvidencePart, ...]
    verifier: VerifierPart


@dataclass(frozen=True, slots=True)
class Statement:
    """The signed payload: the model artifacts after the erasure, and the predicate."""

    type_: Annotated[Literal["https://in-toto.io/Statement/v1"], Name("_type")]
    subject: tuple[Subject, ...]
    predicate_type: Literal["https://w3id.org/lethe-ledger/erasure-certificate/v1"]
    predicate: Predicate


def statement_schema() -> dict[str, object]:
    """Return the JSON schema of the payload; docs/schemas has it as a file."""
    return shape.json_schema(
        Statement, f"{PREDICATE_TYPE}/statement.json", "Erasure certificate"
    )


def build_statement(subject: Sequence[Subject], predicate: Predicate) -> bytes:
    """Return the payload (RFC 8785 bytes) of a certificate.

    Raises ShapeError: the parts contradict each other or do not fit the format, so that
    `parse_statement` would refuse the result.
    """
    statement = Statement(STATEMENT_TYPE, tuple(subject), PREDICATE_TYPE, predicate)
    payload = shape.encode(statement)
    _check_consistent(statement)
    return payload


def parse_statement(payload: bytes) -> Statement:
    """Parse a payload; contradictory parts are refused.

    Raises NotCanonicalError: the bytes are not RFC 8785 canonical JSON; ShapeError: the
    predicate is of another type (ADR 0042), a member is missing, unknown or misspelled, or two
    contradict.
    """
    document = canonical.decode(payload)
    if isinstance(document, dict) and document.get("predicateType") != PREDICATE_TYPE:
        # Another type has other members: errors about those would hide the actual reason.
        raise ShapeError(f"must be {PREDICATE_TYPE}, or needs a newer release", "predicateType")
    statement = shape.decode(Statement, payload)
    _check_consistent(statement)
    return statement


def _check_consistent(statement: Statement) -> None:
    predicate = statement.predicate
    subjects = [subject.digest for subject in statement.subject]
    after = predicate.model.version_after.digest
    before = predicate.model.version_before.digest
    if len(set(subjects)) != len(subjects):
        raise ShapeError("must not name an artifact twice", "subject")
    if after not in subjects:
        raise ShapeError("must include the model version after the erasure", "subject")
    # Equal digests are legal: erasing a record of zeros leaves the head unchanged.
    if before != after and before in subjects:
        raise ShapeError("must not include the model before the erasure", "subject")
    if predicate.scope.records < 1:
        raise ShapeError("must be at least 1", "predicate.scope.records")
    numbers = [check.number for check in predicate.checks]
    if numbers != list(range(1, len(numbers) + 1)):
        raise ShapeError("must be numbered 1, 2, 3 in order", "predicate.checks")
    passed = [check.passed for check in predicate.checks]
    if predicate.result == "PASS" and not (passed and all(passed)):
        raise ShapeError("must not be PASS unless every check passed", "predicate.result")
    if predicate.retained_set.removal_proof not in {e.digest for e in predicate.evidence}:
        raise ShapeError("must list the removal proof", "predicate.evidence")


ATTEMPTS = "escalation.attempts"
ATTEMPT = "attempt"  # the number of the certified attempt; beside ATTEMPTS, and only there
NAMED = "method"  # the certified method with its settings, if a step of a ladder sets some

# No PASS: an attempt that passed is the certified one.
Verdict = Literal["FAIL", "INCONCLUSIVE", "NONE"]
_JUDGED = re.compile(r"(PASS|FAIL|INCONCLUSIVE) \(.*\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class AttemptPart:
    """An attempt, or a method that made none: with non-default settings, and the verdict.

    An *attempt* of a request published a version without its records, which can be judged.
    Attempts are numbered 1, 2, 3, … in the order of the request's `request.executed` entries in
    the log; API, log, command line and certificate show this `number`. A method that was
    skipped, or that ended without a model, made no attempt: its number is None. A stage that
    is repeated after a crash keeps its number, for nothing was published before.

    NONE: no verdict is given, and `reason` says why. Otherwise the checks are the reason.
    """

    number: int | None
    method: str
    result: Verdict
    reason: str | None
    checks: tuple[CheckPart, ...]


@dataclass(frozen=True, slots=True)
class _Escalation:
    attempts: tuple[AttemptPart, ...]


def write_escalation(attempts: Iterable[AttemptPart]) -> dict[str, str]:
    """Return the parameters: what came before, in its order, and the certified number.

    Raises ShapeError for an attempt that `read_escalation` would refuse.
    """
    told = tuple(attempts)
    written = {ATTEMPTS: shape.encode(_Escalation(told)).decode(), ATTEMPT: str(_next(told))}
    read_escalation(written)
    return written


def read_escalation(parameters: Mapping[str, str]) -> tuple[AttemptPart, ...]:
    """Return what came before the certified attempt, empty if nothing was escalated.

    Raises NotCanonicalError: `escalation.attempts` is not RFC 8785 canonical JSON; ShapeError:
    the form is wrong, an attempt has a verdict but no failed check, it has both reason and
    checks, or the attempts are not numbered 1, 2, 3 up to the certified one.
    """
    encoded = parameters.get(ATTEMPTS)
    if encoded is None:
        if ATTEMPT in parameters:
            raise ShapeError(f"must not be there without {ATTEMPTS}", f"parameters.{ATTEMPT}")
        return ()
    attempts = shape.decode(_Escalation, encoded.encode()).attempts
    for position, attempt in enumerate(attempts):
        problem = _problem(attempt)
        if attempt.number not in (None, _next(attempts[:position])):
            problem = "must be numbered 1, 2, 3 in order"
        if problem is not None:
            raise ShapeError(problem, f"parameters.{ATTEMPTS}.attempts[{position}]")
    if parameters.get(ATTEMPT) != str(_next(attempts)):
        raise ShapeError("must be the number after the last attempt's", f"parameters.{ATTEMPT}")
    return attempts


def certified_number(parameters: Mapping[str, str]) -> int:
    """Return the number of the certified attempt, given parameters of the documented form."""
    return int(parameters.get(ATTEMPT, "1"))


def _next(attempts: Sequence[AttemptPart]) -> int:
    """Return the number of the attempt after these."""
    return 1 + sum(one.number is not None for one in attempts)


def spelled(attempt: AttemptPart) -> str:
    """Return an attempt as one line: with its reason, or the values of its failed checks."""
    if attempt.result == "NONE":
        return f"{attempt.method}: {attempt.reason}"
    failed = "; ".join(f"{one.name}: {one.value}" for one in attempt.checks if not one.passed)
    return f"{attempt.method}: {attempt.result} ({failed})"


def from_line(text: str) -> AttemptPart:
    """Parse a log line `METHOD: REASON` of a method that made no attempt."""
    method, _, reason = text.partition(": ")
    return AttemptPart(None, method, "NONE", reason or None, ())


def _problem(attempt: AttemptPart) -> str | None:
    """Return what is wrong with the attempt's form, None if nothing is."""
    if attempt.result == "NONE":
        if attempt.checks or not attempt.reason:
            return "must have a reason and no checks: its result is NONE"
        if _JUDGED.fullmatch(attempt.reason):
            return "must not tell a verdict as the reason why there is none"
        return None
    if attempt.number is None:
        return "must have a number: a verdict was reached"
    if attempt.reason is not None or not attempt.checks:
        return "must have checks and no reason: a verdict was reached"
    if all(check.passed for check in attempt.checks):
        return "must have a check that did not pass: its result is no PASS"
    return None
