"""The base of all wire types."""

import warnings
from datetime import datetime
from typing import Annotated, Any, Generic, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    ValidationError,
)
from pydantic.warnings import UnsupportedFieldAttributeWarning
from pydantic_core import InitErrorDetails, PydanticCustomError

from lethe import canonical
from lethe.ids import check_id

# FastAPI ignores `defer_build` where it builds a validator itself, and pydantic warns.
warnings.simplefilter("ignore", UnsupportedFieldAttributeWarning)

Finite = Annotated[float, Field(allow_inf_nan=False)]
# The integers that RFC 8785 represents exactly.
Whole = Annotated[int, Field(ge=-(2**53) + 1, le=2**53 - 1)]


class Wire(BaseModel):
    """Frozen; an unknown field is an error, so that a misspelt scope cannot mean "no scope"."""

    # Validators are built at their first use: building all takes a sixth of a start.
    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True
    )

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **how: Any) -> Self:
        """Read JSON; a duplicate name in any object is an error."""
        data = bytes(json_data) if isinstance(json_data, bytearray) else json_data
        refuse_duplicates(cls.__name__, data)
        return super().model_validate_json(json_data, **how)


def refuse_duplicates(title: str, data: str | bytes) -> None:
    """Raise ValidationError if `data` is JSON in which an object has a name twice."""
    try:
        canonical.loads(data)
    except canonical.DuplicateKeyError as error:
        kind = PydanticCustomError("json_duplicate", "{why}", {"why": str(error)})
        found = InitErrorDetails(type=kind, input=None)
        raise ValidationError.from_exception_data(title, [found]) from None
    except (ValueError, RecursionError):
        pass  # pydantic reports what is wrong


def format_time(at: datetime) -> str:
    """Return RFC 3339 in UTC with seconds, as in every answer and certificate."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


Time = Annotated[datetime, PlainSerializer(format_time, return_type=str)]

# Ids are opaque to Lethe. `check_id` also refuses what looks the same as another id.
OpaqueId = Annotated[
    str,
    StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$"),
    AfterValidator(check_id),
]
Text = Annotated[
    str, StringConstraints(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f]+$")
]
ModelRef = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,79}$")]
KeyId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:@-]{1,128}$")]


T = TypeVar("T")


class Page(Wire, Generic[T]):
    """One page of a list; `next` is the cursor for `?after=`, null on the last page."""

    items: list[T]
    next: str | None
