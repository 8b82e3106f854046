"""Faults of the log, its copies and its witnesses."""

import fcntl
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2

from lethe.client.errors import ClientError
from tests.e2e.alerts.fault import Faults, Said
from tests.e2e.alerts.installation import REVIEWED, Watched
from tests.e2e.harness import Process, until

FAULTS = Faults()


@FAULTS.add(
    ("LetheReceiptsMissing", "LetheNotReady of guard", "LetheNotReady of checkpoint"),
    "another process holds the guard's lock, and a request is sent",
    "`/readyz` names the guard; that process is ended",
    "LetheLogLockSlow",  # who waits for the guard holds SQLite's lock for 5 s, and again
    "LetheNotReady of lock",
    "LetheScheduleAway",
    "LetheStageErrors",
)
def _(made: Watched) -> Iterator[None]:
    with (made.keys / "log.guard.json").open("rb") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        with suppress(ClientError):  # log-unpublished: stored, without a receipt
            made.submit()
        yield
        assert made.unready() >= {"guard", "checkpoint"}


@FAULTS.add(
    "LetheLogLockSlow",
    "another process holds SQLite's lock for two seconds again and again, while requests come and are withdrawn",
    "that process is ended",
    "LetheNotReady of lock",
    "LetheScheduleAway",
    "LetheStageErrors",
)
def _(made: Watched) -> Iterator[None]:
    over = threading.Event()

    def hold() -> None:
        while not over.is_set():
            with made.log_lock():
                time.sleep(2)
            time.sleep(0.2)

    def send() -> None:
        with made.requester() as client:
            while not over.is_set():
                with suppress(ClientError):
                    client.withdraw(made.submit(REVIEWED))  # or they reach the quota

    threads = [threading.Thread(target=one) for one in (hold, send)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def follow(made: Watched) -> Process:
    """Start `lethe backup follow`; return once it has followed."""
    beats = made.data / "followers"
    seen = {one: one.stat().st_mtime_ns for one in beats.glob("*.json")}
    with (made.processes.directory / "follower.log").open("ab") as output:
        into = str(made.processes.directory / "followed")
        command = ["backup", "follow", into, "--every", "1"]
        follower = made.processes.start(command, output, output)

    def is_done() -> bool:
        return any(seen.get(one) != one.stat().st_mtime_ns for one in beats.glob("*.json"))

    until(is_done, "its first round", follower)
    return follower


@FAULTS.add(
    "LetheFollowerLate",
    "`lethe backup follow --every 1` is killed",
    "`lethe doctor` names the directory; `lethe backup follow` is started again",
)
def _(made: Watched) -> Iterator[None]:
    follower = follow(made)
    os.killpg(follower.pid, signal.SIGKILL)
    follower.wait()
    yield
    said = made.processes.cli("doctor", "--json", check=False).stdout
    (found,) = (one for one in json.loads(said) if one["part"] == "followers")
    assert found["state"] == "fails"
    assert "followed" in found["detail"]
    follower = follow(made)
    yield
    os.killpg(follower.pid, signal.SIGTERM)
    follower.wait()
    shutil.rmtree(made.data / "followers")  # it is given up


@FAULTS.add(
    "LetheWitnessesMissing",
    "the only witness is killed, and a request is sent",
    "`lethe log witnesses` names it; it is started, and the worker again, which would ask it "
    "within 5 minutes",
)
def _(made: Watched) -> Iterator[None]:
    made.be_witnessed()
    made.until_state(made.submit(), "certified")
    assert made.witness is not None
    made.witness.kill()
    made.witness.wait()
    made.submit()
    yield
    (found,) = json.loads(made.processes.cli("log", "witnesses", "--json").stdout)["witnesses"]
    assert found["problem"] == "down"
    made.start_witness()
    made.restart_worker()


@FAULTS.add(
    ("LetheLogForked", "LetheNotReady of witnesses"),
    "a copy of the installation appends other entries, and the witness cosigns these",
    "`lethe log fsck` confirms it; the service is stopped, and started on the copy's data: "
    "its history is the acknowledged one",
    "LetheWitnessesMissing",
)
def _(made: Watched) -> Iterator[None]:
    made.be_witnessed()
    said = Said.by(made, "api")
    with forked(made) as copy:
        yield
        assert said.times("not ready: witnesses: ") == 1
        for command in ("fsck", "witnesses"):
            assert made.processes.cli("log", command, check=False).returncode == 1
        made.stop_api()
        made.stop_worker()
        made.data.rename(made.data.with_name("data.forked"))
        (copy / "data").rename(made.data)
        made.restart_api()
        made.restart_worker()
        made.processes.cli("log", "fsck")


def is_witnessed(base_url: str) -> bool:
    """Return whether the latest checkpoint is the one that the witness cosigned."""
    latest, cosigned = (
        httpx2.get(f"{base_url}/v1/log/{name}", timeout=30).text.splitlines()[1:2]
        for name in ("checkpoint", "witnessed")
    )
    return latest == cosigned


@contextmanager
def forked(made: Watched) -> Iterator[Path]:
    """Have the witness cosign what a copy logged; the log itself goes on after that.

    Yields the copy's directory.
    """
    processes = made.processes
    made.stop_api()
    made.stop_worker()
    copy = processes.directory.with_name("copy")
    shutil.copytree(processes.directory / "data", copy / "data")
    before, port, more = processes.directory, processes.port, dict(processes.more)
    processes.directory, processes.port = copy, 0
    del processes.more["LETHE_WORKER_METRICS"]
    try:
        processes.start_api()
        processes.start_worker()
        request = made.submit()
        made.until_state(request, "certified")
        until(lambda: is_witnessed(processes.base_url), "its cosignature", processes.worker)
    finally:
        processes.kill()
        processes.directory, processes.port, processes.more = before, port, more
    made.restart_api()
    made.restart_worker()
    for _ in range(2):
        made.until_state(made.submit(), "certified")
    yield copy
