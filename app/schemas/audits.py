"""Method audits on the wire."""

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from app.schemas.base import ModelRef, Time, Wire
from lethe.catalogue import NetworkMethod

FEWEST_PAIRS, MOST_PAIRS = 16, 4096
Share = Annotated[str, StringConstraints(pattern=r"^0(\.[0-9]{0,8}[1-9])?$")]


class NewAudit(Wire):
    """The body of POST /v1/audits.

    Each of `pairs` pairs trains on `rows` stored rows of its own draw, with and without
    `targets` records that are the same in all; half of the pairs fit the attack. `target`
    says how these are learned: under their own class, or under another one. method: default,
    the registration's. seed: default, drawn by the service. parallel: pairs computed at once.
    every_days: days until the next audit starts; 0: never.
    """

    model: ModelRef
    method: NetworkMethod | None = None
    pairs: int = Field(default=64, ge=FEWEST_PAIRS, le=MOST_PAIRS, multiple_of=2)
    rows: int = Field(default=500, ge=2, le=100_000)
    targets: int = Field(default=1, ge=1, le=64)
    target: Literal["as-stored", "mislabelled"] = "mislabelled"
    seed: int | None = Field(default=None, ge=0, le=2**53 - 1)
    confidence: Share = "0.95"
    delta: Share = "0"
    parallel: int = Field(default=2, ge=1, le=64)
    every_days: int = Field(default=0, ge=0, le=3650)

    @model_validator(mode="after")
    def _levels(self) -> Self:
        if not 0.5 <= float(self.confidence) <= 0.9999:
            raise ValueError("confidence: must lie between 0.5 and 0.9999")
        if float(self.delta) > 0.5:
            raise ValueError("delta: must be at most 0.5")
        return self


class AuditView(Wire):
    """A method audit: its configuration, its progress, and the digest of its report.

    State and digests come from the log, result and findings from the signed report. An audit
    that only the log has is `missing`, and its id is the digest in the log; one that only the
    database has is `unlogged`. problem: how rows, log and report disagree, null if they agree;
    a report that is not stored is a problem.
    """

    id: str
    model: str
    method: str | None = None
    state: Literal["running", "reported", "failed", "stopped", "missing", "unlogged"]
    problem: str | None
    failure: str | None = None
    config: dict[str, str] = Field(default_factory=dict)
    config_digest: str | None = None
    every_days: int = 0
    pairs_done: int = 0
    result: str | None = None
    found: str | None = None
    report_digest: str | None = None
    started_at: Time | None = None
    reported_at: Time | None = None
