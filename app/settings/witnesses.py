"""Witnesses of the log: who they are, and what happens without them."""

from typing import Literal, Self

from pydantic import Field, model_validator

from app.settings.group import DAY_S, MOST_SECONDS, SettingsGroup


class WitnessSettings(SettingsGroup):
    """Which witnesses are asked, how often, and what happens without a quorum."""

    witness_policy: str = Field(
        default="",
        description="File of the policy whose witnesses cosign checkpoints; empty: none do.",
    )
    witness_fail: Literal["open", "closed"] = Field(
        default="open",
        description="Without a quorum: open issues certificates late, closed does not.",
    )
    witness_wait_seconds: int = Field(
        default=60,
        gt=0,
        le=MOST_SECONDS,
        description="How long open waits for a quorum before issuing without one, in seconds.",
    )
    witness_seconds: int = Field(
        default=5, gt=0, le=DAY_S, description="How often witnesses are asked, in seconds."
    )

    @model_validator(mode="after")
    def _refuse_closed_to_nobody(self) -> Self:
        if self.witness_fail == "closed" and not self.witness_policy:
            raise ValueError(
                "LETHE_WITNESS_FAIL is closed, but without LETHE_WITNESS_POLICY no witness is "
                "asked and certificates are issued at once: set the policy, or unset both"
            )
        return self
