"""Releases on the wire: the statistics of records to be erased that clients must send."""

from app.schemas.base import Time, Wire


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
