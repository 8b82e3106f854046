"""The problems that a call can be refused with: slug, title and HTTP status of each.

The vault, the ledger and `lethe.signing` define their own errors.
"""

from math import ceil

from lethe.errors import LetheError


class NotFoundError(LetheError):
    """The named object does not exist."""

    slug, title, status = "not-found", "Not found", 404


class UnknownModelError(LetheError):
    """No model has that reference."""

    slug, title, status = "model-unknown", "Unknown model", 404


class ModelDeletedError(LetheError):
    """The model was deleted: only its log entries and certificates are left."""

    slug, title, status = "model-deleted", "The model was deleted", 410


class ModelInUseError(LetheError):
    """Something of the model is not finished; the message names it and what to do."""

    slug, title, status = "model-in-use", "The model cannot be deleted now", 409


class HeldError(LetheError):
    """A legal hold keeps the data; the message says where to see it."""

    slug, title, status = "held", "Under a legal hold", 409


class UnloggedVersionError(LetheError):
    """Table and log disagree on a version: nothing is signed for it."""

    slug, title, status = "version-unlogged", "The database and the log disagree", 503


class UnknownRecordError(LetheError):
    """The scope names data that the model's training set does not hold."""

    slug, title, status = "record-unknown", "Unknown record", 404


class AlreadyErasedError(LetheError):
    """A record was erased before, or is being erased; `ref` and `request` name the request."""

    slug, title, status = "already-erased", "Already erased", 409


class ContributionPendingError(LetheError):
    """The data may be among contributed rows that are not learned yet."""

    slug, title, status = "contribution-pending", "Contribution still being learned", 409


class ScopeChangedError(LetheError):
    """Data in the scope were learned, erased or claimed while the request was accepted."""

    slug, title, status = "scope-changed", "The data changed meanwhile", 409


class ScopeTooLargeError(LetheError):
    """More records than one request may name."""

    slug, title, status = "scope-too-large", "Scope too large", 413


class MethodUnavailableError(LetheError):
    """The requested method is not available for this model."""

    slug, title, status = "method-unavailable", "Method not available for this model", 422


class NotOverSilosError(LetheError):
    """The policy needs a check that is not supported when rows stay at silos."""

    slug, title, status = "not-over-silos", "Not available over silos", 422


class ModelNotReadyError(LetheError):
    """The model is still being fitted, or its fit failed."""

    slug, title, status = "model-not-ready", "Model not ready", 409


class ConflictError(LetheError):
    """An object of that name exists, or its state does not allow the call."""

    slug, title, status = "conflict", "Already exists", 409


class IdempotencyMismatchError(LetheError):
    """An Idempotency-Key was used before with another body."""

    slug, title, status = "idempotency-key-reused", "Idempotency-Key reused", 422


class NotWithdrawableError(LetheError):
    """Execution has begun or the request is closed."""

    slug, title, status = "not-withdrawable", "Too late to withdraw", 409


class NotIssuedError(LetheError):
    """The certificate does not exist yet."""

    slug, title, status = "certificate-not-issued", "Certificate not issued yet", 404


class CertificateChangedError(LetheError):
    """The stored certificate or evidence is another request's."""

    slug, title, status = "certificate-changed", "Stored certificate is not the request's", 500


class KeyUnloggedError(LetheError):
    """The log has no registration that matches a key's row."""

    slug, title, status = "key-unlogged", "The log does not have the key's registration", 409


class ReceiptRefusedError(LetheError):
    """A certificate that this installation's keys do not verify."""

    slug, title, status = "receipt-refused", "Receipt not issued", 500


class OpenDsrError(LetheError):
    """An OpenDSR request that is not supported. `reason`: OpenDSR's word for it."""

    slug, title, status = "opendsr", "Request refused", 400


class NotWitnessedError(LetheError):
    """The certificate waits for witnesses to cosign its checkpoint."""

    slug, title, status = "certificate-not-witnessed", "Certificate not witnessed yet", 409
    retry_after = 10


class DrpError(LetheError):
    """A Data Rights Protocol request that is refused, and is refused again if sent again."""

    slug, title, status = "drp", "Request refused", 400


class DrpAgentError(DrpError):
    """A message or token that does not belong to this agent and this business."""

    slug, title, status = "drp-agent", "Not this agent's message or token", 403


class TokenNameError(LetheError):
    """A name that is taken, or that no active token has."""

    slug, title, status = "token-name", "Token name not available", 409


class UnauthorizedError(LetheError):
    """No bearer token, or one that is unknown or revoked."""

    slug, title, status = "token-invalid", "Bearer token missing or invalid", 401


class ForbiddenError(LetheError):
    """The token is good and its scope does not cover the call."""

    slug, title, status = "scope-insufficient", "Not allowed", 403


class SignInError(LetheError):
    """OpenID Connect sign-in failed: the provider, or its answer, does not allow it."""

    slug, title, status = "sign-in-refused", "Sign-in refused", 403


class AttemptsError(LetheError):
    """Too many calls of a page; `wait`: seconds until the next one is accepted."""

    slug, title, status = "too-many-attempts", "Too many attempts", 429

    def __init__(self, wait: float) -> None:
        self.wait = self.retry_after = max(1, ceil(wait))
        super().__init__("too many attempts: try again later", wait=self.wait)


class OidcMissingError(LetheError):
    """Sign-in by OpenID Connect is not configured, or its library is not installed."""

    slug, title, status = "oidc-not-available", "This sign-in is not available", 501


class FormRefusedError(LetheError):
    """A console form not sent from its page, or sent twice. Nothing was stored."""

    slug, title, status = "form-refused", "Form refused", 403


class BadFieldError(LetheError):
    """A form field that the service cannot accept. Nothing was stored."""

    slug, title, status = "field-invalid", "Invalid field", 422


class UploadError(LetheError):
    """An upload that cannot become a training set."""

    slug, title, status = "upload-invalid", "Upload refused", 422


class BodyTooLargeError(LetheError):
    """A body over the configured limit."""

    slug, title, status = "body-too-large", "Body too large", 413


class SlowBodyError(LetheError):
    """The body did not arrive in time."""

    slug, title, status = "body-timeout", "Body too slow", 408


class BusyError(LetheError):
    """No turn to parse the body, or no memory, is free."""

    slug, title, status = "busy", "Busy", 503
    retry_after = 5


class BadCursorError(LetheError):
    """A cursor, filter or target that cannot be read."""

    slug, title, status = "query-invalid", "Query refused", 400


class PeriodChangedError(LetheError):
    """The database does not match the log's signed entries of a period."""

    slug, title, status = "period-changed", "Stored data contradicts the log", 500


class ReleaseClosedError(LetheError):
    """An answer to a release that is already answered or decided."""

    slug, title, status = "release-closed", "No answer needed", 409


class ReleaseMismatchError(LetheError):
    """An answer for other records than the release's."""

    slug, title, status = "release-mismatch", "Other records than requested", 422


class DatabaseUnavailableError(LetheError):
    """The database is unavailable, busy or full; the call may have been carried out."""

    slug, title, status = "database-unavailable", "The database does not answer", 503


class AuditRefusedError(LetheError):
    """The model or its rows do not allow this audit."""

    slug, title, status = "audit-refused", "Audit refused", 422


class AuditRunningError(LetheError):
    """An audit of the same model and method is not finished."""

    slug, title, status = "audit-running", "An audit is running", 409


class NoReportError(LetheError):
    """The audit has no report."""

    slug, title, status = "report-not-issued", "No report", 404


class AuditMissingError(LetheError):
    """The log has a report of the audit that is not stored."""

    slug, title, status = "audit-missing", "The audit's report is missing", 500


class NumbersDestroyedError(LetheError):
    """An audit's numbers were destroyed when one of their records was erased."""

    slug, title, status = "audit-numbers-destroyed", "The numbers are destroyed", 410


class NumbersChangedError(LetheError):
    """An audit's stored numbers differ from those in its signed report."""

    slug, title, status = "audit-numbers-changed", "The numbers were changed", 500


class NotMaskedError(LetheError):
    """The model takes rows or statistics, not masked rounds."""

    slug, title, status = "model-not-masked", "Not a masked model", 409


class RoundOpenError(LetheError):
    """The model has a round that has not ended."""

    slug, title, status = "round-open", "A round is open", 409


class RoundMemberError(LetheError):
    """A key cannot take part in a round."""

    slug, title, status = "round-member-refused", "Member refused", 422


class RoundStepError(LetheError):
    """The round is at another step, or continues without this member."""

    slug, title, status = "round-step", "Not this step's turn", 409


class RoundDuplicateError(LetheError):
    """The member has already sent another message for this step."""

    slug, title, status = "message-duplicate", "Message sent before", 409


class RoundMessageError(LetheError):
    """A message that does not fit its step. Nothing was stored."""

    slug, title, status = "message-malformed", "Message refused", 422


class RoundForeignError(RoundMessageError):
    """A message of another round, step or member."""

    slug = "message-of-another-round"


class RoundForgedError(RoundMessageError):
    """A message that its sender did not sign."""

    slug = "message-forged"


class RoundLengthError(RoundMessageError):
    """A vector that is not as long as the model's."""

    slug = "length-wrong"


class RoundMismatchError(RoundMessageError):
    """A message for other members than the round has: the masks would not cancel."""

    slug = "mask-mismatch"


class RoundReleaseError(RoundMessageError):
    """A message that releases other records than requested."""

    slug = "release-mismatch"


class CallbackTargetError(LetheError):
    """An address of a callback that this service may not call."""

    slug, title, status = "callback-target", "Callback address refused", 422


class CallbackLimitError(LetheError):
    """The key or agent has reached its limit of callbacks of open requests."""

    slug, title, status = "callback-limit", "Too many callbacks", 429


class RateLimitError(LetheError):
    """A key or token has reached its limit of calls a minute."""

    slug, title, status = "rate-limit", "Too many calls", 429

    def __init__(self, most: int, wait: int) -> None:
        super().__init__(
            f"this key or token may make {most} calls a minute: send again in {wait} s, or ask "
            "the operator for more (LETHE_CALLS_PER_MINUTE)"
        )
        self.retry_after = wait


class QuotaError(LetheError):
    """The key has reached its limit of open erasure requests. Nothing was stored."""

    slug, title, status = "quota", "Too many open requests", 429

    def __init__(self, most: int) -> None:
        # No Retry-After: a request may end in a second, or when an officer has decided.
        super().__init__(
            f"this key may have {most} erasure requests open at a time: send again once one "
            "has ended, withdraw one, or ask the operator for more "
            "(LETHE_OPEN_REQUESTS_PER_KEY)"
        )


class ContributionLimitError(LetheError):
    """As many contributions of the key as may wait in the model's queue. Nothing was stored."""

    slug, title, status = "contribution-limit", "Too many contributions wait", 429

    def __init__(self, most: int) -> None:
        # No Retry-After: learning takes a second, or hours.
        super().__init__(
            f"{most} contributions of this key wait to be learned by the model: send more rows "
            "in each, send again once one is learned, or ask the operator for more "
            "(LETHE_WAITING_CONTRIBUTIONS_PER_KEY)"
        )


class NotReadyError(LetheError):
    """A part of the service is not ready."""

    slug, title, status = "not-ready", "Not ready", 503


class IdempotencyKeyError(LetheError):
    """An Idempotency-Key that cannot be stored."""

    slug, title, status = "idempotency-key-invalid", "Idempotency-Key refused", 400
