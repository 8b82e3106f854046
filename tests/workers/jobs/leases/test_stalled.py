"""A request that waits for a machine or a silo is escalated before it is due, and resumes."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlmodel import Session, select

from app.ledger.sequencer import Ledger
from app.settings import Settings
from lethe.errors import LetheError
from models import ErasureRequest, Job, RequestEvent
from models.database.types import utcnow
from tests.installation import Installation, install, shown
from tests.small import MODEL
from tests.workers.jobs.attempts.test_decisions import decide, history
from tests.workers.jobs.families.network import networks
from workers.families.network import case as network_case
from workers.families.ridge import case as ridge_case
from workers.families.ridge import family as ridge_family
from workers.families.ridge.family import RidgeFamily

Patch = pytest.MonkeyPatch
NEEDS = "request.needs-decision"


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: the queue's order does not depend on it."""
    return sqlite_url


@pytest.fixture
def patient(settings: Settings, fitted: Any) -> Iterator[Installation]:
    """An installation with a fitted ridge head, which escalates waits after one try."""
    with install(settings.model_copy(update={"max_tries": 1})) as made:
        made.caller.key = fitted
        yield made


class AbsentError(LetheError):
    """The resource that a job waits for is missing."""

    slug, title, status = "absent", "A silo is absent", 503


def absent(*_: object, **__: object) -> None:
    raise AbsentError("of nobody")


def soon_due(at: Installation, days: int = 5) -> None:
    with Session(at.services.engine) as session:
        for request in session.exec(select(ErasureRequest)):
            request.due_at = utcnow() + timedelta(days=days)
        session.commit()


def waiting(at: Installation, *records: str) -> str:
    """Erase records by a job that waits, and is due soon; return the request's id."""
    request = str(at.caller.erase_records(*records).json()["id"])
    at.drain()
    soon_due(at)
    at.recover()
    return request


def test_a_wait_is_told_only_when_it_is_soon_due_and_ends_by_itself(
    patient: Installation, monkeypatch: Patch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(RidgeFamily, "forget", absent)
        first = str(patient.caller.erase_records("r1", "r6").json()["id"])
        patient.drain()
        soon_due(patient, days=11)
        patient.recover()
        assert shown(patient, first)["state"] == "executing"  # there is time
        behind = str(patient.caller.erase_records("r2").json()["id"])
        soon_due(patient)
        patient.recover()
        patient.recover()
    why = "A silo is absent: AbsentError at execute; the job is retried until this is fixed"
    told = shown(patient, first)
    assert (told["state"], told["reason"]) == ("needs-decision", why)
    assert shown(patient, behind)["reason"] == f"waits for an earlier job of its model: {why}"
    answer = patient.caller.operator("GET", "/v1/requests?state=needs-decision").json()
    assert {item["id"] for item in answer["items"]} == {first, behind}
    patient.recover()  # no decision was made, and the silo is back
    for request in (first, behind):
        told = shown(patient, request)
        assert (told["state"], told["reason"]) == ("certified", None)
        assert history(patient, request).count(NEEDS) == 1
    with Session(patient.services.engine) as session:
        event = session.exec(select(RequestEvent).where(RequestEvent.event == NEEDS)).first()
        assert event is not None
        assert event.payload == {"reason": why}
    patient.check()


@pytest.mark.parametrize("decision", ["retry", "abandon"])
def test_what_was_not_begun_is_tried_again_or_given_up_without_harm(
    patient: Installation, monkeypatch: Patch, decision: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(RidgeFamily, "forget", absent)
        request = waiting(patient, "r1", "r6")
    assert decide(patient, request, decision) == 200
    patient.drain()
    ends = {"retry": "certified", "abandon": "failed"}
    assert shown(patient, request)["state"] == ends[decision]
    model = patient.caller.operator("GET", f"/v1/models/{MODEL}").json()
    assert model["state"] == "ready"
    again = str(patient.caller.erase_records("r3").json()["id"])
    patient.drain()
    assert shown(patient, again)["state"] == "certified"
    patient.check()


@pytest.mark.parametrize("decision", ["retry", "abandon"])
def test_what_nobody_can_judge_is_made_anew_or_taken_out_of_service(
    patient: Installation, monkeypatch: Patch, decision: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ridge_family, "prepare", absent)
        request = waiting(patient, "r1", "r6")
    assert shown(patient, request)["reason"].startswith("A silo is absent: AbsentError at ver")
    assert decide(patient, request, decision) == 200
    patient.drain()
    ends = {"retry": ("certified", "ready"), "abandon": ("failed", "quarantined")}
    model = patient.caller.operator("GET", f"/v1/models/{MODEL}").json()
    assert (shown(patient, request)["state"], model["state"]) == ends[decision]
    if decision == "retry":
        method = networks.statement(patient, request).predicate.method
        assert method.id == "ridge-exact-refit"
    patient.check()


def test_a_job_of_a_quarantined_model_is_not_tried_again_but_can_be_given_up(
    patient: Installation, monkeypatch: Patch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ridge_family, "prepare", absent)
        first = waiting(patient, "r1", "r6")
        behind = waiting(patient, "r2")
    assert decide(patient, first, "abandon") == 200
    patient.drain()
    assert decide(patient, behind, "retry") == 409
    assert shown(patient, behind)["state"] == "needs-decision"
    assert decide(patient, behind, "abandon") == 200
    assert shown(patient, behind)["state"] == "failed"
    patient.check()


def test_a_wait_that_ended_is_forgotten_before_anybody_judges(
    patient: Installation, monkeypatch: Patch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(RidgeFamily, "forget", absent)
        request = waiting(patient, "r1", "r6")
    told: list[Any] = []
    prepare = ridge_case.prepare

    def looks(*given: Any) -> Any:
        told.append(shown(patient, request))
        return prepare(*given)

    monkeypatch.setattr(ridge_family, "prepare", looks)
    patient.recover()
    assert [(seen["state"], seen["reason"]) for seen in told] == [("verifying", None)]
    patient.check()


def test_a_retraining_waits_for_a_machine_like_its_own(
    settings: Settings, ledger: Ledger, monkeypatch: Patch
) -> None:
    with install(settings.model_copy(update={"max_tries": 1})) as made:
        networks.register(made)
        with monkeypatch.context() as patch:
            patch.setattr(network_case, "here", lambda _: {"torch": "another"})
            request = networks.submit(made, networks.whole("c1"))  # escalates to the retraining
            made.drain()
            soon_due(made)
            made.recover()
        told = networks.request(made, request)
        assert told.state == "needs-decision"
        assert str(told.reason).startswith("Another machine must verify this: OtherMachine")
        with Session(made.services.engine) as session:
            job = session.exec(select(Job).where(Job.request_id == request)).one()
            assert (job.stage, job.done_at) == ("verify", None)
        made.recover()
        assert networks.request(made, request).state == "certified"
        assert networks.request(made, request).reason is None


def test_who_waits_behind_a_wait_may_still_withdraw(
    patient: Installation, monkeypatch: Patch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(RidgeFamily, "forget", absent)
        waiting(patient, "r1")
        behind = waiting(patient, "r2")
        assert shown(patient, behind)["state"] == "needs-decision"
        path = f"/v1/requests/{behind}"
        assert patient.caller.signed("DELETE", path).status_code in (200, 204)
    assert shown(patient, behind)["state"] == "withdrawn"
