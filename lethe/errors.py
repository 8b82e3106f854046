"""The error root of `app`: each error is also the problem document it becomes (RFC 9457).

A message names the cause and the remedy and never repeats what the sender sent, because a
problem document is logged and forwarded by software that nobody here controls.
"""

from typing import ClassVar


class LetheError(Exception):
    """Root of every error raised on purpose in `app`; anything else escaping it is a bug.

    `slug` becomes the problem's `type` (`urn:lethe:problem:<slug>`), `status` its HTTP
    status and `title` its fixed title; the message is the problem's `detail`. `members`
    are extension members, such as the earlier request of a conflict.
    """

    slug: ClassVar[str] = "internal"
    title: ClassVar[str] = "Internal error"
    status: ClassVar[int] = 500
    retry_after: int | None = None  # seconds; the Retry-After of the answer

    def __init__(self, detail: str, **members: str | int | None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.members = members
