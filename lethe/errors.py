"""The error root of Lethe: each error is also its problem document (RFC 9457).

A message names the cause and the remedy and never repeats the sender's input, because
third-party software logs and forwards problem documents.
"""

from typing import ClassVar


class LetheError(Exception):
    """Root of every error raised on purpose; any other exception that escapes is a bug.

    `slug` becomes the problem's `type` (`urn:lethe:problem:<slug>`), `status` its HTTP status
    and `title` its fixed title; the message is the problem's `detail`. `members` are extension
    members, such as the earlier request of a conflict.
    """

    slug: ClassVar[str] = "internal"
    title: ClassVar[str] = "Internal error"
    status: ClassVar[int] = 500
    retry_after: int | None = None  # seconds; the Retry-After of the answer

    def __init__(self, detail: str, **members: str | int | None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.members = members
