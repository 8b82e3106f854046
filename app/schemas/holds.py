"""Legal holds on the wire."""

from typing import Annotated, Literal

from pydantic import StringConstraints

from app.schemas.base import Text, Time, Wire


class NewHold(Wire):
    """The body of POST /v1/holds. ref: of a case, a request or a model.

    reason: stored sealed, shown to operators and officers; the log only commits to it.
    """

    ref: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,79}$")]
    reason: Text


class HoldView(Wire):
    """A hold; `released_at` is null while it stands. Both indices are of log entries."""

    id: str
    of: Literal["case", "request", "model"]
    target: str
    reason: str
    placed_by: str
    placed_at: Time
    log_index: int
    released_by: str | None
    released_at: Time | None
    release_index: int | None
