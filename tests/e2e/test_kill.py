"""kill -9 at every named step, of API and worker, then a restart: nothing lost or doubled."""

import pytest
from sqlalchemy import create_engine, text

from app import steps
from app.client.errors import ProblemError, UnreachableError
from app.client.retry import RetryPolicy
from tests.e2e.harness import Processes, until
from tests.small import MODEL

API_STEPS = [
    "request.checked",
    "ledger.appended",
    "ledger.committed",
    "checkpoint.guarded",
    "checkpoint.committed",
    "request.committed",
    "request.dispatched",
]
WORKER_STEPS = [
    name for name in steps.STEPS if name.split(".")[0] in ("execute", "verify", "certify")
]
WORKER_LOG_STEPS = [
    f"{name}@{nth}"
    for name in ("ledger.appended", "ledger.committed", "checkpoint.guarded")
    for nth in (1, 2, 3, 4)
]


def test_every_step_is_killed_at() -> None:
    assert set(API_STEPS) | set(WORKER_STEPS) == set(steps.STEPS)


def submit(processes: Processes) -> str | None:
    """Submit once, without the client's retries; returns the id if it was acknowledged."""
    with processes.requester() as requester:
        requester._core._retry = RetryPolicy(attempts=1)
        try:
            return requester.submit_erasure(MODEL, records=["r1"], idempotency_key="once").id
        except (UnreachableError, ProblemError):
            return None


def finish(processes: Processes, request_id: str) -> None:
    """Restart everything, wait for the certificate and examine what is stored."""
    processes.kill()
    processes.start_api()
    processes.start_worker()
    with processes.requester() as requester:
        until(lambda: requester.status(request_id).state == "certified", "the certificate")
        assert requester.certificate(request_id)
    processes.kill()
    fsck = processes.cli("log", "fsck", "--json", check=False)
    assert fsck.returncode == 0, fsck.stdout
    database = processes.database_url or f"sqlite:///{processes.directory}/data/lethe.db"
    engine = create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as connection:
        for table in ("certificates", "erasure_requests"):
            assert connection.execute(text(f"SELECT count(*) FROM {table}")).scalar() == 1
        rows = connection.execute(text("SELECT count(*) FROM tombstones")).scalar()
        kinds = connection.execute(
            text("SELECT count(*) FROM log_entries WHERE kind = 'hashedrekord'")
        ).scalar()
    engine.dispose()
    assert (rows, kinds) == (1, 1)


@pytest.fixture
def registered(on_files: Processes) -> Processes:
    """An installation whose model is fitted, nothing running."""
    on_files.start_api()
    on_files.start_worker()
    on_files.register()
    on_files.kill()
    return on_files


@pytest.mark.parametrize("step", API_STEPS)
def test_killed_api(registered: Processes, step: str) -> None:
    registered.start_api(fault=f"{step}=kill")
    acknowledged = submit(registered)
    assert acknowledged is None, "the API was to die before its answer"
    registered.kill()
    registered.start_api()
    # The client sends the same request again, as it must after no answer.
    request_id = submit(registered)
    assert request_id is not None
    finish(registered, request_id)


@pytest.mark.parametrize("step", [*WORKER_STEPS, *WORKER_LOG_STEPS])
def test_killed_worker(registered: Processes, step: str) -> None:
    registered.start_api()
    registered.start_worker(fault=f"{step}=kill")
    request_id = submit(registered)
    assert request_id is not None
    assert registered.worker is not None
    assert registered.worker.wait(timeout=60) == -9, "the step was never reached"
    finish(registered, request_id)


@pytest.mark.parametrize("step", ["execute.applied", "certify.signed"])
def test_killed_both_on_servers(processes: Processes, step: str) -> None:
    processes.start_api()
    processes.start_worker()
    processes.register()
    processes.kill()
    processes.start_api()
    processes.start_worker(fault=f"{step}=kill")
    request_id = submit(processes)
    assert request_id is not None
    assert processes.worker is not None
    assert processes.worker.wait(timeout=60) == -9
    finish(processes, request_id)
