"""Poison in the broker, a frozen process, a clock that is ahead, a job that kills its worker."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx2
import pytest
from redis import Redis

from lethe.client import Client
from lethe.client.retry import RetryPolicy
from tests.app.test_broker import POISON
from tests.e2e.harness import Process, until
from tests.redteam.live.conftest import Target
from tests.small import MODEL


def readyz(base_url: str) -> tuple[int, dict[str, Any]]:
    answer = httpx2.get(f"{base_url}/readyz", timeout=60)
    return answer.status_code, answer.json()


def poison(target: Target, name: str, number: int) -> None:
    processes = target.processes
    if processes.broker_url.startswith("redis"):
        with Redis.from_url(processes.broker_url) as broker:
            broker.lpush("cpu", POISON[name])
    else:
        folder = processes.directory / "data" / "broker"
        (folder / f"!{number}.cpu.msg").write_bytes(POISON[name])


def test_poison_in_the_broker_ends_no_worker(target: Target) -> None:
    processes = target.processes
    for number, name in enumerate(POISON):
        poison(target, name, number)
    with processes.requester() as client:
        request = client.submit_erasure(MODEL, records=["r1"]).id
        until(lambda: client.status(request).state == "certified", "it", processes.worker)
    until(
        lambda: int(readyz(processes.base_url)[1].get("messages-refused", 0)) >= len(POISON),
        "the count",
        processes.worker,
    )
    assert target.fsck() == 0


def end(process: Process | None) -> None:
    if process is not None and process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def another_api(target: Target, fault: str) -> Iterator[tuple[Process, str]]:
    """Run a second API with a fault; yields it and its URL."""
    processes = target.processes
    first, url = processes.api, processes.base_url
    processes.api = None
    try:
        processes.start_api(fault)
        other, there = processes.api, processes.base_url
        assert other is not None
        processes.api, processes.base_url = first, url
        yield other, there
    finally:
        if processes.api is not first:
            end(processes.api)
            processes.api, processes.base_url = first, url
    end(other)


def test_a_frozen_api_with_the_logs_lock_stops_nobody_for_long(target: Target) -> None:
    processes = target.processes
    on_files = not processes.broker_url.startswith("redis")
    processes.more["LETHE_STALL_SECONDS"] = "15"
    with another_api(target, "ledger.appended=freeze") as (frozen, there):
        once = RetryPolicy(tries=1)

        def freeze() -> None:
            with (
                Client(there, "alice", processes.key, retry=once) as client,
                suppress(Exception),  # it may be answered, once the process goes on
            ):
                client.submit_erasure(MODEL, records=["r2"])

        sending = threading.Thread(target=freeze)
        sending.start()
        try:
            until(lambda: readyz(processes.base_url)[0] == 503, "the lock", processes.api)
            assert "lock" in readyz(processes.base_url)[1]["failed"]
            if on_files:  # nobody can take SQLite's lock away: it is said, and in time
                began = time.monotonic()
                with Client(processes.base_url, "alice", processes.key, retry=once) as client:
                    with pytest.raises(Exception, match=r"does not answer|503") as refused:
                        client.submit_erasure(MODEL, records=["r1"])
                    assert getattr(refused.value, "status", None) == 503
                assert time.monotonic() - began < 60
                os.kill(frozen.pid, signal.SIGCONT)
            patient = RetryPolicy(tries=20)
            with Client(processes.base_url, "alice", processes.key, retry=patient) as client:
                request = client.submit_erasure(MODEL, records=["r1"]).id
                until(lambda: client.status(request).state == "certified", "r1", processes.api)
            until(lambda: readyz(processes.base_url)[0] == 200, "readiness", processes.api)
        finally:
            os.kill(frozen.pid, signal.SIGCONT)
            sending.join(60)
    assert target.fsck() == 0


def test_a_worker_whose_clock_is_ahead_holds_a_model_no_longer(target: Target) -> None:
    processes = target.processes
    if not processes.broker_url.startswith("redis"):
        pytest.skip("on SQLite all processes are on one machine")
    end(processes.worker)
    processes.more["LETHE_TEST_HOURS_AHEAD"] = "6"
    processes.start_worker("execute.leased=kill")
    with processes.requester() as client:
        request = client.submit_erasure(MODEL, records=["r1"]).id
        ahead = processes.worker
        assert ahead is not None
        until(lambda: ahead.poll() is not None, "its death")
        del processes.more["LETHE_TEST_HOURS_AHEAD"]
        processes.start_worker()
        until(lambda: client.status(request).state == "certified", "it", processes.worker)
    assert target.fsck() == 0


def test_a_job_that_kills_each_worker_waits_for_a_decision(target: Target) -> None:
    processes = target.processes
    end(processes.worker)
    processes.more["LETHE_MAX_TRIES"] = "2"
    with processes.requester() as client:
        request = client.submit_erasure(MODEL, records=["r1"]).id
        started = 0

        def decided() -> bool:
            nonlocal started
            if processes.worker is None or processes.worker.poll() is not None:
                started += 1
                processes.start_worker("execute.leased=kill")
            return client.status(request).state == "needs-decision"

        until(decided, "a decision to be needed")
        assert 2 <= started <= 4
        assert processes.worker is not None
        assert processes.worker.poll() is None, "it was tried once more"
        shown = httpx2.get(f"{processes.base_url}/v1/requests/{request}", timeout=60).json()
        assert "died 2 times" in shown["reason"]
    assert target.fsck() == 0
