"""What every wire type has in common."""

from datetime import datetime
from typing import Annotated, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, PlainSerializer, StringConstraints


class Wire(BaseModel):
    """Frozen; an unknown field is an error, lest a misspelt scope mean "no scope"."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def format_time(at: datetime) -> str:
    """Return RFC 3339 in UTC with seconds, as in every answer and certificate."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


Time = Annotated[datetime, PlainSerializer(format_time, return_type=str)]

# Ids are opaque to Lethe; control characters are refused so that an id has one rendering.
OpaqueId = Annotated[
    str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")
]
ModelRef = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,79}$")]
KeyId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:@-]{1,128}$")]


T = TypeVar("T")


class Page(Wire, Generic[T]):
    """One page of a list; `next` is the cursor for `?after=`, null on the last page."""

    items: list[T]
    next: str | None
