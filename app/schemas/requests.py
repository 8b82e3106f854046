"""Erasure requests, and the releases that clients are asked for, on the wire."""

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from app.schemas.base import ModelRef, OpaqueId, Time, Wire
from app.schemas.models import ProgressView

Level = Literal["sample", "client", "subject"]
State = Literal[
    "received", "awaiting-review", "cooling-off", "paused", "executing", "awaiting-client",
    "awaiting-round", "escalated", "verifying", "needs-decision", "certified", "refused",
    "withdrawn", "failed",
]  # fmt: skip
Regulation = Literal["gdpr", "ccpa"]


class Scope(Wire):
    """The data to erase: named records, all of a client's, or all of a subject's."""

    level: Level
    client: OpaqueId | None = None
    records: list[OpaqueId] | None = Field(default=None, min_length=1, fail_fast=True)
    subject: OpaqueId | None = None

    @model_validator(mode="after")
    def _one_way_to_say_it(self) -> Self:
        named = {
            "sample": self.records is not None,
            "client": self.client is not None,
            "subject": self.subject is not None,
        }
        if not named[self.level]:
            raise ValueError(
                f"a scope of level {self.level} must have the field "
                f"{'records' if self.level == 'sample' else self.level}"
            )
        if self.level == "subject" and self.client is not None:
            named["client"] = False  # a subject may be narrowed to one client
        if sum(named.values()) != 1:
            raise ValueError("a scope must name records, a client or a subject: exactly one")
        if self.records is not None and len(set(self.records)) != len(self.records):
            raise ValueError("a scope must name each record once")
        return self


class NewRequest(Wire):
    """The body of POST /v1/requests.

    callback: an https:// address that is notified when the request's state changes. It is in
    the body, so the signature covers it; it is destroyed when the request has ended.
    """

    model: ModelRef
    scope: Scope
    method: str | None = Field(default=None, max_length=40)
    regulation: Regulation = "gdpr"
    callback: Annotated[str, StringConstraints(min_length=1, max_length=2000)] | None = None


class Receipt(Wire):
    """Proof that the log holds the request: verifiable before anything is erased."""

    log_index: int
    tree_size: int
    leaf: str
    hashes: list[str]
    checkpoint: str


class Accepted(Wire):
    """202: the request is durable. `id` is the capability, `ref` its public reference.

    `warnings` are sentences for the requester to read; none of them changes the request.
    """

    id: str
    ref: str
    state: str
    due_at: Time
    receipt: Receipt
    warnings: list[str]


class Preview(Wire):
    """The effect of a request if it were submitted now.

    records: how many it would claim. needed: the fewest pairs of an erased and a held-out
    record of the same client with which the tests of the method can pass, after the model's
    earlier judgements; 0 for methods whose guarantee needs no test. pairs: the most that there
    can be, counted up to needed; the labels of the rows are not counted, so needed pairs may
    still not suffice. `warnings` are sentences for the requester.
    """

    model: str
    method: str
    records: int
    pairs: int
    needed: int
    warnings: list[str]


class HistoryItem(Wire):
    """One transition and the index of its log entry.

    detail: of an officer's decision: reason, notice of remedies, new deadline; of an escalation
    and what follows it: the number of the attempt; else empty.
    """

    event: str
    at: Time
    log_index: int
    detail: dict[str, str]


class AttemptView(Wire):
    """The current attempt of a request, and the methods that may follow, in order.

    number: as on the certificate and in the log: attempts are numbered 1, 2, 3, … in the order
    of the request's `request.executed` entries; a skipped method has no number. ahead: the
    policy's further ladder steps, some of which may be skipped, then the retraining or refit,
    then an operator's decision; empty once the request has ended.
    """

    number: int
    method: str
    ahead: list[str]


class RequestView(Wire):
    """A request as its holder sees it.

    progress is null unless a worker runs a long computation for it; of requests that are
    executed together, only the first shows it. scope is null once the retention of a closed
    request has ended.
    """

    id: str
    ref: str
    state: str
    model: str
    method: str
    scope: Scope | None
    regulation: Regulation
    due_at: Time
    reason: str | None
    attempt: AttemptView | None
    progress: ProgressView | None
    history: list[HistoryItem]
    certificate: str | None


class Decision(Wire):
    """An operator's decision on a request in the state needs-decision.

    retry: if no attempt was verified, the model returns to service and is retrained or refitted
    from the retained set; if the request is stalled, it is tried again, and retrained or
    refitted if it waits for its verification. abandon: the request ends as failed; a model that
    was not judged goes out of service. `why` is stored in the request's history and must name
    nobody.
    """

    decision: Literal["retry", "abandon"]
    why: Annotated[
        str, StringConstraints(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f]+$")
    ]


class RequestSummary(Wire):
    """A request as an operator or auditor lists it: without its scope.

    `id` and `certificate` are null for auditors: the id gives access to scope and
    evidence, while `ref` finds the request in the log.
    """

    id: str | None
    ref: str
    state: str
    model: str
    method: str
    regulation: Regulation
    received_at: Time
    due_at: Time
    overdue: bool
    certificate: str | None


class ReleaseView(Wire):
    """A release for its client: records of one of its subjects whose statistics it must send.

    `state` is open, answered, dropped or done. `request` is the public reference of the
    erasure request. At `escalates_at` an operator is notified that the client has not answered.
    `warnings` say what an answer discloses.
    """

    id: str
    request: str
    model: str
    client: str
    subject: str
    records: list[str]
    state: str
    asked: int
    escalates_at: Time
    warnings: list[str]


class ReleaseSummary(Wire):
    """A release as an operator sees it: how many records, not which."""

    id: str
    request: str
    model: str
    records: int
    block_records: int
    state: str
    asked: int
    asked_at: Time | None
    escalates_at: Time
