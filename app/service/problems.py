"""The problems that a well-formed, well-signed call can still meet."""

from lethe.errors import LetheError


class NotFoundError(LetheError):
    """What the call names does not exist."""

    slug, title, status = "not-found", "Not found", 404


class UnknownModelError(LetheError):
    """No model has that reference."""

    slug, title, status = "model-unknown", "Unknown model", 404


class UnknownRecordError(LetheError):
    """The scope names data that the model's training set does not hold."""

    slug, title, status = "record-unknown", "Unknown record", 404


class AlreadyErasedError(LetheError):
    """A record was erased before, or is being erased; `ref` and `request` say by whom."""

    slug, title, status = "already-erased", "Already erased", 409


class ContributionPendingError(LetheError):
    """The data may be among rows that were contributed and not learned yet."""

    slug, title, status = "contribution-pending", "Contribution still being learned", 409


class ScopeChangedError(LetheError):
    """What a scope names was learned, erased or claimed while the request was accepted."""

    slug, title, status = "scope-changed", "The data changed meanwhile", 409


class ScopeTooLargeError(LetheError):
    """More records than one request may name."""

    slug, title, status = "scope-too-large", "Scope too large", 413


class MethodUnavailableError(LetheError):
    """The model cannot be unlearned with the method asked for."""

    slug, title, status = "method-unavailable", "Method not available for this model", 422


class NotOverSilosError(LetheError):
    """The policy asks for what nobody does with rows that lie with silos."""

    slug, title, status = "not-over-silos", "Not available over silos", 422


class ModelNotReadyError(LetheError):
    """The model is still being fitted, or its fit failed."""

    slug, title, status = "model-not-ready", "Model not ready", 409


class ConflictError(LetheError):
    """Something with that name exists already."""

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


class UnauthorizedError(LetheError):
    """No bearer token, or one that is unknown or revoked."""

    slug, title, status = "token-invalid", "Bearer token missing or invalid", 401


class ForbiddenError(LetheError):
    """The token is good and its scope does not cover the call."""

    slug, title, status = "scope-insufficient", "Not allowed", 403


class UploadError(LetheError):
    """An upload that cannot become a training set."""

    slug, title, status = "upload-invalid", "Upload refused", 422


class BodyTooLargeError(LetheError):
    """A body over the configured limit."""

    slug, title, status = "body-too-large", "Body too large", 413


class SlowBodyError(LetheError):
    """A body that does not arrive."""

    slug, title, status = "body-timeout", "Body too slow", 408


class BusyError(LetheError):
    """Others use what the call needs: a turn, or memory."""

    slug, title, status = "busy", "Busy", 503
    retry_after = 5


class BadCursorError(LetheError):
    """A cursor or filter that this service did not give out."""

    slug, title, status = "query-invalid", "Query refused", 400


class ReleaseClosedError(LetheError):
    """A client's answer to a question that was answered or decided before."""

    slug, title, status = "release-closed", "No answer needed", 409


class ReleaseMismatchError(LetheError):
    """A client's answer is about other records than it was asked for."""

    slug, title, status = "release-mismatch", "Other records were asked for", 422


class DatabaseUnavailableError(LetheError):
    """The database is away, busy or full; whether the call was carried out is not known."""

    slug, title, status = "database-unavailable", "The database does not answer", 503
