"""Jobs: their leases and tries, what they execute together, what a fit may use."""

from typing import Literal, Self

from pydantic import Field, model_validator

from app.settings.group import DAY_S, MOST_SECONDS, SettingsGroup

MOST_COALESCED = 256  # requests in one update; each adds a sealed draft to its transaction
MOST_BYTES = 1 << 60  # the system's limits have 63 bits


class JobSettings(SettingsGroup):
    """How jobs are leased, tried again and put together, and the limits of a fit."""

    lease_seconds: int = Field(
        default=120,
        gt=0,
        le=DAY_S,
        description="Duration of a worker's lease on a job until it is renewed, in seconds.",
    )
    sweep_seconds: int = Field(
        default=5,
        gt=0,
        le=DAY_S,
        description="How often stuck jobs are looked for, in seconds.",
    )
    max_tries: int = Field(
        default=5, gt=0, description="Tries before a computation error fails a job."
    )
    coalesce: bool = Field(
        default=True,
        description="Execute requests that wait for one model together; false: one at a time.",
    )
    batch_min_requests: int = Field(
        default=1,
        ge=1,
        le=MOST_COALESCED,
        description="Erasure requests collected before a model is updated.",
    )
    batch_max_wait_seconds: int = Field(
        default=0,
        ge=0,
        le=MOST_SECONDS,
        description="Longest such wait, in seconds; it ends 7 days before a request is due.",
    )
    device: Literal["auto", "cpu", "cuda", "torch-cpu"] = Field(
        default="auto",
        description="Sums rows and trains networks; auto: a GPU that passes its self-test.",
    )
    fit_seconds: int = Field(
        default=3600,
        gt=0,
        le=MOST_SECONDS,
        description="Longest fit of a recipe or run of a script, in seconds.",
    )
    fit_memory_bytes: int = Field(
        default=8 << 30,
        ge=1 << 30,
        le=MOST_BYTES,
        description="Largest address space of a fit of a recipe or run of a script, in bytes.",
    )
    fit_output_bytes: int = Field(
        default=1 << 30,
        ge=1 << 20,
        le=MOST_BYTES,
        description="Largest file that a script writes, in bytes.",
    )

    @model_validator(mode="after")
    def _refuse_half_a_batch(self) -> Self:
        if (self.batch_min_requests > 1) != (self.batch_max_wait_seconds > 0):
            raise ValueError(
                "set LETHE_BATCH_MIN_REQUESTS (above 1) and LETHE_BATCH_MAX_WAIT_SECONDS "
                "(above 0) together: how many requests wait, and how long at most"
            )
        return self
