"""Each named step fails, before and after it became durable, and nothing is lost or doubled.

A planted fault is raised at a step; what follows is what a restarted service does. A step
before a commit is "failed", one after it "failed but persisted": the caller sees an error
although the work was stored, and must be able to send it again.
"""

from dataclasses import replace

import pytest
from sqlmodel import Session, select
from starlette.testclient import TestClient

from app import steps
from app.main import create_app
from models import ErasureRequest, Record
from tests.faults.conftest import certified_once
from tests.installation import Installation
from tests.small import ROWS

WORKER_STEPS = [
    name for name in steps.STEPS if name.split(".")[0] in ("execute", "verify", "certify")
]
API_STEPS = [name for name in steps.STEPS if name not in WORKER_STEPS]
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
def test_an_api_that_fails_at_a_step_is_asked_again(installed: Installation, step: str) -> None:
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
def test_an_api_that_failed_and_is_not_asked_again(installed: Installation, step: str) -> None:
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


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
@pytest.mark.parametrize("step", ["ledger.appended", "ledger.committed", "checkpoint.guarded", "checkpoint.committed"])  # fmt: skip
def test_a_log_that_dies_under_a_worker_loses_nothing(
    installed: Installation, step: str, nth: int
) -> None:
    assert installed.caller.erase_records("r1", "r2").status_code == 202
    steps.plant(f"{step}@{nth}=raise")
    with pytest.raises(steps.PlantedFaultError):
        installed.drain()
    steps.install(None)
    installed.recover()
    certified_once(installed)
