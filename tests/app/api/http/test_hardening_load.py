"""Many callers at once, and what the log of a real process says about a failure."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import QueuePool

from lethe.client.errors import ClientError
from models.database.session import make_engine, reading
from tests.e2e.harness import Processes, running
from tests.installation import Installation
from tests.small import MODEL, Caller, pack, rows

THREADS = 40  # what Starlette lends to endpoints at most
CALLERS = 90


def register(installation: Installation, number: int) -> int:
    caller = Caller(installation.caller.http, installation.caller.token, f"k{number}")
    return caller.register_key().status_code


def contribute(installation: Installation, number: int) -> int:
    arrays = {**rows(count=1, first=1000 + number), "clients": np.array(["c1"])}
    contributor = Caller(installation.caller.http, "", "contributor", installation.caller.key)
    path = f"/v1/models/{MODEL}/contributions"
    return contributor.signed("POST", path, pack(arrays), content_type="a/npz").status_code


@pytest.mark.parametrize(
    ("writer", "method", "call", "status"),
    [("ledger", "transact", register, 201), ("committer", "submit", contribute, 202)],
)
def test_whoever_waits_for_the_log_holds_no_connection(
    ready: Installation,
    monkeypatch: pytest.MonkeyPatch,
    writer: str,
    method: str,
    call: Callable[[Installation, int], int],
    status: int,
) -> None:
    bound = Caller(ready.caller.http, ready.caller.token, "contributor", ready.caller.key)
    assert bound.register_key(role="client").status_code == 201
    services = ready.services
    if call is contribute and services.engine.dialect.name == "sqlite":
        # There a signed call waits for the one writer with its nonce already.
        writer, method = "nonces", "spend"
    waiting = threading.Semaphore(0)
    target = getattr(services, writer)
    original = getattr(target, method)

    def counted(*arguments: Any, **options: Any) -> Any:
        waiting.release()
        return original(*arguments, **options)

    monkeypatch.setattr(target, method, counted)
    pool = services.engine.pool
    assert isinstance(pool, QueuePool)
    with ThreadPoolExecutor(CALLERS + 1) as callers:
        with services.ledger.turn():  # a writer that takes its time
            answers = [callers.submit(call, ready, number) for number in range(CALLERS)]
            for _ in range(THREADS):
                assert waiting.acquire(timeout=20), "not every thread came as far as the log"
            health = callers.submit(ready.caller.http.get, "/healthz")
            assert health.result(timeout=10).status_code == 200, "no thread is left for it"
            assert pool.checkedout() == 0
        assert {answer.result(timeout=60) for answer in answers} == {status}


def test_an_errors_text_holds_no_values(database_url: str) -> None:
    engine = make_engine(database_url)
    try:
        for connecting in (engine, reading(engine)):
            with connecting.connect() as connection, pytest.raises(SQLAlchemyError) as caught:
                connection.execute(text("SELECT :secret FROM nowhere"), {"secret": "jane"})
            assert "nowhere" in str(caught.value)
            assert "jane" not in str(caught.value)
    finally:
        engine.dispose()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with running(tmp_path / "live", "", "filesystem://") as made:
        yield made


def test_the_log_of_a_process_names_the_place_and_nobody(processes: Processes) -> None:
    processes.start_api()
    with processes.operator() as operator:
        operator.register_key(processes.key, keyid="alice")
    database = processes.directory / "data" / "lethe.db"
    with sqlite3.connect(database) as connection:
        connection.execute("DROP TABLE requester_keys")
    connection.close()
    with processes.requester() as requester, pytest.raises(ClientError):
        requester.submit_erasure(MODEL, records=["jane.doe@example.org"])
    answer = httpx2.get(
        f"{processes.base_url}/v1/keys?after=jane.doe",
        headers={"authorization": f"Bearer {processes.token}"},
    )
    assert answer.status_code == 500
    assert answer.json()["type"] == "urn:lethe:problem:internal"
    log = processes.directory / "api.log"
    deadline = time.monotonic() + 10
    while "unexpected OperationalError at" not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    processes.kill()
    written = log.read_text()
    for secret in ("alice", "jane.doe", "Traceback", "SELECT"):
        assert secret not in written
