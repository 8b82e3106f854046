"""The signed answer to a person's case: an in-toto Statement v1 under the issuer's key.

Its subjects are the certificates of its parts, or the case itself if no part has one. Field by
field: docs/people.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Final, Literal

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from lethe.certificates import shape
from lethe.certificates.bundle import Envelope, check_signature, parse_bundle
from lethe.certificates.errors import EnvelopeError
from lethe.certificates.shape import Moment, Name, Sha256, Uuid
from lethe.certificates.statement import STATEMENT_TYPE, Subject, parse_statement

PREDICATE_TYPE: Final = "https://w3id.org/lethe-ledger/case-summary/v1"
Outcome = Literal[
    "certified", "refused", "withdrawn", "failed",
    "held out only", "erased before", "nothing found",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class CaseDecision:
    """An officer's decision on a part's request, with its log entry.

    reason, notice of remedies, and due_at, the new deadline, are None if there is none.
    """

    decision: Literal[
        "approved", "refused", "extended", "paused", "resumed", "noted", "assigned",
    ]  # fmt: skip
    at: Moment
    reason: str | None
    notice: str | None
    due_at: str | None
    log_index: int


@dataclass(frozen=True, slots=True)
class CasePart:
    """The outcome for the person in one model.

    certificate: SHA-256 of the certificate file, or None. held_out_removed: number of the
    person's removed held-out rows, which were stored to measure the model and never trained on.
    removal_log_index: of the entry `model.held-out` that removed them. log_index: of the entry
    `case.opened` that commits to what was found, or `request.received`.
    """

    model: str
    outcome: Outcome
    records: int
    certificate: Sha256 | None
    held_out_removed: int
    removal_log_index: int | None
    log_index: int
    decisions: tuple[CaseDecision, ...]


@dataclass(frozen=True, slots=True)
class CasePredicate:
    """The case: its receipt and deadline, and one part for each model."""

    case: Uuid
    regulation: Literal["gdpr", "ccpa"]
    received_at: Moment
    due_at: Moment
    parts: tuple[CasePart, ...]


@dataclass(frozen=True, slots=True)
class CaseStatement:
    """The signed payload."""

    type_: Annotated[Literal["https://in-toto.io/Statement/v1"], Name("_type")]
    subject: tuple[Subject, ...]
    predicate_type: Literal["https://w3id.org/lethe-ledger/case-summary/v1"]
    predicate: CasePredicate


def build_summary(predicate: CasePredicate) -> bytes:
    """Return the payload (RFC 8785). Raises ShapeError: a part does not fit the format."""
    return shape.encode(
        CaseStatement(STATEMENT_TYPE, _subjects(predicate), PREDICATE_TYPE, predicate)
    )


def check_summary(
    data: bytes, issuer: EllipticCurvePublicKey, certificates: Sequence[bytes] = ()
) -> CaseStatement:
    """Verify a summary against the issuer's key and the given certificate files, and return it.

    1. The file is one DSSE envelope in its one spelling, signed with the issuer's key.
    2. The payload is a case summary whose subjects are its parts' certificates.
    3. Each of the files is the certificate of a part, and about that part's model.

    Raises LetheError; the message names the failed step.
    """
    envelope = shape.decode(Envelope, data)
    check_signature(envelope, issuer, envelope.signatures[0].keyid)
    statement = shape.decode(CaseStatement, envelope.payload)
    if statement.subject != _subjects(statement.predicate):
        raise EnvelopeError("the summary's subjects are not the certificates of its parts")
    for number, file in enumerate(certificates, 1):
        digest = sha256(file).hexdigest()
        models = {one.model for one in statement.predicate.parts if one.certificate == digest}
        if not models:
            raise EnvelopeError(f"file {number} is not a certificate of this case")
        if models != {parse_statement(parse_bundle(file).payload).predicate.model.ref}:
            raise EnvelopeError(f"file {number} is a certificate about another model")
    return statement


def _subjects(predicate: CasePredicate) -> tuple[Subject, ...]:
    named = [
        Subject(f"certificates/{part.model}", part.certificate)
        for part in predicate.parts
        if part.certificate is not None
    ]
    own = sha256(str(predicate.case).encode()).hexdigest()
    return tuple(named) or (Subject(f"cases/{predicate.case}", own),)
