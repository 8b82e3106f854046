"""Identities of people, cases, and legal holds on the wire: of people digests, never values."""

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from app.schemas.base import ModelRef, OpaqueId, Text, Time, Wire
from app.schemas.requests import Regulation, State
from lethe.identity import ALGORITHMS, Identity

Kind = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,31}$")]
Outcome = Literal[
    "certified", "in progress", "refused", "withdrawn", "failed", "held out only",
    "erased before", "nothing found",
]  # fmt: skip


class NewHold(Wire):
    """The body of POST /v1/holds. ref: of a case, a request or a model.

    reason: stored sealed, shown to operators and officers; the log only commits to it.
    """

    ref: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,79}$")]
    reason: Text


class HoldView(Wire):
    """A hold; `released_at` is null while it stands. Both indices are of log entries."""

    id: str
    of: Literal["case", "request", "model"]
    target: str
    reason: str
    placed_by: str
    placed_at: Time
    log_index: int
    released_by: str | None
    released_at: Time | None
    release_index: int | None


class PersonIdentity(Wire):
    """An identity by hex digests of its normalised value: see docs/people.md."""

    kind: Kind
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None = None
    sha1: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")] | None = None
    md5: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")] | None = None

    @model_validator(mode="after")
    def _some_digest(self) -> Self:
        if not self.identity().digests:
            raise ValueError("an identity must have at least one digest: sha256, sha1 or md5")
        return self

    def identity(self) -> Identity:
        """Return the identity for a look-up."""
        found = {name: getattr(self, name) for name in ALGORITHMS}
        return Identity(
            self.kind, {name: bytes.fromhex(text) for name, text in found.items() if text}
        )


class PersonQuery(Wire):
    """The body of POST /v1/people/find. models: null for all."""

    person: PersonIdentity
    models: list[ModelRef] | None = Field(default=None, min_length=1, fail_fast=True)


class FoundView(Wire):
    """A person's data in one model: ids of records, and how many identities were erased.

    uncertified: the same, where the log has no certificate of an erasure (yet), or erased
    records came back that may be the person's; `erased` is 0 then.
    """

    model: str
    records: list[str]
    held_out: list[str]
    erased: int
    uncertified: int


class FoundPage(Wire):
    """A person's data in each model, models without any included."""

    items: list[FoundView]


class RecordPerson(Wire):
    """A record and one identity of its owner."""

    record: OpaqueId
    person: PersonIdentity


class PersonImport(Wire):
    """The body of POST /v1/people/import: identities of records that a model has learned."""

    model: ModelRef
    identities: list[RecordPerson] = Field(min_length=1, max_length=10_000)


class Imported(Wire):
    """How many identities were new."""

    added: int


class HeldOutRemoval(Wire):
    """The body of POST /v1/people/remove-held-out: ids of a model's stored held-out rows."""

    model: ModelRef
    records: list[OpaqueId] = Field(min_length=1, max_length=10_000)


class HeldOutRemoved(Wire):
    """How many held-out rows were removed, and the index of the log entry `model.held-out`."""

    removed: int
    log_index: int


class NewCase(Wire):
    """The body of POST /v1/cases: an operator asks for a person's erasure.

    models: null for all. ticket: where the person's letter is filed; checked: how the
    identity was checked; contact: where the answer goes. All three are stored sealed; the log
    has a keyed digest of the ticket.
    """

    person: PersonIdentity
    models: list[ModelRef] | None = Field(default=None, min_length=1, fail_fast=True)
    regulation: Regulation = "gdpr"
    ticket: Text
    checked: Text | None = None
    contact: Annotated[Text, StringConstraints(strip_whitespace=True)] | None = None


class PartView(Wire):
    """The outcome for a person in one model.

    state, assignee: of the request, which `request` and `request_ref` name. records: how many
    it erases, or were held out or erased. held_out_removed: stored held-out rows that were
    removed, by the entry `removal_log_index`; no version was fitted on them. log_index: of the
    entry that commits to the part.
    """

    model: str
    outcome: Outcome
    state: str | None
    assignee: str | None
    records: int
    request: str | None
    request_ref: str | None
    certificate: str | None
    held_out_removed: int
    removal_log_index: int | None
    log_index: int


class TimelineItem(Wire):
    """A transition of one part, and the index of its log entry.

    detail: of a decision: by, to, reason, notice, due_at, note, decision, why; of an escalation
    and what follows it: attempt, its number; else empty.
    """

    at: Time
    model: str
    event: str
    log_index: int
    detail: dict[str, str]


class CaseView(Wire):
    """A case: one part for each model, one deadline, one timeline.

    A request without a case is shown as a case of one part; its ref is the request's.
    state: open while a request is in progress, then answered, then closed by an operator.
    opened_by: an operator's token, or the key that signed. due_at: its earliest deadline in
    progress, never that of another's request. days_left: frozen while the clock is stopped.
    confirm_by: the CCPA's deadline for confirming the receipt. holds: the legal holds that keep
    it, or a request of it.
    """

    ref: str
    state: Literal["open", "answered", "closed"]
    regulation: Regulation
    opened_by: str
    received_at: Time
    due_at: Time
    days_left: int
    overdue: bool
    confirm_by: Time | None
    closed_at: Time | None
    holds: list[HoldView]
    parts: list[PartView]
    timeline: list[TimelineItem]


class QueueQuery(Wire):
    """The body of POST /v1/cases/search. Null filters are ignored; all others must match.

    state: of a request, or `answered`: cases that wait to be closed; null for all open ones.
    person: an identity by its digests, which are in no URL. requester: a keyid, or the name of
    an operator's token. due_within: days, overdue ones included. held: whether a legal hold
    keeps it. after: `next` of the previous page.
    """

    state: State | Literal["answered"] | None = None
    model: ModelRef | None = None
    person: PersonIdentity | None = None
    requester: Annotated[Text, StringConstraints(max_length=128)] | None = None
    overdue: bool | None = None
    due_within: int | None = Field(default=None, ge=0, le=3650)
    held: bool | None = None
    after: Annotated[str, StringConstraints(max_length=200)] | None = None
    limit: int = Field(default=100, ge=1, le=1000)


class QueueItem(Wire):
    """A request in the queue, or a case that waits to be closed or follows another's request.

    case: of the request. model: null for a case. state: `answered`, or of the request, also of
    the one that a case follows. days_left: negative once overdue; frozen while
    the clock is stopped. held: whether a legal hold keeps it.
    """

    ref: str
    case: str | None
    model: str | None
    state: str
    regulation: Regulation
    requester: str
    assignee: str | None
    received_at: Time
    due_at: Time
    days_left: int
    overdue: bool
    held: bool = False


class ReasonedDecision(Wire):
    """The body of POST /v1/cases/{ref}/refuse, /extend and /pause: a code of the regulation.

    `lethe case refuse --help` lists the codes, as docs/officer-guide.md does.
    """

    reason: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z-]{0,31}$")]


class CaseNote(Wire):
    """The body of POST /v1/cases/{ref}/note: stored sealed; the log has its digest."""

    text: Text


class Assignment(Wire):
    """The body of POST /v1/cases/{ref}/assign. to: the name of an operator's token."""

    to: Annotated[Text, StringConstraints(max_length=80)]


class ContactView(Wire):
    """The contact address of a case, and the index of the log entry of this opening."""

    contact: str
    log_index: int
