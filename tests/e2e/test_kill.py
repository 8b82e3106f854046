"""kill -9 at every named step, of API and worker, then a restart: nothing lost or doubled."""

import threading
import time

import numpy as np
import pytest
from sqlalchemy import Connection, text

from app import steps
from app.ledger.startup import open_ledger
from app.reconcile.fsck.run import fsck
from lethe.client import Client
from lethe.client.errors import ProblemError, UnreachableError
from lethe.client.retry import RetryPolicy
from models.database.session import make_engine
from tests.e2e.harness import Processes, until
from tests.small import MODEL, ROWS, manifest, pack, rows

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
    name
    for name in steps.STEPS
    if name.split(".")[0] in ("execute", "verify", "certify")
    and name not in steps.NETWORK_STEPS
]
# An erasure is four transactions of the worker; tests/faults has all of each.
WORKER_LOG_STEPS = [
    *("ledger.appended@1", "ledger.appended@3", "checkpoint.guarded@2", "checkpoint.guarded@4"),
    *(f"ledger.committed@{nth}" for nth in (1, 2, 3, 4)),
]
# With three requests in one update, which is judged and certified at once.
BATCH_STEPS = ["execute.computed", "execute.written", "execute.applied"]
BATCH_STEPS += ["verify.judged", "certify.committed", "ledger.committed@3"]
# Who learns erases nothing, and so journals nothing.
LEARN_STEPS = [
    name for name in WORKER_STEPS if name.startswith("execute.") and name != "execute.journaled"
]
# A deletion is one transaction of the API: before its commit nothing is begun, after it all is done.
DELETE_STEPS = ["ledger.appended", "execute.journaled", "ledger.committed"]
DELETE_STEPS += ["checkpoint.guarded", "checkpoint.committed", "execute.applied"]
# The API dies with the request durable and unanswered; the worker finds it and dies as well.
BOTH = [
    ("ledger.committed", "execute.written"),
    ("checkpoint.guarded", "execute.applied"),
    ("request.committed", "verify.recorded"),
    ("request.dispatched", "certify.signed"),
]


def test_every_step_is_killed_at() -> None:
    # tests/app/purge has those of retention, tests/app/cli/test_backup_follow.py a follower's.
    others = {*steps.NETWORK_STEPS, *steps.RETENTION_STEPS, *steps.FOLLOW_STEPS}
    assert {*API_STEPS, *WORKER_STEPS, *others} == set(steps.STEPS)


ONCE = RetryPolicy(tries=1)  # a killed service gets one chance


def submit(processes: Processes, record: str = "r1", key: str = "once") -> str | None:
    """Submit once; returns the id if it was acknowledged."""
    with processes.requester(retry=ONCE) as requester:
        try:
            receipt = requester.submit_erasure(MODEL, records=[record], idempotency_key=key)
        except (UnreachableError, ProblemError):
            return None
    return receipt.id


def await_death(processes: Processes) -> None:
    """Wait until the worker killed itself at its step."""
    assert processes.worker is not None
    assert processes.worker.wait(timeout=60) == -9, "the step was never reached"


def count(connection: Connection, table: str, where: str = "1 = 1") -> int:
    return int(
        connection.execute(text(f"SELECT count(*) FROM {table} WHERE {where}")).scalar_one()
    )


def stored(processes: Processes) -> Connection:
    """Stop everything and return a connection to what is stored, in a log that is whole."""
    processes.kill()
    engine = make_engine(processes.settings.resolved_database_url)
    report = fsck(open_ledger(processes.settings, engine))
    assert report.ok, report.findings
    return engine.connect()


def finish(processes: Processes, *request_ids: str) -> None:
    """Start what is down, wait for the certificates and examine what is stored.

    Each request is for one record, and there are no others.
    """
    processes.restart()
    with processes.requester() as requester:
        for request_id in request_ids:
            until(lambda: requester.status(request_id).state == "certified", "a certificate")  # noqa: B023
            assert requester.certificate(request_id)
    with stored(processes) as connection:
        for table in ("certificates", "erasure_requests", "tombstones"):
            assert count(connection, table) == len(request_ids), table
        assert count(connection, "log_entries", "kind = 'hashedrekord'") == len(request_ids)
        assert count(connection, "records") == ROWS - len(request_ids)
    connection.engine.dispose()


@pytest.mark.parametrize("step", API_STEPS)
def test_killed_api(registered: Processes, step: str) -> None:
    kill_api(registered, step)


@pytest.mark.parametrize(
    "step", ["ledger.committed", "checkpoint.guarded", "request.committed"]
)
def test_killed_api_on_servers(registered_on_servers: Processes, step: str) -> None:
    kill_api(registered_on_servers, step)


def kill_api(processes: Processes, step: str) -> None:
    processes.start_api(fault=f"{step}=kill")
    assert submit(processes) is None, "the API was to die before its answer"
    processes.kill()
    processes.start_api()
    # The client sends the same request again, as it must after no answer.
    request_id = submit(processes)
    assert request_id is not None
    finish(processes, request_id)


@pytest.mark.parametrize("step", [*WORKER_STEPS, *WORKER_LOG_STEPS])
def test_killed_worker(registered: Processes, step: str) -> None:
    kill_worker(registered, step)


@pytest.mark.parametrize("step", ["execute.applied", "certify.signed"])
def test_killed_worker_on_servers(registered_on_servers: Processes, step: str) -> None:
    kill_worker(registered_on_servers, step)


def kill_worker(processes: Processes, step: str) -> None:
    processes.start_api()
    processes.start_worker(fault=f"{step}=kill")
    request_id = submit(processes)
    assert request_id is not None
    await_death(processes)
    finish(processes, request_id)


@pytest.mark.parametrize("step", BATCH_STEPS)
def test_killed_worker_with_several_requests(registered: Processes, step: str) -> None:
    kill_batch(registered, step)


def test_killed_worker_with_several_requests_on_servers(
    registered_on_servers: Processes,
) -> None:
    kill_batch(registered_on_servers, "execute.written")


def kill_batch(processes: Processes, step: str) -> None:
    """Three requests become one version, whenever the worker that makes it is killed."""
    processes.more = {
        "LETHE_BATCH_MIN_REQUESTS": "3",
        "LETHE_BATCH_MAX_WAIT_SECONDS": "600",
    }
    processes.start_api()
    processes.start_worker(fault=f"{step}=kill")
    request_ids = [submit(processes, f"r{number}", key=str(number)) for number in range(3)]
    assert None not in request_ids
    await_death(processes)
    finish(processes, *(str(request_id) for request_id in request_ids))
    with stored(processes) as connection:
        assert count(connection, "model_versions") == 2
    connection.engine.dispose()


@pytest.mark.parametrize(("api", "worker"), BOTH)
def test_both_killed_at_steps(registered: Processes, api: str, worker: str) -> None:
    kill_both(registered, api, worker)


@pytest.mark.parametrize(("api", "worker"), BOTH[1:3])
def test_both_killed_at_steps_on_servers(
    registered_on_servers: Processes, api: str, worker: str
) -> None:
    kill_both(registered_on_servers, api, worker)


def kill_both(processes: Processes, api: str, worker: str) -> None:
    processes.start_api(fault=f"{api}=kill")
    assert submit(processes) is None
    assert processes.api is not None
    assert processes.api.wait(timeout=60) == -9
    # Not before: a worker publishes what it finds, and the API would pass by its step.
    processes.start_worker(fault=f"{worker}=kill")
    await_death(processes)
    processes.start_api()
    request_id = submit(processes)
    assert request_id is not None
    finish(processes, request_id)


@pytest.mark.parametrize("after", [0.05, 0.6])
def test_both_killed_at_one_moment(registered: Processes, after: float) -> None:
    kill_at_one_moment(registered, after)


def test_both_killed_at_one_moment_on_servers(registered_on_servers: Processes) -> None:
    kill_at_one_moment(registered_on_servers, 0.3)


def kill_at_one_moment(processes: Processes, after: float) -> None:
    """Requests stream in; every acknowledged one survives, and the others can be repeated."""
    processes.start_api()
    processes.start_worker()
    acknowledged: dict[str, str] = {}
    sending = threading.Thread(target=stream, args=(processes, acknowledged))
    sending.start()
    until(lambda: bool(acknowledged), "the first acknowledgement")
    time.sleep(after)
    processes.kill()
    sending.join()
    processes.restart()
    repeated = {record: submit(processes, record, key=record) for record in SENT}
    assert None not in repeated.values()
    assert acknowledged.items() <= repeated.items()
    finish(processes, *(str(request_id) for request_id in repeated.values()))


SENT = [f"r{number}" for number in range(12)]


def stream(processes: Processes, acknowledged: dict[str, str]) -> None:
    """Submit requests one after the other until one is not acknowledged."""
    for record in SENT:
        request_id = submit(processes, record, key=record)
        if request_id is None:
            return
        acknowledged[record] = request_id


@pytest.mark.parametrize("step", ["ledger.appended", "ledger.committed"])
def test_killed_while_registering(registered: Processes, step: str) -> None:
    registered.start_api(fault=f"{step}=kill")
    made = manifest(ref="second"), pack(rows())
    with registered.operator(retry=ONCE) as operator, pytest.raises(UnreachableError):
        operator.register_model(*made)
    kept = int(step == "ledger.committed")
    with stored(registered) as connection:
        assert count(connection, "models") == 1 + kept
        assert count(connection, "artifacts", "kind = 'upload'") == 1 + kept
    connection.engine.dispose()
    registered.restart()
    with registered.operator() as operator:
        operator.register_model(*made)  # after no answer, the same again
        until(lambda: operator.model("second")["state"] == "ready", "the fit")
    with stored(registered) as connection:
        assert learned(connection) == (2, 2, 2 * ROWS)
    connection.engine.dispose()


@pytest.mark.parametrize("step", LEARN_STEPS)
def test_killed_while_fitting(registered: Processes, step: str) -> None:
    registered.start_api()
    registered.start_worker(fault=f"{step}=kill")
    with registered.operator() as operator:
        operator.register_model(manifest(ref="second"), pack(rows()))
        await_death(registered)
        registered.restart()
        until(lambda: operator.model("second")["state"] == "ready", "the fit")
    with stored(registered) as connection:
        assert learned(connection) == (2, 2, 2 * ROWS)
    connection.engine.dispose()


@pytest.mark.parametrize("step", LEARN_STEPS)
def test_killed_while_learning_a_contribution(registered: Processes, step: str) -> None:
    registered.start_api()
    registered.start_worker(fault=f"{step}=kill")
    with registered.operator() as operator:
        operator.register_key(registered.key, "client", keyid="c1", client="c1")
    added = {**rows(seed=9, count=4, first=ROWS), "clients": np.array(["c1"] * 4)}
    with Client(registered.base_url, "c1", registered.key) as client:
        client.contribute(MODEL, pack(added))
    await_death(registered)
    registered.restart()
    with registered.operator() as operator:
        until(lambda: operator.model(MODEL)["current_version"] == 2, "the contribution")
    with stored(registered) as connection:
        assert learned(connection) == (2, 2, ROWS + 4)
    connection.engine.dispose()


def learned(connection: Connection) -> tuple[int, int, int]:
    """Return how many uploads were learned, versions published and records retained."""
    assert count(connection, "contributions", "state <> 'learned'") == 0
    assert count(connection, "log_entries", "event = 'contribution.learned'") == count(
        connection, "contributions"
    )
    return (
        count(connection, "contributions"),
        count(connection, "model_versions"),
        count(connection, "records"),
    )


@pytest.mark.parametrize(
    ("step", "state"), [("ledger.appended", "received"), ("ledger.committed", "withdrawn")]
)
def test_killed_while_withdrawing(registered: Processes, step: str, state: str) -> None:
    registered.start_api(fault=f"{step}@2=kill")  # the first is the submission
    request_id = submit(registered)
    assert request_id is not None
    with registered.requester(retry=ONCE) as requester, pytest.raises(UnreachableError):
        requester.withdraw(request_id)
    registered.kill()
    registered.start_api()
    with registered.requester() as requester:
        assert requester.status(request_id).state == state
        if state == "received":
            assert requester.withdraw(request_id).state == "withdrawn"
        events = [item.event for item in requester.status(request_id).history]
    assert events == ["request.received", "request.withdrawn"]
    # Its record is free for another request, and only that one is certified.
    again = submit(registered, key="another")
    assert again is not None
    registered.restart()
    with registered.requester() as requester:
        until(lambda: requester.status(again).state == "certified", "the certificate")
        assert requester.status(request_id).state == "withdrawn"
    with stored(registered) as connection:
        assert count(connection, "certificates") == count(connection, "tombstones") == 1
    connection.engine.dispose()


@pytest.mark.parametrize("step", DELETE_STEPS)
def test_killed_while_deleting_a_model(registered: Processes, step: str) -> None:
    kill_deletion(registered, step)


@pytest.mark.parametrize("step", ["execute.journaled", "ledger.committed"])
def test_killed_while_deleting_a_model_on_servers(
    registered_on_servers: Processes, step: str
) -> None:
    kill_deletion(registered_on_servers, step)


def kill_deletion(processes: Processes, step: str) -> None:
    """After a restart the model is whole or gone; deleting it again is deleting it once."""
    processes.start_api(fault=f"{step}=kill")
    processes.more |= {"LETHE_TOKEN": processes.token, "LETHE_URL": processes.base_url}
    died = processes.cli("model", "delete", MODEL, "--yes", check=False)
    assert died.returncode != 0
    assert processes.api is not None
    assert processes.api.wait(timeout=60) == -9, "the step was never reached"
    begun = step not in ("ledger.appended", "execute.journaled")
    with stored(processes) as connection:
        assert count(connection, "log_entries", "event = 'model.deleted'") == begun
        assert count(connection, "models", "state = 'deleted'") == begun
        assert count(connection, "records") == (0 if begun else ROWS)
        readable = "kind IN ('head', 'state') AND wrapped_key IS NOT NULL"
        assert (count(connection, "artifacts", readable) == 0) == begun
    connection.engine.dispose()
    processes.start_api()
    processes.more |= {"LETHE_URL": processes.base_url}
    shown = processes.cli("model", "show", MODEL).stdout
    assert ("deleted" in shown) == begun
    processes.cli("model", "delete", MODEL, "--yes")
    with stored(processes) as connection:
        assert count(connection, "log_entries", "event = 'model.deleted'") == 1
        assert count(connection, "records") == count(connection, "subjects") == 0
    connection.engine.dispose()
