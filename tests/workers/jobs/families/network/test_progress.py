"""The progress of a long stage: recorded per round, visible in the API, never binding."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.pool import QueuePool

from app import steps
from tests import small_network
from tests.installation import Installation
from tests.workers.jobs.families.network import networks
from tests.workers.jobs.test_batch import context
from workers.families.network import progress
from workers.leases.lease import Lease

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
ROUNDS = 3  # of the small network's training


def rounds(phase: str, total: int = ROUNDS, first: int = 0) -> list[dict[str, Any]]:
    """Return the expected progress of a phase from its first round to its last."""
    unit = {"step": "steps", "references": "models"}.get(phase, "rounds")
    return [
        {"phase": phase, "done": done, "total": total, "unit": unit}
        for done in range(first, total + 1)
    ]


class Onlooker:
    """Queries the service as its users do, whenever a worker has recorded progress."""

    def __init__(self, installation: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
        self.installation = installation
        self.request_id: str | None = None
        self.requests: list[Any] = []
        self.models: list[Any] = []
        self.tell = progress.record
        monkeypatch.setattr(progress, "record", self._told)

    def _told(self, *arguments: Any) -> None:
        self.tell(*arguments)
        self.models.append(self.model())
        if self.request_id is not None:
            self.requests.append(self.request())

    def model(self) -> Any:
        path = f"/v1/models/{small_network.MODEL}"
        return self.installation.caller.operator("GET", path).json()["progress"]

    def request(self) -> Any:
        answer = self.installation.caller.http.get(f"/v1/requests/{self.request_id}")
        return answer.json()["progress"]

    def erase(self, **fields: Any) -> None:
        self.models.clear()
        self.request_id = networks.submit(self.installation, networks.whole("c1"), **fields)
        self.installation.drain()


@pytest.fixture
def onlooker(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> Onlooker:
    made = Onlooker(installation, monkeypatch)
    networks.register(installation)
    return made


def test_a_training_is_told_by_its_model(onlooker: Onlooker) -> None:
    assert onlooker.models == rounds("training")
    assert onlooker.model() is None


def test_an_erasure_is_told_by_its_request_through_the_whole_escalation(
    onlooker: Onlooker,
) -> None:
    onlooker.erase(method="puf-special")
    assert onlooker.requests == [
        *rounds("step", 1),
        *rounds("recovery", 1, first=1),
        *rounds("retraining"),
        *rounds("repetition"),
    ]
    assert onlooker.request() is None
    # A model's viewers need not know that an erasure is running.
    assert set(map(str, onlooker.models)) == {"None"}


@pytest.fixture
def planted() -> Iterator[None]:
    yield
    steps.install(None)


@pytest.mark.usefixtures("planted")
def test_a_stage_that_begins_does_not_show_the_end_of_the_one_before(
    onlooker: Onlooker,
) -> None:
    begun: list[Any] = []

    def look(step: str) -> None:
        if step in ("execute.leased", "verify.leased", "certify.leased"):
            begun.append((step, onlooker.request()))

    steps.install(look)
    onlooker.erase(method="retrain")
    assert begun == [
        ("execute.leased", None),
        ("verify.leased", None),
        ("certify.leased", None),
    ]


def test_who_lost_the_lease_tells_nothing(onlooker: Onlooker) -> None:
    installation = onlooker.installation
    onlooker.request_id = networks.submit(installation, networks.whole("c1"))
    job = networks.jobs(installation)[-1]
    held = Lease(
        job.id,
        job.lease_token,
        job.stage,
        0,
        "erase",
        job.model_id,
        job.request_id,
        None,
        1,
        None,
    )
    mine = context(installation, held)
    progress.record(replace(mine, lease=replace(held, token=held.token + 1)), "step", 1, 1)
    progress.record(replace(mine, lease=replace(held, stage="verify")), "step", 1, 1)
    assert onlooker.requests == [None, None]
    progress.record(mine, "step", 0, 1)
    assert onlooker.requests[-1] == rounds("step", 1)[0]


def test_what_cannot_be_told_stops_nothing(
    onlooker: Onlooker, caplog: pytest.LogCaptureFixture
) -> None:
    installation = onlooker.installation
    job = networks.jobs(installation)[-1]
    held = Lease(
        job.id, 1, "execute", 0, "learn", job.model_id, None, job.contribution_id, 1, None
    )
    away = replace(installation.services, engine=create_engine("sqlite:////nowhere/at/all.db"))
    mine = replace(context(installation, held), services=away)
    onlooker.tell(mine, "training", 1, 3)
    assert "not recorded: OperationalError" in caplog.text
    full = create_engine(
        "sqlite://", poolclass=QueuePool, pool_size=1, max_overflow=0, pool_timeout=0
    )
    with full.connect():
        onlooker.tell(replace(mine, services=replace(away, engine=full)), "training", 2, 3)
    assert "not recorded: TimeoutError" in caplog.text
