"""Masked rounds on the wire: opening one, a member's view, and its messages.

Members write the messages in `workers.secure_sum.messages`; only their shape is here.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from app.schemas.base import KeyId, ModelRef, OpaqueId, Time, Wire
from app.schemas.people import Kind as PersonKind
from lethe.identity import MAX_KINDS

MAX_MEMBERS = 100
Step = Literal["advertise", "share", "masked", "confirm", "reveal"]
STEPS: tuple[Step, ...] = ("advertise", "share", "masked", "confirm", "reveal")

# Standard base64 of this many bytes; decoding checks that no stray bits are set.
Bytes16 = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9+/]{22}==$")]
Bytes32 = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9+/]{43}=$")]
Bytes48 = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9+/]{64}$")]
Bytes64 = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9+/]{86}==$")]


class NewRound(Wire):
    """The body of POST /v1/rounds.

    `members` are keyids of role client, each bound to another client. `threshold` must stay
    to the end; it defaults to the smallest strict majority, below which no member takes
    part. Each of the five steps ends when all have sent, or after `step_seconds`.
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
    """A round as one member sees it, and the inputs of its next message.

    `plan` is what all keys of the round are bound to. `member` says whether this member
    still takes part. For step share: `advertised`, the messages of step advertise, as sent;
    for masked: `sealed`, what each peer sealed to this member, the ids it is asked to
    `release`, and those of its records that the model has learned, which a member compares
    with its own record; for confirm: `statements`, the signed statements of all whose inputs
    are to be summed; for reveal: `confirmed`, the messages of step confirm, as sent. `counted`
    says whether this member's input is in the sum of a round that is done.
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
    statements: list[str] | None = None
    confirmed: list[str] | None = None
    counted: bool = False


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
    """A record whose row is added, and its subject."""

    record: OpaqueId
    subject: OpaqueId


class Statement(Wire):
    """A member's statement about its input, shown to peers: counts, and digests in base64."""

    added: int = Field(ge=0)
    content: Bytes32
    input: Bytes32
    released: int = Field(ge=0)
    seen: Bytes32


class Masked(Wire):
    """Body of step masked; `vector` is base64 of little-endian uint64.

    people: by kind, base64 of 68 bytes of digests for each of `adds`, zeros for none.
    `statement` is a message of its own, signed, whose step is "statement".
    """

    adds: list[Added] = Field(fail_fast=True)
    peers: list[KeyId] = Field(fail_fast=True)
    people: dict[PersonKind, str] = Field(max_length=MAX_KINDS)
    releases: list[OpaqueId] = Field(fail_fast=True)
    statement: Annotated[str, StringConstraints(max_length=2000)]
    vector: str


class Confirmed(Wire):
    """Body of step confirm: SHA-256 of the bodies of all statements, by member."""

    statements: Bytes32


class Revealed(Wire):
    """Body of step reveal."""

    mask: dict[KeyId, Bytes16]
    self_: dict[KeyId, Bytes16] = Field(alias="self")


Body = Advertised | Shared | Statement | Masked | Confirmed | Revealed
Kind = Step | Literal["statement"]
BODIES: dict[Kind, type[Body]] = {
    "advertise": Advertised,
    "share": Shared,
    "statement": Statement,
    "masked": Masked,
    "confirm": Confirmed,
    "reveal": Revealed,
}


class Signed(Wire):
    """A message of a round: `plan` is the plan's digest, `signature` covers the rest."""

    body: dict[str, Any]
    from_: KeyId = Field(alias="from")
    plan: str
    signature: Bytes64
    step: Kind
