"""Jobs that train networks run only on workers of the queue gpu."""

from collections.abc import Iterator

import pytest
from sqlmodel import Session, col, select

from app.dispatch import GPU_QUEUE, QUEUE
from app.ledger.sequencer import Ledger
from app.settings import Settings
from models import Job
from tests.installation import Installation, install
from tests.workers.jobs.families.network import networks
from workers import celery_app, runtime
from workers.jobs import routing

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
def with_gpu(settings: Settings, ledger: Ledger) -> Iterator[Installation]:
    """An installation with a worker of the queue gpu, which is not this process."""
    with install(settings.model_copy(update={"gpu_queue": True})) as made:
        yield made


@pytest.fixture
def gpu_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process be a worker of the queue gpu."""
    monkeypatch.setattr(runtime, "queues", lambda: frozenset({GPU_QUEUE}))


def last_job(installation: Installation) -> tuple[str, str, int]:
    """Return id, stage and lease token of the newest job."""
    with Session(installation.services.engine) as session:
        job = session.exec(select(Job).order_by(col(Job.seq).desc())).first()
        assert job is not None
        return job.id, job.stage, job.lease_token


def submitted(installation: Installation) -> tuple[str, str]:
    """Register the small network and submit an erasure that is not executed.

    Returns the ids of the job and of the request.
    """
    networks.register(installation)
    request = networks.submit(installation, networks.whole("c1"))
    installation.dispatcher.nudges.clear()
    installation.dispatcher.queues.clear()
    return last_job(installation)[0], request


@pytest.mark.parametrize("stage", ["execute", "verify"])
def test_a_job_of_a_network_is_sent_on_before_it_is_taken(
    with_gpu: Installation, stage: str
) -> None:
    job, _ = submitted(with_gpu)
    untouched = last_job(with_gpu)
    celery_app.run_stages(with_gpu.services, job, stage)
    assert last_job(with_gpu) == untouched
    assert list(with_gpu.dispatcher.nudges) == [(job, stage)]
    assert with_gpu.dispatcher.queues == [GPU_QUEUE]


@pytest.mark.usefixtures("gpu_worker")
def test_a_worker_of_the_queue_computes_it(with_gpu: Installation) -> None:
    job, request = submitted(with_gpu)
    celery_app.run_stages(with_gpu.services, job, "execute")
    # Its stage may be "execute" again: a refuted result escalates within the same second.
    assert "executed" in networks.events(with_gpu, request)
    assert GPU_QUEUE not in with_gpu.dispatcher.queues


def test_a_certificate_is_issued_by_whoever_is_free(with_gpu: Installation) -> None:
    job, _ = submitted(with_gpu)
    assert not routing.sent_on(with_gpu.services, job, "certify")


def test_other_families_stay(with_gpu: Installation) -> None:
    with_gpu.ready()
    assert with_gpu.caller.erase_records("r1").status_code == 202
    with_gpu.dispatcher.queues.clear()
    celery_app.run_stages(with_gpu.services, last_job(with_gpu)[0], "execute")
    assert last_job(with_gpu)[2] > 0
    assert set(with_gpu.dispatcher.queues) <= {QUEUE}


def test_without_the_setting_every_worker_trains(installation: Installation) -> None:
    job, _ = submitted(installation)
    assert not routing.sent_on(installation.services, job, "execute")


def test_an_unknown_job_or_audit_stays(with_gpu: Installation) -> None:
    assert not routing.sent_on(with_gpu.services, "nobody", "execute")
    assert not routing.audit_sent_on(with_gpu.services, "nobody")
