"""A request that nobody decides on ends: told, by the log's word, and not before its time."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlmodel import Session, col, select

from app.ledger.sequencer import Ledger
from app.purge import retention
from app.reconcile.fsck.retention import EARLY, KEPT, OVERDUE
from app.service import admission
from app.service.desk import opening
from app.settings import Settings
from lethe.catalogue import COMPLAINT, LAPSES
from models import Artifact, Case, ErasureRequest, Job, Model, RequestEvent
from tests.app.purge.test_moved_times import LONG_AGO, contacted, held, nothing_ends, row, write
from tests.app.purge.test_retention import BOTH, entries, late, problems
from tests.app.reconcile.test_fsck_retention import found, listed
from tests.app.service.test_holds import officer, release
from tests.installation import Installation, install, state
from tests.remote import Remote
from tests.workers.jobs.attempts.test_decisions import decide, spoil
from tests.workers.jobs.families.test_statistics_model import erase

# The deadline is a month away: by these settings it passed long ago.
OVER: dict[str, Any] = {"undecided_retention_days": -60}
ONE = {"undecided": 1}


@pytest.fixture
def installation(settings: Settings, ledger: Ledger) -> Iterator[Installation]:
    """An installation without a model."""
    with install(settings) as made:
        yield made


@pytest.fixture
def waiting(ready: Installation, monkeypatch: pytest.MonkeyPatch) -> str:
    """A request that needs a decision, because no attempt was verified; returns its id."""
    with monkeypatch.context() as patch:
        spoil(patch)
        request = str(ready.caller.erase_records("r1", "r6").json()["id"])
        ready.drain()
    assert state(ready, request) == "needs-decision"
    return request


def kept(at: Installation, *kinds: str) -> list[str]:
    """Return the kinds of those artifacts that can still be opened."""
    with Session(at.services.engine) as session:
        query = select(Artifact.kind).where(
            col(Artifact.wrapped_key).is_not(None), col(Artifact.kind).in_(kinds)
        )
        return sorted(session.exec(query))


def test_it_is_refused_and_its_inputs_are_destroyed(ready: Installation, waiting: str) -> None:
    assert kept(ready, "before", "draft")
    assert retention.plan(late(ready, **OVER)).removed == ONE
    assert state(ready, waiting) == "needs-decision", "a plan changes nothing"
    done = retention.run(late(ready, **OVER))
    assert (done.removed, done.differs) == (ONE, {})
    shown = ready.caller.http.get(f"/v1/requests/{waiting}").json()
    assert (shown["state"], shown["reason"]) == ("refused", LAPSES["gdpr"]["undecided"])
    assert shown["history"][-1]["detail"]["notice"] == COMPLAINT["gdpr"]
    assert shown["scope"]["records"] == ["r1", "r6"], "its retention has only begun"
    assert kept(ready, "before", "draft") == []
    ((index, leaf),) = entries(ready)
    assert index == done.log_index
    assert {kind: one.count for kind, one in leaf.ended.items()} == ONE
    with Session(ready.services.engine) as session:
        assert session.exec(select(Model.state)).one() == "quarantined"
        assert session.exec(select(Job.done_at)).all()[-1] is not None
    assert not retention.run(late(ready, **OVER)).removed
    ready.check()
    assert retention.run(late(ready)).removed == BOTH
    ready.check()


def test_a_failed_request_that_nobody_answered_is_refused(
    ready: Installation, waiting: str
) -> None:
    assert decide(ready, waiting, "abandon") == 200
    assert state(ready, waiting) == "failed"
    assert not retention.run(ready.services).removed
    assert retention.run(late(ready, **OVER)).removed == ONE
    assert state(ready, waiting) == "refused"
    ready.check()


@pytest.mark.parametrize("pauses", [False, True])
def test_a_request_that_no_officer_reviews_is_refused(
    installation: Installation, pauses: bool
) -> None:
    installation.ready(decide="review")
    request = installation.caller.erase_records("r1").json()
    installation.drain()
    if pauses:
        path = f"/v1/cases/{request['ref']}/pause"
        answer = installation.caller.operator("POST", path, json={"reason": "identity"})
        assert answer.status_code == 200, answer.text
    assert not retention.run(installation.services).removed
    assert retention.run(late(installation, **OVER)).removed == ONE
    assert state(installation, request["id"]) == "refused"
    again = installation.caller.erase_records("r1")
    assert again.status_code == 202, "its claims were released"
    installation.check()


def test_what_one_client_released_ends_while_another_is_silent(
    installation: Installation, contributed: Remote
) -> None:
    remote = contributed.at(installation)
    wanted = [remote.owned("c0")[0], remote.owned("c4")[0]]
    request = erase(installation, {"level": "sample", "records": wanted})
    (question,) = remote.asked("c0")
    remote.answer("c0", question["id"], remote.message(question["records"]))
    assert kept(installation, "release") == ["release"]
    assert not retention.run(installation.services).removed
    assert retention.run(late(installation, **OVER)).removed == ONE
    assert kept(installation, "release") == []
    assert remote.asked("c4") == []
    assert state(installation, request) == "refused"
    installation.check()


def test_a_request_that_a_worker_goes_on_with_is_left(ready: Installation) -> None:
    ready.caller.erase_records("r1")
    assert not retention.run(late(ready, **OVER)).removed
    assert row(ready).state == "received"


def test_a_hold_keeps_it(ready: Installation, waiting: str) -> None:
    held(ready, row(ready).ref)
    done = retention.run(late(ready, **OVER))
    assert (done.removed, done.held) == ({}, ONE)
    assert kept(ready, "before")
    assert found(ready, undecided_retention_days=-63) == set()
    hold = ready.caller.operator("GET", "/v1/holds").json()["items"][0]["id"]
    assert release(hold, officer(ready)).status_code == 200
    assert retention.run(late(ready, **OVER)).removed == ONE


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE erasure_requests SET due_at = :then",
        "UPDATE erasure_requests SET due_at = :then, state = 'failed'",
        "UPDATE erasure_requests SET due_at = :then, state = 'paused'",
    ],
)
def test_a_deadline_moved_in_the_table_ends_nothing(
    ready: Installation, waiting: str, change: str
) -> None:
    write(ready, change, then=LONG_AGO)
    nothing_ends(ready, ONE)
    assert kept(ready, "before")


def test_a_running_request_that_the_table_has_as_waiting_is_left(ready: Installation) -> None:
    ready.caller.erase_records("r1")
    write(ready, "UPDATE erasure_requests SET state = 'needs-decision'")
    nothing_ends(ready, ONE, **OVER)


def test_an_extension_whose_row_is_gone_still_counts(ready: Installation, waiting: str) -> None:
    path = f"/v1/cases/{row(ready).ref}/extend"
    answer = ready.caller.operator("POST", path, json={"reason": "complexity"})
    assert answer.status_code == 200, answer.text
    extended = row(ready).due_at
    write(ready, "UPDATE erasure_requests SET due_at = :then", then=LONG_AGO)
    write(ready, "DELETE FROM request_events WHERE event = 'request.extended'")
    nothing_ends(ready, ONE, **OVER)
    assert extended > row(ready).received_at + timedelta(days=60)


def test_the_answer_to_the_person_still_has_an_address(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their deadline and the period of the address passed on the same day."""
    for module in (admission, opening):
        monkeypatch.setattr(module, "due_at", lambda at, *_, **__: at - timedelta(days=100))
    with monkeypatch.context() as patch:
        spoil(patch)
        contacted(ready)
        ready.drain()
    assert row(ready).state == "needs-decision"
    assert found(ready, undecided_retention_days=200) == set(), "the address is needed"
    assert retention.run(ready.services).removed == ONE
    with Session(ready.services.engine) as session:
        assert session.exec(select(Case)).one().contact == "ann@x.org"
    assert not retention.run(ready.services).removed
    assert found(ready) == set()
    assert retention.run(late(ready, contact_retention_days=0)).removed == {"contact": 1}


def test_fsck_finds_one_that_is_kept_too_long(ready: Installation, waiting: str) -> None:
    assert found(ready) == set()
    assert found(ready, **OVER) == {OVERDUE}


def test_fsck_finds_one_that_was_put_back(ready: Installation, waiting: str) -> None:
    assert retention.run(late(ready, **OVER)).removed == ONE
    assert problems(ready) == set()
    write(ready, "UPDATE erasure_requests SET state = 'needs-decision'")
    assert problems(ready) == {KEPT}


def test_fsck_finds_one_that_was_listed_before_its_end(
    ready: Installation, waiting: str
) -> None:
    listed(ready, "undecided", row(ready).ref)
    assert EARLY in problems(ready)


def test_a_refusal_before_the_deadline_is_found(ready: Installation, waiting: str) -> None:
    """A service whose settings were wrong has refused it: its entry tells the day."""
    assert retention.run(late(ready, **OVER)).removed == ONE
    with ready.services.engine.begin() as connection:
        connection.execute(text("UPDATE erasure_requests SET due_at = '2099-01-01 00:00:00'"))
    assert EARLY in problems(ready)


def test_the_run_logs_the_refusal_before_anything_is_gone(
    ready: Installation, waiting: str
) -> None:
    retention.run(late(ready, **OVER))
    with Session(ready.services.engine) as session:
        said = session.exec(
            select(RequestEvent).where(RequestEvent.event == "request.refused")
        ).one()
        request = session.exec(select(ErasureRequest)).one()
    assert said.payload == {
        "reason": LAPSES["gdpr"]["undecided"],
        "notice": COMPLAINT["gdpr"],
    }
    assert said.log_index < entries(ready)[0][0]
    assert request.forgotten_at is None
