"""Models and their versions on the wire."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from app.schemas.base import ModelRef, Time, Wire

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Sha256Hex = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Extractor(Wire):
    """The frozen feature extractor, pinned by a digest over weights and preprocessing."""

    id: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
    digest: Sha256Hex
    parameters: dict[str, str] = Field(default_factory=dict, max_length=32)


class NewModel(Wire):
    """The "manifest" part of POST /v1/models.

    `exponents` fixes the quantiser, Δ_j = 2**exponents[j]; like `penalty` it must come from
    public or calibration data, or retraining without an erased record would choose another.
    """

    ref: ModelRef
    method: Literal["ridge-exact"] = "ridge-exact"
    classes: list[Name] = Field(min_length=2, max_length=10_000)
    exponents: list[Annotated[int, Field(ge=-60, le=60)]] = Field(
        min_length=1, max_length=10_000
    )
    bits: int = Field(default=16, ge=8, le=16)
    penalty: float = Field(gt=0, allow_inf_nan=False, le=1e30)
    extractor: Extractor


class VersionView(Wire):
    """A version by its digests; `withdrawn_at` is set once its artifacts are shredded."""

    number: int
    head: Sha256Hex
    statistics: Sha256Hex
    retained_root: str
    retained_count: int
    log_index: int
    created_at: Time
    withdrawn_at: Time | None
    artifact: str


class ModelView(Wire):
    """A registered model."""

    ref: str
    state: Literal["registered", "ready", "failed"]
    failure: str | None
    method: str
    classes: list[str]
    extractor: Extractor
    config: dict[str, object]
    current_version: int | None
    created_at: Time


class ContributionView(Wire):
    """Rows a client added; `saturated` counts codes that the quantiser clipped."""

    id: str
    model: str
    rows: int
    state: str
    failure: str | None
    saturated: int
    log_index: int
