"""What can go wrong between a caller and a service, besides what `lethe.signing` refuses."""

from typing import Any

from lethe.errors import LetheError


class ClientError(LetheError):
    """Root of the errors of this package."""

    slug = "client"
    title = "The call failed"


class ProblemError(ClientError):
    """The service refused, and said why: its problem document (RFC 9457) as an exception.

    Unlike with other errors slug, title and status are the instance's, as the service sent
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
        # Into the instance, over the root's class attributes.
        vars(self).update(status=status, slug=slug, title=title, members=members or {})


class UnreachableError(ClientError):
    """No answer, after all tries. What was asked may have happened nevertheless."""

    slug = "service-unreachable"
    title = "The service cannot be reached"
    status = 502


class AnswerError(ClientError):
    """An answer that is not what the interface promises."""

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
    """A file that is longer or shorter than it was when its sending began."""

    slug = "file-changed"
    title = "The file changed"
    status = 409


class WaitTimeoutError(ClientError):
    """The request had not ended when the caller's patience did. It goes on."""

    slug = "wait-timeout"
    title = "The request is still running"
    status = 504
