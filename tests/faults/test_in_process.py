"""Each named step fails, before and after it became durable, and nothing is lost or doubled.

A planted fault is raised at a step; what follows is what a restarted service does. A step
before a commit is "failed", one after it "failed but persisted": the caller sees an error
although the work was stored, and must be able to send it again.
"""

from collections.abc import Iterator

import pytest
from sqlmodel import Session, select

from app import steps
from app.ledger.sequencer import Ledger
from app.settings import Settings
from models import Certificate, ErasureRequest, Record, Tombstone
from tests.installation import Installation, install
from tests.small import ROWS

WORKER_STEPS = [
    name for name in steps.STEPS if name.split(".")[0] in ("execute", "verify", "certify")
]
API_STEPS = [name for name in steps.STEPS if name not in WORKER_STEPS]


@pytest.fixture
def installed(settings: Settings, ledger: Ledger) -> Iterator[Installation]:
    with install(settings) as made:
        made.ready()
        made.caller.http._transport.raise_server_exceptions = False  # type: ignore[attr-defined]
        yield made
    steps.install(None)


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    steps.install(None)


def certified_once(installed: Installation) -> None:
    """Every acknowledged request is certified, once, and the log is whole."""
    installed.check()
    with Session(installed.services.engine) as session:
        requests = session.exec(select(ErasureRequest)).all()
        assert [request.state for request in requests] == ["certified"] * len(requests)
        certificates = session.exec(select(Certificate)).all()
        assert {c.request_id for c in certificates} == {r.id for r in requests}
        assert len(certificates) == len(requests) == 1
        assert len(session.exec(select(Record)).all()) == ROWS - 2
        assert len(session.exec(select(Tombstone)).all()) == 2


@pytest.mark.parametrize("step", WORKER_STEPS)
def test_a_worker_that_dies_at_a_step_is_replaced(installed: Installation, step: str) -> None:
    assert installed.caller.erase_records("r1", "r2").status_code == 202
    steps.plant(f"{step}=raise")
    with pytest.raises(steps.PlantedFaultError):
        installed.drain()
    steps.install(None)
    installed.recover()
    certified_once(installed)


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
