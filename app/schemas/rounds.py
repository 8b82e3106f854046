"""Masked rounds on the wire: how one is opened, what a member sees, what it sends.

The messages are those of `workers.federation.messages`, which members write; here is their
shape alone.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from app.schemas.base import KeyId, ModelRef, OpaqueId, Time, Wire

MAX_MEMBERS = 100
Step = Literal["advertise", "share", "masked", "reveal"]
STEPS: tuple[Step, ...] = ("advertise", "share", "masked", "reveal")

# Standard base64 of so many bytes; that no stray bits are set is checked when it is decoded.
Bytes16 = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9+/]{22}==$")]
Bytes32 = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9+/]{43}=$")]
Bytes48 = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9+/]{64}$")]
Bytes64 = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9+/]{86}==$")]


class NewRound(Wire):
    """The body of POST /v1/rounds.

    `members` are keyids of role client, each bound to another client. `threshold` must stay
    to the end; it defaults to the smallest strict majority, below which no member takes
    part. Each of the four steps ends when all have sent, or after `step_seconds`.
    """

    model: ModelRef
    members: list[KeyId] = Field(min_length=2, max_length=MAX_MEMBERS)
    threshold: int | None = Field(default=None, ge=2, le=MAX_MEMBERS)
    step_seconds: int = Field(default=3600, ge=1, le=30 * 24 * 3600)


class RoundView(Wire):
    """A round as an operator sees it.

    `sent` counts the messages of each step; `waits_for` are the members that may send for
    the open step and have not. `requests` is the number of erasure requests whose records
    are released in it. A failed round changed nothing; `reason` begins with the name of what
    ended it.
    """

    id: str
    model: str
    state: str
    reason: str | None
    members: int
    threshold: int
    sent: dict[Step, int]
    waits_for: list[str]
    step_until: Time
    requests: int
    warnings: list[str]
    log_index: int
    created_at: Time
    closed_at: Time | None


class RoundWork(Wire):
    """A round as one member sees it, and what its next message is made of.

    `plan` is what all keys of the round are bound to. `member` says whether this member
    still takes part. For step share: `advertised`, the messages of step advertise, as sent;
    for masked: `sealed`, what each peer sealed to this member, the ids it is asked to
    `release`, and those of its records that the model has learned; for reveal: `survivors`.
    """

    id: str
    model: str
    plan: dict[str, Any]
    state: str
    reason: str | None
    member: bool
    until: Time
    warnings: list[str]
    advertised: list[str] | None = None
    sealed: dict[str, str] | None = None
    release: list[str] | None = None
    held: list[str] | None = None
    survivors: list[str] | None = None


class RoundNotice(Wire):
    """A round that waits for the signing member."""

    id: str
    model: str
    state: str
    until: Time


class Advertised(Wire):
    """Body of step advertise."""

    cipher: Bytes32
    commitment: Bytes32
    mask: Bytes32


class Shared(Wire):
    """Body of step share."""

    shares: dict[KeyId, Bytes48]


class Added(Wire):
    """A record whose row is added, and whose it is."""

    record: OpaqueId
    subject: OpaqueId


class Masked(Wire):
    """Body of step masked; `vector` is base64 of little-endian uint64."""

    adds: list[Added]
    peers: list[KeyId]
    releases: list[OpaqueId]
    vector: str


class Revealed(Wire):
    """Body of step reveal."""

    mask: dict[KeyId, Bytes16]
    self_: dict[KeyId, Bytes16] = Field(alias="self")


Body = Advertised | Shared | Masked | Revealed
BODIES: dict[Step, type[Body]] = {
    "advertise": Advertised,
    "share": Shared,
    "masked": Masked,
    "reveal": Revealed,
}


class Signed(Wire):
    """A message of a round: `plan` is the plan's digest, `signature` covers the rest."""

    body: dict[str, Any]
    from_: KeyId = Field(alias="from")
    plan: str
    signature: Bytes64
    step: Step
