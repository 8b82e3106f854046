"""Each named step fails, before and after it became durable, and nothing is lost or doubled.

A planted fault is raised at a step; what follows is what a restarted service does. A step
before a commit is "failed", one after it "failed but persisted": the caller sees an error
although the work was stored, and must be able to send it again.
"""

from dataclasses import replace
from typing import Any

import pytest
from sqlmodel import Session, col, select
from starlette.testclient import TestClient

from app import steps
from app.main import create_app
from models import Certificate, ErasureRequest, ModelVersion, Record
from tests.faults.conftest import all_certified_once, certified_once
from tests.installation import Installation
from tests.small import ROWS
from workers.methods.ridge.base import Outcome
from workers.methods.ridge.ridge_exact import METHOD

OF_WORKERS = [
    name for name in steps.STEPS if name.split(".")[0] in ("execute", "verify", "certify")
]
WORKER_STEPS = [name for name in OF_WORKERS if name not in steps.NETWORK_STEPS]
OTHERS = (*OF_WORKERS, *steps.RETENTION_STEPS, *steps.FOLLOW_STEPS)
API_STEPS = [name for name in steps.STEPS if name not in OTHERS]
PERSISTED = API_STEPS[API_STEPS.index("ledger.committed") :]


@pytest.mark.parametrize("step", WORKER_STEPS)
def test_a_worker_that_dies_at_a_step_is_replaced(installed: Installation, step: str) -> None:
    assert installed.caller.erase_records("r1", "r2").status_code == 202
    steps.plant(f"{step}=raise")
    with pytest.raises(steps.PlantedFaultError):
        installed.drain()
    steps.install(None)
    installed.recover()
    certified_once(installed)


def fail_at(installed: Installation, step: str, **headers: str) -> None:
    """Submit once to an API that dies at a step."""
    steps.plant(f"{step}=raise")
    # A client of its own: the fault ends the event loop it passes through.
    caller = replace(installed.caller, http=TestClient(create_app(installed.services)))
    with pytest.raises(steps.PlantedFaultError, match=step):
        caller.erase_records("r1", "r2", headers=headers)
    steps.install(None)


def stored(installed: Installation) -> list[str]:
    with Session(installed.services.engine) as session:
        return [request.id for request in session.exec(select(ErasureRequest))]


@pytest.mark.parametrize("step", API_STEPS)
def test_a_resent_submission_is_stored_once_after_an_api_failure(
    installed: Installation, step: str
) -> None:
    once = {"idempotency-key": "once"}
    fail_at(installed, step, **once)
    left = stored(installed)
    assert len(left) == (step in PERSISTED)
    again = installed.caller.erase_records("r1", "r2", headers=once)
    assert again.status_code == 202, again.text
    assert stored(installed) == [again.json()["id"]]
    assert left in ([], [again.json()["id"]])
    installed.recover()
    certified_once(installed)


@pytest.mark.parametrize("step", API_STEPS)
def test_a_submission_that_is_not_resent_is_certified_if_it_was_stored(
    installed: Installation, step: str
) -> None:
    """What was persisted is carried out although nobody was told; nothing else is."""
    fail_at(installed, step)
    installed.recover()
    if step in PERSISTED:
        certified_once(installed)
        return
    installed.check()
    assert stored(installed) == []
    with Session(installed.services.engine) as session:
        assert len(session.exec(select(Record)).all()) == ROWS


def full(*values: object) -> object:
    """Mark a case that `make coverage` leaves to `make test-full`."""
    return pytest.param(*values, marks=pytest.mark.full)


@pytest.mark.parametrize("nth", [1, full(2), full(3), 4])
@pytest.mark.parametrize("step", ["ledger.appended", "ledger.committed", "checkpoint.guarded", "checkpoint.committed"])  # fmt: skip
def test_a_log_failure_during_one_job_loses_nothing(
    installed: Installation, step: str, nth: int
) -> None:
    assert installed.caller.erase_records("r1", "r2").status_code == 202
    steps.plant(f"{step}@{nth}=raise")
    with pytest.raises(steps.PlantedFaultError):
        installed.drain()
    steps.install(None)
    installed.recover()
    certified_once(installed)


def three_wait(batching: Installation) -> None:
    for records in (["r1"], ["r2", "r6"], ["r3"]):
        assert batching.caller.erase_records(*records).status_code == 202


# `make coverage` fails an update at the steps where something becomes durable; of a single request
# it fails every step.
DURABLE = ("execute.journaled", "execute.applied", "verify.recorded", "certify.committed")
IN_A_BATCH = [name if name in DURABLE else full(name) for name in WORKER_STEPS]


@pytest.mark.parametrize("step", IN_A_BATCH)
def test_a_worker_that_dies_during_a_batch_is_replaced(
    batching: Installation, step: str
) -> None:
    three_wait(batching)
    steps.plant(f"{step}=raise")
    with pytest.raises(steps.PlantedFaultError):
        batching.drain()
    steps.install(None)
    batching.recover()
    all_certified_once(batching, records=4)


@pytest.mark.parametrize("nth", [full(1), full(2), full(3), 4, full(5)])
@pytest.mark.parametrize("step", ["ledger.appended", "ledger.committed", "checkpoint.guarded", "checkpoint.committed"])  # fmt: skip
def test_a_log_failure_during_a_batch_loses_nothing(
    batching: Installation, step: str, nth: int
) -> None:
    three_wait(batching)
    steps.plant(f"{step}@{nth}=raise")
    with pytest.raises(steps.PlantedFaultError):
        batching.drain()
    steps.install(None)
    batching.recover()
    all_certified_once(batching, records=4)


@pytest.mark.parametrize("step", [full("execute.computed@2"), "execute.written@2", full("verify.judged@2"), full("verify.recorded@2")])  # fmt: skip
def test_a_worker_that_dies_during_the_refit_of_a_batch_is_replaced(
    batching: Installation, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of the three is refuted: the refit serves all, whenever it is interrupted."""
    honest = METHOD.forget

    def forget(_: object, *arguments: Any) -> Outcome:
        outcome = honest(*arguments)
        wrong = replace(outcome.state, head=-outcome.state.head)
        return replace(outcome, state=wrong)

    monkeypatch.setattr(type(METHOD), "forget", forget)
    three_wait(batching)
    steps.plant(f"{step}=raise")
    with pytest.raises(steps.PlantedFaultError):
        batching.drain()
    steps.install(None)
    batching.recover()
    with Session(batching.services.engine) as session:
        assert {r.state for r in session.exec(select(ErasureRequest))} == {"certified"}
        assert len(session.exec(select(Certificate)).all()) == 3
        versions = session.exec(select(ModelVersion).order_by(col(ModelVersion.number)))
        assert [version.step for version in versions] == [1, 1, 2]
    batching.check()
