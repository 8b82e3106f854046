"""Errors between a caller and a service, besides those of `lethe.signing`."""

from typing import Any

from lethe.errors import LetheError


class ClientError(LetheError):
    """Root of the errors of this package."""

    slug = "client"
    title = "The call failed"


class ProblemError(ClientError):
    """A refusal by the service: its problem document (RFC 9457) as an exception.

    Unlike in other errors slug, title and status belong to the instance, as the service sent
    them; `members` holds the extension members.
    """

    def __init__(
        self,
        status: int,
        slug: str,
        title: str,
        detail: str,
        members: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        # On the instance, over the root's class attributes.
        vars(self).update(status=status, slug=slug, title=title, members=members or {})


class UnreachableError(ClientError):
    """No answer, after all tries. The service may still have processed the request."""

    slug = "service-unreachable"
    title = "The service cannot be reached"
    status = 502


class AnswerError(ClientError):
    """An answer that does not conform to the interface."""

    slug = "answer-unreadable"
    title = "The service's answer cannot be read"
    status = 502


class ReceiptError(ClientError):
    """A receipt that does not prove that the log holds the request."""

    slug = "receipt-invalid"
    title = "The receipt is invalid"
    status = 502


class NoticeError(ClientError):
    """A callback that the service's key did not sign, or that is too old."""

    slug = "notice-invalid"
    title = "The callback is not the service's"
    status = 401


class CredentialsError(ClientError):
    """The call needs a key or a token that the client was not given."""

    slug = "credentials-missing"
    title = "Credentials are missing"
    status = 400


class ScopeError(ClientError):
    """Not exactly one of records, client and subject."""

    slug = "scope-invalid"
    title = "Not a scope"
    status = 400


class ChangedFileError(ClientError):
    """A file whose length changed while it was sent."""

    slug = "file-changed"
    title = "The file changed"
    status = 409


class WaitTimeoutError(ClientError):
    """The request did not end within the caller's time-out. It continues."""

    slug = "wait-timeout"
    title = "The request is still running"
    status = 504
