"""Questions to clients on the wire."""

from app.schemas.base import Time, Wire


class ReleaseView(Wire):
    """What a client is asked: the statistics of these records, all of one of its subjects.

    `state` is open, answered, dropped or done. `request` is the public reference of the
    erasure request. At `escalates_at` an operator is told that the client was silent.
    `warnings` say what an answer gives away.
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
    """A question as an operator sees it: how many records, not which."""

    id: str
    request: str
    model: str
    records: int
    block_records: int
    state: str
    asked: int
    asked_at: Time | None
    escalates_at: Time
