"""A request whose attempts were all refuted waits for a named operator, who decides once."""

import pytest
from sqlmodel import Session, col, select

from app.reconcile.fsck.run import fsck
from app.vault.features import FeatureVault
from models import Artifact, LogEntry, Model, RequestEvent, Subject
from tests.installation import Installation, state
from tests.small import MODEL


def spoil(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave erased rows in their block from now on, so that no refit helps."""
    honest = FeatureVault.rewrite

    def leave_in(
        self: FeatureVault, session: Session, subject: Subject, payload: bytes | None, rows: int
    ) -> None:
        before = self.load(session, subject.id or 0)
        honest(self, session, subject, payload, rows)
        session.flush()
        self.store(session, subject, before, 8)

    monkeypatch.setattr(FeatureVault, "rewrite", leave_in)


@pytest.fixture
def spent(ready: Installation, monkeypatch: pytest.MonkeyPatch) -> str:
    """A request whose rows stay in their block; returns its id."""
    spoil(monkeypatch)
    request = ready.caller.erase_records("r1", "r6").json()["id"]
    ready.drain()
    assert state(ready, request) == "needs-decision"
    monkeypatch.undo()
    return str(request)


def decide(ready: Installation, request: str, decision: str, why: str = "looked") -> int:
    answer = ready.caller.operator(
        "POST", f"/v1/requests/{request}/decision", json={"decision": decision, "why": why}
    )
    return int(answer.status_code)


def history(ready: Installation, request: str) -> list[str]:
    shown = ready.caller.http.get(f"/v1/requests/{request}").json()
    return [item["event"] for item in shown["history"]]


def test_a_retry_is_logged_and_judged_again(ready: Installation, spent: str) -> None:
    assert decide(ready, spent, "retry") == 200
    ready.drain()
    # The rows are still in their block: a decision does not change the verdict.
    assert state(ready, spent) == "needs-decision"
    events = history(ready, spent)
    assert events[-4:] == [
        "request.decided",
        "request.executed",
        "request.verified",
        "request.needs-decision",
    ]
    with Session(ready.services.engine) as session:
        said = session.exec(
            select(RequestEvent).where(RequestEvent.event == "request.decided")
        ).one()
        by = said.payload["by"]
        assert by.startswith("test "), "the token's name"
        assert said.payload == {"decision": "retry", "by": by, "why": "looked"}
        named = session.exec(select(LogEntry.event).order_by(col(LogEntry.index))).all()
    assert named.count("model.quarantined") == 2
    assert named.count("model.released") == 1
    ready.check()


def test_a_retry_after_the_damage_was_mended_is_certified(
    ready: Installation, spent: str
) -> None:
    with Session(ready.services.engine) as session:
        mend(ready, session)
    assert decide(ready, spent, "retry") == 200
    ready.drain()
    assert state(ready, spent) == "certified"
    assert ready.caller.operator("GET", f"/v1/models/{MODEL}").json()["state"] == "ready"
    ready.check()


def mend(ready: Installation, session: Session) -> None:
    """Remove rows without records from each block, as a restore would."""
    from models import Record, Subject
    from workers.families.ridge.stored import RowBlock, decode_block

    known = set(session.exec(select(Record.record)))
    for subject in session.exec(select(Subject)).all():
        assert subject.id is not None
        block = decode_block(ready.services.features.load(session, subject.id))
        assert isinstance(block, RowBlock)
        rest = block.without(set(block.records) - known)
        payload = None if rest is None else rest.encode()
        rows = 0 if rest is None else len(rest.records)
        ready.services.features.rewrite(session, subject, payload, rows)
    session.commit()


def test_what_is_abandoned_ends_and_leaves_nothing_to_read(
    ready: Installation, spent: str
) -> None:
    assert decide(ready, spent, "abandon") == 200
    assert state(ready, spent) == "failed"
    assert decide(ready, spent, "retry") == 409
    with Session(ready.services.engine) as session:
        assert session.exec(select(Model)).one().state == "quarantined"
        kinds = [a.kind for a in session.exec(select(Artifact)) if a.wrapped_key is not None]
    assert "draft" not in kinds
    assert "before" not in kinds


def test_only_an_operator_decides_and_only_on_what_waits(
    ready: Installation, spent: str
) -> None:
    path = f"/v1/requests/{spent}/decision"
    body = {"decision": "retry", "why": "looked"}
    assert ready.caller.http.post(path, json=body).status_code == 401
    assert decide(ready, spent, "certify") == 422
    assert decide(ready, spent, "retry", why="") == 422
    other = ready.caller.erase_records("r2")
    assert other.status_code == 409  # the model is out of service
    assert decide(ready, "no-such-request", "retry") == 404


def test_a_quarantine_that_was_ended_by_hand_is_found(ready: Installation, spent: str) -> None:
    def told() -> list[str]:
        return [one.detail for one in fsck(ready.services.ledger).findings]

    assert state(ready, spent) == "needs-decision"
    assert told() == []
    with Session(ready.services.engine) as session:
        session.exec(select(Model)).one().state = "ready"
        session.commit()
    assert told() == ["the tables and the log disagree on a quarantine"]
