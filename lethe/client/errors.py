"""Errors between a caller and a service, besides those of `lethe.signing`."""

from contextlib import suppress
from typing import Any

from lethe.canonical import parse_decimal
from lethe.errors import LetheError


class ClientError(LetheError):
    """Root of the errors of this package."""

    slug, title = "client", "The call failed"


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

    def places(self, most: int) -> list[int]:
        """Return the places, 1 to `most`, that the member `places` refers to in a list sent."""
        found = []
        for part in str(self.members.get("places", "")).split(", "):
            with suppress(ValueError):
                found.append(parse_decimal(part, most + 1))
        return [place for place in found if place]


class UnreachableError(ClientError):
    """No answer, after all tries. The service may still have processed the request."""

    slug, title, status = "service-unreachable", "The service cannot be reached", 502


class AnswerError(ClientError):
    """An answer that does not conform to the interface."""

    slug, title, status = "answer-unreadable", "The service's answer cannot be read", 502


class ReceiptError(ClientError):
    """A receipt that does not prove that the log holds the request."""

    slug, title, status = "receipt-invalid", "The receipt is invalid", 502


class NoticeError(ClientError):
    """A callback that the service's key did not sign, or that is too old."""

    slug, title, status = "notice-invalid", "The callback is not the service's", 401


class CredentialsError(ClientError):
    """The call needs a key or a token that the client was not given."""

    slug, title, status = "credentials-missing", "Credentials are missing", 400


class ScopeError(ClientError):
    """Not exactly one of records, client and subject."""

    slug, title, status = "scope-invalid", "Not a scope", 400


class ChangedFileError(ClientError):
    """A file whose length changed while it was sent."""

    slug, title, status = "file-changed", "The file changed", 409


class WaitTimeoutError(ClientError):
    """The request did not end within the caller's time-out. It continues."""

    slug, title, status = "wait-timeout", "The request is still running", 504
