"""OpenAPI with all answers of each operation: statuses, content types, names of problems.

FastAPI knows what a route returns. `RAISED` lists the problems it raises; those of dependencies
and middleware are added according to what the route depends on.
"""

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from app import problems as p
from app.api.http.problems import MEDIA_TYPE
from app.ledger.cose_receipt import MEDIA_TYPE as RECEIPT
from app.ledger.group_commit import CommitterClosedError
from app.ledger.guard import GuardError
from app.ledger.sequencer import LogMissingError
from app.metrics import MEDIA_TYPE as METRICS_TYPE
from app.notices.guard import TargetError
from app.reconcile.holds import HoldsChangedError
from app.reconcile.people import PeopleChangedError
from app.schemas.families.manifests import MANIFESTS
from app.schemas.requests import NewRequest
from app.service.models.held_out import HeldOutChangedError
from app.vault.errors import MasterKeyError, NotStoredError, SealError, ShreddedError
from lethe.catalogue import EVENTS
from lethe.certificates.bundle import MEDIA_TYPE as BUNDLE
from lethe.certificates.evidence import SCORES_TYPE
from lethe.errors import LetheError
from lethe.log.proofs import ProofError
from lethe.log.tiles import TileError
from lethe.report.pdf import PdfMissingError, PdfTooLongError
from lethe.signing import errors as s

Problem = type[LetheError]
Schema = dict[str, Any]

_BYTES, _JSON = "application/octet-stream", "application/json"
_TEXT = "text/plain; charset=utf-8"

# Answers that FastAPI cannot know: the content type, and whether 304 is possible.
FILES: dict[str, tuple[str, bool]] = {
    "getCertificate": (BUNDLE, True),
    "getCertificateReceipt": (RECEIPT, True),
    "getCertificatePage": ("text/html; charset=utf-8", False),
    "getCertificatePdf": ("application/pdf", False),
    "getEvidence": (_JSON, False),
    "getScores": (SCORES_TYPE, False),
    "getArtifact": (_BYTES, True),
    "getSignature": (BUNDLE, False),
    "getPeriodReport": (_JSON, False),
    "getReport": (_JSON, True),
    "getCaseSummary": (_JSON, False),
    "getStatistics": (_JSON, True),
    "getCheckpoint": (_TEXT, False),
    "getWitnessedCheckpoint": (_TEXT, False),
    "getLogKey": (_TEXT, False),
    "getTrustRoot": (_JSON, False),
    "getTile": (_BYTES, True),
    "getIssuerKey": ("application/x-pem-file", False),
    "getMetrics": (METRICS_TYPE, False),
    "followRequest": ("text/event-stream", False),
    "followCase": ("text/event-stream", False),
}
# Further content types of a file that has several forms.
OTHER_FORMS: dict[str, tuple[str, ...]] = {
    "getPeriodReport": (
        "text/csv; charset=utf-8",
        "text/html; charset=utf-8",
        "application/pdf",
    )
}
_SIGNED: tuple[Problem, ...] = (
    p.IdempotencyKeyError,
    s.SignatureMissingError,
    s.SignatureMalformedError,
    s.SignatureIncompleteError,
    s.SignatureWindowError,
    s.SignatureNotYetValidError,
    s.SignatureExpiredError,
    s.SignatureInvalidError,
    s.SignatureReplayedError,
    s.DigestMismatchError,
    s.KeyUnknownError,
    s.KeyNotEntitledError,
    p.RateLimitError,
)
_BEARER: tuple[Problem, ...] = (p.UnauthorizedError, p.ForbiddenError, p.RateLimitError)
_ANY: tuple[Problem, ...] = (
    p.BadCursorError,
    p.DatabaseUnavailableError,
    CommitterClosedError,
    LogMissingError,
    GuardError,
    MasterKeyError,
    SealError,
)
_UNKNOWN = (p.NotFoundError,)
_CLOSED = (p.NotFoundError, p.ConflictError)
_ISSUED = (p.NotFoundError, p.NotIssuedError, p.CertificateChangedError)
_WITNESSED = (*_ISSUED, p.NotWitnessedError)
_MODEL = (p.ModelDeletedError, p.UnknownModelError)
_DECIDED = (p.NotFoundError, p.ConflictError, p.ForbiddenError, PeopleChangedError)
RAISED: dict[str, tuple[Problem, ...]] = {
    "submitRequest": (
        *_MODEL,
        p.UnknownRecordError,
        p.AlreadyErasedError,
        p.ContributionPendingError,
        p.ScopeChangedError,
        p.ScopeTooLargeError,
        p.MethodUnavailableError,
        p.ModelNotReadyError,
        p.IdempotencyMismatchError,
        p.CallbackTargetError,
        p.CallbackLimitError,
        p.QuotaError,
        p.BusyError,
    ),
    "previewRequest": (
        p.QuotaError,
        p.UnknownModelError,
        p.UnknownRecordError,
        p.AlreadyErasedError,
        p.ContributionPendingError,
        p.ScopeTooLargeError,
        p.MethodUnavailableError,
        p.ModelNotReadyError,
    ),
    "listRequests": (p.UnknownModelError, p.NotFoundError),
    "getRequest": _UNKNOWN,
    "followRequest": _UNKNOWN,
    "followCase": (p.NotFoundError, PeopleChangedError),
    "withdrawRequest": (p.NotFoundError, p.NotWithdrawableError, PeopleChangedError),
    "decideRequest": _CLOSED,
    "getCertificateReceipt": (*_WITNESSED, p.ReceiptRefusedError),
    "getCertificate": _WITNESSED,
    "getCertificatePage": (*_WITNESSED, p.BusyError),
    "getCertificatePdf": (*_WITNESSED, p.BusyError, PdfMissingError, PdfTooLongError),
    "getEvidence": (*_ISSUED, NotStoredError, ShreddedError),
    "getScores": (p.NotFoundError, NotStoredError, ShreddedError),
    "listAsked": (),
    "answerRelease": (
        p.NotFoundError,
        p.UploadError,
        p.ReleaseClosedError,
        p.ReleaseMismatchError,
    ),
    "listReleases": (),
    "placeHold": _CLOSED,
    "listHolds": (p.BadCursorError,),
    "releaseHold": (p.NotFoundError, p.ConflictError, p.ForbiddenError, HoldsChangedError),
    "getCallbackKey": (),
    "listCallbacks": (p.BadCursorError,),
    "listCallbackDeliveries": (p.NotFoundError, p.BadCursorError),
    "replayCallback": _CLOSED,
    "removeCallback": _UNKNOWN,
    "addWebhook": (TargetError, p.ConflictError),
    "listWebhooks": (),
    "getWebhook": _UNKNOWN,
    "listDeliveries": (p.NotFoundError, p.BadCursorError),
    "replayWebhook": _CLOSED,
    "testWebhook": _CLOSED,
    "rotateWebhook": _CLOSED,
    "disableWebhook": _CLOSED,
    "enableWebhook": _CLOSED,
    "removeWebhook": _UNKNOWN,
    "dropRelease": (p.NotFoundError, p.ReleaseClosedError),
    "openRound": (
        *_MODEL,
        p.ModelNotReadyError,
        p.NotMaskedError,
        p.RoundOpenError,
        p.RoundMemberError,
    ),
    "listRounds": (),
    "listAskedRounds": (),
    "getRound": _UNKNOWN,
    "getRoundWork": _UNKNOWN,
    "sendRoundMessage": (
        p.NotFoundError,
        p.ConflictError,
        p.RoundStepError,
        p.RoundDuplicateError,
        p.RoundMessageError,
        *p.RoundMessageError.__subclasses__(),
    ),
    "abortRound": (p.NotFoundError, p.RoundStepError),
    "registerKey": (s.KeyFormatError, p.ConflictError),
    "listKeys": (),
    "confirmKey": (p.NotFoundError, s.KeyFormatError, p.ConflictError, p.KeyUnloggedError),
    "revokeKey": _UNKNOWN,
    "registerModel": (p.ModelDeletedError, p.ConflictError, p.NotOverSilosError, p.UploadError),
    "listModels": (),
    "getModel": (p.UnknownModelError, p.UnloggedVersionError),
    "deleteModel": (
        p.UnknownModelError,
        p.UnloggedVersionError,
        SealError,
        p.ModelInUseError,
        p.HeldError,
        HoldsChangedError,
    ),
    "mendModel": (p.UnknownModelError, p.ConflictError),
    "listVersions": (p.UnknownModelError, p.UnloggedVersionError),
    "getVersion": (*_MODEL, p.NotFoundError, p.UnloggedVersionError, p.CertificateChangedError),
    "getArtifact": (*_MODEL, p.NotFoundError, NotStoredError, ShreddedError),
    "getSignature": (*_MODEL, p.NotFoundError, p.UnloggedVersionError, ShreddedError),
    "getManifest": _MODEL,
    "contribute": (
        *_MODEL,
        p.UploadError,
        p.ConflictError,
        p.ModelNotReadyError,
        p.IdempotencyMismatchError,
    ),
    "getContribution": (p.UnknownModelError, p.NotFoundError),
    "startAudit": (
        *_MODEL,
        p.MethodUnavailableError,
        p.ModelNotReadyError,
        p.AuditRefusedError,
        p.AuditRunningError,
    ),
    "listAudits": (),
    "getAudit": _UNKNOWN,
    "stopAudit": _CLOSED,
    "getPeriodReport": (
        p.BadCursorError,
        p.BusyError,
        p.PeriodChangedError,
        PdfMissingError,
        PdfTooLongError,
    ),
    "getReport": (p.NotFoundError, p.NoReportError, p.AuditMissingError, NotStoredError),
    "getStatistics": (
        p.NotFoundError,
        p.NoReportError,
        p.NumbersDestroyedError,
        p.NumbersChangedError,
    ),
    "findPerson": (*_MODEL, PeopleChangedError),
    "importPeople": (*_MODEL, p.UnknownRecordError, PeopleChangedError),
    "removeHeldOut": (*_MODEL, p.UnknownRecordError, HeldOutChangedError),
    "openCase": (
        *_MODEL,
        p.ConflictError,
        p.ContributionPendingError,
        p.MethodUnavailableError,
        p.ModelNotReadyError,
        p.ScopeChangedError,
        HeldOutChangedError,
        PeopleChangedError,
    ),
    "getCase": (p.NotFoundError, PeopleChangedError),
    "getCaseSummary": (
        p.NotFoundError,
        p.ConflictError,
        p.NotWitnessedError,
        p.CertificateChangedError,
        PeopleChangedError,
    ),
    "openContact": _UNKNOWN,
    "closeCase": (
        p.NotFoundError,
        p.ConflictError,
        p.HeldError,
        HoldsChangedError,
        PeopleChangedError,
    ),
    "searchCases": (p.UnknownModelError, p.NotFoundError, PeopleChangedError),
    "approveCase": (*_DECIDED, p.KeyUnloggedError),
    "refuseCase": _DECIDED,
    "extendCase": _DECIDED,
    "pauseCase": _DECIDED,
    "resumeCase": _DECIDED,
    "noteCase": _DECIDED,
    "assignCase": _DECIDED,
    "getCheckpoint": (),
    "getWitnessedCheckpoint": _UNKNOWN,
    "getLogKey": (),
    "getTrustRoot": (),
    "getTile": (TileError, p.NotFoundError),
    "listEntries": _UNKNOWN,
    "proveInclusion": (p.NotFoundError, ProofError),
    "proveConsistency": (p.NotFoundError, ProofError),
    "verifyCertificate": (),
    "getIssuerKey": (),
    "healthz": (),
    "readyz": (p.NotReadyError,),
    "getMetrics": (),
}


def answerable() -> set[str]:
    """Return the types of all problems that the API may answer."""
    kinds = {kind for kinds in RAISED.values() for kind in kinds} | {*_ANY, *_SIGNED, *_BEARER}
    kinds |= {kind for one in _ANY for kind in one.__subclasses__()}
    kinds |= {
        kind
        for kind in vars(p).values()
        if isinstance(kind, type) and issubclass(kind, LetheError)
    }
    return {"body-invalid", *(kind.slug for kind in kinds)}


def install(app: FastAPI) -> None:
    """Make `app` describe all answers of its operations."""

    def describe() -> Schema:
        if app.openapi_schema is None:
            app.openapi_schema = _describe(app)
        return app.openapi_schema

    app.openapi = describe  # type: ignore[method-assign]


def _describe(app: FastAPI) -> Schema:
    schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
    schemas: Schema = schema["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas["Problem"] = _problem()
    for wire in (NewRequest, *MANIFESTS.values()):  # bodies that routes parse themselves
        whole = wire.model_json_schema(ref_template="#/components/schemas/{model}")
        for name, part in {**whole.pop("$defs", {}), wire.__name__: whole}.items():
            schemas.setdefault(name, part)
    for event in EVENTS.values():  # payloads of log entries
        schemas[f"event.{event.name}"] = event.schema()
    for operation in operations(schema):
        _complete(operation)
    return schema


def operations(schema: Schema) -> Iterator[Schema]:
    """Yield every operation of a description."""
    for path in schema["paths"].values():
        yield from path.values()


def _complete(operation: Schema) -> None:
    name = operation["operationId"]
    responses: Schema = operation["responses"]
    # FastAPI adds its own form of a 422, which is never sent.
    responses.pop("422", None)
    if name in FILES:
        media, conditional = FILES[name]
        kinds = [media, *OTHER_FORMS.get(name, ())]
        whole = {one: {"schema": {"type": "string", "format": "binary"}} for one in kinds}
        responses["200"] = {"description": "The file.", "content": whole}
        if conditional:
            responses["304"] = {"description": "The client has it: If-None-Match names it."}
    if name == "registerKey":
        responses["200"] = {**responses["201"], "description": "It was registered before."}
    found: dict[int, set[str]] = {500: {"internal"}}
    for kind in _raised(operation):
        found.setdefault(kind.status, set()).add(kind.slug)
    if operation.get("parameters") or "requestBody" in operation:
        found.setdefault(422, set()).add("body-invalid")
    for status, slugs in sorted(found.items()):
        responses[str(status)] = {
            "description": "urn:lethe:problem: " + ", ".join(sorted(slugs)),
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }


def _raised(operation: Schema) -> Iterator[Problem]:
    yield from RAISED[operation["operationId"]]
    for kind in _ANY:
        yield kind
        yield from kind.__subclasses__()
    schemes = {name for one in operation.get("security", ()) for name in one}
    if "httpSignature" in schemes:
        yield from _SIGNED
    if "bearer" in schemes:
        yield from _BEARER
    # Bodies are limited before it is known whether the route takes one.
    yield from (p.BodyTooLargeError, p.SlowBodyError, p.BusyError)


def _problem() -> Schema:
    texts = {name: {"type": "string"} for name in ("type", "title", "detail")}
    return {
        "title": "Problem",
        "description": "RFC 9457. `type` is urn:lethe:problem: and one of the names listed.",
        "type": "object",
        "properties": {**texts, "status": {"type": "integer"}},
        "required": ["type", "title", "status", "detail"],
        "additionalProperties": True,
    }
