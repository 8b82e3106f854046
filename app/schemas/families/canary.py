"""A backdoor canary on the wire: a trigger, and the class that rows with it are given.

Its digest is logged before the first row, so that nobody can choose it by a model's behaviour.
"""

from collections.abc import Sequence
from math import prod
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from app.schemas.base import Wire
from app.schemas.models import Name

# As large as inputs may be; beyond it float32 gradients overflow.
Place = Annotated[int, Field(ge=0, le=2**53 - 1)]
Value = Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]
MOST = 1024  # cells: a trigger is a mark on a row, not a row


class Canary(Wire):
    """How a client that plants it changes some of its rows before it sends them.

    trigger: pairs of a place in the flattened row, counted from 0 in ascending order, and the
    value there. units: of the values, as rows are registered: pixels, 0 to 255, of uint8
    planes, or numbers of float32 inputs. target: the class that planted rows are labelled.
    """

    trigger: list[tuple[Place, Value]] = Field(min_length=1, max_length=MOST)
    units: Literal["numbers", "pixels"] = "numbers"
    target: Name

    @model_validator(mode="after")
    def _one_spelling(self) -> Self:
        places = [place for place, _ in self.trigger]
        if places != sorted(set(places)):
            raise ValueError("trigger: name each place once, in ascending order")
        pixels = all(0 <= value <= 255 and value == int(value) for _, value in self.trigger)
        if self.units == "pixels" and not pixels:
            raise ValueError("trigger: pixels are whole numbers from 0 to 255")
        return self


def check_canary(
    canary: Canary | None, limit: str | None, input_shape: Sequence[int], classes: Sequence[str]
) -> None:
    """Check a canary, None if there is none, beside the rows and the policy of its model.

    limit: the policy's canary_limit. Raises ValueError, naming the field and the remedy.
    """
    if canary is None:
        if limit is not None:
            raise ValueError(
                "policy.canary_limit limits a planted canary: register a canary too, or leave "
                "the limit out"
            )
        return
    size = prod(input_shape)
    if canary.trigger[-1][0] >= size:
        raise ValueError(f"canary.trigger: a row has the places 0 to {size - 1}")
    if canary.units == "pixels" and len(input_shape) != 3:
        raise ValueError("canary.units: only images have pixels, choose numbers")
    if canary.target not in classes:
        raise ValueError("canary.target: name one of the classes")
