"""Who decides, in which time zone deadlines end, and how long what is personal is kept."""

from typing import Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, model_validator

from app.settings.group import MOST_DAYS, SettingsGroup


class DecisionSettings(SettingsGroup):
    """Decisions, deadlines and retention."""

    decide: Literal["review", "at-once"] = Field(
        default="review",
        description="Whether officers approve requests of models registered without --decide.",
    )
    time_zone: str = Field(
        default="UTC",
        description="IANA name of the time zone whose calendar deadlines are counted in.",
    )
    request_retention_days: int = Field(
        default=1095,
        ge=0,
        le=MOST_DAYS,
        description="Days that scope and openings of an ended request or case are kept.",
    )
    evidence_retention_days: int = Field(
        default=1095,
        ge=0,
        le=MOST_DAYS,
        description="Days that evidence and scores are kept; never longer than the request's.",
    )
    contact_retention_days: int = Field(
        default=90,
        ge=0,
        le=MOST_DAYS,
        description="Days after its deadline that the contact address of a case is kept.",
    )
    key_retention_days: int = Field(
        default=0,
        ge=0,
        le=MOST_DAYS,
        description="Days that the client or subject of a revoked requester key is kept.",
    )
    undecided_retention_days: int = Field(
        default=90,
        ge=0,
        le=MOST_DAYS,
        description="Days after its deadline until an undecided request is refused.",
    )

    @model_validator(mode="after")
    def _refuse_unknown_zone(self) -> Self:
        try:
            ZoneInfo(self.time_zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(
                "LETHE_TIME_ZONE: no such zone; give an IANA name such as Europe/Berlin"
            ) from None
        return self
